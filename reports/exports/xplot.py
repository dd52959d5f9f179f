"""A flow's time-sequence graph for xplot, drawn as tcptrace draws it, with what BBR decided.

x is in seconds on the run's clock, y in bytes from the connection's first. Segments, ACKs, windows
and SACK blocks come from the capture; without one, from the sender's own state at each event.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from ...analyze.story.completeness import simulated_of_many
from ...analyze.story.event_flows import EventFlow
from ...analyze.story.flow_stories import RecordedFlow
from ...collect.store.query import rows
from ...probes.base.errors import BbrscopeError
from ..text.print_table import printable
from .export_scope import ExportScope
from .exported_changes import exported_changes
from .flow_lanes import PHASE, lane

_ROWS = 20_000
# tcptrace's colours, and two of our own for what only the sender knows.
_SEGMENT, _AGAIN, _ACK, _WINDOW, _SACK, _CE = "white", "red", "green", "yellow", "purple", "pink"
_CWND, _PHASE, _DECISION = "blue", "orange", "magenta"

_ZERO = """
SELECT arg_min(seq_raw::BIGINT - seq, packet) AS isn FROM packets
WHERE run_id = ? AND flow = ? AND seq_raw IS NOT NULL AND seq IS NOT NULL
"""
_SEGMENTS = """
SELECT c.ns, c.position, c.len, c.sent_again, c.overtaken, c.ecn = 3 AS marked
FROM captured_segments c JOIN streams t ON t.run_id = c.run_id AND t.stream = c.stream
  AND t.direction::VARCHAR = c.direction
WHERE c.run_id = $run_id AND t.flow = $flow AND c.len > 0 AND c.ns BETWEEN $first AND $last
ORDER BY c.packet
"""
_ACKS = """
SELECT c.ns, c.position, p."window", p.dup_ack, list_transform(range(1, 1 + coalesce(
  len(p.sack_left), 0)), lambda i: [c.position + distance32(p.sack_left[i], p.ack),
  c.position + distance32(p.sack_right[i], p.ack)]) AS blocks
FROM captured_acks c JOIN streams t ON t.run_id = c.run_id AND t.stream = c.stream
  AND t.direction::VARCHAR = c.direction
JOIN packets p ON p.run_id = c.run_id AND p.packet = c.packet
WHERE c.run_id = $run_id AND t.flow = $flow AND c.ns BETWEEN $first AND $last
ORDER BY c.packet
"""
# The sender's own view, sequence numbers counted on beyond 2^32 from $isn, or from the first.
_STATE = """
WITH steps AS (
  SELECT e.seq, e.ns::BIGINT AS ns, e.kind::VARCHAR AS kind, e.tp_snd_una AS una,
    distance32(e.tp_snd_una, lag(e.tp_snd_una) OVER w) AS step, e.tp_snd_nxt AS nxt,
    e.tp_snd_wnd AS wnd,
    coalesce(e.exit_snd_cwnd, e.tp_snd_cwnd)::HUGEINT * e.tp_mss_cache AS cwnd,
    e.skb_end_seq, e.skb_gso_segs::BIGINT * e.tp_mss_cache AS lost
  FROM events e JOIN flows f USING (run_id, flow)
  WHERE run_id = $run_id AND flow = $flow AND e.seq >= f.pre_init WINDOW w AS (ORDER BY e.seq)
), placed AS (
  SELECT *, (coalesce(distance32(first(una) OVER w, $isn), 0)
    + sum(coalesce(step, 0)) OVER w)::BIGINT AS position FROM steps
  WINDOW w AS (ORDER BY seq ROWS UNBOUNDED PRECEDING)
)
SELECT ns, kind, position, position + distance32(nxt, una) AS sent, position + wnd AS edge,
  position + cwnd AS allowed, position + distance32(skb_end_seq, una) AS lost_end, lost
