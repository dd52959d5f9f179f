"""The three clocks of a recording, read together, so that BPF time and packet time join."""

from __future__ import annotations

import time
from dataclasses import dataclass

# Events carry CLOCK_MONOTONIC, packets CLOCK_REALTIME, queue samples CLOCK_BOOTTIME.
TRIES = 21


@dataclass(frozen=True)
class ClockReading:
    """One joint reading, all in ns; `uncertainty_ns` is how long the reading itself took."""

    realtime_ns: int
    monotonic_ns: int
    boottime_ns: int
    uncertainty_ns: int

    @property
    def offset_ns(self) -> int:
        """What must be added to monotonic time to get realtime."""
        return self.realtime_ns - self.monotonic_ns

    def as_dict(self) -> dict[str, int]:
        """The reading as the manifest has it."""
        return {
            "realtime_ns": self.realtime_ns,
            "monotonic_ns": self.monotonic_ns,
            "boottime_ns": self.boottime_ns,
            "uncertainty_ns": self.uncertainty_ns,
        }


def sample() -> ClockReading:
    """Read the clocks several times and keep the reading that was interrupted least."""
    return min((_once() for _ in range(TRIES)), key=lambda each: each.uncertainty_ns)


def _once() -> ClockReading:
    before = time.monotonic_ns()
    real = time.clock_gettime_ns(time.CLOCK_REALTIME)
    boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    after = time.monotonic_ns()
    return ClockReading(real, (before + after) // 2, boot, after - before)


def describe(start: ClockReading, end: ClockReading) -> dict[str, object]:
    """The manifest's `clocks`: both samples, offset and drift of realtime against monotonic."""
    drift = end.offset_ns - start.offset_ns
    span = max(end.monotonic_ns - start.monotonic_ns, 1)
    return {
        "start": start.as_dict(),
        "end": end.as_dict(),
        "offset_ns": start.offset_ns,
        "drift_ns": drift,
        "drift_ppm": round(1e6 * drift / span, 3),
        "uncertainty_ns": start.uncertainty_ns + end.uncertainty_ns,
    }
