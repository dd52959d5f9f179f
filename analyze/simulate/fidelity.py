"""How near the engine comes to kernels: recordings beside their own worlds, simulated.

Settings are the kernel's and the same for all recordings; only the path and the flows are the
recording's. A metric agrees if the kernel's value lies within the seeds' range or the tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...probes.base.errors import BbrscopeError
from ..replay import replay_runs
from .closed_loop import LEAST_SEEDS, Interval, check_fit, intervals, outcomes_of
from .recorded_world import METRICS, recorded_world

if TYPE_CHECKING:
    import duckdb

# Shares of the kernel's value; for losses also so many packets.
_TOLERANCE = {"goodput_mbps": 0.03, "lost_packets": 0.15, "rtt_p50_ms": 0.05, "rtt_p95_ms": 0.05}
_PACKETS = 10


@dataclass(frozen=True)
class Compared:
    """A recording beside its simulation; `refused` says why there is none."""

    run: str
    recorded: dict[str, float]
    simulated: dict[str, Interval]
    refused: str = ""

    def agrees(self, name: str) -> bool:
        """Whether a metric is within the seeds' range or the tolerance."""
        value, (low, middle, high) = self.recorded[name], self.simulated[name]
        room = _TOLERANCE[name] * value
        if name == "lost_packets":
            room = max(room, _PACKETS)
        return low <= value <= high or abs(middle - value) <= room


def compare(
    con: duckdb.DuckDBPyConnection, runs: dict[str, int], seeds: int = LEAST_SEEDS
) -> Iterator[Compared]:
    """Each run beside `seeds` simulations of its own world, by name and run_id."""
    for name, run_id in runs.items():
        try:
            world = recorded_world(con, replay_runs.run_info(con, run_id))
            simulated = intervals(outcomes_of(world.setup, seeds))
            check_fit(world, simulated)
        except BbrscopeError as error:
            yield Compared(name, {}, {}, error.fact)
        else:
            yield Compared(name, world.recorded, simulated)


def as_markdown(rows: list[Compared]) -> str:
    """The table of the docs: kernel, then [5 %, median, 95 %]; bold where they do not agree."""
    lines = ["| recording | goodput, Mbit/s | packets lost | RTT median, ms | RTT 95 %, ms |"]
    lines.append("|---|---|---|---|---|")
    for row in rows:
        if row.refused:
            lines.append(f"| {row.run} | not simulated: {row.refused} | | | |")
            continue
        cells = [_cell(row, name) for name in METRICS]
        lines.append(f"| {row.run} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Compared, name: str) -> str:
    digits = 0 if name == "lost_packets" else 2 if name == "goodput_mbps" else 1
    low, middle, high = (f"{value:.{digits}f}" for value in row.simulated[name])
    text = f"{row.recorded[name]:.{digits}f}: {low}, {middle}, {high}"
    return text if row.agrees(name) else f"**{text}**"
