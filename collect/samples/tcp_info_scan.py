"""Find the raw messages in a text of tcp-info's lines and undo their base64: compiled.

Lines of the one shape that M-Lab's tcp-info writes are taken, in plain ASCII and with every byte of
it checked. Any other line that may be a snapshot is left to tcp_info_lines.py, which reads it as
JSON: both give the same rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...probes.base.jit import jit
from ..bundle.recognise import TCP_INFO_MARK
from ..packets.tshark_text import digits
from .tcp_info_rows import (
    AF_INET,
    AF_INET6,
    BBR_AT,
    BBR_BYTES,
    BBR_INFO,
    INFO_AT,
    INFO_BYTES,
    MESSAGE_BYTES,
    TCP_INFO,
)

_NEWLINE, _RETURN, _TAB, _SPACE, _QUOTE, _PLUS, _COMMA = 10, 13, 9, 32, 34, 43, 44
_MINUS, _POINT, _COLON, _EQUALS, _LETTER_T, _LETTER_Z = 45, 46, 58, 61, 84, 90
_OPEN_LIST, _BACKSLASH, _CLOSE_LIST, _OPEN, _CLOSE = 91, 92, 93, 123, 125
# What a byte stands for in base64 (RFC 4648, 4), or _NOT.
_NOT = 64
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_SIX_BITS = np.full(256, _NOT, np.uint8)
_SIX_BITS[np.frombuffer(_ALPHABET, np.uint8)] = np.arange(64)
_TIME, _RAW, _ATTRIBUTES, _NULL = (
    np.frombuffer(word.encode(), np.uint8)
    for word in ('"Timestamp"', TCP_INFO_MARK, '"Attributes"', "null")
)
_BEFORE_MONTH = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365])
_DAYS_TO_1970 = 719_162
_NS = 1_000_000_000
# What stands for a time that is not of the form, or before 1970.
_NO_NS = -1


@jit
def scan(
    text: Any, at: int, line: int, row: int, raw: Any, times: Any, info_sizes: Any, polls: Any
) -> tuple[int, int, int]:
    """Read lines from `at` until one is of another shape; return where it begins, its number, row.

    At the text's end, the length of the text is returned for where. The text ends with a newline.

    Args:
        text: bytes (uint8).
        at: where a line begins.
        line: its number, from 1.
        row: how many rows there are already.
        raw: a row of bytes per snapshot: message, tcp_info and bbr_info at their places.
        times: ns since 1970 per row.
        info_sizes: bytes of tcp_info per row, as sent.
        polls: the line's number per row.
    """
    while at < len(text) and row < len(raw):
        follows = snapshot(text, at, row, raw, times, info_sizes)
        if follows > 0:
            polls[row] = line
            row += 1
        else:
            follows = -follows
        if follows == 0:
            follows = without_message(text, at)
            if follows == 0:
                break
        at = follows
        line += 1
    return at, line, row


@jit
def snapshot(text: Any, at: int, row: int, raw: Any, times: Any, info_sizes: Any) -> int:
    """Read the line at `at` into a row; return where the next begins.

    Negative: it is a snapshot without bbr_info. 0: the line has another shape.
    """
    at = after(text, at, _OPEN)
    at = key(text, at, _TIME)
    end = string_end(text, at)
    if end < 0:
        return 0
    ns = time_ns(text, at, end)
    at = key(text, after(text, end + 1, _COMMA), _RAW)
    end = string_end(text, at)
    if ns == _NO_NS or end < 0:
        return 0
    size = from_base64(text, at, end, raw, row, 0, MESSAGE_BYTES)
    if size < MESSAGE_BYTES or (raw[row, 0] != AF_INET and raw[row, 0] != AF_INET6):
        return 0
    at = key(text, after(text, end + 1, _COMMA), _ATTRIBUTES, _OPEN_LIST)
    at, has_bbr = attributes(text, at, row, raw, info_sizes)
    at = line_end(text, after(text, at, _CLOSE))
    if at < 0:
        return 0
    times[row] = ns
    return at if has_bbr else -at


@jit
def attributes(text: Any, at: int, row: int, raw: Any, info_sizes: Any) -> tuple[int, bool]:
    """Read the list after its bracket; return where it ended (-1: another shape), and if BBR is in.

    A kernel's attributes stand at their numbers; null stands for one that was not sent.
    """
    has_bbr = False
    info_sizes[row] = 0
    number = 0
    if at < 0:
        return -1, False
    closing = after(text, at, _CLOSE_LIST)
    while closing < 0:
        at = skip(text, at)
        if text[at] == _QUOTE:
            end = string_end(text, at + 1)
            if end < 0:
                return -1, False
            if number == TCP_INFO:
                info_sizes[row] = from_base64(text, at + 1, end, raw, row, INFO_AT, INFO_BYTES)
                if info_sizes[row] < 0:
                    return -1, False
            elif number == BBR_INFO:
                size = from_base64(text, at + 1, end, raw, row, BBR_AT, BBR_BYTES)
                if size < 0:
                    return -1, False
                has_bbr = size >= BBR_BYTES
            at = end + 1
        else:
            at = word(text, at, _NULL)
            if at < 0:
                return -1, False
        number += 1
        closing = after(text, at, _CLOSE_LIST)
        if closing < 0:
            at = after(text, at, _COMMA)
            if at < 0:
                return -1, False
    return closing, has_bbr


@jit
def skip(text: Any, at: int) -> int:
    """Return the first place from `at` that is no blank."""
    while text[at] == _SPACE or text[at] == _TAB or text[at] == _RETURN:
        at += 1
    return at


@jit
def after(text: Any, at: int, sign: int) -> int:
    """Return the place after a sign, blanks before it or none; -1: something else is there."""
    if at < 0:
        return -1
    at = skip(text, at)
    return at + 1 if text[at] == sign else -1


@jit
def word(text: Any, at: int, wanted: Any) -> int:
    """Return the place after a word that begins at `at`; -1: something else is there."""
    for letter in wanted:
        if text[at] != letter:
            return -1
        at += 1
    return at


@jit
def key(text: Any, at: int, name: Any, sign: int = _QUOTE) -> int:
    """Return the place after a key, its colon and the sign that begins its value; -1: another."""
    if at < 0:
        return -1
    at = after(text, word(text, skip(text, at), name), _COLON)
    return after(text, at, sign)


@jit
def string_end(text: Any, at: int) -> int:
    """Return where the closing quote is; -1 if there is more than plain ASCII before it."""
    if at < 0:
        return -1
    while text[at] != _QUOTE:
        if text[at] < _SPACE or text[at] > 126 or text[at] == _BACKSLASH:
            return -1
        at += 1
    return at


@jit
def line_end(text: Any, at: int) -> int:
    """Return where the next line begins, -1 if more than blanks is before it."""
    if at < 0:
        return -1
    at = skip(text, at)
    return at + 1 if text[at] == _NEWLINE else -1


@jit
def without_message(text: Any, at: int) -> int:
    """Return where the next line begins; 0 if this one has the word RawIDM."""
    while text[at] != _NEWLINE:
        if text[at] == _QUOTE and word(text, at, _RAW) > 0:
            return 0
        at += 1
    return at + 1


@jit
def from_base64(text: Any, at: int, end: int, raw: Any, row: int, place: int, most: int) -> int:
    """Undo base64 into raw[row], from `place`, at most `most` bytes; return how many there are.

    -1: it is not base64 as encoders write it, or is longer than a message of the kernel.
    """
    if end == at:
        return 0
    if (end - at) & 3:
        return -1
    padding = int(text[end - 1] == _EQUALS) + int(text[end - 1] == _EQUALS == text[end - 2])
    size = (end - at) // 4 * 3 - padding
    bad = 0
    done = 0
    for group in range(at, end, 4):
        bits = 0
        for each in range(4):
            six = int(_SIX_BITS[text[group + each]])
            if group + each >= end - padding:
                six = 0
            bad |= six
            bits = bits << 6 | six & 63
        if done < most:
            raw[row, place + done] = bits >> 16
        if done + 1 < most:
            raw[row, place + done + 1] = bits >> 8 & 255
        if done + 2 < most:
            raw[row, place + done + 2] = bits & 255
        done += 3
    return -1 if bad & _NOT else size


@jit
def time_ns(text: Any, at: int, end: int) -> int:
    """Return ns since 1970 of YYYY-MM-DDTHH:MM:SS[.FRACTION]Z; -1: another form, or out of range.

    Of the fraction nine digits count. A time with another offset than Z is another form.
    """
    signs = end - at >= 20 and text[at + 4] == _MINUS == text[at + 7] and text[at + 10] == _LETTER_T
    if (
        not signs
        or text[at + 13] != _COLON
        or text[at + 16] != _COLON
        or text[end - 1] != _LETTER_Z
    ):
        return _NO_NS
    year, month = digits(text, at, at + 4), digits(text, at + 5, at + 7)
    day, hour = digits(text, at + 8, at + 10), digits(text, at + 11, at + 13)
    minute, second = digits(text, at + 14, at + 16), digits(text, at + 17, at + 19)
    if year < 1970 or year > 2100 or month < 1 or month > 12 or day < 1:
        return _NO_NS
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return _NO_NS
    leap = int(year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    if day > _BEFORE_MONTH[month] - _BEFORE_MONTH[month - 1] + leap * int(month == 2):
        return _NO_NS
    fraction = fraction_ns(text, at + 19, end - 1)
    if fraction < 0:
        return _NO_NS
    past = year - 1
    days = past * 365 + past // 4 - past // 100 + past // 400 - _DAYS_TO_1970
    days += _BEFORE_MONTH[month - 1] + leap * int(month > 2) + day - 1
    seconds: int = ((days * 24 + hour) * 60 + minute) * 60 + second
    return seconds * _NS + fraction


@jit
def fraction_ns(text: Any, at: int, end: int) -> int:
    """Return ns of .DIGITS that fill [at, end), 0 if it is empty; negative: not that."""
    if at == end:
        return 0
    count = end - at - 1
    if text[at] != _POINT or count < 1 or count > 9:
        return -1
    value = digits(text, at + 1, end)
    for _ in range(count, 9):
        value *= 10
    return value