FROM placed WHERE ns BETWEEN $first AND $last ORDER BY seq
"""

Row = tuple[Any, ...]


def write(scope: ExportScope, file: IO[bytes]) -> int:
    """Write the graph of the scope's only flow; return how many drawing commands it has.

    Raises:
        BbrscopeError: there are several flows, or nothing with sequence numbers is known of it.
    """
    flow = _only(scope)
    drawing = _Drawing(scope, flow, file)
    captured = drawing.packets()
    if not captured and not isinstance(flow, EventFlow):
        raise BbrscopeError(
            f"{scope.run} has neither packets nor events, so that no sequence number is known",
            "export it as perfetto, which shows what its samples say",
        )
    if isinstance(flow, EventFlow):
        drawing.state(captured)
        drawing.decisions()
    drawing.command("go")
    return drawing.commands


def _only(scope: ExportScope) -> RecordedFlow:
    if len(scope.flows) != 1:
        numbers = ", ".join(str(flow.flow) for flow in scope.flows[:20])
        raise BbrscopeError(
            f"a graph is of one flow, and {scope.run} has {len(scope.flows)} that carry data",
            f"choose one with --flow: {numbers}" if numbers else "choose another run",
        )
    return scope.flows[0]


class _Drawing:
    """Writes xplot's commands for one flow.

    Attributes:
        commands: how many were written.
    """

    def __init__(self, scope: ExportScope, flow: RecordedFlow, file: IO[bytes]) -> None:
        self._scope, self._flow, self._file = scope, flow, file
        self.commands = 0
        self._colour = ""
        # Where the sender stood at each event, for decisions: times and positions.
        self._places: list[tuple[int, int]] = []
        title = printable(f"{scope.run}, flow {flow.flow} (time sequence graph)")
        for holds in simulated_of_many(scope.con, [scope.run_id]).values():
            title += printable(f"; simulated, fidelity: {holds}")
        for line in ("double double", "title", title, "xlabel", "seconds", "ylabel", "bytes"):
            self.command(line)

    def command(self, text: str) -> None:
        """Write one line."""
        self._file.write(text.encode("ascii", "backslashreplace") + b"\n")
        self.commands += 1

    def packets(self) -> bool:
        """Draw what the capture shows; tell whether there was any of it."""
        before = self.commands
        for row in self._rows(_SEGMENTS):
            self._segment(row)
        self._acks(self._rows(_ACKS))
        return self.commands > before

    def state(self, captured: bool) -> None:
        """Draw the congestion window; without a capture also what was sent, acked and allowed."""
        records = rows(self._scope.con, _ZERO, self._scope.run_id, self._flow.flow)
        isn = records[0]["isn"] if captured and records else None
        before: Row | None = None
        for row in self._rows(_STATE, {"isn": isn}):
            ns, kind, position, sent, edge, allowed, lost_end, lost = row
            self._places.append((ns, position))
            if kind == "skb_marked_lost" and lost_end is not None:
                self._lost(ns, lost_end - (lost or 0), lost_end)
                continue
            if before is not None:
                self._step(_CWND, before[0], before[5], ns, allowed)
                if not captured:
                    self._step(_SEGMENT, before[0], before[3], ns, sent)
                    self._step(_ACK, before[0], before[2], ns, position)
                    self._step(_WINDOW, before[0], before[4], ns, edge)
            before = row

    def decisions(self) -> None:
        """Draw phases as a band below the graph, and what was decided beside the ACKs."""
        flow = self._flow
        if not self._places:
            return
        positions = [position for _, position in self._places]
        # Below everything else, where the graph's frame does not cut it.
        bottom = min(positions) - (max(positions) - min(positions)) // 20
        for span in lane(self._scope, flow, PHASE):
            start, end = self._x(span.start_ns), self._x(span.end_ns)
            self._paint(_PHASE)
            self.command(f"line {start} {bottom} {end} {bottom}")
            self.command(f"dtick {start} {bottom}")
            self._text("atext", start, bottom, self._scope.translated(span.name))
        place = 0
        for item in exported_changes(self._scope, flow, self._scope.everything):
            ns = item.change.ns
            while place + 1 < len(self._places) and self._places[place + 1][0] <= ns:
                place += 1
            position = self._places[place][1]
            self._paint(_PHASE if item.change.is_phase else _DECISION)
            self.command(f"diamond {self._x(ns)} {position}")
            self._text("rtext", self._x(ns), position, item.what)

    def _segment(self, row: Row) -> None:
        ns, position, length, again, overtaken, marked = row
        x, end = self._x(ns), position + length
        self._paint(_AGAIN if again else _SEGMENT)
        self.command(f"line {x} {position} {x} {end}")
        self.command(f"darrow {x} {position}")
        self.command(f"uarrow {x} {end}")
        if again:
            self._text("atext", x, end, "R")
        elif overtaken:
            self._text("atext", x, end, "O")
        if marked:
            self._paint(_CE)
            self._text("btext", x, position, "CE")

    def _acks(self, records: Iterator[Row]) -> None:
        before: Row | None = None
        for row in records:
            ns, position, window, duplicate, sacked = row
            x = self._x(ns)
            if before is not None and position >= before[1]:
                self._step(_ACK, before[0], before[1], ns, position)
                if window is not None and before[2] is not None:
                    edges = before[1] + before[2], position + window
                    self._step(_WINDOW, before[0], edges[0], ns, edges[1])
            if duplicate:
                self._paint(_ACK)
                self.command(f"dtick {x} {position}")
            for left, right in sacked or ():
                self._paint(_SACK)
                self.command(f"line {x} {left} {x} {right}")
                self._text("rtext", x, right, "S")
            if before is None or position >= before[1]:
                before = row

    def _lost(self, ns: int, start: int, end: int) -> None:
        self._paint(_AGAIN)
        self.command(f"line {self._x(ns)} {start} {self._x(ns)} {end}")
        self._text("btext", self._x(ns), start, "L")

    def _step(self, colour: str, from_ns: int, from_y: int, to_ns: int, to_y: int) -> None:
        """Draw a value that holds until the next."""
        self._paint(colour)
        x = self._x(to_ns)
        self.command(f"line {self._x(from_ns)} {from_y} {x} {from_y}")
        if from_y != to_y:
            self.command(f"line {x} {from_y} {x} {to_y}")

    def _paint(self, colour: str) -> None:
        if colour != self._colour:
            self.command(colour)
            self._colour = colour

    def _text(self, kind: str, x: str, y: int, text: str) -> None:
        self.command(f"{kind} {x} {y}")
        self.command(printable(text))

    def _x(self, ns: int) -> str:
        return f"{(ns - self._scope.zero_ns) / 1e9:.9f}"

    def _rows(self, query: str, more: dict[str, int | None] | None = None) -> Iterator[Row]:
        first, last = self._scope.window or (0, (1 << 63) - 1)
        values = {"run_id": self._scope.run_id, "flow": self._flow.flow}
        values |= {"first": first, "last": last}
        records = self._scope.con.execute(query, values | (more or {}))
        while some := records.fetchmany(_ROWS):
            yield from some
