"""The recorded rows of one flow, block by block, so that a long one is never held as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...probes.fields import EXIT_FIELDS
from ..bbr.records import Array

Columns = dict[str, Array]


@dataclass(frozen=True)
class FlowRows:
    """What was recorded of a flow, in the order of seq.

    Attributes:
        blocks: each reads EVENT_COLUMNS (prepare.py) of the rows that follow those of the one
            before, as numpy arrays (masked where NULL), kind as integers. They are read twice at
            least.
    """

    flow: int
    blocks: Sequence[Callable[[], Columns]]


def rows_at_hand(flow: int, columns: Columns) -> FlowRows:
    """The rows of a flow that are held in memory."""
    return FlowRows(flow, [lambda: columns])


def length_of(columns: Columns) -> int:
    """How many rows these are."""
    return len(columns["kind"])


def part_of(columns: Columns, rows: slice) -> Columns:
    """Some of the rows, sharing their memory."""
    return {name: column[rows] for name, column in columns.items()}


def joined(parts: Sequence[Columns]) -> Columns:
    """The rows of several parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(columns: Sequence[Array]) -> Array:
    masked = any(isinstance(column, np.ma.MaskedArray) for column in columns)
    found: Array = (np.ma.concatenate if masked else np.concatenate)(columns)
    return found


def zero_filled(column: Array) -> Array:
    """The values, with NULL as 0."""
    return column.filled(0) if isinstance(column, np.ma.MaskedArray) else np.asarray(column)


def has_values(column: Array) -> bool:
    """Whether there is any value but NULL."""
    if not isinstance(column, np.ma.MaskedArray):
        return True
    return bool((~np.ma.getmaskarray(column)).any())


def with_exit(columns: Columns) -> Array:
    """Rows of events whose exit row has values: of init's two, the second alone has a time only."""
    outputs = [~np.ma.getmaskarray(columns[one.exit_column]) for one in EXIT_FIELDS]
    found: Array = ~np.ma.getmaskarray(columns["exit_ns"]) & np.any(outputs, axis=0)
    return found
