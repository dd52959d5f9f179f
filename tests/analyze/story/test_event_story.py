"""Explanations: every change that the kernel made has its reason, and the story tells it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bbrscope.analyze.bbr.codes import BY_NAME, CODES
from bbrscope.analyze.replay import keep_results as results
from bbrscope.analyze.replay import replay_runs as session
from bbrscope.analyze.story import decision_list, event_flows, event_story
from bbrscope.analyze.story.changes import BOUNDS, Change
from bbrscope.analyze.story.event_flows import EventFlow
from bbrscope.analyze.story.observed import OBSERVATIONS
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.reports.text.stories.flow_story import trust

# What a decision must be about to explain a change of the field.
EXPLAINED_BY = {
    "mode": ("mode",),
    "cycle_idx": ("mode", "phase", "policer"),
    "inflight_hi": ("inflight_hi",),
    "inflight_lo": ("inflight_lo",),
    "bw_lo": ("bw_lo",),
    "full_bw_reached": ("full_bw",),
    "min_rtt_us": ("min_rtt",),
}


@pytest.fixture(params=["shipped", pytest.param("all_runs", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest) -> Store:
    """First the shipped recordings, then (slow) every recording."""
    found: Store = request.getfixturevalue(request.param)
    return found


def the_flow(store: Store, run: str) -> EventFlow:
    return event_flows.flows_of(store.con, store.run_id(run))[0]


def names(lines: list[Change]) -> list[str | None]:
    return [line.name for line in lines]


@pytest.mark.parametrize("field", EXPLAINED_BY)
def test_every_change_the_kernel_made_has_a_decision(store: Store, field: str) -> None:
    """Recorded state n against n + 1, and the decisions to change noted at event n: 100 %."""
    unexplained = store.con.execute(
        "WITH chained AS (SELECT e.run_id, e.flow, e.seq, e.kind,"
        f" bbr_{field} AS old, lead(bbr_{field}) OVER w AS new"
        " FROM events e JOIN flows f ON f.run_id = e.run_id AND f.flow = e.flow"
        " AND e.seq >= f.pre_init WINDOW w AS (PARTITION BY e.run_id, e.flow ORDER BY e.seq))"
        " SELECT count(*), count(*) FILTER (NOT EXISTS (SELECT 1 FROM decisions d"
        " JOIN decision_codes c USING (code) WHERE d.run_id = h.run_id AND d.flow = h.flow"
        " AND d.seq = h.seq AND c.change AND c.about IN (SELECT unnest($1))))"
        " FROM chained h WHERE old <> new AND kind <> 'init' AND NOT EXISTS (SELECT 1 FROM gaps g"
        " WHERE g.run_id = h.run_id AND g.flow = h.flow AND g.seq = h.seq)",
        [list(EXPLAINED_BY[field])],
    ).fetchone()
    assert unexplained is not None
    changes, without = unexplained
    assert changes > 0
    assert without == 0


def test_the_story_has_every_transition_and_every_change_of_a_bound(store: Store) -> None:
    for run in store.runs():
        for flow in event_flows.flows_of(store.con, store.run_id(run)):
            changes = event_story.story(store.con, flow)
            key = [run, flow.flow]
            for about, view in (("phase", "transitions"), ("bound", "bounds_history")):
                count = store.con.execute(
                    f"SELECT count(*) FROM {view} WHERE run = ? AND flow = ?", key
                ).fetchone()
                lines = [
                    ln for ln in changes if (ln.about if ln.about == "phase" else "bound") == about
                ]
                lines = [ln for ln in lines if ln.about == "phase" or ln.about in BOUNDS]
                assert count == (len(lines),)


def test_every_line_has_a_reason_in_words_or_says_why_not(store: Store) -> None:
    for run in store.runs():
        for flow in event_flows.flows_of(store.con, store.run_id(run)):
            for line in event_story.story(store.con, flow):
                if line.name in ("GAP", "MID_FLOW"):
                    assert not line.reasons
                    continue
                assert line.name in BY_NAME or line.name in OBSERVATIONS
                assert line.reasons
                assert all(reason.sentence for reason in line.reasons)
                assert all("{" not in reason.sentence for reason in line.reasons)


def test_startup_ends_with_the_verdict_that_filled_the_pipe(shipped: Store) -> None:
    flow = the_flow(shipped, "v2_single_1bdp")
    begun, left, *_ = [ln for ln in event_story.story(shipped.con, flow) if ln.about == "phase"]
    assert (begun.old, begun.new, begun.name) == (None, "STARTUP", "INIT")
    assert (left.old, left.new, left.name) == ("STARTUP", "DRAIN", "DRAIN_ENTER")
    assert left.reasons[0].code.name.startswith("FULLBW_REACHED")
    assert left.reasons[1].code.name == "DRAIN_ENTER"


def test_the_policer_explains_v1s_way_into_its_rate_and_out(shipped: Store) -> None:
    flow = the_flow(shipped, "v1_x_lt")
    lines = [line for line in event_story.story(shipped.con, flow) if line.about == "phase"]
    into = [line for line in lines if line.new == "PROBE_BW_LT" and line.old != "PROBE_RTT"]
    out_of = [line for line in lines if line.old == "PROBE_BW_LT" and line.new != "PROBE_RTT"]
    assert into
    assert {line.name for line in into} <= {"LT_USE_RATIO", "LT_USE_DIFF"}
    assert out_of
    assert {line.name for line in out_of} == {"LT_END_48R"}


def test_a_window_that_is_restored_is_told_as_the_kernel_left_it(store: Store) -> None:
    """bbr_set_cwnd() bounds it in the same ACK: 17->107 was told where the kernel left 38."""
    bounded = 0
    for run in store.runs(with_events=True):
        for flow in event_flows.flows_of(store.con, store.run_id(run)):
            for line in event_story.story(store.con, flow):
                for reason in line.reasons:
                    told = re.search(r"restored \d+->(\d+)", reason.sentence)
                    if told is None:
                        continue
                    kind, left = store.con.execute(
                        "SELECT kind, exit_snd_cwnd FROM events"
                        " WHERE run_id = ? AND flow = ? AND seq = ?",
                        [flow.run_id, flow.flow, line.seq],
                    ).fetchall()[0]
                    after = re.search(r"leave (\d+) of it", reason.sentence)
                    # Before a restart from idle nothing bounds it: v1 has no exit recorded there.
                    if kind == "main":
                        assert left == int(after[1]) if after else left >= int(told[1])
                    else:
                        assert after is None
                    bounded += after is not None
    assert bounded


def test_timeouts_and_their_undoing_are_reported(shipped: Store) -> None:
    decided = names(event_story.story(shipped.con, the_flow(shipped, "v2_x_spur")))
    assert "CORE_RTO_COLLAPSE" in decided
    assert "CWND_UNDO" in decided


def test_the_flow_with_the_most_acks_comes_first(shipped: Store) -> None:
    flows = event_flows.flows_of(shipped.con, shipped.run_id("v2_single_1bdp"))
    acks = [flow.summary["main"] for flow in flows]
    assert acks == sorted(acks, reverse=True)
    assert [flow.tiny for flow in flows] == [False, True]


def test_decisions_not_to_change_are_listed_only_when_asked_for(shipped: Store) -> None:
    flow = the_flow(shipped, "v2_single_1bdp")
    changed = decision_list.decisions_of(shipped.con, flow, "inflight_hi", keep=False)
    both = decision_list.decisions_of(shipped.con, flow, "inflight_hi", keep=True)
    assert {line.name for line in changed} < {line.name for line in both}
    assert all(line.reasons[0].code.change for line in changed)
    assert all(line.about == "inflight_hi" for line in both)
    counted = shipped.con.execute(
        "SELECT count(*) FROM decision_log WHERE run = ? AND flow = ? AND about = 'inflight_hi'",
        [flow.run, flow.flow],
    ).fetchone()
    assert counted == (len(both),)


def test_only_takes_a_subject_or_a_code() -> None:
    assert {code.about for code in decision_list.matching("cwnd")} == {"cwnd"}
    assert [code.name for code in decision_list.matching("cruise_enter")] == ["CRUISE_ENTER"]
    assert {code.about for code in decision_list.matching("phase")} == {"mode", "phase"}
    assert decision_list.matching("nonsense") == []
    assert len(decision_list.matching(None)) == len(CODES)


@pytest.mark.slow
def test_a_change_inside_a_gap_is_reported_without_a_reason(all_runs: Store) -> None:
    flow = next(
        f for f in event_flows.flows_of(all_runs.con, all_runs.run_id("lossy_v3_ecn")) if f.gaps
    )
    lines = [line for line in event_story.story(all_runs.con, flow) if line.name == "GAP"]
    assert lines
    after = {gap.seq + 1 for gap in flow.gaps}
    assert all(line.seq in after and line.doubt and not line.reasons for line in lines)


def test_too_many_decisions_are_refused_with_a_way_out(
    shipped: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = the_flow(shipped, "v2_single_1bdp")
    window = (flow.zero_ns + 12 * 10**9, flow.zero_ns + 12 * 10**9 + 10**7)
    monkeypatch.setattr(decision_list, "MOST_DECISIONS", 100)
    with pytest.raises(BbrscopeError, match="too many to tell"):
        decision_list.decisions_of(shipped.con, flow, None, keep=True)
    assert decision_list.decisions_of(shipped.con, flow, None, True, window)


def test_a_recording_that_starts_mid_flow_says_so(shipped_path: Path, tmp_path: Path) -> None:
    """The first thousand events of a shipped recording are taken away, init among them."""
    copy = tmp_path / "mid.duckdb"
    copy.write_bytes(shipped_path.read_bytes())
    with open_store(copy) as store:
        con, run_id = store.con, store.run_id("v2_x_spur")
        con.execute("DELETE FROM events WHERE run_id = ? AND seq < 1000", [run_id])
        con.execute("UPDATE events SET seq = seq - 1000 WHERE run_id = ?", [run_id])
        con.execute(
            "UPDATE flows SET has_init = false, init = 0, pre_init = 0, events = events - 1000,"
            " first_ns = (SELECT min(ns) FROM events e WHERE e.run_id = flows.run_id)"
            " WHERE run_id = ?",
            [run_id],
        )
        for flows in session.replay_runs(con, [run_id]):
            results.keep(store, flows)
        (flow,) = event_flows.flows_of(con, run_id)
        first, *others = event_story.story(con, flow)
        assert (first.name, first.old, first.ns) == ("MID_FLOW", None, flow.first_ns)
        assert others
        assert "starts in the middle" in " ".join(trust(flow))
        assert flow.summary["exact"] == flow.summary["replayed"] > 4000
