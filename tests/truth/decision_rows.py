"""The numbers of decisions against raw rows: every link from an old to a new value, and fields.

What a field of the kernel was before an event is in its row, what it is after it in the next row's
(struct bbr) or in its exit's (cwnd, pacing rate). Decisions that change a field must lead from one
to the other without a break, and no field may change without one, by whomever. Other numbers of
evidence are named as the kernel names a field, or are worked out by `decision_numbers`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import polars as pl
from bbrscope.analyze.bbr.codes import CODES, Code

from tests.truth.decision_event import LINKED, OLD_OR_NEW, Event, Evidence, links
from tests.truth.decision_numbers import BY_CODE, FORMULAS

# Evidence that has another name than its field of struct bbr.
_FIELDS = {
    "cwnd": "tp.snd_cwnd",
    "round": "bbr.bw_probe_up_rounds",
    "cnt": "bbr.bw_probe_up_cnt",
    "acks": "bbr.bw_probe_up_acks",
    "jiffies": "jiffies32",
    "loss_events": "bbr.loss_events_in_round",
}
_FOLLOWED = {name: about for about, name in LINKED.items()}


@dataclass
class Checked:
    """How many numbers of evidence were worked out, by name, and what differs."""

    right: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def flow(
        self, rows: pl.DataFrame, decisions: list[tuple[int, ...]], constants: Mapping[str, int]
    ) -> None:
        """Check a flow's decisions (ns, code and evidence, in order) against its raw rows.

        `constants` are what the kernel was built with, as the manifest names them.
        """
        said = {
            ns: [
                (CODES[code], dict(zip(CODES[code].units, evidence, strict=False)))
                for _, code, *evidence in of
            ]
            for ns, of in groupby(decisions, key=lambda row: row[0])
        }
        init = rows["kind"].to_list().index("I")
        earlier: dict[str, int | None] = {}
        for row, after in _neighbours(rows[init:]):
            event = Event(row, after, constants, earlier)
            made = said.get(row["ns"], [])
            self._begins(event, {code.name for code, _ in made})
            for code, evidence in made:
                leads = list(links(code, evidence))
                for name in evidence.keys() - (OLD_OR_NEW if leads else frozenset()):
                    self._value(event, code, evidence, name)
                self._links(event, code, leads)
                event.follow(code, evidence)
            self._ends(event)
            if row["kind"] != "I":  # what init did is in the row of its exit
                earlier = {about: event.now[about] for about in ("cwnd", "pacing")}

    def _begins(self, event: Event, made: set[str]) -> None:
        """What another than BBR changed since the event before is said."""
        for about, was in event.earlier.items():
            by_core = {name for name in made if name.startswith("CORE_")}
            by_core = {name for name in by_core if (name == "CORE_PACING") == (about == "pacing")}
            if was != event.now[about] and not by_core:
                self.wrong.append(f"{event['ns']}: {about} was {was}, is {event.now[about]}")

    def _links(
        self, event: Event, code: Code, leads: Sequence[tuple[str, int | None, int]]
    ) -> None:
        """Follow the fields that a decision changes."""
        for about, old, new in leads:
            if event.now[about] is None:
                continue
            if old not in (None, event.now[about]):
                now = event.now[about]
                self.wrong.append(f"{event['ns']}: {code.name} from {old}, it was {now}")
            self.right[f"old and new {about}"] += 1 + (old is not None)
            event.now[about] = new

    def _ends(self, event: Event) -> None:
        """After its last decision, each field is what it is after the event."""
        for about, name in LINKED.items():
            now, after = event.now[about], event.after(name)
            if None not in (now, after) and now != after:
                self.wrong.append(f"{event['ns']}: {about} became {after}, said is {now}")

    def _value(self, event: Event, code: Code, said: Evidence, name: str) -> None:
        formula = BY_CODE.get((code.name, name), FORMULAS.get(name))
        column = _FIELDS.get(name, f"bbr.{name}")
        if formula is not None:
            wanted = formula(event, said) - {None}
        elif column in _FOLLOWED:
            wanted = {event.now[_FOLLOWED[column]]} - {None}
        else:
            wanted = {event[column], event.after(column)} - {None}
        if not wanted:
            self.left[f"{code.name} {name}"] += 1
        elif said[name] in wanted:
            self.right[name] += 1
        else:
            self.wrong.append(f"{event['ns']}: {code.name} {name} {said[name]}, rows say {wanted}")

    def table(self) -> str:
        """How many numbers were worked out of how many, and which were not."""
        right, left = self.right.total(), self.left.total()
        rest = ", ".join(f"{name} {count:,}" for name, count in self.left.most_common())
        return f"evidence: {right:,} of {right + left:,} numbers worked out; not: {rest or 'none'}"


def _neighbours(rows: pl.DataFrame) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each row with the next one, but not the last: no row says what it left behind."""
    every = rows.iter_rows(named=True)
    row = next(every)
    for after in every:
        yield row, after
        row = after
