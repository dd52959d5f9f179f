"""Changes of a flow as rows of text: when, what, why; folded where the same goes on and on."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ....analyze.bbr.citations import kernel_function
from ....analyze.story import names as naming
from ....analyze.story.changes import BOUNDS, MID_FLOW, SAMPLED, Change
from ....analyze.story.folding import (
    Cycle,
    Stretch,
    fold_cycles,
    fold_repeated,
    fold_steps,
    fold_stretches,
)
from ....analyze.story.sentences import bound_unit, value
from ....probes.base.plurals import plural
from ..quantities import fixed
from .phrases import counted
from .story_prose import value_of

# A longer story is folded: its repeating cycles are printed once.
PAGE = 100
# What a change is called that has no old and new value.
_LABELS = {
    "TIMEOUT": "timeout",
    "TIMEOUT_AGAIN": "timeout again",
    "MTU_DROP": "state Loss",
    "TLP_REPAIRED": "tail loss repaired",
}
_MOVING = {**dict.fromkeys((*BOUNDS, "cwnd"), ""), "core": "cwnd", "mss": "MSS"}
_MOVING["max_pacing_rate"] = "SO_MAX_PACING_RATE"


@dataclass(frozen=True)
class ChangeTable:
    """How the changes of a flow are written.

    Attributes:
        zero_ns: zero of the run's clock [ns, CLOCK_MONOTONIC].
        version: v1, v2 or v3; names: the kernel's or the draft's.
        width: wrap at this many columns; None: do not wrap.
    """

    zero_ns: int
    version: str
    names: str = naming.KERNEL
    width: int | None = None

    def seconds(self, ns: int) -> str:
        """Return a time on the run's clock."""
        return fixed((ns - self.zero_ns) / 1e9, 3)

    def story(self, changes: Sequence[Change], fold: bool = True) -> list[str]:
        """Return the story's lines of text; `fold` tells steps and repeating cycles once."""
        steps = fold_steps(changes) if fold else list(changes)
        text = self._table(steps)
        if fold and (self.version == "v1" or len(text) > PAGE):
            items = fold_cycles(steps)
            text = self._table(items)
            for probe_rtt in (False, True):
                if len(text) > PAGE:
                    text = self._table(fold_stretches(items, probe_rtt))
        return text

    def decisions(self, changes: Sequence[Change], fold: bool = True) -> list[str]:
        """Return text for a list of decisions, one line each."""
        items = fold_repeated(changes) if fold else list(changes)
        column = max((len(change.name or "") for change in items), default=0)
        text: list[str] = []
        for change in items:
            why = self.why(change).replace(" steps until", " times until", 1)
            text += self._row(change.ns, change.name or "", why, column)
        return text or ["  no such decision"]

    def what(self, change: Change) -> str:
        """Return what changed, from what to what."""
        if change.is_phase:
            new = self._phase(change.new)
            return f"{new} begins" if change.old is None else f"{self._phase(change.old)} -> {new}"
        if change.about in _MOVING and change.old is not None and change.new is not None:
            old, new = value_of(change, change.old), value_of(change, change.new)
            if old.endswith("Mbit/s") and new.endswith("Mbit/s"):
                old = old.removesuffix(" Mbit/s")
            called = _MOVING[change.about] or change.about
            return naming.translate(f"{called} {old} -> {new}", self.names)
        return _LABELS.get(change.name or "") or change.name or "unknown"

    def _phase(self, value: object) -> str:
        return "unknown" if value is None else short(str(value), self.names)

    def why(self, change: Change) -> str:
        """Return the decisions in words, the kernel function that took the first, and any doubt."""
        latest = change.latest
        sentences = [reason.sentence for reason in latest.reasons]
        if sentences and change.about in (*BOUNDS, "cwnd"):
            sentences[0] = _without_values(sentences[0], latest)
        text = naming.translate(" ".join(sentences), self.names)
        if change.count > 1:
            until = self.seconds(change.until_ns)
            text = f"{plural(change.count, 'step')} until {until} s, the last: {text}"
        if latest.reasons:
            text += f" [{self._source(latest)}]"
        elif change.name == MID_FLOW:
            text = "The recording starts in the middle of the flow."
        elif change.name == SAMPLED:
            seen = "seen by sampling; why is not recorded"
            text = seen if change.old is not None else "first seen so"
        elif change.name is None:
            text = "no decision is known"
        return f"{text} ({change.doubt})".strip() if change.doubt else text

    def _source(self, change: Change) -> str:
        """Where the decision is taken: the kernel's function, or the draft's section."""
        code = change.reasons[0].code
        return code.draft if self.names == naming.DRAFT else kernel_function(code, self.version)

    def _table(self, items: Sequence[Change | Cycle | Stretch]) -> list[str]:
        rows: list[tuple[int | None, str, str]] = []
        for item in items:
            if isinstance(item, Change):
                rows.append((item.ns, self.what(item), self.why(item)))
            elif isinstance(item, Cycle):
                rows += self._cycle_rows(item)
            else:
                rows += self._stretch_rows(item)
        column = max((len(label) for _, label, _ in rows), default=0)
        return [line for ns, label, why in rows for line in self._row(ns, label, why, column)]

    def _cycle_rows(self, cycle: Cycle) -> list[tuple[int | None, str, str]]:
        """The first of the cycles, how often it repeats, and what made steps where that varies."""
        rows: list[tuple[int | None, str, str]] = [
            (change.ns, self.what(change), self.why(change))
            for change in cycle.lines[: cycle.length]
        ]
        parts = [f"until {self.seconds(cycle.lines[-1].until_ns)} s"]
        for change, names in cycle.codes():
            if len(names) > 1:
                parts.append(f"{self.what(change)}: {counted(names.most_common())}")
        more = f"... {cycle.repeats - 1} x the same"
        return [*rows, (cycle.lines[cycle.length].ns, more, "; ".join(parts))]

    def _stretch_rows(self, stretch: Stretch) -> list[tuple[int | None, str, str]]:
        """How often what happened in a restless stretch, and within which limits bounds moved."""
        changes = stretch.lines
        end = self.seconds(max(change.until_ns for change in changes))
        count = sum(change.count for change in changes)
        until = f"until {end} s (--full, or --between, tells each)"
        rows: list[tuple[int | None, str, str]] = [(changes[0].ns, plural(count, "change"), until)]
        for (about, old, new), counter in stretch.by_change().items():
            counts_text = counted(counter.most_common())
            if about == "phase":
                label = f"  {short(old, self.names)} -> {short(new, self.names)}"
                rows.append((None, label, counts_text))
                continue
            numbers = stretch.values(about)
            if not numbers:
                rows.append((None, f"  {about}", counts_text))
                continue
            unit = bound_unit(about)
            least, most = (value(unit, n, changes[0].mss) for n in (min(numbers), max(numbers)))
            label = f"  {naming.translate(about, self.names)}"
            rows.append((None, label, f"{least} to {most}: {counts_text}"))
        return rows

    def _row(self, ns: int | None, label: str, text: str, column: int) -> Iterable[str]:
        when = "" if ns is None else self.seconds(ns)
        start = f"{when:>9}  {label:<{column}}  "
        if self.width is None or len(start) + 20 > self.width:
            return [start + text]
        wrapped = textwrap.wrap(text, self.width - len(start)) or [""]
        return [start + wrapped[0], *(" " * len(start) + part for part in wrapped[1:])]


def short(phase: str | None, names: str) -> str:
    """A phase without the prefix that most of them share.

    >>> short("PROBE_BW_CRUISE", "kernel"), short("PROBE_BW_0.75", "kernel")
    ('CRUISE', '0.75x')
    """
    if phase is None:
        return "-"
    if phase == "PROBE_BW_LT":
        return "policer"
    name = phase.removeprefix("PROBE_BW_")
    if name != phase and name[0].isdigit():
        return name + "x"
    return name if name != phase else naming.translate(phase, names)


def _without_values(sentence: str, change: Change) -> str:
    """Drop 'inflight_hi 66->58: ' where the column beside it says so already."""
    if change.old is None or change.new is None:
        return sentence
    old, new = value_of(change, change.old), value_of(change, change.new)
    rest = sentence.removeprefix(f"{change.about} {old}->{new}")
    if rest == sentence:
        return sentence
    rest = rest.lstrip(" :,")
    return rest[1:-2] + "." if rest.startswith("(") and rest.endswith(").") else rest
