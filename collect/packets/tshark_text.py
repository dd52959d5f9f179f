"""tshark's lines to columns: compiled, because it is most of what ingest does besides tshark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...probes.base.jit import jit
from ..bundle.numbers import MAX_NS
from .tshark_fields import (
    FIELDS,
    FLAG,
    NUMBER,
    NUMBERS,
    PLAN,
    QUOTE,
    SECONDS,
    TEXT,
    U8,
    U16,
    U32,
    columns,
)

if TYPE_CHECKING:
    import pyarrow as pa

TAB, NEWLINE, COMMA, POINT, ZERO = 9, 10, 44, 46, 48
MAX_SECONDS = MAX_NS // 1_000_000_000 - 1
LETTER_X, UPPER_A, LOWER_A = 120, 65, 97

_NUMBERS, _SECONDS, _LISTS, _TEXTS, _FLAGS = map(columns, (NUMBER, SECONDS, NUMBERS, TEXT, FLAG))
# Places of the numbers that `decode` looks at.
STREAM, SEQ_RAW = _NUMBERS.index("stream"), _NUMBERS.index("seq_raw")
_LEN, _FLAG_BITS, _ACK = map(_NUMBERS.index, ("len", "flags", "ack"))
_ACK_RAW = _NUMBERS.index("ack_raw")
_ACK_FLAG = 16
_DTYPES = {U8: np.uint8, U16: np.uint16, U32: np.uint32}
_TYPES = {field.column: _DTYPES[field.most] for field in FIELDS if field.kind == NUMBER}

# What `state` holds between calls: frames seen, connections seen, and those of this call.
FRAMES, STREAMS, BORN = range(3)


@jit
def number_at(text: Any, at: int, end: int) -> int:
    """Return the number, decimal or hexadecimal, that fills [at, end); -1: none below 2**60."""
    value = 0
    if end - at > 2 and text[at] == ZERO and text[at + 1] == LETTER_X:
        if end - at > 17:
            return -1
        for place in range(at + 2, end):
            digit = int(text[place]) - ZERO
            if digit > 9:
                digit = (int(text[place]) | 32) - LOWER_A + 10
                if digit < 10 or digit > 15:
                    return -1
            if digit < 0:
                return -1
            value = value * 16 + digit
        return value
    return digits(text, at, end) if 0 < end - at <= 18 else -1


@jit
def digits(text: Any, at: int, end: int) -> int:
    """Return the number whose digits fill [at, end), 18 at most; -1: not all are digits."""
    value = 0
    for place in range(at, end):
        digit = int(text[place]) - ZERO
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@jit
def nanoseconds_at(text: Any, at: int, end: int) -> int:
    """Return the seconds that fill [at, end), with up to nine decimals, in ns.

    -1: there are none, or they are beyond 2116, where differences no longer fit in 64 bits.
    """
    point = at
    while point < end and text[point] != POINT:
        point += 1
    whole = number_at(text, at, point)
    if whole < 0 or whole > MAX_SECONDS or point - at > 10:
        return -1
    if end - point > 10 or (point < end and end - point < 2):
        return -1
    part = 0
    for place in range(point + 1, point + 10):
        digit = int(text[place]) - ZERO if place < end else 0
        if digit < 0 or digit > 9:
            return -1
        part = part * 10 + digit
    return whole * 1_000_000_000 + part


@jit
def last_of(text: Any, at: int, end: int) -> int:
    """Return where the last of several values in a cell begins."""
    for place in range(end - 1, at - 1, -1):
        if text[place] == COMMA:
            return place + 1
    return at


class Columns(NamedTuple):
    """Arrays with a row per column of their kind, and a place per line of tshark's.

    Of lists and texts there are the values, and where those of each line end; `known` tells for
    each number, time, list and text whether there is one.
    """

    packet: npt.NDArray[np.uint32]
    numbers: npt.NDArray[np.uint32]
    seconds: npt.NDArray[np.int64]
    known: npt.NDArray[np.uint8]
    lists: npt.NDArray[np.uint32]
    list_ends: npt.NDArray[np.int32]
    texts: npt.NDArray[np.uint8]
    text_ends: npt.NDArray[np.int32]
    flags: npt.NDArray[np.uint8]

    @classmethod
    def empty(cls, most: int, size: int) -> Columns:
        """Make room for `most` lines of `size` bytes together."""
        named = len(_NUMBERS) + len(_SECONDS) + len(_LISTS) + len(_TEXTS)
        return cls(
            packet=np.empty(most, np.uint32),
            numbers=np.zeros((len(_NUMBERS), most), np.uint32),
            seconds=np.empty((len(_SECONDS), most), np.int64),
            known=np.zeros((named, most), np.uint8),
            lists=np.empty((len(_LISTS), size // 2 + 1), np.uint32),
            list_ends=np.zeros((len(_LISTS), most + 1), np.int32),
            texts=np.empty((len(_TEXTS), size), np.uint8),
            text_ends=np.zeros((len(_TEXTS), most + 1), np.int32),
            flags=np.zeros((len(_FLAGS), most), np.uint8),
        )


@jit
def decode(text: Any, end: int, plan: Any, columns: Columns, born: Any, state: Any) -> int:
    """Decode the whole lines of text[:end] into columns; return how many rows they gave.

    Lines without a TCP segment of their own give none. `born` gets the frame in which each
    connection was first named; tshark numbers them in that order.
    """
    packet, numbers, seconds, known, lists, list_ends, texts, text_ends, flags = columns
    count = 0
    at = 0
    state[BORN] = 0
    first_text = len(numbers) + len(seconds) + len(lists)
    cells = np.zeros((len(texts), 2), np.int64)
    while at < end:
        state[FRAMES] += 1
        cells[:] = 0
        for kind in range(len(lists)):
            list_ends[kind, count + 1] = list_ends[kind, count]
        at, quotes = decode_line(text, at, plan, columns, count, cells)
        if known[STREAM, count]:
            note_births(numbers[STREAM, count], born, state)
        if quotes or not known[STREAM, count] or not known[SEQ_RAW, count]:
            known[:, count] = 0
            flags[:, count] = 0
            continue
        packet[count] = state[FRAMES]
        for place in range(len(texts)):
            start, stop = cells[place, 0], cells[place, 1]
            text_ends[place, count + 1] = append_text(
                text, start, stop, texts[place], text_ends[place, count]
            )
            known[first_text + place, count] = stop > start
        count += 1
    return count


@jit
def decode_line(
    text: Any, at: int, plan: Any, columns: Columns, row: int, cells: Any
) -> tuple[int, bool]:
    """Decode the line at `at` into a row of columns; of texts, `cells` gets start and end.

    Returns where the next line begins, and whether this one is a segment quoted by ICMP.
    """
    _, numbers, seconds, known, lists, list_ends, _, _, flags = columns
    first_time = len(numbers)
    first_list = first_time + len(seconds)
    quotes = False
    for index in range(len(plan)):
        stop = at
        several = False
        while text[stop] != TAB and text[stop] != NEWLINE:
            several |= text[stop] == COMMA
            stop += 1
        if stop > at:
            kind, place = plan[index, 0], plan[index, 1]
            start = last_of(text, at, stop) if several and kind != NUMBERS else at
            if kind == NUMBER:
                value = number_at(text, start, stop)
                if value >= 0 and value <= plan[index, 2]:
                    numbers[place, row] = value
                    known[place, row] = 1
            elif kind == FLAG:
                flags[place, row] = 1
            elif kind == SECONDS:
                value = nanoseconds_at(text, start, stop)
                if value >= 0:
                    seconds[place, row] = value
                    known[first_time + place, row] = 1
            elif kind == TEXT:
                cells[place, 0] = start
                cells[place, 1] = stop
            elif kind == QUOTE:
                quotes = True
            else:
                filled = list_numbers(text, at, stop, lists, place, list_ends[place, row])
                if filled >= 0:
                    list_ends[place, row + 1] = filled
                    known[first_list + place, row] = 1
        at = stop
        if text[stop] == NEWLINE:
            break
        at += 1
    return next_line(text, at), quotes


@jit
def next_line(text: Any, at: int) -> int:
    """Return where the line after the one at `at` begins."""
    while text[at] != NEWLINE:
        at += 1
    return at + 1


@jit
def note_births(stream: int, born: Any, state: Any) -> None:
    """Note the frame under way for the connections up to `stream` that no frame named before."""
    while state[STREAMS] <= stream and state[BORN] < len(born):
        born[state[BORN]] = state[FRAMES]
        state[BORN] += 1
        state[STREAMS] += 1


@jit
def append_text(text: Any, at: int, end: int, column: Any, filled: int) -> int:
    """Append text[at:end] to a column of texts; return its new end."""
    for source in range(at, end):
        column[filled] = text[source]
        filled += 1
    return filled


@jit
def list_numbers(text: Any, at: int, end: int, lists: Any, place: int, filled: int) -> int:
    """Append the numbers of a cell to a column of lists; return its new end, -1: not all are."""
    while at < end:
        stop = at
        while stop < end and text[stop] != COMMA:
            stop += 1
        value = number_at(text, at, stop)
        if value < 0 or value > U32:
            return -1
        lists[place, filled] = value
        filled += 1
        at = stop + 1
    return filled


@dataclass(frozen=True)
class Decoded:
    """A piece of tshark's output: a row per segment, and the frames that began connections."""

    rows: pa.RecordBatch
    born: npt.NDArray[np.int64]


