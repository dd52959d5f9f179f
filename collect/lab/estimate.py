"""How long runs take: on a host by the clock, in a guest by the packets that it must move."""

from __future__ import annotations

from collections.abc import Iterable

from .scenario import Point
from .units import PACKET_BYTES

# Attaching the probes, building and removing the testbed.
HOST_S = 6.0
# In a guest (measured on one core of 2026, TCG): booting; building and removing the testbed; the
# probes' compilation; a second of traffic with the samplers; a packet through all hops, recorded.
BOOT_S = 15.0
VM_RUN_S = 12.0
VM_ATTACH_S = 30.0
VM_SECOND_S = 0.2
VM_PACKET_S = 0.001


def traffic_s(point: Point) -> float:
    """Return how long the traffic takes: until all transfers of a fixed size are done."""
    sizes = sum(flow.size_bytes for flow in point.flows)
    if any(flow.kind != "fixed-size" for flow in point.flows):
        return point.duration_us / 1e6
    return min(1.2 * sizes * 8 / point.path.rate_bps + 1, point.duration_us / 1e6)


def host_s(point: Point) -> float:
    """Return the seconds that a run takes on a host."""
    return HOST_S + traffic_s(point)


def vm_s(point: Point) -> float:
    """Return the wall seconds that a run takes in a guest which is up."""
    seconds = traffic_s(point)
    packets = point.path.rate_bps / 8 / PACKET_BYTES * seconds
    attach = VM_ATTACH_S if any(flow.cc.startswith("bbr") for flow in point.flows) else 0
    return VM_RUN_S + attach + seconds * VM_SECOND_S + packets * VM_PACKET_S


def total_s(points: Iterable[Point], vm: bool) -> float:
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
