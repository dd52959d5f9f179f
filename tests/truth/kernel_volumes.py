"""What the kernel works out of bandwidth, min_rtt and pacing rate: plain integers, nothing else.

Written from tcp_bbr.c (v1 and v3) and tcp_bbr2.c (v2alpha) for the parameters that no recording
here changes. Bandwidths are packets/us << 24, rates bytes/s, volumes packets, gains of 256.
"""

from __future__ import annotations

from dataclasses import dataclass

BW_SCALE, UNIT = 24, 256
UNSET = 0xFFFFFFFF
LOSS_THRESH = 5  # 2 % of 256
_MIN_CWND = 4
_MAX_TCP_HEADER = 320
_TSO_RTT_SHIFT = 9
_LOW_RATE = 1_200_000 // 8  # bbr_min_tso_rate


@dataclass(frozen=True)
class Path:
    """What volumes are worked out of, as the kernel has it when it asks for one.

    Attributes:
        version: 1, 2 or 3.
        gso_max_size: what the kernel was built with [bytes].
        bw: bbr_bw(); max_bw: bbr_max_bw().
        probes_up: PROBE_BW's phase is the one that probes: cycle_idx 0.
        init_cwnd: what stands for a BDP before the first RTT sample.
    """

    version: int
    gso_max_size: int
    min_rtt_us: int
    bw: int
    max_bw: int
    pacing_rate: int
    pacing_shift: int
    pacing_gain: int
    mss: int
    probes_up: bool
    init_cwnd: int

    def tso_goal(self) -> int:
        """bbr_tso_segs_goal(): segments of a burst."""
        volume = self.pacing_rate >> self.pacing_shift
        fewest = 2 if self.version == 3 or self.pacing_rate >= _LOW_RATE else 1
        if self.version > 1 and self.min_rtt_us >> _TSO_RTT_SHIFT < 32:
            volume += self.gso_max_size >> (self.min_rtt_us >> _TSO_RTT_SHIFT)
        volume = min(volume & UNSET, self.gso_max_size - 1 - _MAX_TCP_HEADER)
        goal = max(volume // self.mss, fewest)
        return min(goal, 127) if self.version == 1 else goal

    def bdp(self, bw: int, gain: int) -> int:
        """bbr_bdp(): rounded up after the gain."""
        if self.min_rtt_us == UNSET:
            return self.init_cwnd
        scaled = bw * self.min_rtt_us * gain >> 8
        return -(-scaled >> BW_SCALE)

    def quantized(self, volume: int) -> int:
        """bbr_quantization_budget(): room for three bursts, and for probing."""
        bursts = 3 * self.tso_goal()
        if self.version == 1:
            volume += bursts
            volume += volume % 2
        else:
            volume = max(volume, bursts, _MIN_CWND)
        return volume + 2 * self.probes_up

    def inflight(self, bw: int, gain: int) -> int:
        """bbr_inflight()."""
        return self.quantized(self.bdp(bw, gain))

    def in_net(self, in_flight: int, now_ns: int, departs_ns: int) -> int:
        """bbr_packets_in_net_at_edt(): what is on its way once the next burst departs."""
        waits_us = max(departs_ns - now_ns, 0) // 1000
        if self.pacing_gain > UNIT:
            in_flight += self.tso_goal()
        return max(in_flight - (self.bw * waits_us >> BW_SCALE), 0)

    def target_inflight(self, cwnd: int) -> int:
        """bbr_target_inflight(): the BDP, if cwnd is not less."""
        return min(self.inflight(self.bw, UNIT), cwnd)

    def aggregation(self, extra_acked: int) -> int:
        """bbr_ack_aggregation_cwnd(): no more than 100 ms bring."""
        return min(extra_acked, self.bw * 100_000 >> BW_SCALE)

    def probe_rtt_cwnd(self) -> int:
        """bbr_probe_rtt_cwnd(): v1 has a constant for it."""
        return _MIN_CWND if self.version == 1 else max(_MIN_CWND, self.bdp(self.bw, UNIT // 2))

    def rate(self, bw: int, gain: int, most: int) -> int:
        """bbr_bw_to_pacing_rate() [bytes/s]: one percent less, and no more than the socket may."""
        rate = (bw * self.mss * gain >> 8) * 990_000 >> BW_SCALE
        return min(max(rate, int(self.version > 1)), most)


def headroom(inflight_hi: int) -> int:
    """bbr_inflight_with_headroom(): 38/256 of the bound are left to others."""
    if inflight_hi == UNSET:
        return UNSET
    return max(inflight_hi - max(inflight_hi * 38 >> 8, 1), _MIN_CWND)


def until_too_high(tx_in_flight: int, lost: int, segments: int) -> int:
    """bbr_inflight_hi_from_lost_skb(): how far into the flight loss crossed its limit."""
    before, lost_before = tx_in_flight - segments, lost - segments
    if before < 0 or lost_before < 0:
        return UNSET
    budget = before * LOSS_THRESH + UNIT - 1 >> 8
    return before + (max(budget - lost_before, 0) << 8) // (UNIT - LOSS_THRESH)