class Decoder:
    """Turns tshark's output into batches; it counts frames and connections as it goes.

    Attributes:
        frames: frames so far, one per line of tshark's.
    """

    def __init__(self) -> None:
        self._state = np.zeros(3, np.int64)

    @property
    def frames(self) -> int:
        """Frames so far, with TCP or without."""
        return int(self._state[FRAMES])

    def decode(self, text: npt.NDArray[np.uint8], end: int) -> Decoded:
        """Decode text[:end], which ends with a newline."""
        # A line has a separator per field.
        most = end // (len(PLAN) - 1) + 1
        columns = Columns.empty(most, end)
        born = np.empty(2 * most, np.int64)
        rows = decode(text, end, PLAN, columns, born, self._state)
        numbers, known = columns.numbers, columns.known
        numbers[_LEN, :rows] *= known[_LEN, :rows]
        known[_LEN, :rows] = 1
        answers = (numbers[_FLAG_BITS, :rows] & _ACK_FLAG) != 0
        known[_ACK, :rows] &= answers
        known[_ACK_RAW, :rows] &= answers
        return Decoded(_batch(rows, columns), born[: self._state[BORN]])


def _batch(rows: int, columns: Columns) -> pa.RecordBatch:
    """Give the first `rows` of each array to Arrow, without a copy where their widths agree."""
    import pyarrow as pa

    bits = iter(np.packbits(columns.known[:, :rows], axis=1, bitorder="little"))
    columns_by_name: dict[str, pa.Array] = {"packet": pa.array(columns.packet[:rows])}

    def array(name: str, kind: pa.DataType, buffers: list[Any], children: Any = None) -> None:
        parts = [pa.py_buffer(next(bits)), *map(pa.py_buffer, buffers)]
        columns_by_name[name] = pa.Array.from_buffers(kind, rows, parts, children=children)

    for name, values in zip(_NUMBERS, columns.numbers, strict=True):
        narrow = values[:rows].astype(_TYPES[name], copy=False)
        array(name, pa.from_numpy_dtype(narrow.dtype), [narrow])
    for name, values in zip(_SECONDS, columns.seconds, strict=True):
        array(name, pa.int64(), [values[:rows]])
    for name, values, ends in zip(_LISTS, columns.lists, columns.list_ends, strict=True):
        inner = pa.array(values[: ends[rows]])
        array(name, pa.list_(inner.type), [ends[: rows + 1]], [inner])
    for name, values, ends in zip(_TEXTS, columns.texts, columns.text_ends, strict=True):
        array(name, pa.string(), [ends[: rows + 1], values[: ends[rows]]])
    for name, values in zip(
        _FLAGS, np.packbits(columns.flags[:, :rows], axis=1, bitorder="little"), strict=True
    ):
        columns_by_name[name] = pa.Array.from_buffers(
            pa.bool_(), rows, [None, pa.py_buffer(values)]
        )
    return pa.record_batch(columns_by_name)
