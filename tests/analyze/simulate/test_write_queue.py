"""What the application writes becomes skbs as the captures of kernels have them."""

from __future__ import annotations

from bbrscope.analyze.simulate.sender.estimator import EPOCH_NS
from bbrscope.analyze.simulate.sender.output import _defers
from bbrscope.analyze.simulate.sender.write_queue import (
    begin_writing,
    in_head_skb,
    mark_push,
    write_more,
)
from bbrscope.analyze.simulate.world.world_arrays import Arrays, arrays
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup

_S, _MS = 1_000_000, 1_000_000  # us, ns


def _world() -> Arrays:
    path = PathSetup(10_000_000, 40_000, limit_packets=33)
    memory = arrays(Setup(path, (FlowSetup("v2", 0, _S),), _S), record=False)
    flow = memory.parts["flows"]
    # Ten segments have gone after the cookie, as cwnd lets them.
    flow["una"], flow["nxt"], flow["written"] = 1, 11, 1 << 40
    return memory


def test_the_first_skbs_are_of_half_the_receivers_first_window() -> None:
    """In v1's and v2's captures the skbs end at segments 32 and 54 after the cookie."""
    memory = _world()
    flow, tp = memory.parts["flows"], memory.parts["events"]["tp"]
    begin_writing(memory.sim, 0)
    # The buffer is full at segment 54: 87,040 bytes, cwnd's ten segments twice.
    assert (flow["skb_end"][0], flow["filled"][0]) == (33, 55)
    assert in_head_skb(memory.sim, 0) == 22
    flow["nxt"] = 33
    assert in_head_skb(memory.sim, 0) == 22
    # A larger window makes larger skbs of what is written from then on.
    flow["max_window"], flow["una"], tp["snd_cwnd"] = 200_000, 30, 40
    write_more(memory.sim, 0)
    assert flow["filled"][0] > 200
    flow["nxt"] = 55
    assert in_head_skb(memory.sim, 0) == 45


def test_a_full_send_buffer_and_half_a_window_end_in_a_push() -> None:
    memory = _world()
    begin_writing(memory.sim, 0)
    flow, segs = memory.parts["flows"], memory.parts["segs"]
    for nxt, end in ((11, 32), (11, 33), (33, 55)):
        flow["nxt"] = nxt
        in_head_skb(memory.sim, 0)
        mark_push(memory.sim, 0, end)
    # 32 segments are more than half a window; the buffer is full at 54 (counted from the cookie).
    assert [segs["push"][end - 1] for end in (32, 33, 55)] == [0, 1, 1]


def test_room_for_a_part_of_a_burst_is_used_unless_an_ack_comes_within_a_millisecond() -> None:
    """tcp_tso_should_defer() since 295ce1eb36ae, which all recorded kernels have."""
    memory = _world()
    flow, tp, segs = (memory.parts[name] for name in ("flows", "events", "segs"))
    tp = tp["tp"]
    flow["wnd_end"], flow["nxt"] = 1000, 56
    tp["packets_out"], tp["snd_cwnd"], tp["srtt_us"] = 55, 56, 40_000 << 3
    flow["mstamp_ns"] = 80 * _MS
    tp["tcp_wstamp_ns"] = EPOCH_NS + 80 * _MS
    for due_us, waits in ((1200, 0), (900, 1), (-500, 1)):
        segs["sent_ns"][1] = (40_000 + due_us) * 1000
        assert _defers(memory.sim, 0, 22, 2) == waits, due_us
