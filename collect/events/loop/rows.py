"""Bytes to numbers: one row of ``events.csv`` at a time, compiled.

The text is an array of int8, so that every digit and every difference is a signed integer: numba
makes a float of a signed and an unsigned 64-bit integer in one expression. Values from 2**63 on
are kept as the int64 with the same bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....probes.base.jit import jit
from .column_plan import (
    COLUMN_EASY,
    COLUMN_MAX,
    COLUMN_MIN,
    COLUMN_TYPE,
    I64,
    NUMBER,
    PACKED,
    PART_LEFT,
    PART_MASK,
    PART_RIGHT,
    PART_TO,
    PART_WORD,
    SOCKET,
    TAG_COUNT,
    TAG_KEY,
    TAG_NS,
    TAG_SK,
    TAG_START,
    TEXT,
)

Text = npt.NDArray[np.int8]

COMMA, NEWLINE, RETURN, MINUS = 44, 10, 13, 45
ZERO, NINE, UPPER_A, LOWER_A, LETTER_X = 48, 57, 65, 97, 120

# Why reading stopped: all is well, a line that is no row of a declared tag, an impossible row.
GOOD, OTHER_LINE, TOO_SHORT, TOO_LONG, NOT_A_NUMBER, OUT_OF_RANGE = range(6)

# Indices into `state`, see loop_memory.py for the others.
POS, WHY, COLUMN, TAG = range(4)

# What a row of `heads` holds; the slot comes from pairing.
HEAD_TAG, HEAD_SOCKET, HEAD_NS, HEAD_SLOT = range(4)
HEAD_SIZE = 4

# 2**64 - 1 is 1844674407370955161 * 10 + 5, and 2**63 - 1 is 922337203685477580 * 10 + 7.
LAST_HEAD, LAST_DIGIT = 1844674407370955161, 5
SIGNED_HEAD, SIGNED_DIGIT = 922337203685477580, 7


@jit
def byte_at(text: Text, pos: int) -> int:
    """Return the byte at `pos`: an unsigned index spares the check for one counted from the end."""
    return int(text[np.uint64(pos)])


@jit
def find_tag(text: Text, pos: int, end: int, tags: I64) -> tuple[int, int]:
    """Return the index of the tag that the line at `pos` begins with, and where its values begin.

    The index is -1 if the line is no row of a declared tag.
    """
    key = 0
    shift = 0
    while pos < end and shift < 56:
        byte = byte_at(text, pos)
        if byte == COMMA:
            for tag in range(len(tags)):
                if tags[tag, TAG_KEY] == key:
                    return tag, pos + 1
            return -1, pos
        key += byte << shift
        shift += 8
        pos += 1
    return -1, pos


@jit
def parse_decimal(text: Text, pos: int) -> tuple[int, int, int]:
    """Return the number at `pos`, the position after it, and 1 if it does not fit in int64.

    A number from 2**63 to 2**64 - 1 comes back as the int64 with the same bits. A position equal
    to the one given means that there is no number, or one beyond 64 bits.
    """
    start = pos
    negative = byte_at(text, pos) == MINUS
    if negative:
        pos += 1
    first = pos
    value = 0
    big = 0
    digit = byte_at(text, pos) - ZERO
    while digit >= 0 and digit <= 9:
        if big == 1 or value > LAST_HEAD or (value == LAST_HEAD and digit > LAST_DIGIT):
            return 0, start, 0
        if value > SIGNED_HEAD or (value == SIGNED_HEAD and digit > SIGNED_DIGIT):
            big = 1
            value = (value - LAST_HEAD) * 10 + digit - LAST_DIGIT - 1
        else:
            value = value * 10 + digit
        pos += 1
        digit = byte_at(text, pos) - ZERO
    if pos == first or (negative and big == 1):
        return 0, start, 0
    return (-value if negative else value), pos, big


@jit
def parse_hex(text: Text, pos: int) -> tuple[int, int]:
    """Return the bits of the hexadecimal number at `pos`, with or without 0x, and its end.

    A position equal to the one given means that there is none, or one beyond 64 bits.
    """
    start = pos
    if byte_at(text, pos) == ZERO and byte_at(text, pos + 1) == LETTER_X:
        pos += 2
    first = pos
    high = 0
    low = 0
    while True:
        byte = byte_at(text, pos)
        if byte >= ZERO and byte <= NINE:
            digit = byte - ZERO
        elif byte >= LOWER_A and byte <= LOWER_A + 5:
            digit = byte - LOWER_A + 10
        elif byte >= UPPER_A and byte <= UPPER_A + 5:
            digit = byte - UPPER_A + 10
        else:
            break
        high = ((high << 4) | (low >> 28)) & 0xFFFFFFFF
        low = ((low << 4) | digit) & 0xFFFFFFFF
        pos += 1
    if pos == first or pos - first > 16:
        return 0, start
    if high >= 0x80000000:
        high -= 0x100000000
    return high * 0x100000000 + low, pos


@jit
def skip_text(text: Text, pos: int) -> int:
    """Return the position of the comma or line end that ends a text value."""
    byte = byte_at(text, pos)
    while byte != COMMA and byte != NEWLINE and byte != RETURN:
        pos += 1
        byte = byte_at(text, pos)
    return pos


@jit
def parse_rare(text: Text, pos: int, column: int, columns: I64) -> tuple[int, int, int]:
    """Return a value that is not a short run of digits, the position after it, and what is wrong.

    What is wrong is GOOD, NOT_A_NUMBER or OUT_OF_RANGE.
    A text value is its position << 16 plus its length.
    """
    kind = columns[column, COLUMN_TYPE]
    if kind == SOCKET:
        value, after = parse_hex(text, pos)
        return value, after, (NOT_A_NUMBER if after == pos else GOOD)
    if kind == PACKED:
        value, after = parse_hex(text, pos)
        if after == pos:
            return value, after, NOT_A_NUMBER
        high = columns[column, COLUMN_MAX]
        return value, after, (GOOD if high < 0 or (value >= 0 and value <= high) else OUT_OF_RANGE)
    if kind == TEXT:
        after = skip_text(text, pos)
        return (pos << 16) + min(after - pos, 0xFFFF), after, GOOD
    value, after, big = parse_decimal(text, pos)
    if after == pos:
        return value, after, NOT_A_NUMBER
    fits = big == 1 or value >= 0
    if kind == NUMBER:
        low, high = columns[column, COLUMN_MIN], columns[column, COLUMN_MAX]
        fits = big == 0 and low <= value and value <= high
    return value, after, (GOOD if fits else OUT_OF_RANGE)


@jit
def parse_rows(
    text: Text, end: int, tags: I64, columns: I64, values: I64, heads: I64, state: I64
) -> int:
    """Parse whole lines from state[POS] on, as many as `values` has rows for.

    Row i's numbers go to values[i], its tag, socket and time to heads[i]. Stops before a line that
    is no good row, with the reason in state[WHY]; returns the number of rows. The text must end
    with a newline.
    """
    pos = state[POS]
    state[WHY] = GOOD
    count = 0
    while count < len(values) and pos < end:
        tag, at = find_tag(text, pos, end, tags)
        state[TAG] = tag
        if tag < 0:
            state[WHY] = OTHER_LINE
            break
        first = tags[tag, TAG_START]
        last = tags[tag, TAG_COUNT] - 1
        wrong = GOOD
        index = 0
        while index <= last:
            start = at
            value = 0
            digit = (byte_at(text, at) ^ ZERO) & 0xFF
            while digit <= 9:
                value = value * 10 + digit
                at += 1
                digit = (byte_at(text, at) ^ ZERO) & 0xFF
            if value > columns[first + index, COLUMN_EASY] or at == start or at - start > 18:
                value, at, wrong = parse_rare(text, start, first + index, columns)
            if wrong != GOOD or byte_at(text, at) != COMMA:
                break
            values[count, index] = value
            at += 1
            index += 1
        if wrong == GOOD and index == last:
            values[count, index] = value
            at += byte_at(text, at) == RETURN
        if wrong != GOOD or index != last or byte_at(text, at) != NEWLINE:
            state[COLUMN] = index
            state[WHY] = why_bad(text, start, at, wrong, index > last)
            break
        heads[count, HEAD_TAG] = tag
        heads[count, HEAD_NS] = values[count, tags[tag, TAG_NS]]
        heads[count, HEAD_SOCKET] = values[count, tags[tag, TAG_SK]]
        pos = at + 1
        count += 1
    state[POS] = pos
    return count


@jit
def take_apart(count: int, heads: I64, values: I64, parts: I64, bounds: I64) -> None:
    """Put the fields of packed columns behind the values of `count` rows."""
    for row in range(count):
        tag = heads[row, HEAD_TAG]
        for part in range(bounds[tag, 0], bounds[tag, 1]):
            word = values[row, np.uint64(parts[part, PART_WORD])]
            moved = (word << parts[part, PART_LEFT]) >> parts[part, PART_RIGHT]
            values[row, np.uint64(parts[part, PART_TO])] = moved & parts[part, PART_MASK]


@jit
def why_bad(text: Text, start: int, at: int, wrong: int, beyond: bool) -> int:
    """Return why a row is impossible: TOO_SHORT, TOO_LONG, OUT_OF_RANGE or NOT_A_NUMBER.

    Its value at `start` ends at `at`; `wrong` is what parse_rare() said of it, and `beyond` tells
    that the row has all its values already.
    """
    if beyond:
        return TOO_LONG
    if ends_line(text, start) or (wrong == GOOD and ends_line(text, at)):
        return TOO_SHORT
    return NOT_A_NUMBER if wrong == GOOD else wrong


@jit
def ends_line(text: Text, pos: int) -> bool:
    """Tell whether the line ends at `pos`."""
    return byte_at(text, pos) == NEWLINE or byte_at(text, pos) == RETURN
