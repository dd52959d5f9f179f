"""What came since the last look, in parts: what is judged over time, a rate, is judged in time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ..record.output.event_cut import PARTS
from ..record.output.live_rows import ORDER_NS

PART_NS = 1_000_000_000


def looks(rows: list[bytes], now_ns: int) -> Iterator[tuple[list[bytes], int]]:
    """Yield rows of a second at most, and the time [CLOCK_MONOTONIC, ns] at which to judge them.

    Looks are fractions of a second apart, so that all rows are one part, judged at `now_ns`. On a
    busy host they may be late: then rows are judged as of when they could have been at the
    earliest, else a rate that was low for a while would not be seen. Rows are in order of time.
    """
    if not rows or _ns(rows[-1]) - _ns(rows[0]) <= PART_NS:
        yield rows, now_ns
        return
    begin_ns = _ns(rows[0])
    parts = [list(part) for _, part in groupby(rows, lambda row: (_ns(row) - begin_ns) // PART_NS)]
    for part in parts[:-1]:
        yield part, _ns(part[-1]) + ORDER_NS
    yield parts[-1], now_ns


def _ns(row: bytes) -> int:
    """When a row was printed; 0: it has no time."""
    parts = PARTS.match(row)
    return int(parts[3]) if parts else 0
