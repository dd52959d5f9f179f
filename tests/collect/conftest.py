"""Bundles made for a test, and a second, simple reader to compare the real one with."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.probes.fields import EVENT_FIELDS, EXIT_FIELDS, column_name, exit_column_name

KINDS = {
    "I": "init",
    "M": "main",
    "S": "set_state",
    "E": "cwnd_event",
    "H": "ssthresh",
    "U": "undo_cwnd",
    "L": "skb_marked_lost",
}


def _lines(folder: Path) -> list[str]:
    with open(folder / "events.csv.zst", "rb") as raw:
        return zstandard.ZstdDecompressor().stream_reader(raw).read().decode().splitlines()


@pytest.fixture(scope="session")
def read_lines() -> Callable[[Path], list[str]]:
    """A function that returns the lines of a bundle's event stream."""
    return _lines


@pytest.fixture
def host_alone() -> Iterator[None]:
    """For tests that mount or name namespaces, or compare what there is: one at a time."""
    path = Path(tempfile.gettempdir()) / f"bbrscope-tests-{os.getuid()}.lock"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass
class Maker:
    """Writes bundles into a folder."""

    folder: Path

    def __call__(
        self,
        lines: Iterable[str] | bytes,
        name: str = "made",
        count: bool = True,
        **manifest: Any,
    ) -> Path:
        """Write a bundle with these event lines (or compressed bytes); return its folder.

        The manifest counts the rows unless `count` is false; keywords replace its keys.
        """
        target = self.folder / name
        target.mkdir(parents=True, exist_ok=True)
        rows: dict[str, int] = {}
        if isinstance(lines, bytes):
            content = lines
        else:
            listed = list(lines)
            for line in listed:
                tag, comma, _ = line.partition(",")
                if comma and not line.startswith("#"):
                    rows[tag] = rows.get(tag, 0) + 1
            content = zstandard.compress("".join(f"{line}\n" for line in listed).encode())
        (target / "events.csv.zst").write_bytes(content)
        document = {
            "format": "bbrscope-bundle",
            "version": 1,
            "name": name,
            "constants": {"HZ": 1000},
            "events": rows if count else None,
            **manifest,
        }
        (target / "manifest.json").write_text(json.dumps(document))
        return target


@pytest.fixture
def make_bundle(tmp_path: Path) -> Maker:
    """A function that writes bundles into this test's own folder."""
    return Maker(tmp_path / "bundles")


@pytest.fixture(scope="session")
def spur_lines() -> list[str]:
    """The event lines of a shipped recording that begins before init and ends without exits."""
    return _lines(fixtures.path("v2_x_spur"))


Reader = Callable[[list[str]], list[dict[str, Any]]]


@pytest.fixture(scope="session")
def plain_events() -> Reader:
    """A reader of loss-free event lines: dictionaries, one row at a time, nothing compiled."""

    def read(lines: list[str]) -> list[dict[str, Any]]:
        stored = {f.name for f in EVENT_FIELDS}
        exits = {f.name for f in EXIT_FIELDS}
        # Every row has the same names: each is worked out once.
        column, exit_column = cache(column_name), cache(exit_column_name)
        heads: dict[str, list[str]] = {}
        opened: dict[str, dict[str, Any]] = {}
        flow_of: dict[str, int] = {}
        begun: set[int] = set()
        events: list[dict[str, Any]] = []
        for number, line in enumerate(lines, 1):
            tag, *values = line.split(",")
            if tag.startswith("#"):
                heads[tag[1:]] = values
                continue
            row = dict(zip(heads[tag], values, strict=True))
            sk, base, part = row["sk"], tag.rstrip("0123456789"), tag.lstrip("MIXPSEHUL")
            if base in KINDS and part in ("", "0"):
                if sk not in flow_of or (base == "I" and flow_of[sk] in begun):
                    flow_of[sk] = len(set(flow_of.values())) + 1
                if base == "I":
                    begun.add(flow_of[sk])
                event = {"flow": flow_of[sk], "ns": int(row["ns"]), "line": number}
                opened[sk] = event | {"kind": KINDS[base], "tags": set()}
                events.append(opened[sk])
            event = opened[sk]
            event["tags"].add(tag)
            if base in KINDS:
                event |= {column(k): int(v) for k, v in row.items() if k in stored}
            elif base in ("X", "IX"):
                event.setdefault("exit_ns", int(row["ns"]))
                event |= {exit_column(k): int(v) for k, v in row.items() if k in exits}
                event |= {column(k): int(v) for k, v in row.items() if k.startswith("bbr.")}
        numbers: dict[int, int] = {}
        for event in events:
            tags = event.pop("tags")
            event["complete"] = event["kind"] not in ("main", "init") or any("X" in t for t in tags)
            event["seq"] = numbers[event["flow"]] = numbers.get(event["flow"], -1) + 1
        return events

    return read
