"""Records for the plain-Python estimator: attributes over a numpy row, as Python integers.

numpy's own scalars would overflow, warn or turn into floats where C wraps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...probes.base.jit import PLAIN


def records(array: np.ndarray[Any, Any]) -> Any:
    """A structured array as the estimator takes it; ``records(array)[0]`` is one record.

    Compiled code reads numpy's own records; plain Python needs `Records` in their place.
    """
    return Records(array) if PLAIN else array


class _Items:
    """A subarray field, e.g. bw_hi[2]."""

    __slots__ = ("_row",)

    def __init__(self, row: Any) -> None:
        self._row = row

    def __getitem__(self, i: int) -> int:
        return int(self._row[i])

    def __setitem__(self, i: int, value: int) -> None:
        self._row[i] = value


class Record:
    """One row of a structured array; nested records and subarrays are views."""

    __slots__ = ("_array", "_index")

    def __init__(self, array: Any, index: int) -> None:
        object.__setattr__(self, "_array", array)
        object.__setattr__(self, "_index", index)

    def copy_from(self, other: Record) -> None:
        """Take all fields over from a record of the same type."""
        self._array[self._index] = other._array[other._index]

    def __getattr__(self, name: str) -> Any:
        column = self._array[name]
        if column.dtype.names is not None:
            return Record(column, self._index)
        if column.ndim > 1:
            return _Items(column[self._index])
        return int(column[self._index])

    def __setattr__(self, name: str, value: int) -> None:
        self._array[name][self._index] = value


class Records:
    """A structured array whose items are `Record`s."""

    __slots__ = ("_array",)

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: int) -> Record:
        return Record(self._array, index)
