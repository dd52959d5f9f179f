"""Columns that hold several fields each: 64-bit words, written in hexadecimal.

What a row costs is the number of its values more than what they are: a program that is attached by
`collect` prints several fields as one word. The header line names them from the lowest bit up, each
with its width, `tp.lost:32+tp.snd_cwnd:32`; bits without a name, `:13`, are of no field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from .fields import FIELDS

WORD_BITS = 64

Numbers = dict[str, int]


@dataclass(frozen=True)
class Part:
    """A field in a word: `shift` is its lowest bit, `bits` its width."""

    name: str
    shift: int
    bits: int

    @property
    def signed(self) -> bool:
        """Its highest bit is its sign."""
        return self.name in FIELDS and FIELDS[self.name].signed

    def of(self, word: int) -> int:
        """The field's value in a word of 64 bits.

        >>> Part("rs.losses", 32, 32).of(0xfffffffe00000001), Part("tp.lost", 0, 32).of(1 << 33 | 7)
        (-2, 7)
        """
        value = word >> self.shift & (1 << self.bits) - 1
        return value - (1 << self.bits) if self.signed and value >> self.bits - 1 else value


def is_packed(column: str) -> bool:
    """Whether a column's name in a header line names parts of a word."""
    return ":" in column


def column_of(widths: Sequence[tuple[str, int]]) -> str:
    """The column's name for fields with their widths, from the lowest bit up.

    >>> column_of([("bbr.mode", 3), ("", 5), ("bbr.lt_bw", 32)])
    'bbr.mode:3+:5+bbr.lt_bw:32'
    """
    return "+".join(f"{name}:{bits}" for name, bits in widths)


@lru_cache(1 << 12)
def parts_of(column: str) -> tuple[Part, ...]:
    """The fields that a packed column names.

    Raises:
        ValueError: a width is none, the word has more than 64 bits, or names no field.

    >>> parts_of("bbr.mode:3+:5+bbr.lt_bw:32")[1]
    Part(name='bbr.lt_bw', shift=8, bits=32)
    """
    parts, shift = [], 0
    for text in column.split("+"):
        name, _, digits = text.rpartition(":")
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= 2):
            raise ValueError(f"{text!r:.40} has no width")
        bits = int(digits)
        if name:
            parts.append(Part(name, shift, bits))
        shift += bits
        if not bits or shift > WORD_BITS:
            raise ValueError(f"its parts are not of 1 to {WORD_BITS} bits in all")
    if not parts:
        raise ValueError("it names no field")
    return tuple(parts)


def width_of(column: str) -> int:
    """Bits that a packed column's parts take, those without a name included."""
    return sum(int(text.rpartition(":")[2]) for text in column.split("+"))


def numbers(columns: Sequence[str], values: Sequence[bytes], wanted: frozenset[str]) -> Numbers:
    """Those numbers of a row that are wanted, by name, wherever they are; not all need be there.

    Raises:
        IndexError, ValueError: the row is too short, or one of them is no number.

    >>> numbers(["sk", "tp.lost:8+tp.snd_cwnd:8"], [b"ff", b"a02"], frozenset({"tp.snd_cwnd"}))
    {'tp.snd_cwnd': 10}
    """
    return {
        name: part.of(int(values[index], 16)) if part else int(values[index])
        for index, name, part in places(tuple(columns), wanted)
    }


@lru_cache(1 << 8)
def places(
    columns: tuple[str, ...], wanted: frozenset[str]
) -> tuple[tuple[int, str, Part | None], ...]:
    """Where the wanted fields are: index of the column, name, and which part of it (None: all)."""
    whole = [(i, c, None) for i, c in enumerate(columns) if c in wanted]
    packed = [
        (i, part.name, part)
        for i, column in enumerate(columns)
        if is_packed(column)
        for part in parts_of(column)
        if part.name in wanted
    ]
    return (*whole, *packed)
