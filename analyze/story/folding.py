"""Make a story short: steps of one bound, cycles that repeat, and restless stretches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .changes import BOUNDS, Change

_LONGEST_CYCLE = 24
# A cycle must repeat this often to be folded into one line.
_REPEATS = 3
# A stretch of PROBE_BW with fewer lines is written out.
_RESTLESS = 12


@dataclass(frozen=True)
class Cycle:
    """Changes that repeat: `lines` holds all of them, `length` of them make one cycle."""

    lines: tuple[Change, ...]
    length: int

    @property
    def repeats(self) -> int:
        """How often the cycle comes, its first time included."""
        return len(self.lines) // self.length

    def codes(self) -> list[tuple[Change, Counter[str]]]:
        """Per line of the cycle, the decisions that made its repetitions, and how often each."""
        return [
            (
                self.lines[i],
                Counter(
                    line.name or "unknown" for line in self.lines[self.length + i :: self.length]
                ),
            )
            for i in range(self.length)
        ]


@dataclass(frozen=True)
class Stretch:
    """Many changes within PROBE_BW that follow no pattern."""

    lines: tuple[Change, ...]

    def by_change(self) -> dict[tuple[str, str | None, str | None], Counter[str]]:
        """How often each decision made a change, by (about, old phase, new phase).

        The phases are None where the change is of a bound.
        """
        counters: dict[tuple[str, str | None, str | None], Counter[str]] = {}
        for line in self.lines:
            phases = (str(line.old), str(line.new)) if line.about == "phase" else (None, None)
            counter = counters.setdefault((line.about, *phases), Counter())
            counter[line.name or "unknown"] += line.count
        return counters

    def values(self, bound: str) -> list[int]:
        """Every value that a bound took, those between folded steps included."""
        return [
            int(number)
            for line in self.lines
            if line.about == bound
            for number in (line.old, *line.between, line.new)
            if number is not None
        ]


def fold_stretches(
    items: Sequence[Change | Cycle], probe_rtt: bool = False
) -> list[Change | Cycle | Stretch]:
    """Fold what lies between the rare changes (STARTUP, DRAIN, time-outs, policer).

    Args:
        probe_rtt: PROBE_RTT is not rare either, in a long recording.
    """
    folded: list[Change | Cycle | Stretch] = []
    stretch: list[Change] = []

    def close() -> None:
        folded.extend([Stretch(tuple(stretch))] if len(stretch) >= _RESTLESS else stretch)
        stretch.clear()

    for item in items:
        lines = [item] if isinstance(item, Change) else list(item.lines)
        if all(_is_routine(line, probe_rtt) for line in lines):
            stretch.extend(lines)
        else:
            close()
            folded.append(item)
    close()
    return folded


def _is_routine(line: Change, probe_rtt: bool) -> bool:
    if line.about in (*BOUNDS, "tlp"):
        return True
    return line.about == "phase" and all(
        (str(phase).startswith("PROBE_BW_") and phase != "PROBE_BW_LT")
        or (probe_rtt and phase == "PROBE_RTT")
        for phase in (line.old, line.new)
    )


def fold_steps(lines: Sequence[Change]) -> list[Change]:
    """Fold changes of one bound by the same decision within one phase into their first.

    A change is folded only if it goes on where the one before arrived, in the same phase: the
    lines may be a selection, in which neither phases nor other decisions are left.
    """
    folded: list[Change] = []
    latest: dict[str, int] = {}  # bound -> where in `folded` its latest change is
    for line in lines:
        at = latest.get(line.about)
        if at is not None and _goes_on(folded[at], line):
            first = folded[at]
            folded[at] = replace(
                first,
                new=line.new,
                count=first.count + line.count,
                until_ns=line.until_ns,
                last=line.last or line,
                between=(*first.between, line.old, *line.between),
            )
            continue
        if line.about in BOUNDS:
            latest[line.about] = len(folded)
        folded.append(line)
    return folded


def _goes_on(first: Change, line: Change) -> bool:
    return (first.name, first.doubt, first.phase_seq, first.new) == (
        line.name,
        line.doubt,
        line.phase_seq,
        line.old,
    )


def fold_repeated(lines: Sequence[Change]) -> list[Change]:
    """Fold runs of the same decision within a phase into their first, for lists of decisions."""
    folded: list[Change] = []
    for line in lines:
        if folded and (folded[-1].name, folded[-1].phase_seq) == (line.name, line.phase_seq):
            first = folded[-1]
            folded[-1] = replace(
                first, new=line.new, count=first.count + 1, until_ns=line.ns, last=line
            )
        else:
            folded.append(line)
    return folded


def fold_cycles(lines: Sequence[Change], repeats: int = _REPEATS) -> list[Change | Cycle]:
    """Fold stretches in which the same changes repeat, whatever decision made each."""
    keys = [_key(line) for line in lines]
    folded: list[Change | Cycle] = []
    i = 0
    while i < len(lines):
        length, times = _best_cycle(keys, i, repeats)
        if length:
            folded.append(Cycle(tuple(lines[i : i + length * times]), length))
            i += length * times
        else:
            folded.append(lines[i])
            i += 1
    return folded


def _key(line: Change) -> tuple[object, ...]:
    if line.about == "phase":
        return line.about, line.old, line.new, bool(line.doubt)
    return line.about, line.name, bool(line.doubt)


def _best_cycle(keys: Sequence[tuple[object, ...]], start: int, repeats: int) -> tuple[int, int]:
    """Length and number of the cycles that begin here and cover most; (0, 0) if none repeats."""
    best = (0, 0)
    for length in range(1, min(_LONGEST_CYCLE, (len(keys) - start) // repeats) + 1):
        block = keys[start : start + length]
        times = 1
        while keys[start + times * length : start + (times + 1) * length] == block:
            times += 1
        if times >= repeats and length * times > best[0] * best[1]:
            best = (length, times)
    return best
