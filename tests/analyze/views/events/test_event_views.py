"""The views agree with the events they are made from, on every version and on nothing at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bbrscope.analyze.views.events.binding_views import BINDINGS
from bbrscope.analyze.views.registry import VIEWS as REGISTERED_VIEWS
from bbrscope.analyze.views.registry import relation
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store

ALL_VIEWS = [view.name for view in REGISTERED_VIEWS]
VIEWS = """states transitions phases inflight_hi_history bounds_history rounds flow_summary repairs
decision_log binding binding_summary""".split()


@pytest.fixture(params=["shipped", pytest.param("all_runs", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest) -> Store:
    """First the shipped recordings, then (slow) every recording."""
    found: Store = request.getfixturevalue(request.param)
    return found


def rows(store: Store, sql: str, *values: object) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = store.con.execute(sql, list(values)).fetchall()
    return found


@pytest.mark.parametrize("name", ALL_VIEWS)
def test_every_view_is_documented_column_by_column(shipped: Store, name: str) -> None:
    view = relation(name)
    assert view is not None
    described = [(row[0], row[1]) for row in rows(shipped, f"DESCRIBE {name}")]
    assert described == [(column.name, column.type) for column in view.columns]
    assert view.meaning
    assert all(column.meaning for column in view.columns)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(tmp_path_factory.mktemp("empty") / "empty.duckdb") as store:
        yield store


@pytest.mark.parametrize("name", ALL_VIEWS)
def test_every_view_runs_on_an_empty_store(empty: Store, name: str) -> None:
    # Only what is said of every rung needs no run.
    assert (rows(empty, f"FROM {name}") == []) == (name != "rungs")


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_has_rows_of_every_version_that_can_have_them(shipped: Store, name: str) -> None:
    found = {row[0] for row in rows(shipped, f"SELECT DISTINCT run FROM {name}")}
    runs = rows(shipped, "SELECT run, version FROM runs")
    # The shipped recording of v1 is older than rows K.
    only_v2_v3 = name in ("inflight_hi_history", "bounds_history", "repairs")
    assert {run for run, version in runs if version != "v1" or not only_v2_v3} == found


@pytest.mark.parametrize("name", [n for n in VIEWS if n not in ("binding_summary", "flow_summary")])
def test_a_limit_holds_whatever_the_filter(shipped: Store, name: str) -> None:
    """DuckDB 2.0 forgets a LIMIT above a window above a left join; the views avoid that shape."""
    view = relation(name)
    assert view is not None
    names = {column.name for column in view.columns}
    order = next(n for n in ("seq", "start_ns", "round", "ns") if n in names)
    time = next(n for n in ("t_ns", "ns") if n in names)
    flow = rows(shipped, "SELECT run, run_id, flow FROM flows JOIN runs USING (run_id)")[0]
    for wanted in ("run_id = $2 AND flow = $3", "run = $1 AND run_id = $2 AND flow = $3"):
        for sort in ("DESC", "ASC"):
            sql = (
                f"SELECT {order} FROM {name} WHERE {wanted} AND {time} >= 0 AND $1 <> ''"
                f" ORDER BY {order} {sort} LIMIT 1"
            )
            assert len(rows(shipped, sql, *flow)) <= 1


def test_phases_tile_each_flow_without_hole_or_overlap(store: Store) -> None:
    broken = rows(
        store,
        "SELECT run, flow, seq FROM (SELECT *, lead(start_ns) OVER w AS next_ns,"
        " lead(phase) OVER w AS next_phase FROM phases"
        " WINDOW w AS (PARTITION BY run, flow ORDER BY seq))"
        " WHERE next_ns <> end_ns OR next_phase = phase OR duration_ns <> end_ns - start_ns",
    )
    assert broken == []
    ends = rows(
        store,
        "SELECT f.run_id, f.flow FROM flows f LEFT JOIN (SELECT run_id, flow,"
        " min(start_ns) AS first, max(end_ns) AS last, sum(events) AS events FROM phases"
        " GROUP BY ALL) p USING (run_id, flow)"
        " JOIN events e ON e.run_id = f.run_id AND e.flow = f.flow AND e.seq = f.pre_init"
        " WHERE p.first IS DISTINCT FROM e.ns OR p.last IS DISTINCT FROM f.last_ns"
        " OR p.events IS DISTINCT FROM f.events - f.pre_init",
    )
    assert ends == []


def test_phases_say_what_the_events_say(store: Store) -> None:
    """An independent look-up: mode of every event against the phase that covers it."""
    wrong = rows(
        store,
        "SELECT e.run_id, e.flow, e.seq FROM events e JOIN flows f USING (run_id, flow)"
        " ASOF JOIN phases p ON p.run_id = e.run_id AND p.flow = e.flow AND p.seq < e.seq"
        " WHERE e.seq > f.pre_init"
        " AND ['STARTUP', 'DRAIN', 'PROBE_BW', 'PROBE_RTT'][e.bbr_mode + 1] <>"
        " CASE WHEN p.phase LIKE 'PROBE_BW%' THEN 'PROBE_BW' ELSE p.phase END"
        # the event after a gap is the first to see the phase that began in the gap
        " AND (e.run_id, e.flow, e.seq - 1) NOT IN (SELECT (run_id, flow, seq) FROM gaps)",
    )
    assert wrong == []


def test_every_transition_and_change_of_a_bound_has_its_decision(store: Store) -> None:
    for view in ("transitions", "bounds_history", "inflight_hi_history"):
        unexplained = rows(
            store,
            f"SELECT run, flow, seq FROM {view} WHERE name IS NULL"
            " OR code IS NULL AND name NOT IN ('GAP', 'MID_FLOW')",
        )
        assert unexplained == []
        gaps = rows(
            store,
            f"SELECT DISTINCT run FROM {view} t WHERE name = 'GAP' AND NOT EXISTS (FROM gaps g"
            " WHERE g.run_id = t.run_id AND g.flow = t.flow AND g.seq = t.seq - 1)",
        )
        assert gaps == []


def test_the_decisions_evidence_is_the_change_itself(store: Store) -> None:
    """Old and new value named by the decision are those of the kernel's own state."""
    wrong = rows(
        store,
        "SELECT h.run, h.flow, h.seq, h.bound, h.old, h.new FROM bounds_history h"
        " JOIN decision_codes c USING (code) WHERE h.name <> 'GAP' AND ("
        " list_position(c.evidence, 'new') > 0 AND"
        " [h.e0, h.e1, h.e2, h.e3][list_position(c.evidence, 'new')] <> h.new"
        " OR list_position(c.evidence, 'new_bw') > 0 AND h.bound = 'bw_lo' AND"
        " [h.e0, h.e1, h.e2, h.e3][list_position(c.evidence, 'new_bw')] <> h.new)",
    )
    assert wrong == []


