"""The tables under the charts: every phase change and every change of a bound, with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...analyze import explain
from ...analyze.bbr.codes import kernel_function
from ...analyze.sentences import value
from .prose import fragment
from .select import Flow, Run

if TYPE_CHECKING:
    import duckdb

# Longer tables slow a browser down, so flows share as many rows; what is left out is in `bbrscope
# explain`.
MOST_ROWS, LEAST_ROWS = 1500, 150
_WITHOUT = {
    "GAP": "The recording lacks events here: why it happened is not known.",
    "SAMPLED": "Seen by sampling: why it happened is not recorded.",
    "MID_FLOW": "The recording starts in the middle of the flow, in this phase.",
    None: "No decision is known: the run was not replayed.",
}


@dataclass(frozen=True)
class Line:
    """A row of a table: when (seconds, on the axis and since the flow began), what and why.

    `a` and `b` are the window that a click opens; `source` is the kernel function that decided.
    """

    at: float
    flow_at: float
    a: float
    b: float
    what: str
    old: str
    new: str
    code: str
    source: str
    why: str

    @property
    def href(self) -> str:
        return fragment(self.a, self.b)


@dataclass(frozen=True)
class Listing:
    """Rows of a table, and how many were left out of it."""

    lines: list[Line]
    left_out: int = 0


@dataclass(frozen=True)
class Listings:
    """What a flow did: its phases; its bounds, and what TCP did to the window behind BBR's back."""

    phases: Listing
    bounds: Listing


def listings(con: duckdb.DuckDBPyConnection, run: Run, flow: Flow) -> Listings:
    """Return the tables of a flow."""
    (facts,) = [one for one in explain.flows_of(con, run.row["run_id"]) if one.flow == flow.number]
    story = explain.story(con, facts)
    phases = [line for line in story if line.about == "phase"]
    return Listings(
        _phases(run, flow, phases),
        _bounds(run, flow, [line for line in story if line.about != "phase"]),
    )


def _phases(run: Run, flow: Flow, lines: list[explain.Line]) -> Listing:
    """Of very many changes, those of the mode alone."""
    made = []
    for index, line in enumerate(lines):
        before = line.t_ns - lines[index - 1].t_ns if index else 0
        after = lines[index + 1].t_ns - line.t_ns if index + 1 < len(lines) else 0
        made.append(_line(run, flow, line, _around(before), _around(after)))
    most = _most(run)
    if len(made) <= most:
        return Listing(made)
    kept = [line for line in made if _mode(line.old) != _mode(line.new)][:most]
    return Listing(kept, len(made) - len(kept))


def _most(run: Run) -> int:
    return max(LEAST_ROWS, MOST_ROWS // max(1, len(run.main)))


def _mode(phase: str) -> str:
    return "PROBE_BW" if phase.startswith("PROBE_BW") else phase


def _around(ns: int) -> float:
    """As much of a phase as shows it, but not so much that the change gets lost; seconds."""
    return min(max(0.7 * ns / 1e9, 0.03), 1.0)


def _bounds(run: Run, flow: Flow, lines: list[explain.Line]) -> Listing:
    """Of very many changes, the first."""
    made = [_line(run, flow, line, 0.25, 0.25) for line in lines[: _most(run)]]
    return Listing(made, len(lines) - len(made))


def _line(run: Run, flow: Flow, line: explain.Line, before: float, after: float) -> Line:
    at = run.us(line.t_ns + flow.row["first_ns"]) / 1e6
    version = run.row["version"]
    return Line(
        at,
        line.t_ns / 1e9,
        at - before,
        at + after,
        line.about,
        _value(line, line.old),
        _value(line, line.new),
        line.name or "",
        kernel_function(line.reasons[0].code, version) if line.reasons else "",
        _why(line),
    )


def _value(line: explain.Line, number: str | int | None) -> str:
    """A phase's name, packets, or Mbit/s for a bandwidth."""
    if number is None or isinstance(number, str):
        return number or ""
    return value("old_bw" if line.about == "bw_lo" else "old", number, line.mss)


def _why(line: explain.Line) -> str:
    told = [reason.sentence for reason in line.reasons] or [_WITHOUT.get(line.name, "")]
    if line.doubt:
        told.append(f"({line.doubt})")
    return " ".join(told)
