"""Run as plain Python by test_variants.py: single callbacks of the variants, and short simulations.

Prints one JSON object of what came out; the numbers that it must be are in the test.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from bbrscope.analyze.bbr import codes, params
from bbrscope.analyze.bbr.log import COLUMNS
from bbrscope.analyze.bbr.plain import records
from bbrscope.analyze.bbr.records import (
    BBR_DRAIN,
    BBR_PROBE_BW,
    EVENT,
    MAIN,
    STATE,
)
from bbrscope.analyze.bbr.variants.catalogue import VARIANTS, load
from bbrscope.analyze.bbr.versions import v1, v3
from bbrscope.analyze.simulate.simulation import goodput_mbps, simulate
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.world.worlds import with_control

UNSET = 2**32 - 1
BW = 100_000  # packets/us << 24; with 40 ms a BDP of 239 packets
VERSIONS = {"v1": v1, "v3": v3}


class Flow:
    """A flow in PROBE_BW on which ACKs are tried."""

    def __init__(self, name: str, **fields: int) -> None:
        if name in VARIANTS:
            one = load(name)
            base, own, self.dispatch, self.init = one.base, one.params, one.dispatch, one.bbr_init
        else:
            base, own, self.dispatch = name, {}, VERSIONS[name].dispatch
        made = params.make(params.DEFAULTS[base] | own | {"HZ": 1000})
        self.bbr, self.event, self.p = (
            records(each)[0] for each in (np.zeros(1, STATE), np.zeros(1, EVENT), made)
        )
        self.seen: list[str] = []
        state = {"mode": BBR_PROBE_BW, "min_rtt_us": 40_000, "probe_rtt_min_us": 40_000} | {
            "bw_lo": UNSET,
            "inflight_lo": UNSET,
            "inflight_hi": UNSET,
            "bw_probe_up_cnt": UNSET,
            "has_seen_rtt": 1,
            "full_bw_reached": 1,
            "pacing_gain": 256,
            "cwnd_gain": 512,
            "init_cwnd": 10,
            "initialized": 1,
            "min_rtt_stamp": 100_000,
            "probe_rtt_min_stamp": 100_000,
            "cycle_mstamp": 9_000_000,
            "next_rtt_delivered": 5_000,
            "probe_wait_us": 2_000_000,
        }
        for field, value in (state | fields).items():
            setattr(self.bbr, field, value)
        for k in range(3):
            self.bbr.bw_v[k] = BW
        self.bbr.bw_hi[0] = BW
        self.tp = self.event.tp
        self.set(snd_cwnd=600, snd_cwnd_clamp=UNSET, mss_cache=1448, srtt_us=320_000)
        self.set(sk_pacing_rate=1_000_000, sk_max_pacing_rate=2**64 - 1, sk_pacing_shift=10)
        self.set(packets_out=240, jiffies32=100_001, jiffies32_late=100_001, delivered=4_000)

    def set(self, **fields: int) -> None:
        for field, value in fields.items():
            setattr(self.tp, field, value)

    def ack(self, after_us: int, in_flight: int = 240, rtt_us: int = 40_000, **rs: int) -> Flow:
        """An ACK of one packet, so long after cycle_mstamp."""
        now = 9_000_000 + after_us
        self.set(delivered_mstamp=now, tcp_mstamp=now)
        self.set(delivered=self.tp.delivered + 1)
        self.event.ctl.kind = MAIN
        sample = {"prior_in_flight": in_flight, "rtt_us": rtt_us, "delivered": 1, "losses": 0}
        sample |= {"interval_us": 40_000, "acked_sacked": 1, "is_app_limited": 0, "is_ece": 0}
        for field, value in (sample | {"prior_delivered": 4_000, "tx_in_flight": 9} | rs).items():
            setattr(self.event.rs, field, value)
        log = np.zeros((64, COLUMNS), np.int64)
        self.dispatch(self.bbr, self.event, self.p, log)
        self.seen = [codes.CODES[int(row[1])].name for row in log[1 : log[0, 0] + 1]]
        return self


def phase_of_075(name: str) -> list[int]:
    """cycle_idx after the phase of 0.75x at 80 ms in a queue, and at 20 ms without one."""
    return [
        Flow(name, cycle_idx=1, pacing_gain=192).ack(after, in_flight).bbr.cycle_idx
        for after, in_flight in ((80_000, 300), (20_000, 100))
    ]


def bbrplus(name: str) -> dict[str, Any]:
    """Begin a cycle with the draw 3; then 41 ms later with much and with little in flight."""
    flow = Flow(name)
    flow.set(rand_cycle=3)
    flow.ack(0)
    begun = [
        flow.bbr.cycle_idx,
        flow.bbr.variant[0],
        flow.bbr.pacing_gain,
        "CYC_BEGIN_RANDOM_LENGTH" in flow.seen,
    ]
    flow.ack(41_000, in_flight=400)
    much = flow.bbr.cycle_idx
    flow.bbr.cycle_idx = 0
    flow.ack(41_000, in_flight=100)
    little = flow.bbr.cycle_idx
    flow.bbr.cycle_idx = 2
    flow.ack(200_000)
    kept = flow.bbr.cycle_idx
    flow.ack(200_001)
    return {"begun": begun, "much": much, "little": little, "ends": [kept, flow.bbr.cycle_idx]}


def rtprop(name: str) -> list[int]:
    """RTprop and pacing gain after RTTs of 40, 60, 40 and 60 ms."""
    flow = Flow(name, cycle_idx=0)
    for rtt_us in (40_000, 60_000, 40_000, 60_000):
        flow.ack(0, rtt_us=rtt_us)
    return [flow.bbr.min_rtt_us, flow.bbr.pacing_gain]


def delay(name: str, rtt_us: int) -> list[Any]:
    """Mode, pacing gain and own decision after an RTT of 40 ms and another; then drained."""
    flow = Flow(name, cycle_idx=2).ack(0).ack(1, rtt_us=rtt_us)
    said = [each for each in flow.seen if each.startswith("PRTT_ENTER")]
    before = [flow.bbr.mode, flow.bbr.pacing_gain, said]
    flow.set(packets_out=238)
    return [*before, flow.ack(2).bbr.mode]


def marks() -> dict[str, Any]:
    """BBRv2-EXP: a round with marks in CRUISE; then an ACK without one; bw_bound after a cut."""
    from bbrscope.analyze.bbr.model.bandwidth import bbr_bw
    from bbrscope.analyze.bbr.variants import bbr2_exp

    flow = Flow("bbr2-exp", cycle_idx=2, inflight_hi=300, ecn_eligible=1, ecn_alpha=128)
    flow.ack(1, is_ece=1, delivered_ce=1)
    cut, phase = flow.bbr.bw_lo, flow.bbr.cycle_idx
    flow.ack(2)
    again = [flow.bbr.cycle_idx, flow.bbr.inflight_hi, flow.bbr.bw_lo]
    flow.bbr.ecn_alpha = 256
    bbr2_exp.cut_bw_bound(flow.bbr, flow.p, None)
    bbr2_exp.hold_bw_lo(flow.bbr)
    return {"cut": cut, "phase": phase, "again": again, "bw": bbr_bw(flow.bbr, flow.p)}


def lanigan_v2() -> dict[str, Any]:
    """The first max_bw in bit/s, the wait, and whether a packet of 100 is too much."""
    from bbrscope.analyze.bbr.model.upper_bounds import bbr_is_inflight_too_high

    flow = Flow("bbr2-lanigan-code", cycle_idx=2)
    flow.ack(1)
    wait = flow.bbr.probe_wait_us
    flow.event.rs.lost, flow.event.rs.tx_in_flight = 1, 100
    high = bbr_is_inflight_too_high(flow.bbr, flow.event.rs, flow.p)
    flow.bbr.mode = -1
    flow.init(flow.bbr, flow.tp, 40_000, flow.p, None)
    return {"bps": flow.bbr.bw_hi[0] * 1448 * 8e6 / 2**24, "wait": wait, "high": high}


def drain(name: str) -> list[int]:
    """The mode after each of six rounds of DRAIN whose queue does not go."""
    flow, modes = Flow(name, mode=BBR_DRAIN), []
    flow.set(packets_out=400)
    flow.ack(0)
    for _ in range(6):
        modes.append(flow.ack(1, in_flight=400, prior_delivered=6_000).bbr.mode)
        flow.bbr.next_rtt_delivered = 5_000
    return [*modes, flow.bbr.pacing_gain]


def mbps(name: str) -> float:
    """What a flow alone gets of 3 Mbit/s and 20 ms in a second."""
    path = PathSetup(3_000_000, 20_000, limit_packets=20)
    flow = with_control(FlowSetup("", 0, 1_000_000), name)
    return goodput_mbps(simulate(Setup(path, (flow,), 1_000_000)))[0]


def main() -> None:
    """Print everything."""
    found = {
        "0.75x": {name: phase_of_075(name) for name in ("v1", "bbr-prime", "bbr-lanigan-code")},
        "bbrplus": {name: bbrplus(name) for name in ("bbrplus", "bbrplus-lanigan-code")},
        "rtprop": {
            name: rtprop(name)
            for name in ("bbr-plus-0.5", "bbr-plus-0.125", "bbr-plus-lanigan-code")
        },
        "delay": [delay("delay-bbr", 48_800), delay("delay-bbr", 49_000)],
        "delay as run": delay("delay-bbr-lanigan-code", 80_000)[:3],
        "marks": marks(),
        "lanigan v2": lanigan_v2(),
        "drain": {name: drain(name) for name in ("v3", "bbr3-draft")},
        "mbps": {name: mbps(name) for name in VARIANTS} if "simulate" in sys.argv else {},
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
