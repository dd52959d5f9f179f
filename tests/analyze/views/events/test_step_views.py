"""What an event brings counts for the phase that it found; who counts, since when, on what path."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store

MODES = {0: "STARTUP", 1: "DRAIN", 3: "PROBE_RTT"}
CYCLE = {0: "PROBE_BW_UP", 1: "PROBE_BW_DOWN", 2: "PROBE_BW_CRUISE", 3: "PROBE_BW_REFILL"}


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A v3 flow that loses packets in several phases; not replayed."""
    with open_store(tmp_path_factory.mktemp("steps") / "s.duckdb") as store:
        ingest(store, fixtures.path("v3_x_tlp5"))
        yield store


def losses_by_phase(store: Store) -> Counter[str]:
    """Straight from the events: tp.lost grew by so much when the callback found this phase."""
    query = (
        "SELECT tp_lost, bbr_mode, bbr_cycle_idx FROM events"
        " WHERE kind <> 'init' ORDER BY flow, seq"
    )
    counted: Counter[str] = Counter()
    before = None
    for lost, mode, cycle in store.con.execute(query).fetchall():
        if before is not None and lost > before:
            counted[CYCLE[cycle] if mode == 2 else MODES[mode]] += lost - before
        before = lost
    return counted


def test_losses_count_for_the_phase_in_which_they_were_detected(lossy: Store) -> None:
    expected = losses_by_phase(lossy)
    # A loss in PROBE_BW_UP ends it: charged to the phase after, UP would have none.
    assert expected["PROBE_BW_UP"] > 0
    steps = "SELECT phase, sum(lost) FROM flow_steps GROUP BY ALL HAVING sum(lost) > 0"
    assert dict(lossy.con.execute(steps).fetchall()) == expected
    metrics = "SELECT phase, lost_packets FROM metrics_by_phase WHERE lost_packets > 0"
    assert dict(lossy.con.execute(metrics).fetchall()) == expected


def test_all_of_a_flow_is_in_one_of_its_phases(lossy: Store) -> None:
    sums = "sum(lost_packets), sum(delivered_packets), sum(acked_bytes)"
    by_phase = lossy.con.execute(f"SELECT {sums} FROM metrics_by_phase").fetchall()
    assert by_phase == lossy.con.execute(f"SELECT {sums} FROM metrics_by_flow").fetchall()


def test_the_headers_of_ipv6_take_their_part_of_the_link(lossy: Store) -> None:
    """A segment of 1448 bytes is a frame of 1514; of the same by IPv6, 1534."""
    query = (
        "SELECT flow_steps.frame, utilisation FROM flow_steps JOIN metrics_by_flow USING (run_id)"
        " JOIN flows USING (run_id) WHERE mss = 1448 LIMIT 1"
    )
    found = {}
    for address in ("10.9.0.2", "2001:db8::1"):
        with lossy.transaction() as con:
            con.execute("""UPDATE runs SET setup = '{"rate": "10mbit"}'""")
            con.execute("UPDATE flows SET remote_address = ?", [address])
        found[address] = lossy.con.execute(query).fetchall()[0]
    (frame, by_ipv4), (longer, by_ipv6) = found.values()
    assert (frame, longer) == (1448 + 66, 1448 + 86)
    assert by_ipv6 / by_ipv4 == pytest.approx(1534 / 1514)


def test_a_senders_view_says_why_a_flow_does_not_count(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, fixtures.path("v2_single_1bdp"))
        rows = store.con.execute("SELECT flow, counts, why_not FROM senders").fetchall()
    # iperf3's data connection; its control connection, as it was captured; the server's end.
    assert sorted(row for row in rows if row[0] is not None) == [
        (1, True, None),
        (2, False, "no data"),
    ]
    assert [row[1:] for row in rows if row[0] is None] == [(False, "little data")]


TWO_PATHS = """
UPDATE runs SET setup = '{"delay": "20", "rate": "10mbit"}';
UPDATE events SET rs_rtt_us = 20500 + seq % 9000, bbr_min_rtt_us = 20500 WHERE flow = 1;
UPDATE events SET rs_rtt_us = 60500 + seq % 9000, bbr_min_rtt_us = 60500 WHERE flow = 2;
"""


def two_paths(store: Store) -> duckdb.DuckDBPyConnection:
    """A recording of one flow twice, the second on a path that is 40 ms longer."""
    ingest(store, fixtures.path("v3_x_tlp5"))
    for table in ("events", "flows"):
        store.con.execute(f"INSERT INTO {table} SELECT * REPLACE (2 AS flow) FROM {table}")
    store.con.execute(TWO_PATHS)
    return store.con


def test_a_flows_base_rtt_has_its_own_extra_delay(tmp_path: Path) -> None:
    """The other flow saw the path empty, at 20 ms, while this one never saw less than 60."""
    with open_store(tmp_path / "s.duckdb") as store:
        con = two_paths(store)
        query = "SELECT flow, base_rtt_us, source FROM base_rtts ORDER BY flow"
        assert con.execute(query).fetchall() == [(1, 20000, "setup"), (2, 60500, "least RTT")]
        # Seen by nobody, the queue may be what makes the path longer: the setup holds.
        con.execute("UPDATE events SET rs_rtt_us = rs_rtt_us + 30000")
        assert con.execute(query).fetchall() == [(1, 20000, "setup"), (2, 20000, "setup")]


