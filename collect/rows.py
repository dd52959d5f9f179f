"""Bytes to numbers: one row of ``events.csv`` at a time, compiled.

The text is an array of int8, so that every digit and every difference is a signed integer: numba
makes a float of a signed and an unsigned 64-bit integer in one expression. Values from 2**63 on
are kept as the int64 with the same bits.
"""

from __future__ import annotations

from typing import Any

from .jit import jit
from .plan import (
    COLUMN_MAX,
    COLUMN_MIN,
    COLUMN_TYPE,
    NO_LIMIT,
    SOCKET,
    TAG_KEY,
    TEXT,
    TIME,
)

COMMA, NEWLINE, RETURN, MINUS = 44, 10, 13, 45
ZERO, NINE, UPPER_A, LOWER_A, LETTER_X = 48, 57, 65, 97, 120

# Why a row is impossible; 0 is a good row.
GOOD, TOO_SHORT, TOO_LONG, NOT_A_NUMBER, OUT_OF_RANGE = 0, 1, 2, 3, 4

# 2**64 - 1 is 1844674407370955161 * 10 + 5, and 2**63 - 1 is 922337203685477580 * 10 + 7.
LAST_HEAD, LAST_DIGIT = 1844674407370955161, 5
SIGNED_HEAD, SIGNED_DIGIT = 922337203685477580, 7


@jit
def find_tag(text: Any, pos: int, end: int, tags: Any) -> tuple[int, int]:
    """Return the index of the tag that the line at `pos` begins with, and where its values begin.

    The index is -1 if the line is no row of a declared tag.
    """
    key = 0
    shift = 0
    while pos < end and shift < 56:
        byte = int(text[pos])
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
def parse_decimal(text: Any, pos: int) -> tuple[int, int, int]:
    """Return the number at `pos`, the position after it, and 1 if it does not fit in int64.

    A number from 2**63 to 2**64 - 1 comes back as the int64 with the same bits. A position equal
    to the one given means that there is no number, or one beyond 64 bits.
    """
    start = pos
    negative = int(text[pos]) == MINUS
    if negative:
        pos += 1
    first = pos
    value = 0
    big = 0
    digit = int(text[pos]) - ZERO
    while digit >= 0 and digit <= 9:
        if big == 1 or value > LAST_HEAD or (value == LAST_HEAD and digit > LAST_DIGIT):
            return 0, start, 0
        if value > SIGNED_HEAD or (value == SIGNED_HEAD and digit > SIGNED_DIGIT):
            big = 1
            value = (value - LAST_HEAD) * 10 + digit - LAST_DIGIT - 1
        else:
            value = value * 10 + digit
        pos += 1
        digit = int(text[pos]) - ZERO
    if pos == first or (negative and big == 1):
        return 0, start, 0
    return (-value if negative else value), pos, big


@jit
def parse_hex(text: Any, pos: int) -> tuple[int, int]:
    """Return the bits of the hexadecimal number at `pos`, with or without 0x, and its end.

    A position equal to the one given means that there is none, or one beyond 64 bits.
    """
    start = pos
    if int(text[pos]) == ZERO and int(text[pos + 1]) == LETTER_X:
        pos += 2
    first = pos
    high = 0
    low = 0
    while True:
        byte = int(text[pos])
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
def skip_text(text: Any, pos: int) -> int:
    """Return the position of the comma or line end that ends a text value."""
    byte = int(text[pos])
    while byte != COMMA and byte != NEWLINE and byte != RETURN:
        pos += 1
        byte = int(text[pos])
    return pos


@jit
def parse_rare(text: Any, pos: int, kind: int, low: int, high: int) -> tuple[int, int, int]:
    """Return a value that is not a short run of digits, the position after it, and what is wrong.

    A text value is its position << 16 plus its length.
    """
    if kind == SOCKET:
        value, after = parse_hex(text, pos)
        return value, after, (NOT_A_NUMBER if after == pos else GOOD)
    if kind == TEXT:
        after = skip_text(text, pos)
        return (pos << 16) + min(after - pos, 0xFFFF), after, GOOD
    value, after, big = parse_decimal(text, pos)
    if after == pos:
        return value, after, NOT_A_NUMBER
    if high == NO_LIMIT:
        return value, after, (OUT_OF_RANGE if value < 0 and big == 0 else GOOD)
    if big == 1 or value > high or value < low:
        return value, after, OUT_OF_RANGE
    return value, after, GOOD


@jit
def parse_row(text: Any, pos: int, first: int, count: int, columns: Any, values: Any) -> Any:
    """Parse a row's `count` values; its columns are those from `first` on.

    Returns the position after the row, GOOD or why the row is impossible, and the column at fault
    (counted from the row's first). The text must end with a newline.
    """
    for index in range(count):
        column = first + index
        high = columns[column, COLUMN_MAX]
        start = pos
        value = 0
        digit = int(text[pos]) - ZERO
        while digit >= 0 and digit <= 9:
            value = value * 10 + digit
            pos += 1
            digit = int(text[pos]) - ZERO
        kind = columns[column, COLUMN_TYPE]
        length = pos - start
        if kind > TIME or length == 0 or length > 18 or (value > high and high != NO_LIMIT):
            value, pos, wrong = parse_rare(text, start, kind, columns[column, COLUMN_MIN], high)
            if wrong != GOOD:
                ended = int(text[start]) == NEWLINE or int(text[start]) == RETURN
                return pos, (TOO_SHORT if ended else wrong), index
        values[index] = value
        if int(text[pos]) == COMMA and index + 1 < count:
            pos += 1
        elif index + 1 < count:
            ended = int(text[pos]) == NEWLINE or int(text[pos]) == RETURN
            return pos, (TOO_SHORT if ended else NOT_A_NUMBER), index
    if int(text[pos]) == RETURN:
        pos += 1
    if int(text[pos]) != NEWLINE:
        return pos, (TOO_LONG if int(text[pos]) == COMMA else NOT_A_NUMBER), count - 1
    return pos + 1, GOOD, 0
