"""Paths that are fitted from recordings alone, beside what is written down of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...probes.base.errors import BbrscopeError
from ..replay.run_info import run_info
from .recorded_world import RecordedWorld, recorded_world
from .world.world_setup import PathSetup

if TYPE_CHECKING:
    import duckdb


def as_markdown(con: duckdb.DuckDBPyConnection, runs: Mapping[str, int]) -> str:
    """A table of the runs, by name and run_id: written down / fitted; -: nobody wrote it down."""
    heads = ["recording", *_QUANTITIES, "application, Mbit/s", "CUBIC from, s"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name, run_id in runs.items():
        try:
            info = run_info(con, run_id)
            fitted = recorded_world(con, info, alone=True)
            known = recorded_world(con, info)
        except BbrscopeError as error:
            lines.append(f"| {name} | {error.fact} {'| ' * (len(heads) - 1)}|")
            continue
        cells = [_cell(shown, known, fitted) for shown in _QUANTITIES.values()]
        for of_flows in (_limit, _others):
            written = of_flows(known) if known.is_described else "-"
            cells.append(f"{written} / {of_flows(fitted)}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(shown: Callable[[PathSetup], str], known: RecordedWorld, fitted: RecordedWorld) -> str:
    written = shown(known.setup.path) if known.is_described else "-"
    return f"{written} / {shown(fitted.setup.path)}"


def _limit(world: RecordedWorld) -> str:
    """The rate that the first flow's application writes at."""
    rate = world.setup.flows[0].rate_bps
    return f"{rate / 1e6:.2f}" if rate else "all"


def _others(world: RecordedWorld) -> str:
    """When flows without BBR began."""
    begun = [flow.start_us / 1e6 for flow in world.setup.flows if flow.version is None]
    return ", ".join(f"{each:.1f}" for each in begun) or "none"


def _buffer(path: PathSetup) -> str:
    if path.policer:
        return f"none, a bucket of {path.burst_bytes // (path.mss + path.headers)}"
    return str(path.limit_packets or path.limit_bytes // (path.mss + path.headers))


def _changes(path: PathSetup) -> str:
    words = (
        f"{value / 1e6:.1f} Mbit/s at {at / 1e6:.1f} s"
        if what == "rate"
        else f"{what} {value / 1e6:.1f} s at {at / 1e6:.1f} s"
        for at, what, value in path.changes
    )
    return ", ".join(words) or "none"


_QUANTITIES: Mapping[str, Callable[[PathSetup], str]] = {
    "rate, Mbit/s": lambda path: f"{path.rate_bps / 1e6:.2f}",
    "shortest RTT, ms": lambda path: f"{(path.rtt_us - path.reorder_us) / 1e3:.2f}",
    "buffer, packets": _buffer,
    "random loss, %": lambda path: f"{100 * path.loss:.2f}",
    "others wait, ms": lambda path: f"{path.reorder_us / 1e3:.1f}",
    "marks from, ms": lambda path: f"{path.marks_us / 1e3:.1f}",
    "changes": _changes,
}
