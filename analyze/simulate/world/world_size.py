"""How large a world is: segments of a flow that may be in flight, and packets in all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ....probes.base.errors import ScenarioError
from ....probes.base.plurals import plural

if TYPE_CHECKING:
    from .world_setup import FlowSetup, Setup

RMEM = 6 << 20  # net.ipv4.tcp_rmem's third value
_MOST_SEGMENTS = 1 << 24
_MOST_SENT = 10**10  # packets: about an hour of one core
_SPARE = 512


def window_bits(setup: Setup) -> int:
    """log2 of segments in flight: four BDPs and twice the buffer, or four times the bucket.

    Never more than twice what the receive buffer holds, or than all that the longest flow sends,
    plus 512; never below 10 bits.

    Raises:
        ScenarioError: all flows' do not fit into memory, or the run would take hours.
    """
    path = setup.path
    rtts = [path.rtt_us, *(int(v) for _, what, v in path.changes if what == "rtt")]
    rtt = max(rtts) + max(flow.extra_rtt_us for flow in setup.flows)
    frame = path.mss + path.headers
    packets = 4 * int(_fastest_bps(setup)) * rtt // 8_000_000 // frame + 2 * path.limit_packets
    packets += (2 * path.limit_bytes + 4 * path.burst_bytes * path.policer) // frame
    packets = min(packets, (path.memory_bytes or RMEM) // path.mss * 2)
    packets = min(packets, max(_segments(flow, path.mss, packets) for flow in setup.flows))
    bits = max(10, math.ceil(math.log2(max(packets, 1) + _SPARE)))
    n = len(setup.flows)
    if n << bits > _MOST_SEGMENTS:
        raise ScenarioError(
            f"up to {plural(1 << bits, 'segment')} in flight for each of {plural(n, 'flow')} do"
            " not fit"
            " into memory",
            "a smaller rate, round trip, buffer or memory needs fewer",
        )
    if (most := _sent_at_most(setup, bits)) > _MOST_SENT:
        why = f"up to {most:.0e} packets to simulate take hours"
        raise ScenarioError(why, "a lower rate or a shorter run has fewer")
    return bits


def _fastest_bps(setup: Setup) -> float:
    path = setup.path
    return max([path.rate_bps, *(value for _, what, value in path.changes if what == "rate")])


def _segments(flow: FlowSetup, mss: int, most: int) -> int:
    """Segments that a flow sends in all if its size is fixed; else `most`."""
    return -(-flow.size_bytes // mss) if flow.kind == "fixed-size" else most


def _sent_at_most(setup: Setup, bits: int) -> float:
    """Packets that the link can carry, or that all windows let go in as many round trips."""
    path = setup.path
    rtt_us = min([path.rtt_us, *(value for _, what, value in path.changes if what == "rtt")])
    of_link = _fastest_bps(setup) / 8e6 / (path.mss + path.headers)
    return setup.duration_us * min(of_link, (len(setup.flows) << bits) / max(rtt_us, 1))
