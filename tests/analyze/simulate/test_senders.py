"""What Linux' senders and receivers do is done in the closed loop, seen in what BBR was asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bbrscope.analyze.bbr.records import (
    CA_EVENT_TLP_RECOVERY,
    CA_EVENT_TX_START,
    CWND_EVENT,
    MAIN,
    SET_STATE,
    SKB_MARKED_LOST,
    TCP_CA_LOSS,
    UNDO_CWND,
)
from bbrscope.analyze.simulate.sender.estimator import EPOCH_NS
from bbrscope.analyze.simulate.sender.output import _defers, tcp_retransmit_skb
from bbrscope.analyze.simulate.simulation import Simulated, goodput_mbps, simulate
from bbrscope.analyze.simulate.world.world_arrays import arrays
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup

_S, _MS = 1_000_000, 1_000_000  # us, ns
_RATE, _RTT = 10_000_000, 40_000
# Hosts that are never busy: what is due is done at once.
_IDLE = {"busy_every_us": 10**9, "busy_us": 1}


def _path(**more: Any) -> PathSetup:
    return PathSetup(**{"rate_bps": _RATE, "rtt_us": _RTT, "limit_packets": 33} | more)


def _run(path: PathSetup, flow: FlowSetup, seconds: float, seed: int = 0) -> tuple[Any, Any]:
    """What the estimator was asked, and when [ns]."""
    events: list[Any] = []
    times: list[Any] = []

    def take(pieces: Any, _states: Any, rows: Any) -> None:
        events.append(pieces.copy())
        times.append(rows["ns"] - EPOCH_NS)

    simulate(Setup(path, (flow,), round(seconds * _S), seed), take)
    return np.concatenate(events), np.concatenate(times)


def _alone(path: PathSetup, flow: FlowSetup, seconds: float, seed: int = 0) -> Simulated:
    return simulate(Setup(path, (flow,), round(seconds * _S), seed))


def _asked(events: Any, kind: int, argument: int) -> Any:
    return (events["ctl"]["kind"] == kind) & (events["ctl"]["arg"] == argument)


@pytest.mark.parametrize("counts", [True, False])
def test_no_undo_waits_for_what_a_loss_probe_sent_again(counts: bool) -> None:
    """tcp_retransmit_skb() counts it; the probe calls __tcp_retransmit_skb(), which does not."""
    memory = arrays(Setup(_path(), (FlowSetup("v3", 0, _S),), _S), record=False)
    flow, tp = memory.parts["flows"], memory.parts["events"]["tp"]
    flow["una"], flow["nxt"], flow["undo_retrans"], flow["mstamp_ns"] = 1, 21, -1, 5 * _MS
    assert tcp_retransmit_skb(memory.sim, 0, 20, 1, counts)
    assert flow["retrans_segs"][0] == 1
    found = (int(flow["undo_retrans"][0]), int(flow["retrans_stamp"][0]), int(tp["retrans_out"][0]))
    assert found == ((1, 5 * _MS, 1) if counts else (-1, 0, 0))


def test_timeouts_in_an_outage_back_off() -> None:
    down = ((2 * _S, "outage", 1.5 * _S),)
    events, at = _run(_path(changes=down), FlowSetup("v2", 0, 6 * _S), 6)
    timeouts = at[_asked(events, SET_STATE, TCP_CA_LOSS)] // _MS
    assert len(timeouts) == 3
    # Two RTOs and then four, of srtt and 200 ms, up to the wheel's next 8 and 64 ticks.
    assert 480 < timeouts[1] - timeouts[0] < 500 + 9
    assert 960 < timeouts[2] - timeouts[1] < 1000 + 65


def test_bursts_are_as_long_as_the_pacing_rate_says() -> None:
    """tcp_tso_autosize(): a thousandth of a second, two segments at least, 64 KiB at most."""
    for rate, longest in ((_RATE, 2), (1_000_000_000, 45)):
        packets = 2 * rate * _RTT // 8 // _S // 1514
        path = _path(rate_bps=rate, limit_packets=packets, loss=0.002, in_skbs=True)
        events, _ = _run(path, FlowSetup("v3", 0, 3 * _S), 3)
        lost = events[events["ctl"]["kind"] == SKB_MARKED_LOST]["skb"]["gso_segs"]
        assert lost.max() in (longest - 1, longest), rate


def test_an_skb_that_the_bucket_has_room_for_is_acknowledged_as_one() -> None:
    """v2_x_gso2 and v3_x_gso2: while the window grows ACKs are for two segments each, and the first
    SACK beyond a hole is."""
    path = _path(rate_bps=20_000_000, loss=0.01, in_skbs=True, **_IDLE)
    said = []
    for whole in (False, True):
        events, _ = _run(replace(path, whole_skbs=whole), FlowSetup("v2", 0, 5 * _S), 5)
        main = events[events["ctl"]["kind"] == MAIN]
        sacked = main["tp"]["sacked_out"].astype(int)
        first = sacked[1:][(sacked[:-1] == 0) & (sacked[1:] > 0)]
        said.append((int(np.median(main["rs"]["acked_sacked"][1:9])), int(np.median(first))))
    assert said == [(1, 1), (2, 2)]


def test_a_bucket_of_one_packet_covers_it_at_any_rate() -> None:
    """Its time for a packet is what the packet needs: rounded down twice, it never came to that."""
    changes = ((_S, "rate", 7_300_001.0), (2 * _S, "rate", 3_100_003.0))
    path = _path(burst_bytes=1514, changes=changes)
    assert goodput_mbps(_alone(path, FlowSetup("v1", 0, 4 * _S), 4))[0] > 4


def test_the_last_skb_waits_for_more_data_as_the_kernels_does() -> None:
    """tcp_tso_should_defer(): what may be filled up waits, though cwnd has room for all of it."""
    memory = arrays(Setup(_path(), (FlowSetup("v3", 0, _S),), _S), record=False)
    flow, tp = memory.parts["flows"], memory.parts["events"]["tp"]
    flow["wnd_end"], flow["una"], flow["nxt"] = 1000, 0, 55
    tp["packets_out"], tp["snd_cwnd"] = 55, 60  # room for five
    flow["mstamp_ns"], tp["srtt_us"] = 40 * _MS, 40_000 << 3
    tp["tcp_wstamp_ns"] = EPOCH_NS + 40 * _MS
    for written, waits in ((58, 3), (200, 0)):
        flow["written"] = written
        assert _defers(memory.sim, 0, 3, 10) == waits
    assert _defers(memory.sim, 0, 3, 5) == 0  # a whole burst fits


def test_reordering_widens_racks_window_and_is_undone() -> None:
    path, flow = _path(reorder=0.05), FlowSetup("v1", 0, 10 * _S)
    events, _ = _run(path, flow, 10)
    assert (events["ctl"]["kind"] == UNDO_CWND).sum() > 0
    after = _alone(path, flow, 10).flows
    assert after["reord_seen"][0] > 100
    assert after["rack_steps"][0] > 1
    # With a quarter of min_rtt to wait, next to nothing is sent again.
    assert after["retrans_segs"][0] < 0.02 * after["rcv_nxt"][0]


def test_a_round_trip_that_grows_at_once_is_a_spurious_timeout_that_f_rto_undoes() -> None:
    grows = ((3 * _S, "rtt", 400_000),)
    events, _ = _run(_path(changes=grows), FlowSetup("v2", 0, 8 * _S), 8)
    assert _asked(events, SET_STATE, TCP_CA_LOSS).sum() == 1
    assert (events["ctl"]["kind"] == UNDO_CWND).sum() == 1


def test_a_round_trip_changes_to_what_is_said_where_packets_overtake_others() -> None:
    """Half of the first 40 ms is what packets wait so that others can overtake them."""
    path = _path(reorder=0.02, changes=((2 * _S, "rtt", 60_000),))
    slow = FlowSetup("v3", 0, 4 * _S, kind="rate-limited", rate_bps=1_000_000)
    events, at = _run(path, slow, 4)
    took = events["rs"]["rtt_us"]
    before, after = at < 2 * _S * 1000, at > 2.2 * _S * 1000
    usual = [float(np.median(took[its & (took > 0)])) for its in (before, after)]
    # The rest is what a packet or two take to be sent.
    assert usual == pytest.approx([40_000, 60_000], abs=3_000)


def test_bursts_begin_anew_after_a_pause_and_tail_loss_probes_repair_their_ends() -> None:
    flow = FlowSetup("v3", 0, 30 * _S, kind="on-off", on_us=50_000, off_us=400_000)
    events, _ = _run(_path(limit_packets=100, loss=0.02), flow, 30, seed=1)
    starts = _asked(events, CWND_EVENT, CA_EVENT_TX_START).sum()
    assert 30 / 0.45 - 3 < starts < 30 / 0.45 + 10
    assert _asked(events, CWND_EVENT, CA_EVENT_TLP_RECOVERY).sum() > 0
    # Probes after two round trips, so that no burst waits for a timeout of 240 ms.
    assert _asked(events, SET_STATE, TCP_CA_LOSS).sum() == 0
    limited = events[events["ctl"]["kind"] == MAIN]["rs"]["is_app_limited"]
    assert limited.sum() > 0


def test_the_first_acks_are_quick_and_the_others_delayed() -> None:
    events, _ = _run(_path(**_IDLE), FlowSetup("v1", 0, 3 * _S), 3)
    acked = events[events["ctl"]["kind"] == MAIN]["rs"]["acked_sacked"]
    assert (acked[:10] == 1).all()
    assert acked[-500:].mean() > 1.7


@pytest.mark.parametrize("memory", [60_000, 200_000])
def test_the_receivers_memory_bounds_the_window(memory: int) -> None:
    path = _path(rate_bps=100_000_000, limit_packets=400, memory_bytes=memory)
    outcome = _alone(path, FlowSetup("v3", 0, 5 * _S), 5)
    window = int(outcome.flows["rcv_ssthresh"][0])
    assert memory // 2 < window < 160_000
    assert goodput_mbps(outcome)[0] < window * 8 / _RTT
    free = _alone(_path(rate_bps=100_000_000, limit_packets=400), FlowSetup("v3", 0, 5 * _S), 5)
    # It grows with what the application reads in a round trip.
    assert free.flows["rcv_ssthresh"][0] > 2 * 100_000_000 // 8 * _RTT // _S


def test_cubic_begins_anew_after_a_timeout() -> None:
    """cubictcp_state(): nothing that CUBIC knew of the path is kept, HyStart looks again."""
    down = ((5 * _S, "outage", 1.5 * _S),)
    path = _path(changes=down)
    before = _alone(path, FlowSetup("cubic", 0, 9 * _S), 4.9).flows
    assert before["ca_found"][0] == 1
    assert before["ca_w_max"][0] > 40
    after = _alone(path, FlowSetup("cubic", 0, 9 * _S), 6.4).flows
    for name in ("ca_found", "ca_w_max", "ca_delay_min", "ca_epoch"):
        assert after[name][0] == 0, name


@pytest.mark.parametrize("control", ["cubic", "reno", "vegas"])
def test_a_pause_ends_the_cwnd_of_loss_based_controls(control: str) -> None:
    """tcp_cwnd_restart(): a half for each timeout, down to 10, and ssthresh stays."""
    cwnd = {}
    for pause_us in (200_000, 3 * _S):
        flow = FlowSetup(control, 0, 60 * _S, kind="on-off", on_us=_S, off_us=pause_us)
        # The application begins 0.1 s after the flow; 20 ms after the pause no ACK has come.
        outcome = _alone(_path(limit_packets=66, **_IDLE), flow, (pause_us + 1.125 * _S) / _S)
        assert outcome.flows["is_on"][0] == 1
        assert outcome.events["tp"]["packets_out"][0] > 0
        cwnd[pause_us] = int(outcome.events["tp"]["snd_cwnd"][0])
        assert outcome.events["tp"]["snd_ssthresh"][0] > 10
    assert cwnd[200_000] > 14
    assert cwnd[3 * _S] == 10


def test_a_seed_repeats_a_run() -> None:
    path = _path(loss=0.01, jitter_us=500)
    got = [_alone(path, FlowSetup("v3", 0, 3 * _S), 3, seed).flows for seed in (1, 1, 2)]
    assert (got[0] == got[1]).all()
    assert got[0]["rcv_nxt"][0] != got[2]["rcv_nxt"][0]
