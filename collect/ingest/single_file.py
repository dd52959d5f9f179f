"""Runs made of one file that is no bundle: a packet capture, a log of ss, a kernel's log."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...probes.base.own_version import own_version
from ..store.rowsets import insert
from ..store.store import Store
from .outcome import run_of
from .run_facts import QualityRow, notes_on_run

if TYPE_CHECKING:
    import duckdb

_ENDINGS = re.compile(r"(\.(pcap|pcapng|cap|txt|log|out|ss|jsonl|gz|zst|zstd))+$", re.IGNORECASE)


@dataclass(frozen=True)
class Made:
    """A run that was made: its row of table runs, and those of capture_quality."""

    row: dict[str, Any]
    notes: list[QualityRow]


def load_single_file(
    store: Store,
    path: Path,
    name: str | None,
    replace: bool,
    fill: Callable[[duckdb.DuckDBPyConnection, int], tuple[dict[str, Any], dict[str, str]]],
) -> tuple[int, Made | None]:
    """Make a run of one file; return its run_id and what was made, if the store did not have it.

    `fill` loads the content under a run_id and returns what table runs has of it, and its notes.

    Raises:
        StoreError: the name is taken, or is none.
    """
    run = run_name(path) if name is None else name
    digest = digest_of(path)
    known = run_of(store, digest)
    if known and (name is None or known[1] == name):
        return known[0], None
    with store.transaction() as con:
        run_id = store.new_run(run, path, replace)
        facts, notes = fill(con, run_id)
        quality = list(notes_on_run(run_id, notes))
        store.waiting.add(con, "capture_quality", map(vars, quality))
        nothing = dict.fromkeys(("flows", "events", "rows", "half_events", "missing_exits"), 0)
        row = {
            "run_id": run_id,
            "run": run,
            "bundle_digest": digest,
            **nothing,
            **facts,
            "quality_notes": len(notes),
            "salvaged": False,
            "ingested_by": own_version(),
        }
        store.waiting.add(con, "runs", [row])
    return run_id, Made(row, quality)


def note(con: duckdb.DuckDBPyConnection, run_id: int, notes: dict[str, str]) -> None:
    """Keep quality notes about a run as a whole, by their code."""
    insert(con, "capture_quality", map(vars, notes_on_run(run_id, notes)))


def run_name(path: Path) -> str:
    """Name a run by its file, without the endings that say what and how packed it is."""
    return re.sub(r"[^\w.+@=-]", "_", _ENDINGS.sub("", path.name))[:100] or "capture"


def digest_of(path: Path) -> str:
    """Return sha256 of a file."""
    with open(path, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
