"""Recorded streams played again as they once came: in order of time, a bit at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard
from bbrscope.analyze.live.follower import Follower
from bbrscope.analyze.live.live_events import LiveEvent
from bbrscope.collect.flight import beginnings
from bbrscope.collect.flight.triggers import LiveBatch

# Steps of silence at the end.
SILENT = 3
ROW = re.compile(rb"^[A-Z]+[0-9]?,([0-9]+),.*\n", re.MULTILINE)


def stream(bundle: Path) -> tuple[bytes, list[tuple[int, bytes]]]:
    """Header lines of a bundle's events, and its rows with their times, in order of time."""
    with (bundle / "events.csv.zst").open("rb") as raw:
        data = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True).read()
    heads = b"".join(re.findall(rb"^#.*\n", data, re.MULTILINE))
    rows = [(int(row[1]), row[0]) for row in ROW.finditer(data)]
    return heads, sorted(rows, key=lambda row: row[0])


def batches(bundle: Path, step_ns: int = 500_000_000) -> Iterator[LiveBatch]:
    """The rows by steps of time, and some steps of silence at the end."""
    heads, rows = stream(bundle)
    columns = beginnings.columns_of(heads.splitlines(keepends=True))
    edge, waiting = rows[0][0] + step_ns, list[bytes]()
    for ns, line in rows:
        while ns > edge:
            yield LiveBatch(columns, waiting, edge)
            waiting, edge = [], edge + step_ns
        waiting.append(line)
    yield LiveBatch(columns, waiting, edge)
    for later in range(1, SILENT + 1):
        yield LiveBatch(columns, [], edge + later * step_ns)


def events_of(bundle: Path) -> tuple[list[LiveEvent], set[str], dict[str, Any]]:
    """All events as they come of a bundle's rows, their columns, and the manifest to begin with."""
    manifest = {**json.loads((bundle / "manifest.json").read_text()), "rung": "fentry"}
    follower, events = Follower(), list[LiveEvent]()
    follower.begin(manifest)
    for batch in batches(bundle):
        events += follower.take(batch).events
    assert follower._assembler is not None
    return events, follower._assembler.columns, manifest
