"""Calls that were not recorded explain what they may write, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from bbrscope.analyze.bbr import loops
from bbrscope.analyze.bbr.records import (
    CWND_EVENT,
    INIT,
    KINDS,
    MAIN,
    SET_STATE,
    SKB_MARKED_LOST,
    SSTHRESH,
    STATE_COLUMNS,
    UNDO_CWND,
)
from bbrscope.analyze.replay import gaps, step_mode
from bbrscope.analyze.replay import written_fields as writes
from bbrscope.analyze.replay.chunks import chunk_of
from bbrscope.analyze.replay.passes import MODES, run_pass
from bbrscope.analyze.replay.prepare import FlowEvents, prepare
from bbrscope.collect.store.store import Store

from .test_replay import _classified, _largest, _last_exit, _without

RUNS = ("v1_x_lt", "v2_single_1bdp", "v2_x_spur", "v3_x_tlp5")
CALLS = (SSTHRESH, SET_STATE, CWND_EVENT, SKB_MARKED_LOST, UNDO_CWND)


def _without_calls(
    shipped: Store, run: str, calls: tuple[int, ...], share: float = 1
) -> tuple[FlowEvents, str, np.ndarray]:
    """The largest flow of a recording, of which a share of these calls was not recorded."""
    _, version, record, columns = _largest(shipped, run)
    unlucky = np.random.default_rng(7).random(len(columns["kind"])) < share
    gone = np.flatnonzero(np.isin(np.asarray(columns["kind"]), calls) & unlucky)
    kept = _without(columns, gone.tolist())
    return prepare(kept, version, record, _last_exit(columns)), version, record


def _gaps_and_rest(
    flow: FlowEvents, version: str, record: np.ndarray
) -> tuple[list[gaps.Gap], set[int]]:
    """The gaps of a flow, and the events whose difference is none."""
    step, _ = run_pass(flow, version, record, "step", False)
    found = _classified(flow, step, version)
    different = np.flatnonzero(step.outcome == loops.DIFFERENT)
    return found, set(different.tolist()) - {gap.index for gap in found}


@pytest.mark.parametrize("share", [1, 0.3])
@pytest.mark.parametrize("run", ["v1_x_lt", "v2_x_spur", "v3_x_tlp5"])
def test_calls_that_were_not_recorded_are_gaps_and_the_rest_is_exact(
    shipped: Store, run: str, share: float
) -> None:
    seen = 0
    for calls in (*((call,) for call in CALLS), CALLS):
        flow, version, record = _without_calls(shipped, run, calls, share)
        found, rest = _gaps_and_rest(flow, version, record)
        assert not rest, [KINDS[call] for call in calls]
        trial = step_mode._without_next_state(chunk_of(flow), found)
        outcome = run_pass(trial.own, version, record, "step", False)[0].outcome
        outputs_too = outcome == loops.DIFFERENT
        gaps.cut(flow, found, outputs_too)
        for mode in MODES:
            result, _ = run_pass(flow, version, record, mode, False)
            assert result.exact == result.compared > 3_000
        seen += len(found)
    assert seen >= share * {"v1_x_lt": 50, "v2_x_spur": 5, "v3_x_tlp5": 100}[run]


def test_a_missing_ssthresh_is_named(shipped: Store) -> None:
    found, _ = _gaps_and_rest(*_without_calls(shipped, "v3_x_tlp5", (SSTHRESH,)))
    assert {gap.kind for gap in found} == {"missing_ssthresh"}
    assert "no ssthresh() before state CWR" in {gap.detail for gap in found}


@pytest.mark.parametrize("run", RUNS)
def test_a_wrong_value_stays_a_divergence_where_the_calls_are_there(
    shipped: Store, run: str
) -> None:
    flow, version, record, _ = _largest(shipped, run)
    kind = np.asarray(flow.columns["kind"])
    states = flow.states.copy()
    random = np.random.default_rng(3)
    places = np.flatnonzero(kind[:-1] != MAIN)
    places = np.union1d(random.choice(places, min(40, len(places)), replace=False),
                        random.choice(len(kind) - 1, 40))  # fmt: skip
    columns = sorted(writes.written_by_callbacks(version) & {*STATE_COLUMNS})
    columns = [c for c in columns if c not in ("bbr_ce_state", "bbr_prior_rcv_nxt")]
    wrong = 0
    for place in places.tolist():
        position = STATE_COLUMNS.index(str(random.choice(columns)))
        if kind[place] == INIT or not flow.compared[position]:
            continue
        flow.states[:] = states
        flow.states[place + 1, position] ^= 1
        found, rest = _gaps_and_rest(flow, version, record)
        assert not found, (place, STATE_COLUMNS[position])
        assert place in rest
        wrong += 1
    assert wrong >= 30


@pytest.mark.parametrize("run", ["v1_x_lt", "v3_x_tlp5"])
def test_a_missing_call_explains_nothing_but_what_it_writes(shipped: Store, run: str) -> None:
    flow, version, record = _without_calls(shipped, run, (SSTHRESH,))
    found, _ = _gaps_and_rest(flow, version, record)
    assert found
    wrong = {gap.index for gap in found[::7]}
    for index in wrong:
        flow.states[index + 1, STATE_COLUMNS.index("bbr_min_rtt_us")] ^= 1
    again, rest = _gaps_and_rest(flow, version, record)
    assert wrong <= rest
    assert {gap.index for gap in again} == {gap.index for gap in found} - wrong


@pytest.mark.parametrize("run", RUNS)
def test_every_recorded_change_is_one_that_the_callback_may_make(shipped: Store, run: str) -> None:
    flow, version, _, _ = _largest(shipped, run)
    kind = np.asarray(flow.columns["kind"])[:-1]
    changed = flow.states[1:-1] != flow.states[:-2]
    functions = {
        MAIN: writes.MAIN,
        SET_STATE: writes.SET_STATE,
        CWND_EVENT: "bbr_cwnd_event",
        SSTHRESH: writes.SSTHRESH[version],
        UNDO_CWND: writes.UNDO_CWND,
        SKB_MARKED_LOST: writes.SKB_MARKED_LOST,
    }
    for number, function in functions.items():
        fields = np.flatnonzero(changed[kind == number].any(axis=0))
        assert {STATE_COLUMNS[field] for field in fields} <= writes.written_by(version, function)


def test_what_a_callback_may_write_is_read_from_all_that_it_calls() -> None:
    undo = {"bbr_undo_bw_lo", "bbr_undo_inflight_lo", "bbr_undo_inflight_hi"}
    for version in ("v2", "v3"):
        assert writes.written_by(version, writes.SSTHRESH[version]) == {"bbr_prior_cwnd", *undo}
    assert writes.written_by("v1", writes.SSTHRESH["v1"]) == {"bbr_prior_cwnd"}
    assert "bbr_bw_s_0_v" in writes.written_by("v1", writes.MAIN)
    assert "snd_cwnd" in writes.written_by("v2", writes.SET_STATE)
    for version in ("v1", "v2", "v3"):
        assert "bbr_init_cwnd" not in writes.written_by_callbacks(version)
