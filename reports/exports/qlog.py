"""Flows as qlog traces: what BBR knew as QUIC's recovery events, the packets beside them.

Two dialects: the event names of the current drafts (draft-ietf-quic-qlog-main-schema and
-quic-events), and those of qlog 0.3, which qvis and older programs read. TCP has no packet numbers:
segments are numbered as they pass the capture, from 0, those sent again with a new number.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO, Any

from ...analyze.story.completeness import simulated_of_many
from ...analyze.story.event_flows import EventFlow
from ...probes.base.errors import BbrscopeError
from ..text.print_table import printable
from .export_scope import ExportScope
from .exported_changes import ExportedChange, exported_changes

CURRENT, OLDER = "current", "0.3"
DIALECTS = (CURRENT, OLDER)
# A schema of our own for decisions, which QUIC has no event for.
_SCHEMAS = ["urn:ietf:params:qlog:events:quic-13", "urn:bbrscope:qlog:events:bbr"]
_NAMES = {
    CURRENT: {
        "sent": "quic:packet_sent",
        "received": "quic:packet_received",
        "lost": "quic:packet_lost",
        "metrics": "quic:recovery_metrics_updated",
        "state": "quic:congestion_state_updated",
        "decision": "bbr:decision",
    },
    OLDER: {
        "sent": "transport:packet_sent",
        "received": "transport:packet_received",
        "lost": "recovery:packet_lost",
        "metrics": "recovery:metrics_updated",
        "state": "recovery:congestion_state_updated",
        "decision": "bbr:decision",
    },
}
_ROWS = 20_000
# TCP_INFINITE_SSTHRESH of include/net/tcp.h.
_NO_SSTHRESH = 0x7FFFFFFF
_UNPACED = (1 << 64) - 1

# Everything that is by the million, in one order: a row of metrics (m) for each event, of each data
# segment (s) and each ACK (a) of the capture, and of each packet that was marked lost (l).
_STREAM = f"""
SELECT * FROM (
  SELECT s.ns::BIGINT AS ns, 'm' AS kind, s.seq::BIGINT AS place,
    if_set(s.min_rtt_us) AS a, nullif(e.tp_srtt_us, 0) / 8 AS b,
    CASE WHEN e.rs_rtt_us > 0 THEN e.rs_rtt_us END AS c,
    s.snd_cwnd::HUGEINT * e.tp_mss_cache AS d, s.inflight::HUGEINT * e.tp_mss_cache AS e,
    s.inflight AS f, nullif(s.sk_pacing_rate, {_UNPACED})::HUGEINT * 8 AS g,
    nullif(e.tp_snd_ssthresh, {_NO_SSTHRESH})::HUGEINT * e.tp_mss_cache AS h
  FROM states s JOIN events e USING (run_id, flow, seq)
  WHERE s.run = $run AND s.run_id = $run_id AND s.flow = $flow
  UNION ALL BY NAME
  SELECT c.ns, 's' AS kind, c.packet::BIGINT AS place, c.position AS a, c.len AS b,
    c.sent_again::BIGINT AS c, c.frame_len AS d
  FROM captured_segments c JOIN streams t ON t.run_id = c.run_id AND t.stream = c.stream
    AND t.direction::VARCHAR = c.direction
  WHERE c.run_id = $run_id AND t.flow = $flow AND c.len > 0
  UNION ALL BY NAME
  SELECT c.ns, 'a' AS kind, c.packet::BIGINT AS place, c.position AS a, p.frame_len AS b
  FROM captured_acks c JOIN streams t ON t.run_id = c.run_id AND t.stream = c.stream
    AND t.direction::VARCHAR = c.direction
  JOIN packets p ON p.run_id = c.run_id AND p.packet = c.packet
  WHERE c.run_id = $run_id AND t.flow = $flow
  UNION ALL BY NAME
  SELECT ns::BIGINT AS ns, 'l' AS kind, seq::BIGINT AS place, lost_packet AS a
  FROM loss_timeline WHERE run = $run AND run_id = $run_id AND flow = $flow
    AND lost_packet IS NOT NULL
) WHERE ns BETWEEN $first AND $last ORDER BY ns, kind DESC, place
"""
# In the order of their columns, and by what these are divided: times are in us.
_METRICS = (
    ("min_rtt", 1000),
    ("smoothed_rtt", 1000),
    ("latest_rtt", 1000),
    ("congestion_window", 1),
    ("bytes_in_flight", 1),
    ("packets_in_flight", 1),
    ("pacing_rate", 1),
    ("ssthresh", 1),
)

Data = dict[str, Any]


def write(scopes: Sequence[ExportScope], dialect: str, sequence: bool, file: IO[bytes]) -> int:
    """Write flows as qlog; return how many events there are.

    Args:
        dialect: of DIALECTS.
        sequence: as JSON text sequences (.sqlog) of one flow, else one JSON document.

    Raises:
        BbrscopeError: a run's events are not known, or a sequence would have several flows.
    """
    flows = [
        (scope, flow) for scope in scopes for flow in scope.event_flows("write as events of qlog")
    ]
    if not sequence:
        return _document(flows, dialect, file)
    if len(flows) != 1:
        raise BbrscopeError(
            f"a sequence (.sqlog) is of one flow, and this would be {len(flows)}",
            "choose one with --flow, or name the file .qlog",
        )
    ((scope, flow),) = flows
    trace = _trace(scope, flow, dialect)
    head = _head(dialect, True)
    head |= {"trace": trace} if dialect == CURRENT else {"trace": trace, "qlog_format": "JSON-SEQ"}
    file.write(b"\x1e" + _json(head) + b"\n")
    count = 0
    for event in _events(scope, flow, dialect):
        file.write(b"\x1e" + _json(event) + b"\n")
        count += 1
    return count


def _document(flows: Sequence[tuple[ExportScope, EventFlow]], dialect: str, file: IO[bytes]) -> int:
    """One JSON document, written as it comes."""
    file.write(_json(_head(dialect, False))[:-1] + b',"traces":[')
    count = 0
    for number, (scope, flow) in enumerate(flows):
        start = b",\n" if number else b"\n"
        file.write(start + _json(_trace(scope, flow, dialect))[:-1] + b',"events":[')
        between = b"\n"
        for event in _events(scope, flow, dialect):
            file.write(between + _json(event))
            between = b",\n"
            count += 1
        file.write(b"\n]}")
    file.write(b"\n]}\n")
    return count


def _head(dialect: str, sequence: bool) -> Data:
    about = {"title": "bbrscope", "description": "What Linux BBR decided, as recorded and replayed"}
    if dialect == OLDER:
        return {"qlog_version": "0.3", "qlog_format": "JSON", **about}
    kind, ending = ("sequential", "json-seq") if sequence else ("contained", "json")
    return {
        "file_schema": f"urn:ietf:params:qlog:file:{kind}",
        "serialization_format": f"application/qlog+{ending}",
        **about,
    }


def _trace(scope: ExportScope, flow: EventFlow, dialect: str) -> Data:
    """What is said of a flow before its events; times are in ms from the run's zero."""
    ends = [flow.summary.get(end) for end in ("local", "remote")]
    title = printable(f"{scope.run}, flow {flow.flow}")
    between = printable(f"{ends[0]} -> {ends[1]}, ") if all(ends) else ""
    holds = simulated_of_many(scope.con, [scope.run_id]).get(scope.run_id)
    fidelity = f"; simulated, fidelity: {printable(holds)}" if holds else ""
    decoded = printable(flow.decoded_as)
    trace: Data = {
        "title": title,
        "description": f"{between}TCP with BBR{flow.version}; {decoded}{fidelity}",
        "vantage_point": {"name": title, "type": "server"},
    }
    if dialect == OLDER:
        common: Data = {"protocol_type": ["TCP"], "time_format": "relative", "reference_time": 0}
        return trace | {"common_fields": common}
    clock: Data = {"clock_type": "monotonic", "epoch": "unknown"}
    if (began := _began(scope)) is not None:
        clock["wall_clock_time"] = began
    common = {"time_format": "relative_to_epoch", "reference_time": clock}
    return trace | {"common_fields": common, "event_schemas": _SCHEMAS}


