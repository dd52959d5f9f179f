"""Read M-Lab's tcp-info archives: raw messages of inet_diag, one JSON object a line.

A line has ``Metadata``, or is a snapshot: ``Timestamp``, ``RawIDM`` (struct inet_diag_msg)
and ``Attributes``, a list by INET_DIAG_* of what the kernel added, all in base64
(m-lab/tcp-info, netlink/archival-record.go).
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...probes.base.jit import PLAIN
from ..bundle.numbers import is_time
from ..bundle.recognise import TCP_INFO_MARK
from .log_lines import blocks
from .tcp_info_rows import (
    AF_INET,
    AF_INET6,
    BBR_AT,
    BBR_BYTES,
    BBR_INFO,
    I64,
    INFO_AT,
    INFO_BYTES,
    MESSAGE_BYTES,
    ROW_BYTES,
    TCP_INFO,
    U8,
)

MARK = TCP_INFO_MARK.encode()
# A snapshot's line has more bytes than this: its message alone takes 72.
_SHORTEST = 100
# The largest number of a line that column poll holds.
_MOST_LINES = (1 << 31) - 1
# In place of the time of a snapshot that has none.
UNTIMED = -1
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)?")
# Compiled code is loaded, in half a second, once this process has read so many bytes of text.
_WORTHWHILE = 8 << 20


@dataclass
class Rows:
    """Snapshots of one block of text: `count` rows of each array, as `columns` takes them."""

    raw: U8
    times: I64
    info_sizes: I64
    polls: I64
    count: int = 0

    @classmethod
    def of(cls, text: bytes) -> Rows:
        """Return room for all the snapshots that a text can have."""
        most = len(text) // _SHORTEST + 1
        times, info_sizes, polls = (np.empty(most, np.int64) for _ in range(3))
        return cls(np.empty((most, ROW_BYTES), np.uint8), times, info_sizes, polls)


class Archive:
    """The snapshots of an archive, block by block.

    Attributes:
        broken: how many lines have a message and are no snapshot that can be read.
        first_broken: the number of the first of them; 0: none.
    """

    _bytes_read: ClassVar[int] = 0

    def __init__(self, path: Path, progress: Callable[[int], None] | None = None) -> None:
        self._path = path
        self._progress = progress
        self._line = 1
        self.broken = self.first_broken = 0

    def rows(self) -> Iterator[Rows]:
        """Yield the snapshots of BBR flows; whatever else is there is passed over."""
        for text in blocks(self._path, self._progress):
            rows = Rows.of(text)
            Archive._bytes_read += len(text)
            if PLAIN or Archive._bytes_read < _WORTHWHILE:
                self._read_each(text, rows)
            else:
                self._scan(text, rows)
            if rows.count:
                yield rows

    def _read_each(self, text: bytes, rows: Rows) -> None:
        for line in text[:-1].split(b"\n"):
            self._read(line, rows)

    def _scan(self, text: bytes, rows: Rows) -> None:
        """Read lines of the usual shape all at once, and each other one by itself."""
        from .tcp_info_scan import scan

        at = 0
        arrays = rows.raw, rows.times, rows.info_sizes, rows.polls
        source = np.frombuffer(text, np.uint8)
        while at < len(text):
            at, self._line, rows.count = scan(source, at, self._line, rows.count, *arrays)
            if at < len(text):
                end = text.index(b"\n", at)
                self._read(text[at:end], rows)
                at = end + 1

    def _read(self, line: bytes, rows: Rows) -> None:
        number = self._line
        self._line += 1
        if MARK not in line:
            return
        try:
            record = json.loads(line.decode("utf-8", "replace"))
            found = _snapshot(record.get("Snapshot", record), rows.raw[rows.count])
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            self.broken += 1
            self.first_broken = self.first_broken or number
            return
        if found is not None:
            rows.times[rows.count], rows.info_sizes[rows.count] = found
            rows.polls[rows.count] = min(number, _MOST_LINES)
            rows.count += 1


def _snapshot(record: dict[str, Any], row: U8) -> tuple[int, int] | None:
    """Write a snapshot into a row; return its time and the bytes of tcp_info; None: not of BBR."""
    attributes: list[str | None] = record.get("Attributes") or []
    bbr = _attribute(attributes, BBR_INFO)
    if len(bbr) < BBR_BYTES:
        return None
    message, info = a2b_base64(record["RawIDM"]), _attribute(attributes, TCP_INFO)
    if len(message) < MESSAGE_BYTES or message[0] not in (AF_INET, AF_INET6):
        raise ValueError("not a message of inet_diag")
    parts = ((0, message, MESSAGE_BYTES), (INFO_AT, info, INFO_BYTES), (BBR_AT, bbr, BBR_BYTES))
    for at, part, most in parts:
        known = part[:most]
        row[at : at + len(known)] = np.frombuffer(known, np.uint8)
    return _ns(record["Timestamp"]), len(info)


def _attribute(attributes: list[str | None], number: int) -> bytes:
    text = attributes[number] if len(attributes) > number else None
    return a2b_base64(text) if text else b""


def _ns(text: str) -> int:
    """Return a time of RFC 3339 as nanoseconds since 1970, UNTIMED if no recording can have it."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("not a time of RFC 3339")
    second, fraction, offset = match.groups()
    ns = _second(second + (offset or "Z")) * 1_000_000_000 + int((fraction or "")[:9].ljust(9, "0"))
    return ns if is_time(ns) else UNTIMED


@lru_cache(maxsize=4096)
def _second(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())
