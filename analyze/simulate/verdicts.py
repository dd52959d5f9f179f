"""What may be claimed of a run under other rules: verdicts, and how often they are right.

A difference within the error is none, another is what the median says. That is claimed outright
only if it holds for every value of the interval, as tests of equivalence do (Schuirmann 1987):
where some of its values differ from what was recorded and others do not, the verdict says what is
left, and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .known_errors import (
    TOLERANCES,
    Interval,
    KnownError,
    Predicted,
    expected,
    is_measured,
    of_others,
    with_own_error,
)

# Why a verdict is not sure: the interval of which step is the first that leaves more than one
# answer; FIT: that of none, but the path is not the run's; FAR: nothing is known of such runs.
CHANCE, PATH, OWN_RULES, ENGINE, FIT = "chance", "path", "own rules", "engine", "fit"
FAR = "far"

_DOUBTS = {
    CHANCE: "runs of one path differ as much by chance",
    PATH: "it hangs on what the recording does not show of the path",
    OWN_RULES: "its own rules, simulated, come out as far from what was recorded",
    ENGINE: "predictions of kernels are known to be as far off",
    FIT: "the recording shows what its fitted path does not have",
    FAR: "no prediction was measured of a run like this: with the same company on the path, and"
    " whose own rules, simulated, come out as far from what was recorded",
}
# What the values of an interval that leaves a doubt are, beside what was recorded.
_ALL = (-1, 0, 1)
_LEFT = {
    (-1, 0): "less or the same",
    (0, 1): "the same or more",
    _ALL: "less, the same or more",
}
_QUANTITIES = {
    "goodput_mbps": ("carried", "Mbit/s"),
    "lost_packets": ("lost", "packets"),
    "rtt_p50_ms": ("seen", "ms"),
    "rtt_p95_ms": ("seen", "ms"),
}


@dataclass(frozen=True)
class Told:
    """What an interval says of the difference from what was recorded.

    Attributes:
        likeliest: -1, 0 or 1 (less, the same, more): 0 if what was recorded lies within the
            interval, or within the tolerance of its median, else what the median is.
        signs: which of these its values have; one, and no doubt: it is sure.
        doubt: why there are more, CHANCE: runs of one world differ as much from seed to seed; PATH:
            so do the worlds that the recording does not tell apart; OWN_RULES: the recorded rules
            come out as far from what was recorded; ENGINE: so do predictions of kernels. FIT: there
            is one, of a path that is not the run's. FAR: what the interval leaves out may be
            true, since none of the known errors is of such a run. Empty: there is
            one.
    """

    likeliest: int
    signs: tuple[int, ...]
    doubt: str = ""


def verdict(
    name: str,
    recorded: float,
    simulated: Sequence[Interval],
    own: float,
    interval: Interval,
    *,
    is_covered: bool = True,
    is_measured: bool = True,
) -> Told:
    """Whether a kernel under the other rules would have come to less, the same or more.

    Args:
        name: one of METRICS.
        recorded, own: as `expected` has them.
        simulated: [5 %, median, 95 %] over the seeds, of each world that the run may have had.
        interval: between what a kernel's run lies, which `expected` returns.
        is_covered: the fitted path has what the recording shows.
        is_measured: see `is_measured` of known_errors.py.
    """
    low, middle, high = interval
    signs = _signs(name, recorded, low, high)
    likeliest = 0 if low <= recorded <= high else TOLERANCES[name].sign(recorded, middle)
    if not is_measured and len(signs) < len(_ALL):
        return Told(likeliest, _ALL, FAR)
    if len(signs) == 1:
        return Told(likeliest, signs, "" if is_covered else FIT)
    all_worlds = min(one[0] for one in simulated), interval[1], max(one[2] for one in simulated)
    steps = [(CHANCE, (low, high)) for low, _, high in simulated]
    steps += [
        (PATH, (all_worlds[0], all_worlds[2])),
        (OWN_RULES, with_own_error(name, all_worlds, recorded, own)),
    ]
    doubts = (doubt for doubt, ends in steps if len(_signs(name, recorded, *ends)) > 1)
    return Told(likeliest, signs, next(doubts, ENGINE))


def words(name: str, rules: str, recorded: float, interval: Interval, said: Told) -> str:
    """A verdict in words: what `rules` would have come to, and what is not sure of it."""
    low, _, high = interval
    done, unit = _QUANTITIES[name]
    room = f"{low:.4g} to {high:.4g} {unit}"
    sure = not said.doubt
    if said.likeliest == 0:
        none = "no difference" if sure else "no difference that can be told"
        text = f"{none}: {room}, recorded is {recorded:.4g}"
    else:
        would = "would have" if sure else "would probably have"
        text = f"{rules} {would} {done} {room} instead of {recorded:.4g}"
    if sure:
        return text
    left = f", {_LEFT[said.signs]}" if said.signs in _LEFT else ""
    return f"{text}{left}: {_DOUBTS[said.doubt]}"


def _signs(name: str, recorded: float, low: float, high: float) -> tuple[int, ...]:
    """The signs of all values from `low` to `high` against what was recorded."""
    tolerance = TOLERANCES[name]
    return tuple(range(tolerance.sign(recorded, low), tolerance.sign(recorded, high) + 1))


@dataclass(frozen=True)
class Coverage:
    """How often predictions of one quantity were right, of `pairs`.

    Attributes:
        agree: the kernel's value lies within the seeds' interval, or within the tolerance.
        in_seeds, in_interval: it lies within the seeds' interval; within the one that is printed.
        likeliest: what the verdict says first, less, the same or more, is true.
        told: it is sure of that, and right.
        half, open: it leaves two of them, the true one among these; it leaves all three.
        false, wrong, missed: it leaves the true one out, and claims a difference where there is
            none, or one of the wrong sign; or leaves none, or a wrong one, where there is one.
    """

    pairs: int
    agree: int
    in_seeds: int
    in_interval: int
    likeliest: int
    told: int
    half: int
    open: int
    false: int
    wrong: int
    missed: int


def coverage(name: str, errors: Sequence[KnownError], known: Sequence[KnownError]) -> Coverage:
    """Judge each pair by what is known of other scenarios: what holds on recordings never seen."""
    counted: Counter[str] = Counter()
    for error in errors:
        others = of_others(
            known, error.scenario, error.source, described=error.described, company=error.company
        )
        counted.update(_judged(name, error.predicted[name], others))
    return Coverage(
        len(errors),
        *(counted[each] for each in ("agree", "in_seeds", "in_interval")),
        *(
            counted[each]
            for each in ("likeliest", "told", "half", "open", "false", "wrong", "missed")
        ),
    )


def _judged(name: str, one: Predicted, others: Sequence[KnownError]) -> list[str]:
    """What holds of a prediction, by the names of Coverage."""
    interval = expected(name, one.simulated, one.recorded, one.own, others)
    true = TOLERANCES[name].sign(one.recorded, one.kernel)
    like = is_measured(name, one.recorded, one.own, others)
    judged = verdict(name, one.recorded, [one.simulated], one.own, interval, is_measured=like)
    said = judged.signs
    in_seeds = one.simulated[0] <= one.kernel <= one.simulated[2]
    near = TOLERANCES[name].sign(one.kernel, one.simulated[1]) == 0
    held = {
        "agree": in_seeds or near,
        "in_seeds": in_seeds,
        "in_interval": interval[0] <= one.kernel <= interval[2],
        "likeliest": judged.likeliest == true,
        "told": said == (true,),
        "half": len(said) == 2 and true in said,
        "open": len(said) == 3,
        "false": true == 0 and 0 not in said,
        "wrong": said == (-true,) and true != 0,
        "missed": true not in said and 0 in said,
    }
    return [word for word, holds in held.items() if holds]
