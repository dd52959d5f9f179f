"""Read ``events.csv.zst`` into columnar batches of kernel events, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import header, pairing, rows
from .addresses import endpoints
from .batch import Assembler, Finished
from .errors import BundleError
from .findings import CODES
from .header import ALONE, ENTRY, PARAMETERS, Header, Tag
from .pairing import NO_FLOW, SIDE_HEAD, Batch
from .plan import MAIN_ACKED, Plan, make_plan
from .schema.recording import KINDS
from .skb_rows import SkbRows
from .zstd import DamagedError, ZstdFile

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_BYTES = 1 << 18
SLOTS_PER_BATCH = 40_960
FIRST_SOCKETS = 1 << 10
MAX_BAD_ROWS = 10_000
# Of a number of bytes in front of a packet.
MOST_DIGITS = 5

LOST = re.compile(r"Lost ([0-9]+) events")
# Lines that bpftrace prints among the rows; they carry no data.
CHATTER = re.compile(r"|Attach(ing|ed) .*|Lost .*|WARNING: .*|stdin:.*|@.*|\s+", re.DOTALL)

SALVAGE = "add --salvage to keep every whole event, with the damage on record"


@dataclass
class FlowInfo:
    """One flow as the rows tell it: flow counts from 0, `addresses` holds what init recorded."""

    flow: int
    sk: str
    generation: int
    has_init: bool
    pre_init: int
    cookie: int | None
    addresses: dict[str, str | int] = field(default_factory=dict)


@dataclass
class Finding:
    """A row of capture_quality; flow counts from 0."""

    code: str
    detail: str
    flow: int | None = None
    seq: int | None = None
    line: int | None = None
    ns: int | None = None


class EventReader:
    """Reads one event stream; iterate `batches` to its end, then read the other attributes.

    Attributes:
        header: the declared rows, known from the start.
        findings: what is missing or odd.
        params: rows of v2's parameters, by recorded name, with flow (from 0) and ns.
        row_counts: rows by tag. skipped_counts: rows by tags that are no part of an event.
        alone: rows that are no part of an event and have a table of their own, by tag.
        lost_reported: rows lost as the collector's messages say.

    Raises:
        BundleError: a row is impossible, or the file is damaged; with `salvage` such rows are
            dropped, and what a cut-off file still has is kept.
    """

    def __init__(
        self,
        path: Path,
        shown: str,
        salvage: bool = False,
        suspect: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.path = path
        self.shown = shown
        self.salvage = salvage
        self.progress = progress
        self.findings: list[Finding] = []
        self.params: list[dict[str, int]] = []
        self._max_headers: set[int] = set()
        self._begun: dict[int, dict[str, int]] = {}
        self.lost_reported = 0
        self.first_unpaired: tuple[int, str] | None = None
        self._addresses: dict[int, dict[str, str | int]] = {}
        self._older: dict[int, dict[str, str | int]] = {}
        self.skipped_counts: dict[str, int] = {}
        self._first_flows: dict[int, int] | None = None
        self._bad_rows = 0
        self._source = TextSource(path, shown, salvage)
        self.header = self._read_header()
        self.findings += [Finding(code, text) for code, text in self.header.findings]
        self.alone = {
            index: SkbRows(tag) for index, tag in enumerate(self.header.tags) if tag.role == ALONE
        }
        self._assembler = Assembler(self.header, SLOTS_PER_BATCH)
        self._plan: Plan = make_plan(self.header, self._assembler.offsets)
        self._batch: Batch = self._assembler.new_batch()
        self._state = np.zeros(pairing.STATE_SIZE, np.int64)
        self._state[pairing.LINE] = self._source.line
        self._state[pairing.SUSPECT] = int(suspect)
        self._state[pairing.LAST_SOCKET] = -1
        self._table = np.full(4 * FIRST_SOCKETS, -1, np.int64)
        self._sockets = np.zeros((FIRST_SOCKETS, pairing.SOCKET_SIZE), np.int64)
        self._flows = np.zeros((FIRST_SOCKETS, pairing.FLOW_SIZE), np.int64)
        widest = max(len(tag.columns) for tag in self.header.tags)
        self._heads = np.zeros((pairing.BLOCK_ROWS, rows.HEAD_SIZE), np.int64)
        self._values = np.zeros((pairing.BLOCK_ROWS, widest), np.int64)
        self._rows = np.zeros(len(self.header.tags), np.int64)
        self._side = np.zeros((2 * pairing.BLOCK_ROWS, SIDE_HEAD + widest), np.int64)

    @property
    def row_counts(self) -> dict[str, int]:
        tags = self.header.tags
        return {tag.name: int(n) for tag, n in zip(tags, self._rows, strict=True)}

    def kinds(self) -> set[str]:
        """Return the kinds of the events that rows were read of."""
        counts = self.row_counts
        return {tag.kind for tag in self.header.tags if tag.kind in KINDS and counts[tag.name]}

    def flows(self) -> list[FlowInfo]:
        """Return the flows in order of first appearance."""
        return [
            FlowInfo(
                flow,
                self._sk(int(row[pairing.F_SOCKET])),
                int(row[pairing.F_GENERATION]),
                bool(row[pairing.F_INIT]),
                int(row[pairing.F_PRE_INIT]),
                (int(row[pairing.F_COOKIE]) & (1 << 64) - 1) or None,
                self._addresses_of(flow, row),
            )
            for flow, row in enumerate(self._flows[: int(self._state[pairing.FLOWS])])
        ]

    def flow_of(self, told: int) -> int:
        """Return the number from 1 of the flow that a row that stands alone belongs to.

        A row before the first flow of its socket belongs to that; 0 if none came.
        """
        if told >= 0:
            return told + 1
        if self._first_flows is None:
            flows = self._flows[: int(self._state[pairing.FLOWS])]
            first = np.flatnonzero(flows[:, pairing.F_GENERATION] == 0)
            sockets = flows[first, pairing.F_SOCKET]
            self._first_flows = dict(zip(sockets.tolist(), first.tolist(), strict=True))
        return self._first_flows.get(NO_FLOW - told, -1) + 1

    def _addresses_of(self, flow: int, row: Any) -> dict[str, str | int]:
        """Return the addresses of a flow: from its init row, or of the socket when it began."""
        if flow in self._addresses or row[pairing.F_GENERATION] > 0:
            return self._addresses.get(flow, {})
        key = int(self._sockets[int(row[pairing.F_SOCKET]), pairing.S_KEY]) & (1 << 64) - 1
        return self._older.get(key, {})

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the events; each batch has its own memory."""
        state = self._state
        while self._source.fill():
            state[rows.POS] = self._source.start
            while True:
                why = self._consume()
                self._take_sides()
                if why == rows.GOOD:
                    break
                if why == pairing.BATCH_FULL:
                    yield from self._flush()
                elif why == pairing.SOCKETS_FULL:
                    self._grow()
                elif why != pairing.SIDE_FULL:
                    self._decide_line(why)
            self._sync_source()
            if self.progress:
                self.progress(self._source.compressed)
        self._note_cut()
        self._close_before(SLOTS_PER_BATCH)
        yield from self._flush()

    def _sync_source(self) -> None:
        """Tell the source how far the compiled loop has read."""
        self._source.start = int(self._state[rows.POS])
        self._source.line = int(self._state[pairing.LINE])

    def _read_header(self) -> Header:
        """Read up to the first row, and parse the header lines."""
        lines = []
        source = self._source
        source.fill()
        while source.start < source.end or source.fill():
            line = source.peek_line()
            if line.startswith("#"):
                lines.append((source.line, line[1:]))
            elif not CHATTER.fullmatch(line):
                break
            else:
                self._chatter(line, source.line)
            source.skip_line()
        if not lines:
            raise BundleError(
                f"{self.shown} has no header line (#TAG,column,...)"
                + (
                    ": it is empty" if source.end == source.start else f" before line {source.line}"
                ),
                "record again; BUNDLE.md describes the file",
            )
        return header.parse(lines, self.shown)

    def _chatter(self, line: str, number: int) -> None:
        match = LOST.search(line)
        if match:
            self.lost_reported += int(match[1][:18])
            text = CODES["lost_message"].format(text=line.strip()[:200])
            self.findings.append(Finding("lost_message", text, line=number))

    def _decide_line(self, why: int) -> None:
        """Deal with a line that the compiled loop would not take, and step over it."""
        state = self._state
        source = self._source
        self._sync_source()
        number = source.line
        line = source.peek_line()
        if why == rows.OTHER_LINE:
            self._other_line(line, number)
        else:
            tag = self.header.tags[int(state[rows.TAG])]
            if why == pairing.BACKWARDS:
                what = f"{tag.name} is older than the row before it of the same socket"
            else:
                what = _why_bad(tag, int(state[rows.COLUMN]), why, line)
            self._refuse(what, number)
        source.skip_line()
        state[rows.POS], state[pairing.LINE] = source.start, source.line

    def _other_line(self, line: str, number: int) -> None:
        if CHATTER.fullmatch(line):
            self._chatter(line, number)
            if LOST.search(line):
                self._state[pairing.SUSPECT] = 1
            return
        tag, comma, _ = line.lstrip("#").partition(",")
        if line.startswith("#"):
            if tag not in self.header.skipped and line != _header_line(self.header, tag):
                self._refuse(f"the header changes the columns of {tag[:20]!r}", number)
        elif comma and tag in self.header.skipped:
            self.skipped_counts[tag] = self.skipped_counts.get(tag, 0) + 1
            if tag.rstrip("0123456789") == header.IDENTITY:
                columns = self.header.skipped[tag]
                self._identify(dict(zip(columns, line.split(",")[1:], strict=False)), number)
        elif comma and header.TAG.fullmatch(tag):
            self._refuse(f"there is no header line for rows of {tag[:20]!r}", number)
        else:
            self._refuse(f"neither a row nor a header nor a message: {line[:40]!r}", number)

    def _refuse(self, what: str, number: int) -> None:
        """Raise, or with --salvage drop the row and say so."""
        if not self.salvage:
            raise BundleError(f"{self.shown}, line {number}: {what}", SALVAGE)
        self._bad_rows += 1
        if self._bad_rows > MAX_BAD_ROWS:
            raise BundleError(
                f"{self.shown}, line {number}: {what}, and {MAX_BAD_ROWS} bad rows before it",
                "this is not a recording that can be salvaged; record again",
            )
        self._state[pairing.SUSPECT] = 1
        detail = CODES["bad_row"].format(what=what)
        self.findings.append(Finding("bad_row", detail, line=number))

    def _note_cut(self) -> None:
        if self._source.cut:
            self._state[pairing.SUSPECT] = 1
            line = int(self._state[pairing.LINE])
            detail = CODES["cut_off"].format(what=self._source.cut)
            self.findings.append(Finding("cut_off", detail, line=line))

    def _consume(self) -> int:
        """Run the compiled loop on the text at hand; return why it stopped."""
        return pairing.consume(
            self._source.text,
            self._source.end,
            self._plan.tags,
            self._plan.columns,
            self._plan.moves,
            self._plan.bounds,
            self._plan.kinds,
            self._table,
            self._sockets,
            self._flows,
            *self._batch,
            self._heads,
            self._values,
            self._rows,
            self._side,
            self._state,
        )

    def _close_before(self, slot: int) -> None:
        plan, slots = self._plan, self._batch.slots
        pairing.close_before(slot, plan.kinds, self._sockets, slots, self._state)

    def _flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the closed events of the batch, and go on with a new one."""
        state = self._state
        opened = int(np.count_nonzero(self._sockets[: state[pairing.SOCKETS], pairing.S_SLOT] >= 0))
        if opened > SLOTS_PER_BATCH // 2:
            # Sockets that end without their exit rows leave an event open for good.
            self._close_before(int(state[pairing.SLOTS]) - SLOTS_PER_BATCH // 4)
        old, fresh = self._batch, self._assembler.new_batch()
        count = int(state[pairing.SLOTS])
        plan = self._plan
        carried = pairing.carry_open(plan.moves, plan.bounds, self._sockets, *old, *fresh, state)
        finished = self._assembler.finish(old, count, plan, self._flows)
        self._take_findings(old, finished)
        self._batch = fresh
        state[pairing.SLOTS] = carried
        if finished.record_batch.num_rows:
            yield finished.record_batch

    def _take_findings(self, batch: Batch, finished: Finished) -> None:
        """Put the batch's findings into words."""
        for index in finished.findings.tolist():
            slot = batch.slots[index].tolist()
            if slot[pairing.B_KIND] >= 0:
                acked = int(batch.u4[self._plan.main[MAIN_ACKED] + index])
                values = {"grown": int(finished.grown[index]), "acked": acked}
                code, words = "delivered_jump", CODES["delivered_jump"].format(**values)
            else:
                code, words = self._words(slot)
                if code != "sequence_gap":
                    self.first_unpaired = self.first_unpaired or (slot[pairing.B_LINE], words)
            finding = Finding(code, words, line=slot[pairing.B_LINE], ns=slot[pairing.B_NS])
            if slot[pairing.B_FLOW] >= 0:
                finding.flow, finding.seq = slot[pairing.B_FLOW], int(finished.seq[index])
            self.findings.append(finding)

    def _words(self, slot: list[int]) -> tuple[str, str]:
        kind, first, second = slot[pairing.B_KIND], slot[pairing.B_FIRST], slot[pairing.B_SECOND]
        values: dict[str, Any]
        if kind == pairing.GAP:
            code, values = "sequence_gap", {"count": first}
        elif kind == pairing.HALF:
            code, values = "half_event", self._parts(first, slot[pairing.B_SEEN])
            values["line"] = slot[pairing.B_LINE]
        else:
            code = "orphan_row" if kind == pairing.ORPHAN else "duplicate_row"
            values = {"tag": self.header.tags[first].name, "sk": self._sk(second)}
        return code, CODES[code].format(**values)

    def _parts(self, kind: int, seen: int) -> dict[str, Any]:
        tags = [t for t in self.header.tags if t.kind == KINDS[kind] and t.role == ENTRY]
        return {
            "kind": KINDS[kind],
            "have": "+".join(tag.name for tag in tags if tag.part & seen),
            "missing": "+".join(tag.name for tag in tags if not tag.part & seen),
        }

    def _take_sides(self) -> None:
        """Take the rows that the compiled loop handed over."""
        state = self._state
        side = self._side[: int(state[pairing.SIDES])]
        for index, alone in self.alone.items():
            alone.add(side[side[:, 0] == index])
        for row in side[~np.isin(side[:, 0], list(self.alone))]:
            tag = self.header.tags[int(row[0])]
            flow, ns, line = (int(number) for number in row[1:SIDE_HEAD])
            values = row[SIDE_HEAD:]
            if tag.role == PARAMETERS:
                names = [c.name if c.known else "" for c in tag.columns]
                numbers = dict(zip(names, values.tolist(), strict=False))
                params = {k: n for k, n in numbers.items() if k.startswith("params.")}
                self._take_params(flow, ns, params)
                continue
            texts = self._texts(tag, values)
            self._take_constant(texts)
            try:
                found = endpoints(texts)
            except ValueError as error:
                self._refuse(f"{tag.name} has no address but {str(error)[:60]!r}", line)
            else:
                self._addresses.setdefault(flow, {}).update(found)
        state[pairing.SIDES] = 0

    def _take_params(self, flow: int, ns: int, params: dict[str, int]) -> None:
        """Take a row of parameters, or the rest of the one that the flow's last row began."""
        begun = self._begun.get(flow)
        if begun is None or begun.keys() & params.keys():
            begun = self._begun[flow] = {"flow": flow, "ns": ns}
            self.params.append(begun)
        begun.update(params)

    def _texts(self, tag: Tag, values: Any) -> dict[str, str]:
        """Return the addresses and ports of an init row as they were recorded."""
        texts = {}
        for column, value in zip(tag.columns, values.tolist(), strict=False):
            if column.name in (*header.ADDRESSES, header.MAX_HEADER):
                at, size = value >> 16, value & 0xFFFF
                raw = self._source.text[at : at + size].tobytes()
                texts[column.name] = raw.decode("ascii", "replace")
            elif column.name in ("sport", "dport", header.NETNS.name):
                texts[column.name] = str(value)
        return texts

    def _take_constant(self, row: dict[str, str]) -> None:
        """Note the kernel's MAX_TCP_HEADER, which the row of a socket tells."""
        text = row.get(header.MAX_HEADER, "")
        if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS:
            self._max_headers.add(int(text))

    def constants(self) -> dict[str, int]:
        """Return the build constants that rows tell, by their name in the manifest."""
        if len(self._max_headers) != 1:
            return {}
        return {"MAX_TCP_HEADER": next(iter(self._max_headers))}

    def _identify(self, row: dict[str, str], number: int) -> None:
        """Note the addresses of a socket that is older than the recording."""
        self._take_constant(row)
        try:
            self._older[int(row["sk"], 16)] = endpoints(row)
        except (ValueError, KeyError):
            self._refuse("no identity of a socket", number)

    def _sk(self, socket: int) -> str:
        return f"{int(self._sockets[socket, pairing.S_KEY]) & (1 << 64) - 1:x}"

    def _grow(self) -> None:
        """Double the memory for sockets or for flows, whichever is full."""
        state = self._state
        if state[pairing.FLOWS] + pairing.BLOCK_ROWS > len(self._flows):
            self._flows = np.concatenate([self._flows, np.zeros_like(self._flows)])
        if state[pairing.SOCKETS] + pairing.BLOCK_ROWS > len(self._sockets):
            self._sockets = np.concatenate([self._sockets, np.zeros_like(self._sockets)])
            self._table = np.full(4 * len(self._sockets), -1, np.int64)
            pairing.rehash(self._table, self._sockets, int(state[pairing.SOCKETS]))


