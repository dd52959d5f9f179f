"""What a call drew at random is told where a later row tells it, and else left out."""

from __future__ import annotations

import numpy as np
from bbrscope.analyze.bbr import codes, params
from bbrscope.analyze.replay import run_params
from bbrscope.analyze.replay.load_events import load_flow
from bbrscope.analyze.replay.passes import run_pass
from bbrscope.analyze.replay.prepare import prepare
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.collect.store.store import Store


def test_the_phase_that_v1_drew_in_its_last_recorded_call_is_not_told(shipped: Store) -> None:
    """Nor the pacing rate and the window, which are by the phase that it may not have drawn."""
    run_id = shipped.run_id("v1_x_lt")
    info = run_info(shipped.con, run_id)
    values = run_params.of_run(shipped.con, run_id, info.flavour)
    record = params.make(run_params.of_flow(shipped.con, run_id, 1, values))
    columns = {name: one.copy() for name, one in load_flow(shipped.con, run_id, 1).items()}
    flow = prepare(columns, info.version, record, info.last_exit_ns)

    def decided(last: int) -> list[np.ndarray]:
        """The decisions of an event, where it is the recording's last."""
        cut = {name: one[: last + 1] for name, one in columns.items()}
        part = prepare(cut, info.version, record, info.last_exit_ns)
        found, _ = run_pass(part, info.version, record, "step", True)
        assert found.decisions is not None
        return [row for row in found.decisions if row[0] == last - part.facts.pre_init]

    whole, _ = run_pass(flow, info.version, record, "step", True)
    assert whole.decisions is not None
    drew = whole.decisions[whole.decisions[:, 1] == codes.PBW_ENTER_PHASE_RANDOM, 0]
    assert len(drew) > 1
    before_draw = 0
    for index in drew[:4]:
        told = [tuple(row[1:]) for row in decided(int(index) + flow.facts.pre_init)]
        known = [tuple(row[1:]) for row in whole.decisions if row[0] == index]
        draw = [row[0] for row in known].index(codes.PBW_ENTER_PHASE_RANDOM)
        assert told == known[:draw]
        before_draw += draw
        assert codes.PACE_SET in {row[0] for row in known[draw:]}
    assert before_draw
