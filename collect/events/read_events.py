"""Read ``events.csv.zst`` into columnar batches of kernel events, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...probes.base.errors import BundleError
from ...probes.leaving import LEFT, LEFT_FOR_GOOD
from ..bundle.quality import QualityNote, note_of
from .batch import Assembler
from .beginnings_before import begun_by_numbers, give_beginning
from .cleared import without_cleared
from .connections import Connections, Endpoints
from .left_notes import left_notes
from .lines import header
from .lines.header import SINGLE, Header
from .lines.line_notes import CHATTER, LineNotes
from .lines.row_errors import header_line, why_refused
from .lines.text_source import TextSource
from .loop import rows
from .loop.batch_columns import carry_open
from .loop.column_plan import I64, Plan, make_plan
from .loop.loop_memory import (
    BACKWARDS,
    BATCH_FULL,
    F_COOKIE,
    F_GENERATION,
    F_INIT,
    F_LEFT,
    F_PRE_INIT,
    F_SOCKET,
    LEFT_BY_ROW,
    LINE,
    SIDE_FULL,
    SLOTS,
    SOCKETS_FULL,
    Batch,
)
from .loop.open_events import close_before
from .loop.pairing import consume
from .loop.pairing_memory import PairingMemory, number_of
from .skb_rows import SkbRows
from .slot_notes import UNPAIRED, slot_notes

if TYPE_CHECKING:
    import pyarrow as pa

SLOTS_PER_BATCH = 40_960
MAX_HEADERS = 1_000


@dataclass
class FlowInfo:
    """One flow as its rows show it: `flow` is its number in the store.

    `sk` is its socket's address in hexadecimal, `generation` counts that address's flows from 0,
    `pre_init` the events before init; `left` says that the socket then took another congestion
    control, `before` is the flow that it was before it left BBR and came back (None: it did not);
    `addresses` are from the init row or the N row.
    """

    flow: int
    sk: str
    generation: int
    has_init: bool
    pre_init: int
    cookie: int | None
    left: bool
    before: int | None
    addresses: Endpoints = field(default_factory=dict)


class EventReader:
    """Reads one event stream; iterate `batches` to its end, then read the other attributes.

    Attributes:
        header: the declared rows, known from the start.
        skipped_counts: rows of the tags in `header.skipped`, by tag.
        single_rows: rows that are no part of an event and have a table of their own, by the index
            of their tag.
        first_unpaired: line and words of the first row that makes no whole event.
        backwards: a row is older than the one before it of its socket.

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
        in_order: bool = False,
    ) -> None:
        self.shown = shown
        self.progress = progress
        self.first_unpaired: tuple[int, str] | None = None
        self.backwards = False
        self.skipped_counts: dict[str, int] = {}
        self._lines = LineNotes(shown, salvage)
        self._source = TextSource(path, shown, salvage, in_order)
        self.header = self._read_header()
        if late := self._source.late:
            self.notes.append(note_of("out_of_order", count=late))
        self.notes.extend(QualityNote(code, text) for code, text in self.header.notes)
        self.single_rows = {
            index: SkbRows(tag) for index, tag in enumerate(self.header.tags) if tag.role == SINGLE
        }
        self._assembler = Assembler(self.header, SLOTS_PER_BATCH)
        self._plan: Plan = make_plan(self.header, SLOTS_PER_BATCH)
        self._batch: Batch = self._assembler.new_batch()
        self._memory = PairingMemory(self.header, self._source.line, suspect)
        # Without a way back to this reader, whose batches would wait for the collector of cycles.
        self._refuse = partial(_refuse, self._lines, self._memory)
        self._connections = Connections(self._memory, self._refuse)

    @property
    def notes(self) -> list[QualityNote]:
        """What is missing or odd."""
        return self._lines.notes

    @property
    def params(self) -> list[dict[str, int]]:
        """Rows of v2's parameters, by recorded name, with flow and ns."""
        return [*self._connections.params, *self._connections.params_of_beginnings()]

    @property
    def lost_reported(self) -> int:
        """Rows lost as the collector's messages say."""
        return self._lines.lost_reported

    @property
    def row_counts(self) -> dict[str, int]:
        """Rows read so far, by tag."""
        return self._memory.row_counts

    def kinds(self) -> set[str]:
        """Return the kinds of the events that rows were read of."""
        return self._memory.kinds()

    def constants(self) -> dict[str, int]:
        """Return the build constants that rows hold, by their name in the manifest."""
        return self._connections.constants()

    def flow_of(self, recorded: int) -> int:
        """Return the number of the flow that a single row belongs to, see PairingMemory."""
        return self._memory.flow_of(recorded)

    def flows(self) -> list[FlowInfo]:
        """Return the flows in order of first appearance."""
        befores = [self._connections.before(index) for index in range(len(self._memory.flows))]
        returned = {before for before in befores if before >= 0}
        return [
            self._flow_info(index, row, befores[index], index in returned)
            for index, row in enumerate(self._memory.flows)
        ]

    def _flow_info(self, index: int, row: I64, before: int, has_returned: bool) -> FlowInfo:
        return FlowInfo(
            number_of(index),
            self._memory.address_of(int(row[F_SOCKET])),
            int(row[F_GENERATION]),
            bool(row[F_INIT]),
            int(row[F_PRE_INIT]),
            (int(row[F_COOKIE]) & (1 << 64) - 1) or None,
            has_returned or bool(row[F_LEFT] & LEFT_BY_ROW),
            number_of(before) if before >= 0 else None,
            self._connections.of_flow(index),
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the events; each batch has its own memory."""
        while self._source.fill():
            self._memory.state[rows.POS] = self._source.start
            yield from self._read_window()
            self._sync_source()
            if self.progress:
                self.progress(self._source.compressed)
        self._lines.settle()
        self._note_cut()
        self._close_before(SLOTS_PER_BATCH)
        yield from self._flush()
        self.notes.extend(left_notes(self.flows()))

    def _read_window(self) -> Iterator[pa.RecordBatch]:
        """Read the lines at hand; yield the batches that become full."""
        while True:
            why = self._consume()
            self._take_sides()
            if why == rows.GOOD:
                return
            if why == BATCH_FULL:
                yield from self._flush()
            elif why == SOCKETS_FULL:
                self._memory.grow()
            elif why != SIDE_FULL:
                self._decide_line(why)

    def _consume(self) -> int:
        """Run the compiled loop on the text at hand; return why it stopped."""
        source, memory = self._source, self._memory
        return consume(
            source.text,
            source.end,
            self._plan,
            memory.tables,
            self._batch,
            memory.block,
            memory.state,
        )

    def _sync_source(self) -> None:
        """Let the source know how far the compiled loop has read."""
        self._source.start = int(self._memory.state[rows.POS])
        self._source.line = int(self._memory.state[LINE])

    def _read_header(self) -> Header:
        """Read up to the first row, and parse the header lines."""
        lines = []
        source = self._source
        source.fill()
        while source.start < source.end or source.fill():
            line = source.peek_line()
            if line.startswith("#"):
                lines.append((source.line, line[1:]))
                if len(lines) > MAX_HEADERS:
                    raise self._lines.foreign(source.line, f"more than {MAX_HEADERS} header lines")
            elif not CHATTER.fullmatch(line):
                break
            else:
                self._lines.take_message(line, source.line)
            source.skip_line()
        if not lines:
            raise self._no_header()
        return header.parse(lines, self.shown)

    def _no_header(self) -> BundleError:
        source = self._source
        empty = source.end == source.start
        where = ": it is empty" if empty else f" before line {source.line}"
        return BundleError(
            f"{self.shown} has no header line (#TAG,column,...){where}",
            "record again; BUNDLE.md describes the file",
        )

    def _decide_line(self, why: int) -> None:
        """Deal with a line that the compiled loop would not take, and step over it."""
        state, source = self._memory.state, self._source
        self._sync_source()
        if why == rows.OTHER_LINE:
            self._other_lines()
        else:
            tag = self.header.tags[int(state[rows.TAG])]
            if why == BACKWARDS:
                self.backwards = True
                what = f"{tag.name} is older than the row before it of the same socket"
            else:
                what = why_refused(tag, int(state[rows.COLUMN]), why, source.peek_line())
            self._refuse(what, source.line)
            source.skip_line()
        state[rows.POS], state[LINE] = source.start, source.line

    def _other_lines(self) -> None:
        """Deal with lines that are no rows of declared tags, up to the next one that is.

        Entering the compiled loop for each would take ten times as long.
        """
        source = self._source
        declared = {tag.name for tag in self.header.tags}
        line = source.peek_line()
        while True:
            self._other_line(line, source.line)
            source.skip_line()
            if source.start >= source.end:
                return
            line = source.peek_line()
            if line.partition(",")[0] in declared:
                return

    def _other_line(self, line: str, number: int) -> None:
        if CHATTER.fullmatch(line):
            if self._lines.take_message(line, number):
                self._memory.suspect()
            return
        tag, comma, _ = line.lstrip("#").partition(",")
        if line.startswith("#"):
            self._lines.count_message(number)
            if tag not in self.header.skipped and line != header_line(self.header, tag):
                self._refuse(f"the header changes the columns of {tag[:20]!r}", number)
        elif comma and tag in self.header.skipped:
            self._skip_row(tag, line, number)
        elif comma and header.TAG.fullmatch(tag):
            self._refuse(f"there is no header line for rows of {tag[:20]!r}", number)
        else:
            self._refuse(f"neither a row nor a header nor a message: {line[:40]!r}", number)

    def _skip_row(self, tag: str, line: str, number: int) -> None:
        """Count a row that is no part of an event; take what N and O rows say of their socket."""
        self.skipped_counts[tag] = self.skipped_counts.get(tag, 0) + 1
        if tag.rstrip("0123456789") == header.IDENTITY:
            columns = self.header.skipped[tag]
            row = dict(zip(columns, line.split(",")[1:], strict=False))
            if tag != header.IDENTITY:  # of a beginning that was not kept, not all may be known
                row = {name: value for name, value in row.items() if value}
            self._connections.identify(row, number)
        elif tag in (LEFT, LEFT_FOR_GOOD):
            row = dict(zip(self.header.skipped[tag], line.split(",")[1:], strict=False))
            self._connections.leave(row, number, for_good=tag == LEFT_FOR_GOOD)

    def _note_cut(self) -> None:
        if self._source.cut:
            self._memory.suspect()
            self._lines.note_cut(self._source.cut, int(self._memory.state[LINE]))

    def _close_before(self, slot: int) -> None:
        memory = self._memory
        kinds, slots = self._plan.kinds, self._batch.slots
        close_before(slot, kinds, memory.tables.sockets, slots, memory.state)

    def _flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the closed events of the batch, and go on with a new one."""
        plan, memory = self._plan, self._memory
        sockets, flows, state = memory.tables.sockets, memory.tables.flows, memory.state
        if memory.open_events() > SLOTS_PER_BATCH // 2:
            # Sockets that end without their exit rows leave an event open for good.
            self._close_before(int(state[SLOTS]) - SLOTS_PER_BATCH // 4)
        batch, fresh = self._batch, self._assembler.new_batch()
        count = int(state[SLOTS])
        self._give_beginnings(batch, count)
        carried = carry_open(plan.moves, plan.bounds, sockets, batch, fresh, state)
        finished = self._assembler.finish(batch, count, plan, flows)
        self._add_notes(slot_notes(batch, finished, plan, self.header, memory))
        self._batch = fresh
        state[SLOTS] = carried
        events, cleared = without_cleared(finished.record_batch, flows)
        self._add_notes(cleared)
        if events.num_rows:
            yield events

    def _give_beginnings(self, batch: Batch, count: int) -> None:
        """Give connections that were not known for others yet the main() before their init."""
        flows, assembler = self._memory.tables.flows, self._assembler
        for slot, flow in begun_by_numbers(batch, count, flows):
            if self._connections.before(flow) < 0:
                parts, offsets = assembler.parts_of("main"), assembler.offsets_of("main")
                give_beginning(batch, slot, flow, parts, offsets, flows)

    def _add_notes(self, notes: list[QualityNote]) -> None:
        """Add the notes on a batch, and remember the first row that makes no whole event."""
        self.notes.extend(notes)
        if self.first_unpaired is None:
            unpaired = ((note.line or 0, note.detail) for note in notes if note.code in UNPAIRED)
            self.first_unpaired = next(unpaired, None)

    def _take_sides(self) -> None:
        """Take the rows that the compiled loop handed over."""
        side = self._memory.take_side()
        if not len(side):
            return
        for index, single in self.single_rows.items():
            single.add(side[side[:, 0] == index])
        for row in side[~np.isin(side[:, 0], list(self.single_rows))]:
            self._connections.take_row(self.header.tags[int(row[0])], row, self._source.text)


def is_out_of_order(path: Path, shown: str) -> bool:
    """Tell whether a damaged stream has more whole events with its rows in order of time.

    It has not where all rows are in order, or where the one that is not is the damage.

    Raises:
        BundleError: the file has no header that could be read.
    """
    count, backwards = _whole_events(path, shown, False)
    return backwards and _whole_events(path, shown, True)[0] > count


def _whole_events(path: Path, shown: str, in_order: bool) -> tuple[int, bool]:
    """Count the whole events as far as the stream can be read; tell if a row went backwards."""
    reader, count = EventReader(path, shown, salvage=True, in_order=in_order), 0
    with suppress(BundleError):
        for batch in reader.batches():
            count += batch.num_rows
    return count, reader.backwards


def _refuse(lines: LineNotes, memory: PairingMemory, what: str, number: int) -> None:
    """Raise, or with --salvage drop the row and say so."""
    lines.refuse(what, number)
    memory.suspect()
