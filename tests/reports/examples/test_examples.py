"""The example queries run, are documented, and say what a plain loop over the events says."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store
from bbrscope.reports import examples
from bbrscope.reports.cli import cli
from click.testing import CliRunner

UNSET = 2**32 - 1


def _rows(store: Store, query: str) -> list[dict[str, Any]]:
    result = store.con.execute(query)
    names = [part[0] for part in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _example(store: Store, name: str) -> list[dict[str, Any]]:
    return _rows(store, examples.text(name))


@pytest.fixture
def events(shipped: Store) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The events of each flow from its init on, as the kernel left them."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in _rows(
        shipped,
        "SELECT r.run, r.version, e.flow, e.seq, e.ns, e.kind::VARCHAR AS kind, bbr_mode, tp_lost,"
        " bbr_cycle_idx, bbr_lt_use_bw, bbr_inflight_hi, bbr_inflight_lo, bbr_bw_lo,"
        " bbr_min_rtt_us, rs_rtt_us FROM events e JOIN runs r USING (run_id)"
        " JOIN flows f USING (run_id, flow) WHERE e.seq >= f.pre_init ORDER BY run_id, flow, seq",
    ):
        found.setdefault((row["run"], row["flow"]), []).append(row)
    return found


@pytest.mark.parametrize("name", examples.names())
def test_every_example_runs_and_says_what_it_asks(shipped: Store, name: str) -> None:
    text = examples.text(name)
    assert text.startswith("-- ")
    assert not [line for line in text.splitlines() if ";" in line and line[:2] != "--"]
    _example(shipped, name)


def test_there_are_a_dozen_and_the_command_prints_and_runs_them(shipped_path: Path) -> None:
    assert len(examples.names()) >= 12
    runner = CliRunner()
    listed = runner.invoke(cli, ["sql", "--examples"], catch_exceptions=False)
    assert all(f"-- {name}\n-- " in listed.output for name in examples.names())
    args = ["sql", "--store", str(shipped_path), "--example", "startup", "--format", "csv"]
    assert "DRAIN_ENTER" in runner.invoke(cli, args, catch_exceptions=False).output
    wrong = runner.invoke(cli, [*args[:-3], "nosuch"])
    assert (wrong.exit_code, "there are ack_lag" in wrong.output) == (2, True)
    assert runner.invoke(cli, ["sql"]).exit_code == 2


def test_startup_is_as_long_as_the_mode_says(
    shipped: Store, events: dict[tuple[str, int], list[dict[str, Any]]]
) -> None:
    rows = _example(shipped, "startup")
    assert len(rows) == 4
    for row in rows:
        flow = events[row["run"], row["flow"]]
        # A state is what the next event finds: it came with the event before.
        end = next(i for i, event in enumerate(flow) if event["bbr_mode"] != 0) - 1
        assert row["ms"] == round((flow[end]["ns"] - flow[0]["ns"]) / 1e6, 1), row["run"]


def test_ends_of_up_are_all_counted(
    shipped: Store, events: dict[tuple[str, int], list[dict[str, Any]]]
) -> None:
    counted: Counter[tuple[str, int]] = Counter()
    for key, flow in events.items():
        up = [
            e["bbr_mode"] == 2 and e["bbr_cycle_idx"] == 0 and not e["bbr_lt_use_bw"] for e in flow
        ]
        counted[key] = sum(one and not other for one, other in itertools.pairwise(up))
    answer: Counter[tuple[str, int]] = Counter()
    for row in _example(shipped, "time_in_up"):
        answer[row["run"], row["flow"]] += row["times"]
    assert answer == +counted
    assert sum(answer.values()) > 50


def test_every_move_of_a_bound_has_its_reason(
    shipped: Store, events: dict[tuple[str, int], list[dict[str, Any]]]
) -> None:
    counted: Counter[tuple[str, int, str, bool]] = Counter()
    for key, flow in events.items():
        for bound in ("inflight_hi", "inflight_lo", "bw_lo"):
            values = [event[f"bbr_{bound}"] for event in flow]
            for old, new in itertools.pairwise(values):
                if old is not None and old != new:
                    counted[*key, bound, new < old] += 1
    answer: Counter[tuple[str, int, str, bool]] = Counter()
    for row in _example(shipped, "bounds_and_reasons"):
        assert row["reason"]
        answer[row["run"], row["flow"], row["bound"], True] += row["down"]
        answer[row["run"], row["flow"], row["bound"], False] += row["up"]
    assert +answer == counted
    assert sum(answer.values()) > 50


def test_min_rtt_is_compared_with_the_smallest_rtt(
    shipped: Store, events: dict[tuple[str, int], list[dict[str, Any]]]
) -> None:
    rows = _example(shipped, "min_rtt_inflation")
    assert len(rows) == 4
    for row in rows:
        flow = [e for e in events[row["run"], row["flow"]] if e["kind"] == "main"]
        assert (
            row["smallest_rtt_ms"] == min(e["rs_rtt_us"] for e in flow if e["rs_rtt_us"] > 0) / 1e3
        )
        held = [e["bbr_min_rtt_us"] for e in flow if e["bbr_min_rtt_us"] < UNSET]
        assert row["min_rtt_max_ms"] == max(held) / 1e3


def test_lossy_rounds_lost_more_than_2_percent_and_no_others_did(shipped: Store) -> None:
    rows = _example(shipped, "lossy_rounds")
    worst = _rows(shipped, "SELECT lost, delivered FROM rounds WHERE lost > 0")
    rates = sorted((r["lost"] / (r["lost"] + r["delivered"]) for r in worst), reverse=True)
    wanted = [round(rate, 4) for rate in rates if rate > 0.02][:50]
    assert [row["loss_rate"] for row in rows] == wanted
    assert len(wanted) > 20


def test_packets_examples_agree_with_the_captures_own_counts(shipped: Store) -> None:
    (capture,) = _rows(shipped, "SELECT * FROM captures WHERE mains > 0")
    (lag,) = _example(shipped, "ack_lag")
    assert lag["acks"] <= capture["mains_matched"] < lag["acks"] + 10
    assert lag["least_us"] >= capture["lag_min_ns"] / 1e3 * 0.5
    (repair,) = _example(shipped, "loss_repair")
    assert (repair["lost"], repair["sent_again"]) == (capture["losses"], capture["losses_resent"])
    queue = _example(shipped, "queue_at_up_exit")
    limit = _rows(shipped, "SELECT max(backlog_pkts) AS most FROM queue_samples")[0]["most"]
    ups = {row["run"]: row["times"] for row in queue}
    assert ups["v2_single_1bdp"] > 10
    assert 0 < max(row["most_packets"] for row in queue) <= limit


def test_slowest_flows_are_in_order_and_shares_are_shares(shipped: Store) -> None:
    rows = _example(shipped, "slowest_flows")
    rates = [row["goodput_mbps"] for row in rows]
    assert rates == sorted(rates)
    assert len(rows) == 4
    assert all(0 < row["share_of_time"] <= 1 for row in rows)
    (cost, *_) = [r for r in _example(shipped, "probe_rtt_cost") if r["run"] == "v2_single_1bdp"]
    assert (cost["times"], cost["goodput_mbps"] < cost["overall_mbps"]) == (4, True)


@pytest.mark.slow
def test_competitors_and_marks_on_the_recordings_that_have_them(
    traces: Path, tmp_path: Path
) -> None:
    """CUBIC's losses take inflight_hi down; CE marks are those that tp.delivered_ce counts."""
    with open_store(tmp_path / "two.duckdb") as store:
        for name in ("v2_vs_cubic_2bdp", "v3_x_ecn_low"):
            ingest(store, traces / name)
        ratchet = [r for r in _example(store, "inflight_hi_ratchet") if r["before"] is not None]
        assert len(ratchet) > 5
        assert ratchet[-1]["after_2_s"] < ratchet[0]["before"]
        answer = _rows(store, "SELECT sum(ce)::BIGINT AS ce FROM rounds WHERE run = 'v3_x_ecn_low'")
        grown = _rows(
            store,
            "SELECT sum(last - first)::BIGINT AS ce FROM (SELECT max(tp_delivered_ce) AS last,"
            " min(tp_delivered_ce) AS first FROM events JOIN flows USING (run_id, flow)"
            " JOIN runs USING (run_id) WHERE run = 'v3_x_ecn_low' AND seq >= pre_init"
            " AND kind = 'main' GROUP BY run_id, flow)",
        )
        assert answer[0]["ce"] == grown[0]["ce"] > 50
        assert all(0 < row["ce_rate"] <= 1 for row in _example(store, "marked_rounds"))
        shares = _example(store, "fair_shares")
        assert {row["flows"] for row in shares} == {2}
        assert all(0.5 <= row["least_jain"] <= row["mean_jain"] <= 1 for row in shares)
