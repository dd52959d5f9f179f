"""How near simulations came to kernels' recordings, by kind of path: measured, and shipped.

`known_fidelity.json` has each recording beside simulations of its own world (`bbrscope simulate
--fidelity --json` writes it). What fidelity_notes.py says of a simulation follows from those of
its kind: the same version of BBR, on a path with nothing that this one does not have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from .known_errors import TOLERANCES, Interval, Tolerance
from .world.world_setup import Setup

_FILE = "known_fidelity.json"
# What BBR did, and what counts as no difference.
MILESTONES = {
    "startup_end_s": Tolerance(0.1),
    "first_inflight_hi": Tolerance(0.1, 2),
    "probes_per_min": Tolerance(0.1),
    "too_high": Tolerance(0, 0.1),
    "probe_rtts": Tolerance(0, 1),
} | dict.fromkeys(("share_up", "share_down", "share_cruise", "share_probe_rtt"), Tolerance(0, 0.02))
_AGREES_WITHIN = TOLERANCES | MILESTONES
# What a path has beside a rate, a round trip and a buffer, in words; in this order.
KINDS = {
    "loss": "random loss",
    "marks": "ECN marks",
    "reorder": "packets that overtake others",
    "rate": "a change of rate",
    "down": "an outage",
    "acks": "a loss of ACKs alone",
    "application": "an application that limits the rate",
    "shared": "several flows with BBR",
    "cubic": "CUBIC beside it",
}


@dataclass(frozen=True)
class KnownRun:
    """A recording beside its simulations: what was recorded, and [5 %, median, 95 %], by name.

    Names are METRICS and MILESTONES; NaN: it was never reached. `kinds` are of KINDS; `loss` is the
    path's random loss; `same_cause`: most seeds' STARTUP ended for the kernel's reason.
    """

    run: str
    version: str
    kinds: tuple[str, ...]
    loss: float
    same_cause: bool
    recorded: Mapping[str, float]
    simulated: Mapping[str, Interval]

    def agrees(self, name: str) -> bool:
        """Whether a quantity agrees, see `agrees`."""
        return agrees(name, self.recorded[name], self.simulated[name])

    def off(self, name: str) -> float:
        """How far the seeds' median is from what was recorded, as a share of it."""
        return self.simulated[name][1] / self.recorded[name] - 1 if self.recorded[name] else 0.0


def agrees(name: str, recorded: float, simulated: Interval) -> bool:
    """Whether the recorded value lies within the seeds' 5 % to 95 %, or within the tolerance.

    NaN, a milestone that was never reached, agrees with NaN alone.
    """
    low, middle, high = simulated
    if math.isnan(recorded) or math.isnan(middle):
        return math.isnan(recorded) == math.isnan(middle)
    return low <= recorded <= high or _AGREES_WITHIN[name].sign(recorded, middle) == 0


def kinds_of(setup: Setup) -> tuple[str, ...]:
    """What this world has of KINDS, in their order."""
    path, changed = setup.path, {what for _, what, _ in setup.path.changes}
    there = {
        "loss": path.loss > 0,
        "marks": path.marks_us > 0 or path.ecn,
        "reorder": path.reorder > 0,
        "application": any(flow.kind == "rate-limited" for flow in setup.flows),
        "shared": sum(flow.version is not None for flow in setup.flows) > 1,
        "cubic": any(flow.cc == "cubic" for flow in setup.flows),
    } | {what: what in changed for what in ("rate", "down", "acks")}
    return tuple(kind for kind in KINDS if there[kind])


def of_kind(setup: Setup) -> list[KnownRun]:
    """The recordings whose kind this world is of."""
    kinds, versions = set(kinds_of(setup)), {flow.version for flow in setup.flows}
    return [run for run in shipped() if run.version in versions and kinds.issuperset(run.kinds)]


def as_json(runs: Sequence[KnownRun]) -> str:
    """The recordings as `known_fidelity.json` has them: a list, one a line; null is NaN."""
    return "[\n" + ",\n".join(json.dumps(_document(run)) for run in runs) + "\n]"


def _document(run: KnownRun) -> dict[str, Any]:
    values = {
        name: {
            "recorded": _number(run.recorded[name]),
            "simulated": [_number(value) for value in run.simulated[name]],
        }
        for name in _AGREES_WITHIN
    }
    about = {"run": run.run, "version": run.version, "kinds": list(run.kinds), "loss": run.loss}
    return about | {"same_cause": run.same_cause, "values": values}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


@cache
def shipped() -> tuple[KnownRun, ...]:
    """What was measured with this engine."""
    rows = json.loads(resources.files(__package__).joinpath(_FILE).read_text())
    return tuple(_known_runs(rows))


def _known_runs(rows: list[dict[str, Any]]) -> Iterator[KnownRun]:
    for row in rows:
        recorded = {name: _value(one["recorded"]) for name, one in row["values"].items()}
        simulated = {}
        for name, one in row["values"].items():
            low, middle, high = map(_value, one["simulated"])
            simulated[name] = low, middle, high
        about = row["run"], row["version"], tuple(row["kinds"]), row["loss"], row["same_cause"]
        yield KnownRun(*about, recorded, simulated)


def _value(number: float | None) -> float:
    return math.nan if number is None else float(number)
