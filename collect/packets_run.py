"""Packets as a part of a run, or as a run of their own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import packets
from .bundle import EVENTS, RUN_NAME, Bundle
from .errors import BundleError, HostError, StoreError
from .findings import CODES
from .packets_tshark import find_tshark
from .rowsets import insert
from .store import Store

if TYPE_CHECKING:
    import duckdb

Progress = Callable[[int], None] | None

NOT_DISSECTED = "packets_not_dissected"


def load_packets(
    con: duckdb.DuckDBPyConnection, run_id: int, bundle: Bundle, progress: Progress
) -> bool:
    """Load the bundle's packets, if it has any; without tshark say so and go on.

    Returns whether there are rows in table packets now.
    """
    path = bundle.packets()
    if path is None:
        return False
    try:
        find_tshark()
    except HostError as error:
        why = f"{error.fact}; {error.way_out}, then ingest the bundle again"
        _note(con, run_id, {NOT_DISSECTED: CODES[NOT_DISSECTED].format(name=path.name, why=why)})
        return False
    events = bundle.optional(EVENTS)
    before = events.stat().st_size if events else 0

    def report(done: int) -> None:
        if progress is not None:
            progress(before + done)

    shown = f"{bundle.shown}/{path.name}"
    capture = packets.load(con, run_id, path, shown, bundle.manifest.clocks, report)
    _note(con, run_id, capture.findings)
    return True


def add_packets(store: Store, run_id: int, bundle: Bundle, progress: Progress) -> bool:
    """Load the packets of a bundle whose events are in the store; tell whether there were any."""
    found = store.con.execute("SELECT 1 FROM captures WHERE run_id = ?", [run_id]).fetchall()
    if found or bundle.packets() is None:
        return False
    with store.transaction() as con:
        con.execute(
            "DELETE FROM capture_quality WHERE run_id = ? AND kind = ?", [run_id, NOT_DISSECTED]
        )
        added = load_packets(con, run_id, bundle, progress)
        con.execute(
            "UPDATE runs SET findings = (SELECT count(*) FROM capture_quality q"
            " WHERE q.run_id = runs.run_id) WHERE run_id = ?",
            [run_id],
        )
    return added


def load_capture(
    store: Store, path: Path, name: str | None, replace: bool, progress: Progress
) -> tuple[int, bool]:
    """Make a run of a packet capture alone; return its run_id and whether it was there already.

    Raises:
        HostError: tshark is not installed.
        BundleError: no capture, or no TCP segment in it.
        StoreError: the name is taken.
    """
    find_tshark()
    run = name or _run_name(path)
    if not RUN_NAME.fullmatch(run):
        raise StoreError(f"{run!r:.60} cannot name a run", "use 1 to 100 letters, digits or ._+@=-")
    digest = _digest(path)
    known = store.con.execute(
        "SELECT run_id, run FROM runs WHERE bundle_digest = ?", [digest]
    ).fetchall()
    if known and (name is None or known[0][1] == name):
        return known[0][0], True
    with store.transaction() as con:
        old = con.execute("SELECT run_id FROM runs WHERE run = ?", [run]).fetchall()
        if old and not replace:
            raise StoreError(
                f"the store has another run called {run!r}; {path} was not loaded",
                "add --replace to replace it, or --as NAME to keep both",
            )
        if old:
            store.delete_run(old[0][0])
        last = con.execute("SELECT coalesce(max(run_id), 0) FROM runs").fetchall()
        run_id = int(last[0][0]) + 1
        capture = packets.load(con, run_id, path, str(path), (), progress)
        _require_packets(capture.row, path)
        _note(con, run_id, capture.findings)
        insert(con, "runs", [_run_row(run_id, run, digest, capture)])
    return run_id, False


def _note(con: duckdb.DuckDBPyConnection, run_id: int, findings: dict[str, str]) -> None:
    rows = ({"run_id": run_id, "kind": kind, "detail": said} for kind, said in findings.items())
    insert(con, "capture_quality", rows)


def _run_name(path: Path) -> str:
    """Name a run by its file, without the endings that say how it is packed."""
    plain = re.sub(r"(\.(pcap|pcapng|cap|gz|zst|zstd))+$", "", path.name, flags=re.IGNORECASE)
    return re.sub(r"[^\w.+@=-]", "_", plain)[:100] or "capture"


def _digest(path: Path) -> str:
    with open(path, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _require_packets(row: dict[str, Any], path: Path) -> None:
    if row["packets"]:
        return
    raise BundleError(
        f"{path} holds no TCP segment ({row['frames']} packets of other kinds)",
        "capture the connection's packets: tcpdump -i IFACE -s 128 -w FILE tcp",
    )


def _run_row(run_id: int, run: str, digest: str, capture: packets.Capture) -> dict[str, Any]:
    first, last = capture.row["first_realtime_ns"], capture.row["last_realtime_ns"]
    return {
        "run_id": run_id,
        "run": run,
        "bundle_digest": digest,
        "decoded_as": "packets alone: no kernel events were recorded",
        "started_realtime_ns": first,
        "duration_ns": last - first,
        "flows": 0,
        "events": 0,
        "rows": 0,
        "half_events": 0,
        "missing_exits": 0,
        "findings": len(capture.findings),
        "salvaged": False,
        "packets": "{}",
        "ingested_by": version("bbrscope"),
    }
