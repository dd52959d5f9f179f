"""How far the engine is from kernels, as measured, and the intervals that follow.

What a kernel would do differs from a simulation of it for three reasons: chance (the spread over
the seeds), what is wrong in this recording's world (its own rules come out beside what was
recorded), and what is wrong in the engine. The last is measured: `known_errors.json` has pairs of
kernels' recordings of one scenario, each predicted from the other (`bbrscope simulate --pairs
--json` writes it). The interval of the first two is widened until it holds LEVEL of those
pairs: conformalized quantile regression (Romano, Patterson, Candes 2019), with each scenario
counting the same (Dunn, Wasserman, Ramdas 2022). It assumes nothing of the errors' distribution,
and has no setting. A recording's own scenario is left out, so that it is judged by others alone.

Values are compared in a scale in which an error is as likely at small values as at large ones: the
logarithm of goodput and RTTs, twice the square root of a count of losses (Anscombe 1948).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .world.world_setup import Setup

LEVEL = 0.90
Interval = tuple[float, float, float]
_FILE = "known_errors.json"
# Who shares the path with a flow with BBR, and by what errors such a run is judged: those of its
# like. Of several flows with BBR there are too few to judge by, and they take all. What a flow
# holds against others that it does not show is no matter of errors without them.
ALONE, WITH_BBR, WITH_UNSEEN = "alone", "with BBR", "with unseen"
_JUDGED_BY = {
    ALONE: (ALONE,),
    WITH_BBR: (ALONE, WITH_BBR, WITH_UNSEEN),
    WITH_UNSEEN: (WITH_UNSEEN,),
}
_LEAST = 1e-6


@dataclass(frozen=True)
class Tolerance:
    """What counts as no difference: the larger of `share` of a value and `room`, in its unit."""

    share: float
    room: float = 0.0

    def sign(self, value: float, other: float) -> int:
        """Whether `other` is less than, the same as, or more than `value`: -1, 0 or 1."""
        apart = other - value
        near = abs(apart) <= max(self.share * abs(value), self.room)
        return 0 if near else int(math.copysign(1, apart))


TOLERANCES = {
    "goodput_mbps": Tolerance(0.03),
    "lost_packets": Tolerance(0.15, 10),
    "rtt_p50_ms": Tolerance(0.05),
    "rtt_p95_ms": Tolerance(0.05),
}


@dataclass(frozen=True)
class Predicted:
    """A quantity of one recording, predicted from another, and what the kernel came to.

    `recorded` and `own` are of the recording that it is predicted from: what was recorded, and the
    median over the seeds under its own rules. `simulated` is [5 %, median, 95 %] over the seeds.
    """

    kernel: float
    recorded: float
    own: float
    simulated: Interval


@dataclass(frozen=True)
class KnownError:
    """One pair of kernels' recordings: `run` predicted from `source`, in the same scenario.

    `described`: the path came from the manifest's set-up, not from the recording alone. `company`:
    ALONE: one flow with BBR had the path, or all others are in the sums; WITH_BBR: there were
    several; WITH_UNSEEN: others that no row shows took a share of it.
    """

    scenario: str
    source: str
    run: str
    described: bool
    company: str
    predicted: Mapping[str, Predicted]


def company_of(setup: Setup) -> str:
    """Who shares a world's path, as `company` of KnownError."""
    if any(flow.unseen for flow in setup.flows):
        return WITH_UNSEEN
    return ALONE if sum(flow.version is not None for flow in setup.flows) == 1 else WITH_BBR


def as_json(errors: Sequence[KnownError]) -> str:
    """The errors as `known_errors.json` has them: a list, with one pair a line."""
    return "[\n" + ",\n".join(json.dumps(asdict(error)) for error in errors) + "\n]"


@cache
def shipped() -> tuple[KnownError, ...]:
    """The errors that were measured with this engine."""
    rows = json.loads(resources.files(__package__).joinpath(_FILE).read_text())
    return tuple(_known_error(row) for row in rows)


