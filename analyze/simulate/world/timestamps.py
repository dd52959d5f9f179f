"""TCP's timestamps: milliseconds of a clock that a run begins at any point of."""

from __future__ import annotations

from ....probes.base.jit import jit
from .places import Sim, world_of

_MS = 1_000_000


@jit
def timestamp_ms(s: Sim, at_ns: int) -> int:
    """tcp_time_stamp_raw() at a time of the world."""
    return (at_ns + world_of(s).timestamp_phase_ns) // _MS
