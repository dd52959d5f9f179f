"""The replay loop runs whatever variant it is given."""

from __future__ import annotations

import numpy as np
import pytest
from bbrscope.analyze.bbr import params
from bbrscope.analyze.bbr.loops import DIFFERENT, EXACT, STEP
from bbrscope.analyze.bbr.plain import records
from bbrscope.analyze.bbr.records import CHECK_CWND, EVENT, MAIN, STATE_COLUMNS, Bbr, Event, Socket
from bbrscope.analyze.bbr.replay_loop import Recorded, Results, replay_loop
from bbrscope.analyze.replay.passes import FIELD_NAMES, Workspace
from bbrscope.probes.base.jit import jit


@jit
def no_init(bbr: Bbr, tp: Socket, min_rtt_us: int, p: params.Params, log: object) -> None:
    """Set nothing."""


@jit
def doubling(bbr: Bbr, ev: Event, p: params.Params, log: object) -> None:
    """Double cwnd at every ACK."""
    ev.tp.snd_cwnd = ev.tp.snd_cwnd * 2


@pytest.mark.parametrize(("left_by_kernel", "outcome"), [(20, EXACT), (21, DIFFERENT)])
def test_a_variant_of_ones_own_is_compared_with_what_the_kernel_did(
    left_by_kernel: int, outcome: int
) -> None:
    events = np.zeros(1, EVENT)
    control = events["ctl"]
    control["kind"], control["entry_snd_cwnd"], control["check"] = MAIN, 10, CHECK_CWND
    control["exit_snd_cwnd"] = left_by_kernel
    n = len(STATE_COLUMNS)
    recorded = Recorded(records(events), np.zeros((2, n), np.int64), np.zeros(n, np.int64))
    results = Results(
        np.zeros(1, np.int8),
        np.zeros(len(FIELD_NAMES), np.int64),
        np.full((1, 2), -1, np.int64),
        np.zeros(0, np.int64),
        np.zeros((0, 0), np.int64),
    )
    machine, p = Workspace(), records(params.make(params.V1 | {"HZ": 1000}))[0]
    loop = replay_loop(no_init, doubling)
    assert loop(recorded, machine.memory(), results, p, None, STEP, 0) == 1
    assert results.outcome.tolist() == [outcome]
    assert results.differences[FIELD_NAMES.index("snd_cwnd")] == (outcome == DIFFERENT)
    assert machine.carry[0] == 20


@jit
def counting(bbr: Bbr, ev: Event, p: params.Params, log: object) -> None:
    """Count the events in state of one's own, and make that number the window."""
    bbr.variant[0] += 1
    ev.tp.snd_cwnd = bbr.variant[0]


def test_a_variants_own_state_lives_on_though_the_kernels_is_taken_from_the_recording() -> None:
    events = np.zeros(3, EVENT)
    events["ctl"]["kind"] = MAIN
    n = len(STATE_COLUMNS)
    recorded = Recorded(records(events), np.full((4, n), 7, np.int64), np.full(n, -1, np.int64))
    results = Results(
        np.zeros(3, np.int8),
        np.zeros(len(FIELD_NAMES), np.int64),
        np.full((3, 2), -1, np.int64),
        np.zeros(0, np.int64),
        np.zeros((0, 0), np.int64),
    )
    machine, p = Workspace(), records(params.make(params.V3 | {"HZ": 1000}))[0]
    replay_loop(no_init, counting)(recorded, machine.memory(), results, p, None, STEP, 0)
    assert machine.carry[0] == 3
    assert machine.vector.tolist() == [7] * n
