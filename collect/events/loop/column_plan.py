"""The header as arrays, for the compiled loop, and the memory that a batch of events lives in."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....probes.fields import EVENT_FIELDS, EXIT_FIELDS
from ....probes.leaving import SET_BACK_BY_INIT
from ....probes.packed_columns import WORD_BITS
from ...bundle.numbers import MAX_NS
from ...store.schema.recorded_tables import KINDS, SAMPLE
from ..lines.header import (
    ENTRY,
    EXIT,
    MOST_KNOWN,
    PARAMETERS,
    SINGLE,
    Header,
    HeaderColumn,
    Tag,
)

I64 = npt.NDArray[np.int64]

# What a column holds: a number that fits in int64, 64 unsigned bits, a socket's address, text, or
# a word of several fields.
NUMBER, WIDE, SOCKET, TEXT, PACKED = range(5)
WIDTHS = (1, 2, 4, 8)

# Every column of the events table that rows fill, with its width in bytes.
TARGETS = {f.column: f.storage_bytes for f in EVENT_FIELDS} | {
    f.exit_column: f.storage_bytes for f in EXIT_FIELDS
}


# What a row of Plan.tags holds: the tag's letters as a little-endian number, index into KINDS (-1:
# its rows are single), its bit, whether it opens an event, whether its values go to Python as they
# are (init's entry, parameters, single rows), bits of the entry rows before it, its first column,
# how many its rows have and how many there are with the fields of packed ones, and which are the
# time, the socket, the number of the event on its socket, the socket's cookie (-1: none) and, of
# samples, SET_BACK_BY_INIT (-1: none).
(
    TAG_KEY,
    TAG_KIND,
    TAG_PART,
    TAG_FIRST,
    TAG_SIDE,
    TAG_BEFORE,
    TAG_START,
    TAG_COUNT,
    TAG_ALL,
    TAG_NS,
    TAG_SK,
    TAG_SEQNO,
    TAG_COOKIE,
    TAG_FULL,
    TAG_ROUNDS,
) = range(15)

# What a row of Plan.columns holds: NUMBER, WIDE ...; the bounds of the kernel's type, as far as
# int64 has them (-1: words of 64 bits have none); the largest value that needs no second look (-1:
# every value does); whether it is of struct bbr.
COLUMN_TYPE, COLUMN_MIN, COLUMN_MAX, COLUMN_EASY, COLUMN_STATE = range(5)

# What a row of Plan.parts holds, for a field of a packed column: index of the word in its row and
# of the field's value, how far to shift the word to the left and then, with its sign, to the right,
# and what of the result to keep. Plan.part_bounds has, per tag, its first and one past the last.
PART_WORD, PART_TO, PART_LEFT, PART_RIGHT, PART_MASK = range(5)

# What a row of Plan.moves holds: index of a value in its row, and where it goes in the batch, in
# units of its width. Plan.bounds has, per tag, where its moves of 1, 2, 4 and 8 bytes begin, and
# one past the last.
MOVE_FROM, MOVE_TO = range(2)

MAX_INT64 = (1 << 63) - 1

# What a row of Plan.kinds holds: bits of the parts an event must have, and should have.
KIND_ENTRY, KIND_ALL = range(2)

# What Plan.main holds: where main's tp.delivered, rs.acked_sacked, tp.mss_cache, tp.packets_out and
# rs.prior_delivered are in the batch, in units of four bytes, or -1.
MAIN_COLUMNS = (
    *("tp_delivered", "rs_acked_sacked", "tp_mss_cache"),
    *("tp_packets_out", "rs_prior_delivered"),
)
MAIN_DELIVERED, MAIN_ACKED, MAIN_MSS, MAIN_IN_FLIGHT, MAIN_PRIOR = range(len(MAIN_COLUMNS))


class Plan(NamedTuple):
    """The header as tables of int64, indexed by the names above in their second dimension."""

    tags: I64
    columns: I64
    parts: I64
    part_bounds: I64
    moves: I64
    bounds: I64
    kinds: I64
    main: I64


@lru_cache(MOST_KNOWN)
def batch_layout(header: Header, capacity: int) -> tuple[dict[str, int], int]:
    """Return the byte offset of each stored column in a batch of `capacity` events, and its size.

    Columns start an odd number of cache lines apart: one event writes to all of them at the same
    index, and a power of two between them would make them share a few cache sets.
    """
    stored = {column.target for tag in header.tags for column in tag.columns}
    offsets: dict[str, int] = {}
    end = 0
    for name, width in TARGETS.items():
        if name in stored:
            offsets[name] = end
            lines = -(-capacity * width // 64)
            end += 64 * (lines + 1 + lines % 2)
    return offsets, end


@lru_cache(MOST_KNOWN)
def make_plan(header: Header, capacity: int) -> Plan:
    """Turn a header into arrays, for batches of `capacity` events."""
    offsets, _ = batch_layout(header, capacity)
    starts = np.cumsum([0, *(len(tag.columns) for tag in header.tags)])
    return Plan(
        tags=_table(
            _tag_row(tag, int(start), header)
            for tag, start in zip(header.tags, starts, strict=False)
        ),
        columns=_table(_column_row(c) for tag in header.tags for c in tag.columns),
        parts=_parts(header.tags),
        part_bounds=_part_bounds(header.tags),
        moves=np.array([move for tag in header.tags for move in _moves(tag, offsets)], np.int64),
        bounds=_bounds(header.tags, offsets),
        kinds=_table(
            (header.parts(kind, (ENTRY,)), header.parts(kind, (ENTRY, PARAMETERS, EXIT)))
            for kind in KINDS
        ),
        main=np.array([_main_offset(header, offsets, one) for one in MAIN_COLUMNS], np.int64),
    )


def _table(entries: Iterable[Iterable[int]]) -> I64:
    return np.array([tuple(entry) for entry in entries], np.int64)


def _tag_row(tag: Tag, start: int, header: Header) -> tuple[int, ...]:
    # Half of what a callback left says nothing of the other half.
    needed = (ENTRY, EXIT) if tag.role == EXIT else (ENTRY,)
    before = header.parts(tag.kind, needed) & (tag.part - 1)
    side = tag.role in (PARAMETERS, SINGLE) or (tag.kind == "init" and tag.role == ENTRY)
    key = int.from_bytes(tag.name.encode(), "little")
    kind = -1 if tag.role == SINGLE else KINDS.index(tag.kind)
    names = [column.name for column in tag.columns]
    maybe = (names.index(name) if name in names else -1 for name in ("seqno", "sk.cookie"))
    place = (start, len(tag.printed), len(names), names.index("ns"), names.index("sk"), *maybe)
    only_grow = SET_BACK_BY_INIT if tag.kind == SAMPLE else ("", "")
    grown = (names.index(name) if name in names else -1 for name in only_grow)
    return key, kind, tag.part, tag.part == 1, side, before, *place, *grown


def bounds_of(column: HeaderColumn) -> tuple[int, int]:
    """Return the least and the largest value of a column: its field's, or a time's that is one."""
    if column.name == "ns":
        return 0, MAX_NS
    if column.packed:
        return 0, (1 << column.packed) - 1
    return (column.field.minimum, column.field.maximum) if column.field else (0, MAX_INT64)


def _column_row(column: HeaderColumn) -> tuple[int, ...]:
    low, high = bounds_of(column)
    if column.packed:
        return PACKED, low, high if high <= MAX_INT64 else -1, -1, 0
    if column.field is None:
        return TEXT, low, high, -1, 0
    kind = SOCKET if column.name == "sk" else WIDE if high > MAX_INT64 else NUMBER
    high = min(high, MAX_INT64)
    return kind, low, high, -1 if kind == SOCKET else high, column.name.startswith("bbr.")


def _parts(tags: Iterable[Tag]) -> I64:
    rows = [
        (
            column.word,
            index,
            WORD_BITS - column.part.bits - column.part.shift,
            WORD_BITS - column.part.bits,
            -1
            if column.part.signed or column.part.bits == WORD_BITS
            else (1 << column.part.bits) - 1,
        )
        for tag in tags
        for index, column in enumerate(tag.columns)
        if column.part is not None
    ]
    return np.array(rows, np.int64).reshape(-1, 5)


def _part_bounds(tags: Iterable[Tag]) -> I64:
    ends = np.cumsum([0, *(len(tag.columns) - len(tag.printed) for tag in tags)])
    return np.stack([ends[:-1], ends[1:]], axis=1).astype(np.int64)


def _moves(tag: Tag, offsets: dict[str, int]) -> list[tuple[int, int]]:
    """Return where each stored value of a tag's rows goes, by width."""
    return [
        (index, offsets[column.target] // width)
        for width in WIDTHS
        for index, column in enumerate(tag.columns)
        if column.target in offsets and TARGETS[column.target] == width
    ]


def _bounds(tags: Iterable[Tag], offsets: dict[str, int]) -> I64:
    rows, start = [], 0
    for tag in tags:
        widths = [TARGETS[c.target] for c in tag.columns if c.target in offsets]
        ends = start + np.cumsum([widths.count(width) for width in WIDTHS])
        rows.append([start, *ends])
        start = int(ends[-1])
    return np.array(rows, np.int64)


def _main_offset(header: Header, offsets: dict[str, int], target: str) -> int:
    """Return where main's rows put `target`, in units of four bytes; -1 if they do not."""
    filled = {c.target for tag in header.tags if tag.kind == "main" for c in tag.columns}
    return offsets[target] // 4 if target in filled else -1
