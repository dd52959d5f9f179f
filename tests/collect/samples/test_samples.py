"""Rung tcp_probe in the store: its samples show the phases that the callbacks would have shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.bundle.rungs import LADDER
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store

MakeBundle = Callable[..., Path]
RUNS = ("v1_x_lt", "v3_x_tlp5")


@pytest.fixture
def sampled(sampled_path: Path) -> Iterator[Store]:
    with open_store(sampled_path, read_only=True) as store:
        yield store


@pytest.mark.parametrize("run", RUNS)
def test_a_sample_has_the_state_of_its_moment(sampled: Store, run: str) -> None:
    """Against the main() calls that the samples were made of, field by field."""
    names = [row[0] for row in sampled.con.execute("DESCRIBE events").fetchall()]
    state = [name for name in names if name.startswith(("bbr_", "tp_", "sk_", "icsk_"))]
    chosen = ", ".join(f"e.{name}" for name in ("ns", *state))
    query = f"SELECT {chosen} FROM events e JOIN runs r USING (run_id) WHERE r.run = ? AND kind = ?"
    truth = sampled.con.execute(f"{query} ORDER BY flow, ns", [run, "main"]).fetchall()
    found = sampled.con.execute(f"{query} ORDER BY flow, ns", [f"{run}_sampled", "sample"])
    assert truth
    assert found.fetchall() == truth


@pytest.mark.parametrize("run", RUNS)
def test_samples_show_the_phase_changes_without_reasons(sampled: Store, run: str) -> None:
    """Between the samples where it changed lies a change that the callbacks recorded."""
    query = (
        "SELECT flow, ns, to_phase, uncertain_ns, name, code FROM transitions"
        " WHERE run = ? AND from_phase IS NOT NULL ORDER BY flow, seq"
    )
    truth = sampled.con.execute(query, [run]).fetchall()
    found = sampled.con.execute(query, [f"{run}_sampled"]).fetchall()
    seen = sampled.con.execute(
        "SELECT flow, ns, phase_before FROM states WHERE run = ? AND kind = 'main'"
        " ORDER BY flow, ns",
        [run],
    ).fetchall()
    changes = [
        (flow, ns, after)
        for (flow, ns, before), (again, _, after) in pairwise(seen)
        if flow == again and before != after
    ]
    assert [row[:3] for row in found] == changes
    for flow, ns, phase, uncertain, name, code in found:
        assert (name, code) == ("SAMPLED", None)
        assert any((f, p) == (flow, phase) and ns <= at <= ns + uncertain for f, at, p, *_ in truth)


def test_what_limits_sending_is_asked_when_the_next_sample_is_taken(
    make_bundle: MakeBundle,
) -> None:
    """Rows of a socket with 10 packets in flight, but for what each sets otherwise."""
    facts = {"tp.packets_out": 10, "tp.sacked_out": 0, "tp.lost_out": 0, "tp.retrans_out": 0}
    facts |= {"tp.snd_cwnd": 20, "tp.mss_cache": 1000, "tp.snd_una": 0, "tp.snd_nxt": 10_000}
    facts |= {"tp.snd_wnd": 99_000, "tp.app_limited": 0, "tp.tcp_wstamp_ns": 0}
    facts |= {"tp.delivered": 1, "bbr.mode": 2, "bbr.rtt_cnt": 1, "bbr.cycle_idx": 2}
    facts |= {"sk.sk_pacing_rate": 5, "sk.sk_max_pacing_rate": 9, "tp.tcp_clock_cache": 0}
    cases: list[tuple[dict[str, int], str]] = [
        ({}, ""),
        ({"tp.packets_out": 20}, "cwnd_target"),
        ({"tp.packets_out": 20, "bbr.mode": 3}, "probe_rtt"),
        ({"tp.snd_wnd": 10_999}, "receive_window"),
        ({"tp.packets_out": 0}, "application"),
        ({"tp.app_limited": 11}, "application"),
        ({"tp.tcp_wstamp_ns": 8_000_001}, "pacing_max_bw"),
        ({"tp.tcp_wstamp_ns": 7_999_999}, "unknown"),
    ]
    lines = [",".join(["#T", "ns", "sk", *facts])]
    for number, (changes, _) in enumerate(cases, 1):
        values = ["T", number * 1_000_000, "ff", *(facts | changes).values()]
        lines.append(",".join(map(str, values)))
    bundle = make_bundle(lines)
    with open_store(bundle / "s.duckdb") as store:
        ingest(store, bundle)
        found = store.con.execute("SELECT binding FROM binding ORDER BY seq").fetchall()
    assert [binding for (binding,) in found[: len(cases) - 1]] == [said for _, said in cases[1:]]


def test_a_run_says_how_it_was_recorded_and_what_that_answers(sampled: Store) -> None:
    rows = sampled.con.execute(
        "SELECT run, rung, replays, can, cannot FROM runs JOIN rungs USING (rung)"
    ).fetchall()
    promises = {rung.name: (rung.replays, rung.can, rung.cannot) for rung in LADDER}
    assert {run: rung for run, rung, *_ in rows} == {
        "v1_x_lt": "fentry",
        "v1_x_lt_sampled": "tcp_probe",
        "v3_x_tlp5": "fentry",
        "v3_x_tlp5_sampled": "tcp_probe",
        "ss_alone": "inet_diag",
    }
    assert all(tuple(answers) == promises[rung] for _, rung, *answers in rows)


def test_samples_lack_no_init_and_no_exit(sampled: Store) -> None:
    found = sampled.con.execute(
        "SELECT kind FROM capture_quality JOIN runs USING (run_id) WHERE rung = 'tcp_probe'"
    )
    assert found.fetchall() == []


def test_bytes_of_a_sampled_flow_are_those_acknowledged(sampled: Store) -> None:
    query = "SELECT flow, acked_bytes FROM metrics_by_flow WHERE run = ? AND acked_bytes > 0"
    for run in RUNS:
        summed = sampled.con.execute(
            "SELECT flow, delivered_bytes FROM flow_summary WHERE run = ? AND delivered_bytes > 0",
            [f"{run}_sampled"],
        ).fetchall()
        assert summed
        assert dict(sampled.con.execute(query, [f"{run}_sampled"]).fetchall()) == dict(summed)