def test_bindings_add_up_to_the_flow_and_to_each_phase(store: Store) -> None:
    parts = rows(
        store,
        "SELECT run, flow, phase, sum(share) FROM binding_summary GROUP BY ALL"
        " HAVING abs(sum(share) - 1) > 1e-9",
    )
    assert parts == []
    phases = (
        "SELECT run, flow, phase, sum(duration_ns) AS ns FROM phases GROUP BY ALL HAVING ns > 0"
    )
    bindings = (
        "SELECT run, flow, phase, sum(duration_ns) FROM binding_summary WHERE phase <> 'ALL'"
        " GROUP BY ALL"
    )
    assert sorted(rows(store, bindings)) == sorted(rows(store, phases))
    known = {row[0] for row in rows(store, "SELECT DISTINCT binding FROM binding")}
    assert known <= set(BINDINGS)


def test_a_full_window_is_bound_by_what_capped_it(store: Store) -> None:
    """The bound told from the state is the one that the kernel's last branch applied."""
    wrong = rows(
        store,
        "SELECT b.run, c.name, b.binding, count(*) FROM decisions d"
        " JOIN decision_codes c USING (code) JOIN binding b USING (run_id, flow, seq)"
        " WHERE c.name IN ('CWND_CAP_HI', 'CWND_CAP_HEADROOM', 'CWND_CAP_LO')"
        " AND b.binding IN ('inflight_hi', 'inflight_hi_headroom', 'inflight_lo', 'cwnd_target',"
        " 'recovery') AND b.binding <> CASE c.name WHEN 'CWND_CAP_HI' THEN 'inflight_hi'"
        " WHEN 'CWND_CAP_LO' THEN 'inflight_lo' ELSE 'inflight_hi_headroom' END GROUP BY ALL",
    )
    assert wrong == []


