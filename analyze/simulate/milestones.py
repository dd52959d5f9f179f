"""What a run did by its state machine: STARTUP's end, the first bound, probes, time per phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..views.phase_names import PHASES
from .course import UNSET

Array = np.ndarray[Any, Any]
# Phases that are one thing in all versions.
_GROUPS = {
    "UP": ("PROBE_BW_UP", "PROBE_BW_1.25"),
    "DOWN": ("DRAIN", "PROBE_BW_DOWN", "PROBE_BW_0.75"),
    "CRUISE": ("PROBE_BW_CRUISE", "PROBE_BW_1.0", "PROBE_BW_LT", "PROBE_BW_REFILL"),
    "PROBE_RTT": ("PROBE_RTT",),
}
SHARES = tuple(f"share_{group.lower()}" for group in _GROUPS)
MILESTONES = ("startup_end_s", "first_inflight_hi", "probes_per_min", "too_high", "probe_rtts")
# Rounds with high ECN that end STARTUP: full_ecn_cnt.
_ECN_ROUNDS = 2


@dataclass(frozen=True)
class Milestones:
    """One run's, of its flows with BBR.

    Attributes:
        values: MILESTONES and SHARES by name; NaN: it never came to that. STARTUP's end [s since
            the flow began] and the first inflight_hi [packets] are the first flow's; probes per
            minute of a flow, the share of probes that went too high (v1: that lost packets),
            entries into PROBE_RTT, and shares of the time in groups of phases are all flows'.
        cause: why STARTUP ended: plateau, loss, ECN; empty: it did not.
    """

    values: dict[str, float]
    cause: str


def milestones(course: Array, flows: int) -> Milestones:
    """The milestones of a course (course.COURSE) of so many flows."""
    each = [course[course["flow"] == flow] for flow in range(flows)]
    each = [one for one in each if len(one) > 1]
    if not each:
        return Milestones(dict.fromkeys((*MILESTONES, *SHARES), np.nan), "")
    end, cause = _startup_end(each[0])
    bounds = each[0]["inflight_hi"][each[0]["inflight_hi"] != UNSET]
    seconds = sum(float(one["t_us"][-1] - one["t_us"][0]) for one in each) / 1e6
    probes = [high for one in each for high in _probes(one)]
    values = {
        "startup_end_s": end,
        "first_inflight_hi": float(bounds[0]) if len(bounds) else np.nan,
        "probes_per_min": 60 * len(probes) / max(seconds, 1e-3),
        "too_high": float(np.mean(probes)) if probes else np.nan,
        "probe_rtts": float(sum(len(_begins(one, _GROUPS["PROBE_RTT"])) for one in each)),
    }
    return Milestones(values | _shares(each), cause)


def _startup_end(course: Array) -> tuple[float, str]:
    """When the first callback found another phase than STARTUP, and why."""
    after = np.flatnonzero(course["phase"] != PHASES.index("STARTUP"))
    if not len(after):
        return np.nan, ""
    row = course[after[0]]
    seconds = float(row["t_us"] - course["t_us"][0]) / 1e6
    if row["inflight_hi"] == UNSET:
        return seconds, "plateau"
    return seconds, "ECN" if row["ecn_rounds"] >= _ECN_ROUNDS else "loss"


def _places(names: Sequence[str]) -> list[int]:
    return [PHASES.index(name) for name in names]


def _begins(course: Array, names: Sequence[str]) -> Array:
    """Rows that are the first in a stay in one of these phases."""
    inside = np.isin(course["phase"], _places(names))
    begins: Array = np.flatnonzero(inside & ~np.append(False, inside[:-1]))
    return begins


def _probes(course: Array) -> list[bool]:
    """For each probe that ended: whether it went too high."""
    inside = np.isin(course["phase"], _places(_GROUPS["UP"]))
    probes = []
    for first in _begins(course, _GROUPS["UP"]):
        after = np.flatnonzero(~inside[first:])
        if not len(after):
            continue
        begun, ended = course[max(first - 1, 0)], course[first + after[0]]
        lost = ended["lost"] > begun["lost"]
        probes.append(bool(lost if ended["too_high"] == UNSET else ended["too_high"]))
    return probes


def _shares(each: Sequence[Array]) -> dict[str, float]:
    """Shares of the time: a callback finds the phase that held since the one before."""
    held = np.zeros(len(PHASES))
    for one in each:
        phase, lasted = one["phase"][1:], np.diff(one["t_us"])
        known = phase != UNSET
        held += np.bincount(phase[known], lasted[known], len(PHASES))
    total = max(float(held.sum()), 1.0)
    parts = zip(SHARES, _GROUPS.values(), strict=True)
    return {name: float(held[_places(group)].sum()) / total for name, group in parts}
