"""Runs made of one file that is no bundle: a packet capture, a log of ss, a kernel's log."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...probes.base.own_version import own_version
from ..store.rowsets import insert
from ..store.store import Store

if TYPE_CHECKING:
    import duckdb

_ENDINGS = re.compile(r"(\.(pcap|pcapng|cap|txt|log|out|ss|jsonl|gz|zst|zstd))+$", re.IGNORECASE)


def load_single_file(
    store: Store,
    path: Path,
    name: str | None,
    replace: bool,
    fill: Callable[[duckdb.DuckDBPyConnection, int], tuple[dict[str, Any], dict[str, str]]],
) -> tuple[int, bool]:
    """Make a run of one file; return its run_id and whether the store had it already.

    `fill` loads the content under a run_id and returns what table runs has of it, and its notes.

    Raises:
        StoreError: the name is taken, or is none.
    """
    run = run_name(path) if name is None else name
    digest = digest_of(path)
    known = store.con.execute(
        "SELECT run_id, run FROM runs WHERE bundle_digest = ?", [digest]
    ).fetchall()
    if known and (name is None or known[0][1] == name):
        return known[0][0], True
    with store.transaction() as con:
        run_id = store.new_run(run, path, replace)
        facts, notes = fill(con, run_id)
        note(con, run_id, notes)
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
        insert(con, "runs", [row])
    return run_id, False


def note(con: duckdb.DuckDBPyConnection, run_id: int, notes: dict[str, str]) -> None:
    """Keep quality notes about a run as a whole, by their code."""
    rows = ({"run_id": run_id, "kind": kind, "detail": said} for kind, said in notes.items())
    insert(con, "capture_quality", rows)


def run_name(path: Path) -> str:
    """Name a run by its file, without the endings that say what and how packed it is."""
    return re.sub(r"[^\w.+@=-]", "_", _ENDINGS.sub("", path.name))[:100] or "capture"


def digest_of(path: Path) -> str:
    """Return sha256 of a file."""
    with open(path, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
