"""Load a packet capture into the store: dissect it, tell whose packets they are, join the events.

Everything is columnar: tshark writes fields, compiled code makes Arrow columns of them, DuckDB does
the rest. The capture passes through in one go into a staging table, because whose flow a packet
belongs to, and what its time is on the events' clock, is known only when all were seen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...probes.base.plurals import worded
from ..bundle.bundle import Clock
from ..bundle.numbers import MAX_NS
from ..bundle.quality import CODES
from ..store.arrow import registered, streamed
from ..store.limits import limited
from ..store.query import one
from ..store.rowsets import insert
from . import match
from .beside_packets import beside_packets
from .parts import Parts, arrow_schema
from .tshark import tshark_version

if TYPE_CHECKING:
    import duckdb

# The offset of the clocks may wander this much over a recording before a note says so: NTP slews
# by at most 500 ppm, and a step is larger than any ACK's way through the sender.
TOLERATED_DRIFT_NS = 1_000_000
# What DuckDB may hold of the packets; more goes to files beside the store meanwhile.
LOAD_MEMORY = "1GB"
# Packets whose ACK number pairs with one event say how the clocks relate; fewer say little.
ENOUGH_PAIRS = 10
COUNTED = ("no_syn", "one_way", "cut_options", "untimed", "doubles")
WRONG = "what is reckoned over that time is wrong"


@dataclass
class Capture:
    """What became of one capture: the row of table captures, and notes by their code."""

    row: dict[str, Any]
    notes: dict[str, str]


def load(
    con: duckdb.DuckDBPyConnection,
    run_id: int,
    path: Path,
    shown: str,
    clocks: tuple[Clock, ...],
    progress: Callable[[int], None] | None = None,
    without_flows: bool = False,
) -> Capture:
    """Fill captures, streams, packets, ack_matches and loss_matches of a run.

    Call it inside a transaction, when the run's events and flows are loaded.

    Args:
        con: the store's connection.
        run_id: the run that the capture belongs to.
        path: pcap or pcapng; plain, gzip or zstd.
        shown: what to call it in messages.
        clocks: the manifest's readings; without them the ACKs themselves tell the offset.
        progress: called with the bytes of the file read so far.
        without_flows: the run has no flows but the connections of this capture.

    Raises:
        HostError: tshark is not installed.
        BundleError: not a capture.
    """
    import duckdb

    # Two threads leave row groups of any size, which DuckDB then may write again, all of them.
    with limited(con, memory_limit=LOAD_MEMORY, threads=1):
        try:
            row = {"run_id": run_id, "name": path.name, **_stage(con, path, shown, progress)}
            line = _ClockLine.of(clocks).set_at(row["clock_ahead"])
            notes = _notes(row, line)
            if without_flows:
                con.execute(match.NUMBER_FLOWS)
                con.execute(match.ADD_FLOWS, line.values() | {"run_id": run_id})
            if not without_flows:
                notes |= _assign_owners(con, run_id, row, line)
            _match(con, run_id, row, line)
            insert(con, "captures", [row])
            notes |= _keep_other_blocks(con, run_id, path)
            return Capture(row, notes | _judge(row))
        finally:
            # After an error the transaction is void, and takes the tables with it.
            with suppress(duckdb.TransactionException):
                _drop(con)


def _keep_other_blocks(con: duckdb.DuckDBPyConnection, run_id: int, path: Path) -> dict[str, str]:
    """Keep what a pcapng holds beside packets, but for secrets; say what there is."""
    others = beside_packets(path)
    if not others:
        return {}
    name = f"{path.name} beside its packets"
    insert(con, "attachments", [{"run_id": run_id, "name": name, "text": others.text()}])
    return _worded({"name": path.name}, {"capture_beside": others.counts()})


def _stage(
    con: duckdb.DuckDBPyConnection,
    path: Path,
    shown: str,
    progress: Callable[[int], None] | None,
) -> dict[str, Any]:
    """Dissect the capture into temporary tables; return what is known of it already."""
    folder = Path(one(con, match.STORE)["path"]).parent
    with Parts(path, shown, folder, progress) as parts:
        outcome = _dissect(con, parts)
    if parts.sorted is not None and one(con, match.SHARED)["shared"]:
        # A connection that is there both plainly and in some tunnel, say, or in fragments.
        _drop(con)
        with Parts(path, shown, folder, progress, whole=True) as parts:
            outcome = _dissect(con, parts)
    staged = one(con, match.STAGED)
    gaps = staged.pop("gaps")
    staged["clock_ahead"] = one(con, match.AHEAD, gaps=gaps) if gaps else {"count": 0}
    return staged | outcome | {"tshark": tshark_version()}


def _dissect(con: duckdb.DuckDBPyConnection, parts: Parts) -> dict[str, Any]:
    """Fill the temporary tables from tshark's output; return what became of the capture."""
    with streamed(con, "incoming_frames", arrow_schema(), parts.batches()):
        con.execute(match.STAGE)
    with registered(con, "stream_numbers", parts.numbers()):
        con.execute(match.STAGE_STREAMS)
    return {"frames": parts.frames, "damage": parts.damage}


