"""Read ``queue.csv.zst``: samples of the bottleneck's queue."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from ...probes.base.errors import BundleError
from ...probes.base.plurals import plural
from ..bundle.bundle import Clock
from ..bundle.numbers import MAX_NUMBER
from ..bundle.zstd import DamagedError
from .log_lines import lines

COUNTERS = (
    "sent_bytes",
    "sent_pkts",
    "dropped",
    "overlimits",
    "requeues",
    "backlog_bytes",
    "backlog_pkts",
)
# Ten polls a second for two days; at 100 bytes of memory each in DuckDB.
MAX_SAMPLES = 2_000_000
MAX_COLUMNS = 64
MOST_DIGITS = 19
# Characters of a time: digits beyond ns, and exponents that make a long number, are cut.
MOST_TIME = 30
# Names of qdiscs (IFNAMSIZ in the kernel's struct Qdisc_ops).
MAX_KIND = 16


def queue_rows(
    run_id: int,
    path: Path,
    shown: str,
    clocks: tuple[Clock, ...],
    damage: list[str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield rows of table queue_samples.

    With a list for `damage`, what cut the file off is put there and the rows before it are kept.

    Raises:
        BundleError: damaged, empty, without uptime_s, or with a value that is impossible.
    """
    try:
        yield from _rows(run_id, lines(path, ended=damage is not None), shown, clocks)
    except DamagedError as error:
        if damage is None or not error.cut:
            way = "restore the file, or delete it: it is optional"
            raise BundleError(f"{shown}: {error}", way) from error
        damage.append(f"{shown}: {error}")


def _rows(
    run_id: int, text: Iterator[str], shown: str, clocks: tuple[Clock, ...]
) -> Iterator[dict[str, Any]]:
    header = next(text, None)
    if header is None:
        raise DamagedError("it is empty", cut=True)
    names = header.split(",", MAX_COLUMNS)
    if "uptime_s" not in names:
        raise BundleError(f"{shown}, line 1: no column uptime_s", "BUNDLE.md describes the file")
    for number, line in enumerate(text, 2):
        values = line.split(",", MAX_COLUMNS)
        if len(values) != len(names) or len(names) > MAX_COLUMNS:
            raise _bad(
                shown, number, f"{plural(len(values), 'column')}, the header names {len(names)}"
            )
        if number > MAX_SAMPLES:
            raise _bad(shown, number, f"more than {MAX_SAMPLES} samples")
        row = dict(zip(names, values, strict=True))
        boottime = _nanoseconds(row["uptime_s"], shown, number)
        yield {
            "run_id": run_id,
            "boottime_ns": boottime,
            "ns": _monotonic(boottime, clocks),
            "kind": row["kind"][:MAX_KIND] if "kind" in row else None,
            **{name: _counter(row, name, shown, number) for name in COUNTERS if name in row},
        }


def _bad(shown: str, number: int, what: str) -> BundleError:
    return BundleError(
        f"{shown}, line {number}: {what}", "restore the file, or delete it: it is optional"
    )


def _nanoseconds(text: str, shown: str, number: int) -> int:
    """Return seconds, written in decimal, as ns without going through a float."""
    try:
        value = Decimal(text[:MOST_TIME])
        if value.is_finite() and 0 <= value < 10**9:
            return int(value * 10**9)
    except InvalidOperation:
        pass
    raise _bad(shown, number, f"uptime_s is {text[:40]!r}, not a time")


def _counter(row: dict[str, str], name: str, shown: str, number: int) -> int:
    text = row[name]
    if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS and int(text) <= MAX_NUMBER:
        return int(text)
    raise _bad(shown, number, f"{name} is {text[:40]!r}, not a count")


def _monotonic(boottime_ns: int, clocks: tuple[Clock, ...]) -> int | None:
    """Bring a time onto CLOCK_MONOTONIC; the two differ by the time spent suspended."""
    if not clocks:
        return None
    return max(0, boottime_ns - (clocks[0].boottime_ns - clocks[0].monotonic_ns))