def _known_error(row: dict[str, object]) -> KnownError:
    values = row["predicted"]
    assert isinstance(values, dict)
    predicted = {
        name: Predicted(one["kernel"], one["recorded"], one["own"], tuple(one["simulated"]))
        for name, one in values.items()
    }
    words = str(row["scenario"]), str(row["source"]), str(row["run"])
    return KnownError(*words, bool(row["described"]), str(row["company"]), predicted)


def of_others(
    errors: Sequence[KnownError], scenario: str, run: str, *, described: bool, company: str
) -> list[KnownError]:
    """Errors to judge a recording by: of paths known as well as its own, and of other scenarios.

    `company` as of KnownError; there may be none.
    """
    left_out = {scenario} | {e.scenario for e in errors if run in (e.source, e.run)}
    return [
        e
        for e in errors
        if e.described == described
        and e.company in _JUDGED_BY[company]
        and e.scenario not in left_out
    ]


def expected(
    name: str, simulated: Interval, recorded: float, own: float, errors: Sequence[KnownError]
) -> Interval:
    """Between what a kernel's run lies with LEVEL, and the median over the seeds.

    Args:
        name: one of METRICS.
        simulated: [5 %, median, 95 %] over the seeds.
        recorded, own: what was recorded, and the median over the seeds under the recorded rules.
        errors: what is known of the engine; empty: nothing.
    """
    low, high = (_scaled(name, end) for end in with_own_error(name, simulated, recorded, own))
    by = _widening(name, errors)
    low, high = _unscaled(name, low - by), _unscaled(name, high + by)
    # Scaling to and fro moves a value by its last digits.
    return min(low, simulated[0]), simulated[1], max(high, simulated[2])


def with_own_error(
    name: str, simulated: Interval, recorded: float, own: float
) -> tuple[float, float]:
    """The ends of the seeds' interval, from its median at least as far as the own rules' error."""
    low, middle, high = (_scaled(name, value) for value in simulated)
    error = _own_error(name, recorded, own)
    ends = min(low, middle - error), max(high, middle + error)
    return _unscaled(name, ends[0]), _unscaled(name, ends[1])


def is_measured(name: str, recorded: float, own: float, errors: Sequence[KnownError]) -> bool:
    """Whether own rules of `errors` came out as far from what was recorded as here.

    Intervals hold what comes from the same distribution as the pairs that they were made from: of
    a recording whose own rules come out further off nothing is known. Arguments as of `expected`.
    """
    known = (error.predicted[name] for error in errors)
    most = max((_own_error(name, one.recorded, one.own) for one in known), default=-math.inf)
    return _own_error(name, recorded, own) <= most


def _own_error(name: str, recorded: float, own: float) -> float:
    """How far the own rules came out from what was recorded; scaled."""
    return abs(_scaled(name, recorded) - _scaled(name, own))


def _widening(name: str, errors: Sequence[KnownError]) -> float:
    """By how much intervals are widened at both ends to hold LEVEL of the pairs; scaled."""
    if not errors:
        return 0.0
    pairs = Counter(error.scenario for error in errors)
    beyond = np.array([_beyond(name, error.predicted[name]) for error in errors])
    weights = np.array([1 / pairs[error.scenario] for error in errors]) / len(pairs)
    # Of n pairs and the one to come, all alike, LEVEL is a little more than of the n alone.
    share = min(1.0, LEVEL * (1 + 1 / len(errors)))
    order = np.argsort(beyond)
    reached = np.cumsum(weights[order])
    place = min(int(np.searchsorted(reached, share - 1e-9)), len(order) - 1)
    return max(0.0, float(beyond[order][place]))


def _beyond(name: str, one: Predicted) -> float:
    """How far beyond its interval the kernel's value lies, negative: within it; scaled."""
    ends = with_own_error(name, one.simulated, one.recorded, one.own)
    low, high = (_scaled(name, end) for end in ends)
    kernel = _scaled(name, one.kernel)
    return max(low - kernel, kernel - high)


def _scaled(name: str, value: float) -> float:
    if name == "lost_packets":
        return 2 * math.sqrt(max(value, 0.0) + 3 / 8)
    return math.log(max(value, _LEAST))


def _unscaled(name: str, value: float) -> float:
    if name == "lost_packets":
        return max(0.0, max(value, 0.0) ** 2 / 4 - 3 / 8)
    return math.exp(value)