def _drop(con: duckdb.DuckDBPyConnection) -> None:
    for name in ("staged_packets", "staged_streams"):
        con.execute(f"DROP TABLE IF EXISTS temp.{name}")


def _assign_owners(
    con: duckdb.DuckDBPyConnection, run_id: int, row: dict[str, Any], line: _ClockLine
) -> dict[str, str]:
    """Tell whose flows the connections are; say why if no packet belongs to any."""
    con.execute(match.OWNERS, line.values() | {"run_id": run_id, "known": line.known})
    facts = one(con, match.WITHOUT_OWNER, run_id=run_id, **line.values())
    if facts["owned"] or not facts["packets"] or facts["first_event_ns"] is None:
        return {}
    why = "no connection in it has the ports, addresses and time of one"
    if line.known and facts["first_packet_ns"] is not None:
        late = facts["first_packet_ns"] - facts["last_event_ns"]
        early = facts["first_event_ns"] - facts["last_packet_ns"]
        apart = (
            f"{late / 1e9:.1f} s after the last event"
            if late > early
            else f"{early / 1e9:.1f} s before the first event"
        )
        if max(late, early) > 0:
            why = f"by the manifest's clocks it lies {apart}, so that a clock was set wrong"
    return _worded(row, {"capture_no_owner": {"packets": facts["packets"], "why": why}})


def _match(
    con: duckdb.DuckDBPyConnection, run_id: int, row: dict[str, Any], line: _ClockLine
) -> None:
    """Tell times, store the packets, and join them to the events."""
    run: dict[str, Any] = {"run_id": run_id}
    events = one(con, "SELECT count(*) AS n FROM events WHERE run_id = $run_id", **run)["n"]
    row["clock"] = "manifest" if line.known else "acks" if events else "realtime"
    if line.known:
        row |= {"offset_ns": line.offset, "drift_ns": line.moved}
    pairs = one(con, match.PAIRS, **run, **line.values())
    row |= _shift(row, pairs, line)
    shift = row.get("shift_ns")
    con.execute(match.KEEP_STREAMS, run | line.values() | {"shift": shift})
    con.execute(match.KEEP_PACKETS, run | line.values() | {"shift": shift})
    if events and shift is not None:
        limit = min(MAX_NS, max(match.LEAST_LIMIT_NS, 2 * (row["lag_p99_ns"] or 0)))
        con.execute(match.ACKS, run | {"limit": limit})
        con.execute(match.LOSSES, run)
        row |= one(con, match.SHARES, **run)


