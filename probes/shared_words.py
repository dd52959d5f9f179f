"""Which fields share a printed word, and the expression that makes it.

struct bbr is read by words as it lies in memory; other fields are put together by shifts, so that
their places in the kernel's structs do not matter.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from .bbr_layout import Layout, is_state
from .btf import Leaf
from .fields import FIELDS
from .packed_columns import WORD_BITS, column_of

# What orders, completes and checks a recording is read where it is made: it stays by itself.
PLAIN = frozenset({"seqno", "tp.delivered", "rs.acked_sacked", "tp.mss_cache", "sk.cookie"})
# Rows of these letters are printed often and have many values.
PACKED_ROWS = frozenset({"M", "X", "IX", "S", "E", "H", "U", "L", "T"})
# Bitfields lie in a word from its lowest bit up on such machines alone.
BY_WORDS = sys.byteorder == "little"


@dataclass
class Word:
    """A word being filled: `parts` has expression and width [bits] of its fields, lowest first."""

    parts: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """Bits that are left."""
        return WORD_BITS - sum(bits for _, bits in self.parts.values())

    @property
    def column(self) -> str:
        """Its name in the header line; a field that is alone keeps its own."""
        if len(self.parts) == 1:
            return next(iter(self.parts))
        return column_of([(name, bits) for name, (_, bits) in self.parts.items()])

    @property
    def expression(self) -> str:
        """The bpftrace expression of the word."""
        if len(self.parts) == 1:
            return next(text for text, _ in self.parts.values())
        terms, shift = [], 0
        for text, bits in self.parts.values():
            term = f"((uint64){text} & {hex((1 << bits) - 1)})"
            terms.append(f"({term} << {shift})" if shift else term)
            shift += bits
        return " | ".join(terms)


def pack(values: dict[str, str], layout: Layout) -> dict[str, str]:
    """The columns of a row, packed, with their expressions.

    Args:
        values: expressions by the names of fields.
        layout: struct bbr, which is $bbr as its fields and $words as its words.
    """
    in_words = whole_words(values, layout) if BY_WORDS else {}
    taken = {name for _, names in in_words.values() for name in names}
    words: list[Word] = []
    for name, text in values.items():
        if name in taken:
            continue
        bits = width(name)
        fits = (word for word in words if name not in PLAIN and word.free >= bits)
        word = next(fits, None)
        if word is None:
            words.append(word := Word())
        word.parts[name] = (text, bits)
    packed = {word.column: word.expression for word in words}
    return packed | {column: text for column, (text, _) in in_words.items()}


def width(name: str) -> int:
    """Bits that a field takes in a word; what must stay by itself takes all of them."""
    known = FIELDS.get(name)
    if known is None or known.is_text or name in PLAIN or name.startswith("bbr."):
        return WORD_BITS
    return known.bits


def whole_words(values: dict[str, str], layout: Layout) -> dict[str, tuple[str, Sequence[str]]]:
    """The words of struct bbr that hold several fields each: column -> (expression, fields)."""
    words: dict[str, tuple[str, Sequence[str]]] = {}
    for number in range(layout.size * 8 // WORD_BITS):
        start = number * WORD_BITS
        leaves = [leaf for leaf in layout.leaves if start <= leaf.bit_offset < start + WORD_BITS]
        names = [f"bbr.{leaf.path}" for leaf in leaves if f"bbr.{leaf.path}" in values]
        if len(names) > 1 and is_whole(leaves, start):
            column = column_of(widths(leaves, start, values))
            words[column] = f"$words->w{number}", names
    return words


def bits_of(leaf: Leaf) -> int:
    """A member's width."""
    return leaf.bitfield_size or 8 * leaf.size


def is_whole(leaves: Sequence[Leaf], start: int) -> bool:
    """Whether members end in the word that begins at bit `start`, share no bits, and are no wider
    than the table of fields has them."""
    ends = [leaf.bit_offset + bits_of(leaf) for leaf in leaves]
    begins = [*(leaf.bit_offset for leaf in leaves[1:]), start + WORD_BITS]
    known = [FIELDS.get(f"bbr.{leaf.path}") for leaf in leaves]
    return all(end <= begin for end, begin in zip(ends, begins, strict=True)) and all(
        one is None or bits_of(leaf) <= one.bits for leaf, one in zip(leaves, known, strict=True)
    )


def widths(leaves: Sequence[Leaf], start: int, values: dict[str, str]) -> list[tuple[str, int]]:
    """Names and widths of a word's bits, from the lowest up; holes have no name."""
    parts: list[tuple[str, int]] = []
    at = start
    for leaf in leaves:
        if leaf.bit_offset > at:
            parts.append(("", leaf.bit_offset - at))
        name = f"bbr.{leaf.path}"
        parts.append((name if name in values and is_state(leaf.path) else "", bits_of(leaf)))
        at = leaf.bit_offset + bits_of(leaf)
    if at < start + WORD_BITS:
        parts.append(("", start + WORD_BITS - at))
    return parts


def definition(layout: Layout) -> str:
    """C text of struct bbr as its words."""
    words = [f"  unsigned long long w{n};" for n in range(layout.size * 8 // WORD_BITS)]
    return "\n".join(["struct bbrscope_words {", *words, "};"])
