"""Columns of whole numbers as short text: differences, zigzag, LEB128, base64.

A time stamp and a value of a recording differ little from the ones before, so most take one or two
bytes each. ``static/data.js`` unpacks them.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def pack(values: Array) -> str:
    """Return int64 `values`, of magnitude below 2**53 (what JavaScript can hold), as text."""
    if len(values) == 0:
        return ""
    whole = values.astype(np.int64)
    deltas = whole - np.append(np.int64(0), whole[:-1])
    zigzag = ((deltas << 1) ^ (deltas >> 63)).astype(np.uint64)
    return base64.b64encode(_leb128(zigzag)).decode("ascii")


def _leb128(values: Array) -> bytes:
    """Seven bits per byte, least significant first, the top bit set on all but the last byte."""
    lengths = np.ones(len(values), np.int64)
    rest = values >> np.uint64(7)
    while rest.any():
        lengths += rest > 0
        rest = rest >> np.uint64(7)
    starts = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()), np.uint8)
    for index in range(int(lengths.max())):
        chosen = lengths > index
        septet = (values[chosen] >> np.uint64(7 * index)) & np.uint64(0x7F)
        more = (lengths[chosen] > index + 1).astype(np.uint64) << np.uint64(7)
        out[starts[chosen] + index] = (septet | more).astype(np.uint8)
    return out.tobytes()