@dataclass(frozen=True)
class _ClockLine:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC by the manifest's readings, `offset` and `drift`.

    A straight line through them from `at` on for `span`; or, where the clock was set, `drift` is
    all there from `at` on. `moved` is by how much it had changed at the end.
    """

    known: bool
    at: int = 0
    span: int = 1
    offset: int = 0
    drift: int = 0
    sudden: bool = False
    moved: int = 0

    @classmethod
    def of(cls, clocks: tuple[Clock, ...]) -> _ClockLine:
        if not clocks:
            return cls(False)
        first, last = clocks[0], clocks[-1]
        offset = first.realtime_ns - first.monotonic_ns
        drift = last.realtime_ns - last.monotonic_ns - offset
        span = last.realtime_ns - first.realtime_ns
        if span <= 0:  # set back by more than the recording took: there is no line
            return cls(True, first.realtime_ns, offset=offset, moved=drift)
        return cls(True, first.realtime_ns, span, offset, drift, moved=drift)

    def set_at(self, ahead: dict[str, Any]) -> _ClockLine:
        """The same if the capture tells of one step forward that made most of the drift."""
        if ahead["count"] != 1 or not 0.9 < self.drift / 1e9 / ahead["seconds"] < 1.1:
            return self
        return replace(self, at=ahead["realtime_ns"], sudden=True)

    def values(self) -> dict[str, int]:
        """Parameters of `packets_match.clock`."""
        names = ("at", "span", "offset", "drift", "sudden")
        return {name: getattr(self, name) for name in names}


def _shift(row: dict[str, Any], pairs: dict[str, Any], line: _ClockLine) -> dict[str, Any]:
    """Refine the clock on the ACKs: no event can precede the packet that caused it.

    With the manifest's clocks, packets are moved only if they would break that rule; without, they
    are moved until it just holds, so that times are late by at most the least lag.
    """
    count, earliest = pairs["pairs"], pairs.pop("earliest")
    if row["clock"] == "realtime":
        return {"shift_ns": 0, "pairs": 0}
    if not line.known:
        if count < ENOUGH_PAIRS:
            return {"clock": "none", "pairs": count}
        shift = earliest
    else:
        shift = min(0, earliest) if count >= ENOUGH_PAIRS else 0
    moved = {
        name: None if value is None or name == "pairs" else value - shift
        for name, value in pairs.items()
    }
    return moved | {"pairs": count, "shift_ns": shift}


def _notes(row: dict[str, Any], line: _ClockLine) -> dict[str, str]:
    """Say what of the capture could not be dissected; takes the counts for it out of the row."""
    counts = {name: row.pop(name) for name in COUNTED}
    back, ahead = row.pop("clock_back"), row.pop("clock_ahead")
    other = row["frames"] - row["packets"]
    notes: dict[str, dict[str, Any]] = {}
    if row["damage"] is not None:
        notes["capture_cut"] = {"what": row["damage"]}
    if not row["packets"]:
        notes["capture_no_tcp"] = {"frames": row["frames"]}
    elif other > row["packets"]:
        notes["capture_mostly_other"] = {"other": other, "frames": row["frames"]}
    if back["count"]:
        notes["capture_clock_back"] = back | {"then": WRONG}
    if ahead["count"]:
        then = "the manifest's clocks place its packets" if line.sudden else WRONG
        notes["capture_clock_ahead"] = ahead | {"then": then}
    for name, count in counts.items():
        if count:
            notes[f"capture_{name}"] = {"count": count}
    return _worded(row, notes)


def _judge(row: dict[str, Any]) -> dict[str, str]:
    """Say how far the capture and the events can be joined."""
    drift, shift, clock = row.get("drift_ns") or 0, row.get("shift_ns") or 0, row["clock"]
    notes: dict[str, dict[str, Any]] = {}
    if abs(drift) > TOLERATED_DRIFT_NS:
        notes["clock_drift"] = {"drift": drift / 1e6}
    if clock == "manifest" and shift < 0:
        notes["clock_shift"] = {"shift": -shift / 1e6, "pairs": row["pairs"]}
    if clock == "acks":
        notes["clock_from_acks"] = {"pairs": row["pairs"]}
    if clock == "none" or (row.get("mains") and not row.get("mains_matched")):
        notes["capture_unmatched"] = {}
    return _worded(row, notes)


def _worded(row: dict[str, Any], notes: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {code: worded(CODES[code], name=row["name"], **values) for code, values in notes.items()}
