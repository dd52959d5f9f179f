"""Packets as a part of a run, or as a run of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...probes.base.errors import BundleError, HostError
from ...probes.base.plurals import plural, worded
from ..bundle.bundle import EVENTS, Bundle
from ..bundle.quality import CODES
from ..bundle.rungs import CAPTURE
from ..ingest import run_facts as facts
from ..ingest.outcome import Outcome, stored_outcome
from ..ingest.single_file import load_single_file, note
from ..store.store import Store
from . import load_packets as packets
from .tshark import find_tshark

if TYPE_CHECKING:
    import duckdb

Progress = Callable[[int], None] | None

NOT_DISSECTED = "packets_not_dissected"


def load_packets(
    con: duckdb.DuckDBPyConnection, run_id: int, bundle: Bundle, progress: Progress
) -> bool:
    """Load the bundle's packets, if it has any; without tshark say so and go on.

    Of a run without flows, the capture's connections become its flows.

    Returns whether they were loaded: False without a capture or without tshark.

    Raises:
        BundleError: the file is no capture.
    """
    path = bundle.packets()
    if path is None:
        return False
    try:
        find_tshark()
    except HostError as error:
        why = f"{error.fact}; {error.way_out}, then ingest the bundle again"
        note(con, run_id, {NOT_DISSECTED: worded(CODES[NOT_DISSECTED], name=path.name, why=why)})
        return False
    events = bundle.optional(EVENTS)
    before = events.stat().st_size if events else 0

    def report(done: int) -> None:
        if progress is not None:
            progress(before + done)

    shown = f"{bundle.shown}/{path.name}"
    flows = con.execute("SELECT 1 FROM flows WHERE run_id = ? LIMIT 1", [run_id]).fetchall()
    clocks = bundle.manifest.clocks
    capture = packets.load(con, run_id, path, shown, clocks, report, without_flows=not flows)
    note(con, run_id, capture.notes)
    return True


def add_packets(store: Store, run_id: int, bundle: Bundle, progress: Progress) -> bool:
    """Load the packets of a bundle whose events are in the store; tell whether they were loaded.

    Packets that are in the store already are left as they are: False.
    """
    stored = store.con.execute("SELECT 1 FROM captures WHERE run_id = ?", [run_id]).fetchall()
    if stored or bundle.packets() is None:
        return False
    with store.transaction() as con:
        con.execute(
            "DELETE FROM capture_quality WHERE run_id = ? AND kind = ?", [run_id, NOT_DISSECTED]
        )
        added = load_packets(con, run_id, bundle, progress)
        facts.without_events(con, run_id)
        con.execute(
            "UPDATE runs SET quality_notes = (SELECT count(*) FROM capture_quality q"
            " WHERE q.run_id = runs.run_id) WHERE run_id = ?",
            [run_id],
        )
        store.drop_cached_rows(run_id)
    return added


def load_capture(
    store: Store, path: Path, name: str | None, replace: bool, progress: Progress
) -> Outcome:
    """Make a run of only a packet capture, unless the store has it; return what became of it.

    Raises:
        HostError: tshark is not installed.
        BundleError: no capture, or no TCP segment in it.
        StoreError: the name is taken.
    """
    find_tshark()

    def fill(con: duckdb.DuckDBPyConnection, run_id: int) -> tuple[dict[str, Any], dict[str, str]]:
        capture = packets.load(con, run_id, path, str(path), (), progress, without_flows=True)
        _require_packets(capture.row, path)
        first, last = capture.row["first_realtime_ns"], capture.row["last_realtime_ns"]
        flows = con.execute("SELECT count(*) FROM flows WHERE run_id = ?", [run_id]).fetchall()
        facts_of_run = {
            "rung": CAPTURE.name,
            "flows": flows[0][0],
            "decoded_as": "packets only: no kernel events were recorded",
            "started_realtime_ns": first,
            "duration_ns": None if first is None else last - first,
            "packets": "{}",
        }
        return facts_of_run, capture.notes

    run_id, made = load_single_file(store, path, name, replace, fill)
    return stored_outcome(store, run_id, already=made is None)


def _require_packets(row: dict[str, Any], path: Path) -> None:
    if row["packets"]:
        return
    if row["damage"] is not None:
        raise BundleError(
            f"{path} ends early: {row['damage']}; before that it holds no TCP segment",
            "look whether it was copied whole, or export what Wireshark can save of it",
        )
    raise BundleError(
        f"{path} holds no TCP segment ({plural(row['frames'], 'packet')} of other kinds)",
        "capture the connection's packets where they are not encrypted, as on its sender:"
        " tcpdump -i IFACE -s 128 -w FILE tcp",
    )