@pytest.mark.parametrize(("gone_ns", "base"), [(1, (20000, "setup")), (0, (60500, "least RTT"))])
def test_a_path_that_was_empty_when_a_flow_was_gone_tells_nothing_of_its_own(
    tmp_path: Path, gone_ns: int, base: tuple[int, str]
) -> None:
    """Flow 1 sees it empty once, in a second in which flow 2 had been there, but ended before."""
    with open_store(tmp_path / "s.duckdb") as store:
        con = two_paths(store)
        con.execute("UPDATE events SET rs_rtt_us = 70000, bbr_min_rtt_us = 70000 WHERE flow = 1")
        once = "flow = 1 AND kind = 'main' AND ns % 1000000000 > 500000000 AND seq > 2000"
        con.execute(
            "UPDATE events SET rs_rtt_us = 20500 WHERE flow = 1 AND seq ="
            f" (SELECT min(seq) FROM events WHERE {once})"
        )
        con.execute(
            "UPDATE flows SET last_ns = (SELECT ns - ? FROM events"
            " WHERE flow = 1 AND rs_rtt_us = 20500) WHERE flow = 2",
            [gone_ns],
        )
        query = "SELECT base_rtt_us, source FROM base_rtts WHERE flow = 2"
        assert con.execute(query).fetchall() == [base]


@pytest.mark.parametrize(
    ("jitter", "base"),
    [
        ("5000us", (20000, "setup")),
        ("5ms", (20000, "setup")),
        ("0.005s", (20000, "setup")),
        ("1ms", (15500, "least RTT")),
        ("", (15500, "least RTT")),
    ],
)
def test_fast_packets_of_a_path_with_jitter_make_it_no_shorter(
    tmp_path: Path, jitter: str, base: tuple[int, str]
) -> None:
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, fixtures.path("v3_x_tlp5"))
        setup = json.dumps({"delay": "20", "jitter": jitter})
        store.con.execute("UPDATE runs SET setup = ?", [setup])
        store.con.execute("UPDATE events SET rs_rtt_us = 15500, bbr_min_rtt_us = 15500")
        found = store.con.execute("SELECT base_rtt_us, source FROM base_rtts").fetchall()
        assert found == [base]


@pytest.mark.parametrize(
    ("setup", "base"),
    [({"delay": "20", "reorder": "8:5"}, (28_000, "setup")), ({}, (28_345, "least RTT"))],
)
def test_packets_that_overtake_others_make_a_path_no_shorter(
    tmp_path: Path, setup: dict[str, str], base: tuple[int, str]
) -> None:
    """All but one in fifty take 8 ms more; of those that do not, SACKs tell."""
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, fixtures.path("v3_x_tlp5"))
        store.con.execute("UPDATE runs SET setup = ?", [json.dumps(setup)])
        overtook = "seq % 50 = 0"
        store.con.execute(
            f"UPDATE events SET rs_rtt_us = CASE WHEN {overtook} THEN 20345 ELSE 28345 END,"
            " rs_is_retrans = 0, bbr_min_rtt_us = 20345,"
            f" tp_sacked_out = CASE WHEN {overtook} THEN 1 ELSE 0 END"
        )
        found = store.con.execute("SELECT base_rtt_us, source FROM base_rtts").fetchall()
        if not setup:
            assert found == [(20_345, "least RTT")]
        store.con.execute(
            "UPDATE events SET kind = 'set_state', new_state = 0, icsk_ca_state = 1"
            " WHERE seq % 50 = 1"
        )
        found = store.con.execute("SELECT base_rtt_us, source FROM base_rtts").fetchall()
        assert found == [base]


@pytest.mark.parametrize(
    ("others_us", "base_us"), [(45_985, 45_985), (46_000, 45_000), (46_001, 45_000)]
)
def test_an_rtt_by_a_timestamp_is_up_to_a_millisecond_short(
    tmp_path: Path, others_us: int, base_us: int
) -> None:
    """45 ms by timestamps are 45.985; what is more than a tick above them is a queue's."""
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, fixtures.path("v3_x_tlp5"))
        told = "CASE WHEN seq % 50 = 0 THEN 45000 ELSE $us END"
        store.con.execute(
            f"UPDATE events SET rs_rtt_us = {told}, bbr_min_rtt_us = {told}", {"us": others_us}
        )
        found = store.con.execute("SELECT base_rtt_us, source FROM base_rtts").fetchall()
        assert found == [(base_us, "least RTT")]


def test_flows_are_compared_while_all_of_them_are_there(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, fixtures.path("v3_x_tlp5"))
        con = store.con
        assert con.execute("FROM comparison_windows").fetchall() == []
        shift = "* REPLACE (2 AS flow, ns + 3300000000 AS ns"
        con.execute(f"INSERT INTO events SELECT {shift}) FROM events")
        con.execute(
            "INSERT INTO flows SELECT * REPLACE (2 AS flow, first_ns + 3300000000 AS first_ns,"
            " last_ns + 3300000000 AS last_ns) FROM flows"
        )
        (window,) = con.execute(
            "SELECT flows, (start_ns - zero_ns) / 1e9, first_s, last_s, (end_ns - zero_ns) / 1e9"
            " FROM comparison_windows"
        ).fetchall()
        assert window[:3] == (2, 3.3, 4)
        assert window[3] + 1 <= window[4] < window[3] + 2
        shared = con.execute("SELECT seconds, flows FROM sharing WHERE t_s IS NULL").fetchall()
        assert shared == [(window[3] - 3, 2)]
