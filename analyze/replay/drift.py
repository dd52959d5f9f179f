"""Where two replays of the same events part, and how far apart they run from there on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..bbr import codes
from .passes import Array, Pass
from .prepare import FlowEvents

# Columns that both passes must watch, in this order.
WATCHED = ("bbr_mode", "bbr_cycle_idx", "bbr_inflight_hi")
_MODE, _CYCLE_IDX, _INFLIGHT_HI = range(len(WATCHED))
# Outputs this near to the recorded ones count as close.
_CLOSE = 0.05


@dataclass(frozen=True)
class Moment:
    """An event at which two replays part.

    Attributes:
        t_ns: its time on the run's clock.
        recorded, other: names of the decisions, or the outputs, under the recorded and other rules.
    """

    seq: int
    t_ns: int
    recorded: list[str]
    other: list[str]


@dataclass(frozen=True)
class Drift:
    """How far outputs lie apart after they have parted, and how far to trust the answer.

    Attributes:
        first_output: where the outputs differ first; None: nowhere.
        exact_share: share of the flow's time before any output differs: there the answer is exact.
        close_share: share of the remaining events with cwnd and pacing within 5 % of the recorded.
        same_phase_share: share of all events in the same mode and phase.
        mean_cwnd, mean_pacing: under the recorded and the other rules [packets; bytes/s].
        transitions: changes of mode or phase, likewise.
        final_inflight_hi: after the last event, likewise [packets; ~0U: unset].
    """

    first_output: Moment | None
    exact_share: float
    close_share: float
    same_phase_share: float
    mean_cwnd: tuple[float, float]
    mean_pacing: tuple[float, float]
    transitions: tuple[int, int]
    final_inflight_hi: tuple[int, int]


def _moment(
    events: FlowEvents, zero_ns: int, index: int, recorded: list[str], other: list[str]
) -> Moment:
    seq, ns = (int(events.columns[name][index]) for name in ("seq", "ns"))
    return Moment(seq, ns - zero_ns, recorded, other)


def first_other_decision(
    events: FlowEvents, zero_ns: int, recorded: Pass, other: Pass
) -> Moment | None:
    """The first event at which the two took different decisions (their evidence aside)."""
    assert recorded.decisions is not None
    assert other.decisions is not None
    a, b = recorded.decisions[:, :2], other.decisions[:, :2]
    shared = min(len(a), len(b))
    unequal = np.flatnonzero((a[:shared] != b[:shared]).any(axis=1))
    if not len(unequal) and len(a) == len(b):
        return None
    row = int(unequal[0]) if len(unequal) else shared
    index = min(int(rows[row, 0]) for rows in (a, b) if row < len(rows))
    return _moment(events, zero_ns, index, _names_at(a, index), _names_at(b, index))


def _names_at(decisions: Array, index: int) -> list[str]:
    """Names of the decisions of one event."""
    return [codes.CODES[int(code)].name for event, code in decisions if event == index]


def measure_drift(events: FlowEvents, zero_ns: int, recorded: Pass, other: Pass) -> Drift:
    """Compare outputs and phases of two passes over `events`, which watch `WATCHED`."""
    cwnd = (_output(recorded, "snd_cwnd"), _output(other, "snd_cwnd"))
    pacing = (_output(recorded, "sk_pacing_rate"), _output(other, "sk_pacing_rate"))
    parted = np.flatnonzero((cwnd[0] != cwnd[1]) | (pacing[0] != pacing[1]))
    index = int(parted[0]) if len(parted) else None
    phases = (_phases(recorded), _phases(other))
    return Drift(
        first_output=None if index is None else _first_output(events, zero_ns, index, cwnd, pacing),
        exact_share=1.0 if index is None else _time_share(events, index),
        close_share=1.0 if index is None else _close_share(index, cwnd, pacing),
        same_phase_share=_mean(phases[0] == phases[1], empty=1.0),
        mean_cwnd=(_mean(cwnd[0]), _mean(cwnd[1])),
        mean_pacing=(_mean(pacing[0]), _mean(pacing[1])),
        transitions=(_transitions(phases[0]), _transitions(phases[1])),
        final_inflight_hi=(_final_inflight_hi(recorded), _final_inflight_hi(other)),
    )


def _output(one: Pass, name: str) -> Array:
    values: Array = one.after["tp"][name].astype(float)
    return values


def _phases(one: Pass) -> Array:
    """Mode and phase after each event as one number."""
    phases: Array = one.history[:, _MODE] * 16 + one.history[:, _CYCLE_IDX]
    return phases


def _transitions(phases: Array) -> int:
    return int((np.diff(phases) != 0).sum())


def _final_inflight_hi(one: Pass) -> int:
    return int(one.history[-1, _INFLIGHT_HI]) if len(one.history) else 0


def _first_output(
    events: FlowEvents,
    zero_ns: int,
    index: int,
    cwnd: tuple[Array, Array],
    pacing: tuple[Array, Array],
) -> Moment:
    """The event whose outputs differ first, and the outputs."""
    recorded, other = (
        [f"snd_cwnd {int(cwnd[one][index])}", f"sk_pacing_rate {int(pacing[one][index])}"]
        for one in (0, 1)
    )
    return _moment(events, zero_ns, index, recorded, other)


def _time_share(events: FlowEvents, index: int) -> float:
    """Share of the flow's time before event `index`."""
    ns = events.columns["ns"].astype(np.int64)
    return int(ns[index] - ns[0]) / max(int(ns[-1] - ns[0]), 1)


def _close_share(index: int, *outputs: tuple[Array, Array]) -> float:
    """Share of the events from `index` on whose outputs are all close to the recorded ones."""
    close = [_is_close(recorded[index:], other[index:]) for recorded, other in outputs]
    return float(np.logical_and.reduce(close).mean())


def _is_close(recorded: Array, other: Array) -> Array:
    close: Array = np.abs(other - recorded) <= _CLOSE * np.maximum(recorded, 1)
    return close


def _mean(values: Array, empty: float = 0.0) -> float:
    return float(values.mean()) if len(values) else empty
