"""The header as arrays, for the compiled loop, and the memory that a batch of events lives in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .header import ENTRY, EXIT, NS, PARAMETERS, SK, Header, HeaderColumn, Tag
from .schema.fields import EVENT_FIELDS, EXIT_FIELDS, column_name, exit_column_name
from .schema.recording import KINDS

I64 = npt.NDArray[np.int64]

# What a column holds.
NUMBER, TIME, SOCKET, TEXT = 0, 1, 2, 3

# Every column of the events table that rows fill, with its width in bytes.
TARGETS = {column_name(f.name): f.storage_bytes for f in EVENT_FIELDS} | {
    exit_column_name(f.name): f.storage_bytes for f in EXIT_FIELDS
}


# What a row of Plan.tags holds: the tag's letters as a little-endian number, index into KINDS, its
# bit, whether it opens an event, whether its values go to Python as they are (init's entry,
# parameters), bits of the entry rows before it, its first column and how many it has.
TAG_KEY, TAG_KIND, TAG_PART, TAG_FIRST, TAG_SIDE, TAG_BEFORE, TAG_START, TAG_COUNT = range(8)

# What a row of Plan.columns holds: NUMBER, TIME, SOCKET or TEXT; the bounds of the kernel's type;
# whether it is of struct bbr; bytes in the batch (0: not stored), and where, in such units.
COLUMN_TYPE, COLUMN_MIN, COLUMN_MAX, COLUMN_STATE, COLUMN_WIDTH, COLUMN_OFFSET = range(6)

# COLUMN_MAX of 64 unsigned bits.
NO_LIMIT = -1

# What a row of Plan.kinds holds: bits of the parts an event must have, and should have.
KIND_ENTRY, KIND_ALL = range(2)

# What Plan.main holds: where main's tp.delivered, rs.acked_sacked and tp.mss_cache are in the
# batch, in units of four bytes, or -1.
MAIN_DELIVERED, MAIN_ACKED, MAIN_MSS = range(3)


class Plan(NamedTuple):
    """The header as tables of int64, indexed by the names above in their second dimension."""

    tags: I64
    columns: I64
    kinds: I64
    main: I64


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


def make_plan(header: Header, offsets: dict[str, int]) -> Plan:
    """Turn a header into arrays; `offsets` are the columns' byte offsets in the batch."""
    starts = np.cumsum([0, *(len(tag.columns) for tag in header.tags)])
    return Plan(
        tags=_table(
            _tag_row(tag, int(start), header)
            for tag, start in zip(header.tags, starts, strict=False)
        ),
        columns=_table(_column_row(c, offsets) for tag in header.tags for c in tag.columns),
        kinds=_table(
            (header.parts(kind, (ENTRY,)), header.parts(kind, (ENTRY, PARAMETERS, EXIT)))
            for kind in KINDS
        ),
        main=np.array(
            [
                _main_offset(header, offsets, target)
                for target in ("tp_delivered", "rs_acked_sacked", "tp_mss_cache")
            ],
            np.int64,
        ),
    )


def _table(entries: Iterable[Iterable[int]]) -> I64:
    return np.array([tuple(entry) for entry in entries], np.int64)


def _tag_row(tag: Tag, start: int, header: Header) -> tuple[int, ...]:
    before = header.parts(tag.kind, (ENTRY,)) & (tag.part - 1)
    side = tag.role == PARAMETERS or (tag.kind == "init" and tag.role == ENTRY)
    key = int.from_bytes(tag.name.encode(), "little")
    kind = KINDS.index(tag.kind)
    return key, kind, tag.part, tag.part == 1, side, before, start, len(tag.columns)


def _column_row(column: HeaderColumn, offsets: dict[str, int]) -> tuple[int, ...]:
    if column.field is None:
        return TEXT, 0, NO_LIMIT, 0, 0, 0
    field = column.field
    kind = {NS: TIME, SK: SOCKET}.get(field, NUMBER)
    high = NO_LIMIT if field.bits == 64 else field.maximum
    width = TARGETS[column.target] if column.target in offsets else 0
    at = offsets[column.target] // width if column.target is not None and width else 0
    return kind, field.minimum, high, column.name.startswith("bbr."), width, at


def _main_offset(header: Header, offsets: dict[str, int], target: str) -> int:
    """Return where main's rows put `target`, in units of four bytes; -1 if they do not."""
    filled = {c.target for tag in header.tags if tag.kind == "main" for c in tag.columns}
    return offsets[target] // 4 if target in filled else -1
