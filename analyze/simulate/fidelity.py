"""How near the engine comes to kernels: recordings beside their own worlds, simulated.

Settings are the kernel's and the same for all recordings; only the path and the flows are the
recording's. A quantity agrees if the kernel's value lies within the seeds' range or the tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...probes.base.errors import BbrscopeError
from ..replay.run_info import run_info
from .closed_loop import check_fit, check_length, intervals, outcomes_of
from .course import recorded_course
from .known_errors import TOLERANCES, Interval, Tolerance
from .known_fidelity import MILESTONES, KnownRun, agrees, kinds_of
from .milestones import milestones
from .recorded_world import recorded_world

if TYPE_CHECKING:
    import duckdb

    from .closed_loop import SeedOutcome
    from .world.world_setup import Setup


# Of 20 seeds the 5 % and the 95 % are those of one seed: whether kernels lie within is then chance.
SEEDS = 40


@dataclass(frozen=True)
class ComparedColumn:
    """A column of the table: a quantity, its heading, and what counts as no difference."""

    name: str
    heading: str
    digits: int
    tolerance: Tolerance
    percent: bool = False


REACHED = tuple(
    ComparedColumn(name, heading, digits, TOLERANCES[name])
    for name, heading, digits in (
        ("goodput_mbps", "goodput, Mbit/s", 2),
        ("lost_packets", "packets lost", 0),
        ("rtt_p50_ms", "RTT median, ms", 1),
        ("rtt_p95_ms", "RTT 95 %, ms", 1),
    )
)
DONE = tuple(
    ComparedColumn(name, heading, digits, MILESTONES[name], percent)
    for name, heading, digits, percent in (
        ("startup_end_s", "STARTUP's end, s", 3, False),
        ("first_inflight_hi", "first inflight_hi", 0, False),
        ("probes_per_min", "probes per minute", 0, False),
        ("too_high", "too high, %", 0, True),
        ("probe_rtts", "PROBE_RTTs", 0, False),
        ("share_up", "UP, % of time", 1, True),
        ("share_down", "DOWN, %", 1, True),
        ("share_cruise", "CRUISE, %", 1, True),
        ("share_probe_rtt", "PROBE_RTT, %", 1, True),
    )
)
_BY_NAME = {column.name: column for column in (*REACHED, *DONE)}


@dataclass(frozen=True)
class Compared:
    """A recording beside its simulations: METRICS and milestones by name.

    `refused` says why there is no comparison. `cause` is why the recorded STARTUP ended,
    `same_cause` the share of seeds in which it ended for the same reason. `setup`: what was
    simulated; None: refused.
    """

    run: str
    recorded: Mapping[str, float]
    simulated: Mapping[str, Interval]
    refused: str = ""
    cause: str = ""
    same_cause: float = 1.0
    setup: Setup | None = None

    def agrees(self, name: str) -> bool:
        """Whether a quantity agrees, see known_fidelity.py."""
        return agrees(name, self.recorded[name], self.simulated[name])

    def known(self) -> KnownRun:
        """This comparison as `known_fidelity.json` has it. Raises ValueError: it was refused."""
        if self.setup is None:
            raise ValueError(self.refused)
        version = next(flow.version for flow in self.setup.flows if flow.version)
        about = self.run, version, kinds_of(self.setup), round(self.setup.path.loss, 6)
        return KnownRun(*about, _same(self), self.recorded, self.simulated)


def compare(
    con: duckdb.DuckDBPyConnection, runs: dict[str, int], seeds: int = SEEDS
) -> Iterator[Compared]:
    """Each run beside `seeds` simulations of its own world, by name and run_id."""
    for name, run_id in runs.items():
        try:
            info = run_info(con, run_id)
            world = recorded_world(con, info)
            check_length(world)
            outcomes = outcomes_of(world.setup, seeds)
            check_fit(world, intervals(outcomes))
        except BbrscopeError as error:
            yield Compared(name, {}, {}, error.fact)
            continue
        with_bbr = sum(flow.version is not None for flow in world.setup.flows)
        done = milestones(recorded_course(con, info), with_bbr)
        recorded = world.recorded | done.values
        same = float(np.mean([one.milestones.cause == done.cause for one in outcomes]))
        simulated = intervals(outcomes) | _of_milestones(outcomes)
        yield Compared(name, recorded, simulated, "", done.cause, same, world.setup)


def _of_milestones(outcomes: Sequence[SeedOutcome]) -> dict[str, Interval]:
    """[5 %, median, 95 %] of the seeds that came to it; NaN where fewer than half did."""
    by_name = {}
    for column in DONE:
        values = np.array([one.milestones.values[column.name] for one in outcomes])
        there = values[~np.isnan(values)]
        if 2 * len(there) < len(values):
            there = np.array([np.nan])
        low, middle, high = (float(each) for each in np.quantile(there, (0.05, 0.5, 0.95)))
        by_name[column.name] = (low, middle, high)
    return by_name


def as_markdown(rows: list[Compared]) -> str:
    """The tables of the docs: kernel, then [5 %, median, 95 %]; bold where they do not agree."""
    reached = _table(rows, REACHED, False)
    return "\n".join([*reached, "", *_table(rows, DONE, True)])


def _table(rows: list[Compared], columns: Sequence[ComparedColumn], with_cause: bool) -> list[str]:
    heads = [column.heading for column in columns]
    if with_cause:
        heads.insert(1, "because of")
    lines = [f"| recording | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for row in rows:
        if row.refused:
            lines += (
                [] if with_cause else [f"| {row.run} | refused: {row.refused} {'| ' * len(heads)}|"]
            )
            continue
        cells = [_cell(row, column.name) for column in columns]
        if with_cause:
            cells.insert(1, _cause(row))
        lines.append(f"| {row.run} | {' | '.join(cells)} |")
    there = [row for row in rows if not row.refused]
    agree = [str(sum(row.agrees(column.name) for row in there)) for column in columns]
    if with_cause:
        agree.insert(1, str(sum(_same(row) for row in there)))
    lines.append(f"| agree, of {len(there)} | {' | '.join(agree)} |")
    return lines


def _same(row: Compared) -> bool:
    return row.same_cause >= 0.5


def _cause(row: Compared) -> str:
    text = f"{row.cause or 'none'}: {100 * row.same_cause:.0f} % of the seeds"
    return text if _same(row) else f"**{text}**"


def _cell(row: Compared, name: str) -> str:
    column = _BY_NAME[name]
    scale = 100 if column.percent else 1

    def shown(value: float) -> str:
        return "-" if np.isnan(value) else f"{value * scale:.{column.digits}f}"

    low, middle, high = row.simulated[name]
    text = f"{shown(row.recorded[name])}: "
    text += "-" if np.isnan(middle) else ", ".join(map(shown, (low, middle, high)))
    return text if row.agrees(name) else f"**{text}**"
