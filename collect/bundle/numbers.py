"""Checks on the numbers of files that anybody may have made: manifests, samples, captures, logs.

DuckDB, Arrow and the kernel's own types hold 64 bits, and views subtract times from each other.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

# A text in JSON, with its quotes.
JSON_TEXT = r'"(?:[^"\\]|\\.)*"'
# Times in ns from 1970, or from boot, to 2116: sums and differences of two of them fit in 64 bits.
MAX_NS = (1 << 62) - 1
# The same of whatever else counts up: 2^62 bytes take a year at a Tbit/s.
MAX_NUMBER = MAX_NS
_DIGITS = 20
# Smallest and largest value of DuckDB's types.
_RANGES = {
    sign + name: (-(1 << bits - 1), (1 << bits - 1) - 1) if not sign else (0, (1 << bits) - 1)
    for name, bits in {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}.items()
    for sign in ("", "U")
}


def load_json(text: str) -> Any:  # noqa: ANN401 - JSON is checked where it is used
    """Read JSON whose numbers all fit in 64 bits.

    Raises:
        ValueError: it is no JSON, or a number is infinite, not a number, or too large.
    """
    try:
        return json.loads(text, parse_int=_whole, parse_float=_real, parse_constant=_constant)
    except _NumberError as wrong:
        # Numbers within texts are none.
        numbers = re.sub(JSON_TEXT, "", text)
        at = numbers.find(wrong.number)
        line = numbers.count("\n", 0, at) + 1
        raise ValueError(f"line {line}: {wrong.number[:40]} {wrong}") from None


def fitting(value: object, sql_type: str, most: int | None = None) -> object:
    """Return a value that a column of this type can hold; None in place of one that it cannot.

    With `most`, whole numbers that are negative or larger than it are left out, too.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    low, high = (0, most) if most is not None else _RANGES.get(sql_type, (None, None))
    if low is None or high is None or type(value) is not int:
        return value
    return value if low <= value <= high else None


def is_32_bits(text: str) -> bool:
    """Tell whether a whole number, as written, fits a signed or an unsigned variable of 32 bits."""
    return len(text) <= _DIGITS and -(1 << 31) <= int(text) < 1 << 32


def is_time(ns: int) -> bool:
    """Tell whether a time in ns is one that a recording can have: from 0 to MAX_NS."""
    return 0 <= ns <= MAX_NS


class _NumberError(Exception):
    """A number that cannot be used, as it is written, and why."""

    def __init__(self, number: str, why: str) -> None:
        super().__init__(why)
        self.number = number


def _whole(text: str) -> int:
    if len(text) <= _DIGITS and -(1 << 63) <= int(text) < 1 << 64:
        return int(text)
    raise _NumberError(text, "does not fit in 64 bits")


def _real(text: str) -> float:
    value = float(text)
    if math.isfinite(value):
        return value
    raise _NumberError(text, "is too large")


def _constant(text: str) -> float:
    raise _NumberError(text, "is no number")
