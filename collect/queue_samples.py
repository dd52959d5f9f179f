"""Read ``queue.csv.zst``: samples of the bottleneck's queue."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from .bundle import Clock
from .errors import BundleError
from .zstd import read_all

COUNTERS = (
    "sent_bytes",
    "sent_pkts",
    "dropped",
    "overlimits",
    "requeues",
    "backlog_bytes",
    "backlog_pkts",
)
MAX_BYTES = 256 << 20
MAX_VALUE = (1 << 64) - 1


def queue_rows(
    run_id: int, path: Path, shown: str, clocks: tuple[Clock, ...]
) -> Iterator[dict[str, Any]]:
    """Yield rows of table queue_samples.

    Raises:
        BundleError: damaged, without uptime_s, or with a value that is impossible.
    """
    lines = read_all(path, shown, MAX_BYTES).decode("utf-8", "replace").splitlines()
    names = lines[0].split(",") if lines else []
    if "uptime_s" not in names:
        raise BundleError(f"{shown}, line 1: no column uptime_s", "BUNDLE.md describes the file")
    for number, line in enumerate(lines[1:], 2):
        values = line.split(",")
        if len(values) != len(names):
            raise _bad(shown, number, f"{len(values)} columns, the header names {len(names)}")
        row = dict(zip(names, values, strict=True))
        boottime = _nanoseconds(row["uptime_s"], shown, number)
        yield {
            "run_id": run_id,
            "boottime_ns": boottime,
            "ns": _monotonic(boottime, clocks),
            "kind": row.get("kind"),
            **{name: _counter(row, name, shown, number) for name in COUNTERS if name in row},
        }


def _bad(shown: str, number: int, what: str) -> BundleError:
    return BundleError(
        f"{shown}, line {number}: {what}", "restore the file, or delete it: it is optional"
    )


def _nanoseconds(text: str, shown: str, number: int) -> int:
    """Return seconds, written in decimal, as ns without going through a float."""
    try:
        value = Decimal(text)
        if value.is_finite() and 0 <= value < 10**9:
            return int(value * 10**9)
    except InvalidOperation:
        pass
    raise _bad(shown, number, f"uptime_s is {text[:40]!r}, not a time")


def _counter(row: dict[str, str], name: str, shown: str, number: int) -> int:
    text = row[name]
    if text.isascii() and text.isdecimal() and len(text) <= 20 and int(text) <= MAX_VALUE:
        return int(text)
    raise _bad(shown, number, f"{name} is {text[:40]!r}, not a count")


def _monotonic(boottime_ns: int, clocks: tuple[Clock, ...]) -> int | None:
    """Bring a time onto CLOCK_MONOTONIC; the two differ by the time spent suspended."""
    if not clocks:
        return None
    return max(0, boottime_ns - (clocks[0].boottime_ns - clocks[0].monotonic_ns))