class TextSource:
    """A window of whole lines on the decompressed text.

    Attributes:
        text: the bytes, as int8. start, end: bounds of the lines not read yet.
        line: number of the line at `start`; who moves `start` keeps it.
        cut: what ended the text early, when salvaging; else empty.
    """

    def __init__(self, path: Path, shown: str, salvage: bool) -> None:
        self.shown = shown
        self.salvage = salvage
        self.start = self.end = self._filled = 0
        self.line = 1
        self.cut = ""
        self._raw = bytearray(TEXT_BYTES)
        self.text = np.frombuffer(self._raw, np.int8)
        self._file = ZstdFile(path, shown)

    @property
    def compressed(self) -> int:
        """Compressed bytes read so far."""
        return self._file.compressed

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def fill(self) -> bool:
        """Move what is left to the front and read on; tell whether there are lines."""
        left = self._filled - self.start
        self._raw[:left] = self._raw[self.start : self._filled]
        self.start, self._filled = 0, left
        more = self._read()
        self.end = self._raw.rfind(b"\n", 0, self._filled) + 1
        if self.end == 0 and self._filled == TEXT_BYTES:
            raise BundleError(
                f"{self.shown}, line {self.line}: longer than {TEXT_BYTES} bytes",
                "this is not a recording; BUNDLE.md describes the file",
            )
        if not more and self._filled > self.end:
            self._damaged("its last line is cut off", True)
            self._filled = self.end
        return self.end > 0

    def _read(self) -> bool:
        """Read as much as there is room for; return False at the end of the file."""
        try:
            count = self._file.readinto(memoryview(self._raw)[self._filled :])
        except DamagedError as damage:
            self._damaged(str(damage), damage.cut)
            return False
        self._filled += count
        return count > 0

    def _damaged(self, what: str, cut: bool) -> None:
        """Raise, unless salvaging what a cut-off file still has."""
        if self.salvage and cut:
            self.cut = self.cut or what
            return
        last = self.line + self._raw.count(b"\n", 0, self._filled)
        way = SALVAGE if cut else "restore the file from a copy, or record again"
        raise BundleError(f"{self.shown}, line {last}: {what}", way)

    def peek_line(self) -> str:
        """Return the line at `start`, at most 64 KiB of it, without its end."""
        stop = self._raw.find(b"\n", self.start, self.end)
        line = self._raw[self.start : min(stop, self.start + (1 << 16))]
        return line.decode("utf-8", "replace").rstrip("\r")

    def skip_line(self) -> None:
        """Step over the line at `start`."""
        self.start = self._raw.find(b"\n", self.start, self.end) + 1
        self.line += 1


def _why_bad(tag: Tag, column: int, why: int, line: str) -> str:
    """Say what is impossible about a row."""
    values = line.split(",")[1:]
    name = tag.columns[min(column, len(tag.columns) - 1)]
    if why == rows.TOO_SHORT:
        return f"{tag.name} has {len(values)} columns, the header names {len(tag.columns)}"
    if why == rows.TOO_LONG:
        return f"{tag.name} has {len(values)} columns, the header names {len(tag.columns)}"
    value = values[column][:40] if column < len(values) else ""
    if why == rows.OUT_OF_RANGE and name.field is not None:
        low, high = name.field.minimum, name.field.maximum
        return f"{name.name} of {tag.name} is {value}, outside {low}..{high}"
    return f"{name.name} of {tag.name} is {value!r}, not a number"


def _header_line(declared: Header, name: str) -> str | None:
    tag = next((tag for tag in declared.tags if tag.name == name), None)
    return None if tag is None else ",".join([f"#{name}", *(c.name for c in tag.columns)])
