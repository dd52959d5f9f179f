"""How long runs take: on a host by the clock, in a guest by the packets that it must move."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .lab_points import FlowSpec, LabPoint
from .units import PACKET_BYTES

# Attaching the probes, building and removing the testbed.
HOST_S = 6.0
# In a guest (measured on one core of 2026, TCG): booting; building and removing the testbed; the
# probes' compilation; a second of traffic with the samplers; a packet through all hops, recorded:
# 1 ms on a machine that does nothing else, 3 ms where others use its caches.
BOOT_S = 15.0
VM_RUN_S = 12.0
VM_ATTACH_S = 30.0
VM_SECOND_S = 0.2
VM_PACKET_S = 0.0015


def traffic_s(point: LabPoint) -> float:
    """Return the seconds that the traffic takes, fewer if all flows send a fixed size."""
    sizes = sum(flow.size_bytes for flow in point.flows)
    if any(flow.kind != "fixed-size" for flow in point.flows):
        return point.duration_us / 1e6
    return min(1.2 * sizes * 8 / point.path.rate_bps + 1, point.duration_us / 1e6)


def host_s(point: LabPoint) -> float:
    """Return the seconds that a run takes on a host."""
    return HOST_S + traffic_s(point)


def carried_bits(point: LabPoint, seconds: float) -> float:
    """Return how many bits the path carries at most, or fewer where all flows send less."""
    steps = [(0.0, point.path.rate_bps)]
    steps += [(c.at_us / 1e6, int(c.value)) for c in point.changes if c.what == "rate"]
    ends = [*(min(at, seconds) for at, _ in steps[1:]), seconds]
    spans = zip(steps, ends, strict=True)
    carried = sum(rate * max(end - at, 0.0) for (at, rate), end in spans)
    asked = [_asked_bits(flow, seconds) for flow in point.flows]
    return min(carried, sum(asked))


def _asked_bits(flow: FlowSpec, seconds: float) -> float:
    """Return the bits that a flow sends if the path lets it; infinity for bulk."""
    if flow.kind == "rate-limited":
        return flow.rate_bps * seconds
    if flow.kind == "fixed-size":
        return flow.size_bytes * 8.0
    return math.inf


def vm_s(point: LabPoint) -> float:
    """Return the wall seconds that a run takes in a guest which is up."""
    seconds = traffic_s(point)
    packets = carried_bits(point, seconds) / 8 / PACKET_BYTES
    attach = VM_ATTACH_S if any(flow.cc.startswith("bbr") for flow in point.flows) else 0
    return VM_RUN_S + attach + seconds * VM_SECOND_S + packets * VM_PACKET_S


def total_s(points: Iterable[LabPoint], vm: bool) -> float:
    """Return the seconds for all of these runs, one after the other."""
    return sum((vm_s if vm else host_s)(point) for point in points) + (BOOT_S if vm else 0)


def words(seconds: float) -> str:
    """Return a duration as people say it: 40 s, 7 min, 2.5 h, 3 d."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} d"