@pytest.mark.slow
def test_gaps_are_not_bridged(all_runs: Store) -> None:
    wrong = rows(
        all_runs,
        "SELECT count(*) FROM gaps JOIN binding USING (run_id, flow, seq)"
        " WHERE binding <> 'unknown'",
    )
    assert wrong == [(0,)]
    after = rows(
        all_runs,
        "SELECT count(*) FROM gaps g JOIN states s USING (run_id, flow, seq)"
        " WHERE s.kind <> 'init' AND s.phase IS NOT NULL",
    )
    assert after == [(0,)]


def test_rounds_count_every_delivered_packet_once(store: Store) -> None:
    wrong = rows(
        store,
        "WITH first AS (SELECT run_id, flow, min(seq) AS seq FROM rounds GROUP BY ALL),"
        " acked AS (SELECT e.run_id, e.flow, sum(e.rs_acked_sacked) AS n FROM events e"
        " JOIN first f ON f.run_id = e.run_id AND f.flow = e.flow AND e.seq >= f.seq GROUP BY ALL)"
        " SELECT run_id, flow FROM acked JOIN (SELECT run_id, flow, sum(delivered) AS n"
        " FROM rounds GROUP BY ALL) r USING (run_id, flow) WHERE acked.n <> r.n",
    )
    assert wrong == []


def test_flow_summary_counts_what_every_ack_reported(store: Store) -> None:
    """The growth of tp.delivered against the sum of rs.acked_sacked, where no ACK is missing."""
    wrong = rows(
        store,
        "SELECT s.run, s.flow, s.delivered, t.acked FROM flow_summary s JOIN (SELECT run_id, flow,"
        " sum(rs_acked_sacked) AS acked FROM events JOIN flows f USING (run_id, flow)"
        " WHERE events.kind = 'main' AND events.seq >= f.pre_init GROUP BY ALL) t"
        " USING (run_id, flow) WHERE s.delivered <> t.acked AND s.gaps = 0",
    )
    assert wrong == []


def test_shares_of_modes_add_up(store: Store) -> None:
    wrong = rows(
        store,
        "SELECT run, flow FROM flow_summary WHERE abs(share_startup + share_drain + share_probe_bw"
        " + share_probe_rtt - 1) > 1e-9",
    )
    assert wrong == []


def test_a_run_is_chosen_by_name_or_number_alike(shipped: Store) -> None:
    for name in VIEWS:
        by_name = f"SELECT count(*) FROM {name} WHERE run = 'v2_single_1bdp'"
        by_id = (
            f"SELECT count(*) FROM {name} WHERE run_id ="
            " (SELECT run_id FROM runs WHERE run = 'v2_single_1bdp')"
        )
        assert rows(shipped, by_name) == rows(shipped, by_id)


def test_an_older_store_read_only_gets_this_versions_views(
    shipped_path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "older.duckdb"
    copy.write_bytes(shipped_path.read_bytes())
    with open_store(copy) as writable:
        writable.con.execute("DROP VIEW phases")
        writable.con.execute("DELETE FROM meta WHERE key = 'views'")
    before = copy.read_bytes()
    with open_store(copy, read_only=True) as reader:
        assert rows(reader, "SELECT count(*) > 0 FROM phases") == [(True,)]
    assert copy.read_bytes() == before
    with open_store(copy) as writable:
        assert rows(writable, "SELECT count(*) FROM duckdb_views() WHERE view_name = 'phases'") == [
            (1,)
        ]


def test_a_probe_ended_by_its_queue_had_as_much_in_flight_as_is_told(shipped: Store) -> None:
    found = rows(
        shipped,
        "SELECT d.e0, d.e1, c.evidence FROM decisions d JOIN decision_codes c USING (code)"
        " WHERE c.name = 'DOWN_BY_QUEUE'",
    )
    assert len(found) > 5
    for in_net, target, evidence in found:
        assert evidence == ["in_net", "target"]
        assert in_net >= target