def _began(scope: ExportScope) -> str | None:
    """The run's zero by the sender's wall clock, if that is known."""
    records = scope.con.execute(
        "SELECT (realtime_ns::BIGINT - monotonic_ns::BIGINT) FROM clocks"
        " WHERE run_id = ? AND point = 'start'",
        [scope.run_id],
    ).fetchall()
    if not records or records[0][0] is None:
        return None
    ns = records[0][0] + scope.zero_ns
    if not 0 <= ns < 1 << 62:
        return None
    return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S") + (
        f".{ns % 10**9 // 10**6:03}Z"
    )


def _events(scope: ExportScope, flow: EventFlow, dialect: str) -> Iterator[Data]:
    """Yield the events of a flow in the order of their times."""
    names = _NAMES[dialect]
    # Both are consumed at once, so the story is read before the stream's query begins.
    changes = iter(list(_changes(scope, flow)))
    stream = _stream(scope, flow, dialect)
    for ns, kind, data in heapq.merge(stream, changes, key=lambda item: item[0]):
        yield {"time": (ns - scope.zero_ns) / 1e6, "name": names[kind], "data": data}


def _changes(scope: ExportScope, flow: EventFlow) -> Iterator[tuple[int, str, Data]]:
    for item in exported_changes(scope, flow):
        change = item.change
        if change.is_phase:
            state: Data = {"new": scope.translated(str(change.new)), "trigger": item.why}
            if change.old is not None:
                state = {"old": scope.translated(str(change.old)), **state}
            yield change.ns, "state", state
        else:
            yield change.ns, "decision", _decision(scope, item)


