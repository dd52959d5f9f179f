"""The layout of struct bbr on one host, and the flat definition of it that probes carry.

bpftrace cannot always see a module's types, and one kernel may hold two `struct bbr`; a definition
of our own name, made from the host's BTF, decodes the right one under every bpftrace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .btf import Leaf
from .fields import flat

TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}


@dataclass(frozen=True)
class Layout:
    """struct bbr as the host has it: `leaves` in order, `size` in bytes, and `priv`, its offset in
    struct inet_connection_sock in bytes or as a bpftrace expression."""

    leaves: tuple[Leaf, ...]
    size: int
    priv: int | str

    @property
    def columns(self) -> list[str]:
        """Recorded columns: every field of state; v2's parameters have a row of their own."""
        paths = [leaf.path for leaf in self.leaves if is_state(leaf.path)]
        return [f"bbr.{path}" for path in paths if not path.startswith("params.")]

    @property
    def params(self) -> list[str]:
        """v2's per-socket parameters, as columns of the P row."""
        paths = [leaf.path for leaf in self.leaves if is_state(leaf.path)]
        return [path for path in paths if path.startswith("params.")]


def is_state(path: str) -> bool:
    """Whether a field is neither padding nor read by v2's debugging output (bbr_debug()) alone."""
    return re.search(r"(^|\.)unused|^debug\.(snd_isn|undo)$", path) is None


def definition(layout: Layout) -> str:
    """C text of `struct bbrscope_bbr`, packed and with every hole spelled out.

    Packed, because v3's `plb` is (its pause_until sits at byte 138).
    """
    lines, end = [], 0
    for number, leaf in enumerate(layout.leaves):
        lines += hole(number, end, leaf.bit_offset)
        width = leaf.bitfield_size or 8 * leaf.size
        bits = f" : {leaf.bitfield_size}" if leaf.bitfield_size else ""
        lines.append(f"  {TYPES[leaf.size]} {flat(leaf.path)}{bits};")
        end = leaf.bit_offset + width
    return "\n".join(["#pragma pack(1)", "struct bbrscope_bbr {", *lines, "};"])


def hole(number: int, start: int, end: int) -> list[str]:
    """Declarations that fill the bits from `start` to `end`."""
    lines = []
    if bits := min(-start % 8, end - start):
        lines.append(f"  unsigned char hole_{number}_bits : {bits};")
    if count := (end - start - bits) // 8:
        lines.append(f"  unsigned char hole_{number}[{count}];")
    return lines
