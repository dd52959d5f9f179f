"""What a replay must know of a whole flow before its first event: one look through all rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...probes.fields import FIELDS
from ..bbr.records import INIT, MAIN
from .flow_rows import Columns, FlowRows, has_values, length_of, with_exit, zero_filled


@dataclass(frozen=True)
class FlowFacts:
    """A flow as a whole.

    Attributes:
        pre_init: events before the first init, on a zeroed state: they are left out.
        count: events that are replayed, those after them.
        first_seq: the first of these.
        present: columns that have a value at any of its events.
        has_main: main() is among those that are replayed.
        tail: events from the moment on at which the probes began to detach: calls may be missing.
    """

    pre_init: int = 0
    count: int = 0
    first_seq: int = 0
    present: frozenset[str] = frozenset()
    has_main: bool = False
    tail: int = 0

    def missing(self, version: str) -> list[str]:
        """Columns without which v1, v2 or v3 cannot be replayed; inputs matter to main() only."""
        return [
            one.column
            for one in FIELDS.values()
            if version in one.required
            and one.column not in self.present
            and (self.has_main or "input" not in one.roles)
        ]


def facts_of(rows: FlowRows, last_exit_ns: int) -> FlowFacts:
    """Look through the rows of a flow.

    Args:
        last_exit_ns: last exit row of the run; 0 if the recording has none.
    """
    present: set[str] = set()
    passed, start, first_seq = 0, -1, 0
    has_main, detaching = False, -1
    for read in rows.blocks:
        columns = read()
        present |= {
            name for name, column in columns.items() if name not in present and has_values(column)
        }
        kind = zero_filled(columns["kind"])
        inits = np.flatnonzero(kind == INIT)
        begun = start < 0 and len(inits) > 0
        if begun:
            start, has_main, detaching = passed + int(inits[0]), False, -1
        kept = slice(start - passed if begun else 0, None)
        if length_of(columns) and (begun or not passed):
            first_seq = int(columns["seq"][kept][0])
        has_main = has_main or bool((kind[kept] == MAIN).any())
        if detaching < 0 and last_exit_ns:
            without_exit = _mains_without_exit(columns, last_exit_ns)
            without_exit = without_exit[without_exit >= (kept.start or 0)]
            detaching = passed + int(without_exit[0]) if len(without_exit) else -1
        passed += length_of(columns)
    pre_init = max(start, 0)
    return FlowFacts(
        pre_init,
        passed - pre_init,
        first_seq,
        frozenset(present),
        has_main,
        tail=0 if detaching < 0 else passed - detaching,
    )


def _mains_without_exit(columns: Columns, last_exit_ns: int) -> np.ndarray:
    """Detaching starts with the probes on function exits: rows of main() that lack theirs."""
    late = zero_filled(columns["ns"]) > last_exit_ns
    return np.flatnonzero((zero_filled(columns["kind"]) == MAIN) & ~with_exit(columns) & late)