def _decision(scope: ExportScope, item: ExportedChange) -> Data:
    change = item.change
    data: Data = {"about": scope.translated(change.about), "what": item.what, "trigger": item.why}
    if change.name is not None:
        data["decision"] = change.name
    if item.function:
        data["function"] = item.function
    if item.evidence:
        data["evidence"] = item.evidence
    return data


@dataclass
class _Numbers:
    """Packet numbers of the segments that no ACK has covered yet: by where they end, by frame."""

    next: int = 0
    open: list[tuple[int, int, int]] = field(default_factory=list)
    by_frame: dict[int, int] = field(default_factory=dict)

    def sent(self, frame: int, end: int) -> int:
        """Number a segment that ends at a position."""
        number = self.next
        self.next += 1
        heapq.heappush(self.open, (end, number, frame))
        self.by_frame[frame] = number
        return number

    def acked(self, position: int) -> list[list[int]]:
        """Return the numbers that an ACK is the first to cover, as ranges."""
        covered = []
        while self.open and self.open[0][0] <= position:
            _, number, frame = heapq.heappop(self.open)
            del self.by_frame[frame]
            covered.append(number)
        ranges: list[list[int]] = []
        for number in sorted(covered):
            if ranges and ranges[-1][1] == number - 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        return ranges


def _stream(scope: ExportScope, flow: EventFlow, dialect: str) -> Iterator[tuple[int, str, Data]]:
    """Yield metrics that changed, and packets, in the order of time."""
    first, last = scope.span(flow)
    values = {"run": flow.run, "run_id": flow.run_id, "flow": flow.flow}
    records = scope.con.execute(_STREAM, values | {"first": first, "last": last})
    numbers = _Numbers()
    before: list[float | None] = [None] * len(_METRICS)
    while rows := records.fetchmany(_ROWS):
        for ns, kind, place, *columns in rows:
            if kind == "m":
                data = _changed(columns, before)
                if data:
                    yield ns, "metrics", data
            else:
                packet = _packet(kind, place, columns, numbers, dialect)
                if packet is not None:
                    yield ns, *packet


def _changed(columns: Sequence[float | None], before: list[float | None]) -> Data:
    data = {}
    for at, (name, divisor) in enumerate(_METRICS):
        value = columns[at]
        if value is not None and value != before[at]:
            before[at] = value
            data[name] = int(value) if divisor == 1 else value / divisor
    return data


def _packet(
    kind: str, place: int, columns: Sequence[Any], numbers: _Numbers, dialect: str
) -> tuple[str, Data] | None:
    if kind == "s":
        # Columns that other kinds of rows have as fractions are all fractions.
        position, length, _, frame_length = map(int, columns[:4])
        number = numbers.sent(place, position + length)
        stream = {
            "frame_type": "stream",
            "stream_id": 0,
            "offset": max(position - 1, 0),
            **({"length": length} if dialect == OLDER else {"raw": {"payload_length": length}}),
        }
        raw = {"length": frame_length, "payload_length": length}
        return "sent", {"header": _header(number), "frames": [stream], "raw": raw}
    if kind == "a":
        ranges = numbers.acked(int(columns[0]))
        if not ranges:
            return None
        ack = {"frame_type": "ack", "acked_ranges": ranges}
        return "received", {
            "header": _header(place),
            "frames": [ack],
            "raw": {"length": int(columns[1])},
        }
    number = numbers.by_frame.get(columns[0], -1)
    return None if number < 0 else ("lost", {"header": _header(number)})


def _header(number: int) -> Data:
    return {"packet_type": "1RTT", "packet_number": number}


def _json(value: Data) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode()
