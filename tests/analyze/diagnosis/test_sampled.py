"""Diagnosis of runs that have samples of the state in place of callbacks (rung tcp_probe)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bbrscope.analyze.diagnosis.engine import Diagnosis, Finding, diagnose_together
from bbrscope.analyze.diagnosis.tables import prepare
from bbrscope.analyze.replay.keep_results import keep
from bbrscope.analyze.replay.replay_runs import replay_runs
from bbrscope.analyze.story.flow_stories import flows_of, story_of
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store

from tests.conftest import write_bundle

FIELDS = (
    "tp.delivered,tp.lost,tp.snd_una,tp.snd_nxt,tp.srtt_us,tp.packets_out,tp.snd_cwnd,"
    "tp.mss_cache,tp.snd_wnd,icsk_ca_state,bbr.mode,bbr.min_rtt_us,bbr.lt_use_bw"
)
RTTS_US = (40_000, 41_000, 47_003, 39_999, 60_001, 40_002) * 10


@pytest.fixture
def store(sampled_path: Path, tmp_path: Path) -> Iterator[Store]:
    """Return two recordings, replayed, and each again as samples."""
    copy = tmp_path / "runs.duckdb"
    copy.write_bytes(sampled_path.read_bytes())
    with open_store(copy) as opened:
        whole = [opened.run_id(name) for name in ("v1_x_lt", "v3_x_tlp5")]
        for flows in replay_runs(opened.con, whole):
            keep(opened, flows)
        yield opened


@pytest.fixture
def diagnoses(store: Store) -> dict[str, Diagnosis]:
    """Return what is found in each run."""
    names = [f"{name}{end}" for name in ("v1_x_lt", "v3_x_tlp5") for end in ("", "_sampled")]
    found = diagnose_together(store.con, [store.run_id(name) for name in names])
    return {one.run: one for one in found}


def finding(diagnosis: Diagnosis, name: str) -> Finding:
    """Return the one finding of a rule."""
    (one,) = (one for one in diagnosis.findings if one.rule.name == name)
    return one


def test_samples_show_what_the_state_alone_tells(diagnoses: dict[str, Diagnosis]) -> None:
    whole, sampled = diagnoses["v1_x_lt"], diagnoses["v1_x_lt_sampled"]
    # Samples tell of nothing before the first, which is the flow's first ACK.
    entries = [
        [(at - one.zero_ns) / 1e9 for at in finding(one, "policer").values["entries_at"]]
        for one in (whole, sampled)
    ]
    shift = entries[0][0] - entries[1][0]
    assert len(entries[0]) > 5
    assert entries[0] == pytest.approx([at + shift for at in entries[1]], abs=0.01)


def test_a_limit_that_samples_tell_of_is_no_longer_than_it_was(
    diagnoses: dict[str, Diagnosis],
) -> None:
    whole, sampled = (
        finding(diagnoses[run], "application_limited").values["limited_s"]
        for run in ("v3_x_tlp5", "v3_x_tlp5_sampled")
    )
    assert 0.8 * whole < sampled <= whole


def test_no_finding_of_samples_is_sure(diagnoses: dict[str, Diagnosis]) -> None:
    assert "high" in {one.confidence for one in diagnoses["v1_x_lt"].findings}
    for run in ("v1_x_lt_sampled", "v3_x_tlp5_sampled"):
        assert {one.confidence for one in diagnoses[run].findings} <= {"medium", "low"}


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("outage", "calls of BBR's functions"),
        ("loss_above_threshold", "calls of BBR's functions"),
        ("heavy_loss", "the times of retransmission timeouts"),
        ("startup_never_left", "rate samples"),
    ],
)
def test_what_samples_cannot_tell_is_said_not_to_be_checked(
    name: str, needs: str, diagnoses: dict[str, Diagnosis]
) -> None:
    (check,) = (one for one in diagnoses["v3_x_tlp5_sampled"].checks if one.rule.name == name)
    assert check.outcome == "not checked"
    assert needs in check.why
    assert "replay" not in check.why


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[Store]:
    """Return a recording of a sample each 10 ms, whose every second ACK has a packet marked lost.

    tcp_rtt_estimator() keeps eighths of the round trips RTTS_US.
    """
    rows, srtt, una = [], 8 * RTTS_US[0], 1
    for number, rtt in enumerate((*RTTS_US[1:], 0)):
        values = (
            number,
            number // 2,
            una,
            una + 20_000,
            srtt,
            10,
            20 + number,
            1448,
            65_535,
            0,
            2,
            40_000,
            0,
        )
        rows.append(f"T,{(number + 1) * 10_000_000},a,{','.join(map(str, values))}")
        srtt += rtt - (srtt >> 3)
        una += 1448
    lines = [
        "#N,ns,sk,sport,dport,daddr",
        f"#T,ns,sk,{FIELDS}",
        "N,1,a,5000,20756,33556746",
        *rows,
    ]
    with open_store(tmp_path / "runs.duckdb") as store:
        ingest(store, write_bundle(tmp_path / "hand", lines, rung="tcp_probe", bbr="v1"))
        yield store


@pytest.mark.parametrize(
    ("table", "packets"), [("this_events", "acked_sacked"), ("flow_steps", "delivered")]
)
def test_what_an_ack_brought_is_found_by_the_sample_after_it(
    by_hand: Store, table: str, packets: str
) -> None:
    prepare(by_hand.con, [by_hand.run_id("hand")], [])
    found = by_hand.con.execute(
        f"SELECT rtt_us, delivered, lost, acked_bytes, {packets}, cwnd FROM {table} ORDER BY seq"
    ).fetchall()
    assert [row[0] for row in found[:-1]] == list(RTTS_US[1:])
    last = len(RTTS_US) - 1
    assert [row[1:] for row in found[:-1]] == [(1, n % 2, 1448, 1, 21 + n) for n in range(last)]
    assert found[-1] == (None, 0, 0, 0, 0, 20 + last)


def test_a_loss_is_dated_by_the_ack_that_brought_it(by_hand: Store) -> None:
    (flow,) = flows_of(by_hand.con, by_hand.run_id("hand"))
    (episode,) = story_of(by_hand.con, flow).facts.losses
    assert episode.span.start_ns == 20_000_000
    assert episode.lost_packets == (len(RTTS_US) - 1) // 2


def test_samples_of_phase_changes_alone_are_not_diagnosed(store: Store) -> None:
    run_id = store.run_id("v1_x_lt_sampled")
    store.con.execute("UPDATE runs SET rung = 'phases' WHERE run_id = ?", [run_id])
    (found,) = diagnose_together(store.con, [run_id])
    assert not found.flows
    assert {check.outcome for check in found.checks} == {"not applicable"}
