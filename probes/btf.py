"""Read kernel type information (BTF): struct layouts, bitfields and function parameters.

A small reader of /sys/kernel/btf/*, because `bpftool` is rarely installed and bpftrace cannot tell
the layout of a type that lives in a module. Only what probes need is decoded; the index of a whole
vmlinux takes a tenth of a second.

Source: Documentation/bpf/btf.rst, include/uapi/linux/btf.h.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .base.errors import HostError

MAGIC = 0xEB9F
INT, PTR, ARRAY, STRUCT, UNION, ENUM, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT = range(1, 12)
FUNC, FUNC_PROTO, VAR, DATASEC, FLOAT, DECL_TAG, TYPE_TAG, ENUM64 = range(12, 20)

# 32-bit words that a type takes: struct btf_type's three and a constant, and per element of vlen.
FIXED = {INT: 1, ARRAY: 3, VAR: 1, DECL_TAG: 1}
PER_ELEMENT = {STRUCT: 3, UNION: 3, ENUM: 2, FUNC_PROTO: 2, DATASEC: 3, ENUM64: 3}
WORDS = [3 + FIXED.get(kind, 0) for kind in range(32)]
WORDS_EACH = [PER_ELEMENT.get(kind, 0) for kind in range(32)]
TRANSPARENT = (TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG)


@dataclass(frozen=True)
class Member:
    """One member of a struct: offset in bits from its start, `bitfield_size` 0 if it is none."""

    name: str
    bit_offset: int
    bitfield_size: int
    type_id: int


@dataclass(frozen=True)
class Leaf:
    """A scalar inside a struct, nested structs and arrays unfolded.

    `path` is as in C ("bw.s[0].t"); `size` in bytes of its type; offsets in bits.
    """

    path: str
    bit_offset: int
    bitfield_size: int
    size: int
    signed: bool


class Btf:
    """The types of one BTF blob; a module's blob continues that of vmlinux (`base`).

    Raises:
        HostError: it is no BTF, or truncated.
    """

    def __init__(self, data: bytes, base: Btf | None = None) -> None:
        self.base = base
        self._data = data
        try:
            magic, _version, _flags, header, *sections = struct.unpack_from("<HBBIIIII", data)
        except struct.error as error:
            raise HostError("the kernel's BTF is truncated") from error
        if magic != MAGIC:
            raise HostError(f"not BTF: magic {magic:#x}")
        types, types_size, strings, strings_size = sections
        self._strings = data[header + strings : header + strings + strings_size]
        self._next_id: int
        self._first_id: int = base._next_id if base else 1
        self._first_string: int = base._next_string if base else 0
        self._next_string: int = self._first_string + strings_size
        self._found: dict[tuple[int, str], list[int]] = {}
        self._members: dict[int, list[Member]] = {}
        self._begin = header + types
        self._index(data[self._begin : self._begin + types_size])

    def _index(self, types: bytes) -> None:
        """Note where each type starts, in words, and its name's offset, as words in a row.

        There are a hundred thousand and more: the loop does what only it can do.
        """
        words = memoryview(types[: len(types) & ~3]).cast("I")
        starts: list[int] = []
        at, end = 0, len(words)
        try:
            while at < end:
                starts.append(at)
                info = words[at + 1]
                kind = info >> 24 & 0x1F
                at += WORDS[kind] + WORDS_EACH[kind] * (info & 0xFFFF)
        except IndexError as error:
            raise HostError("the kernel's BTF is truncated") from error
        self._starts = starts
        self._names = array("I", [words[at] for at in starts]).tobytes()
        self._next_id = self._first_id + len(starts)

    def find(self, kind: int, name: str) -> list[int]:
        """Ids of this blob's own types of that kind (BTF_KIND_*) and name; it may occur twice."""
        if (kind, name) not in self._found:
            ids = self._ids_named(name)
            self._found[kind, name] = [i for i in ids if self._type(i)[2] == kind]
        return self._found[kind, name]

    def _ids_named(self, name: str) -> list[int]:
        """Ids of this blob's own types of that name."""
        if self._first_string > 0:
            # A module's type may be named by a string of vmlinux, hence the search by value.
            names = enumerate(memoryview(self._names).cast("I"), self._first_id)
            return [type_id for type_id, offset in names if self.string(offset) == name]
        offset = self._strings.find(b"\0" + name.encode() + b"\0") + 1
        if not offset:
            return []
        needle, ids = offset.to_bytes(4, sys.byteorder), []
        at = self._names.find(needle)
        while at >= 0:
            if at % 4 == 0:
                ids.append(self._first_id + at // 4)
            at = self._names.find(needle, at + 1)
        return ids

    def string(self, offset: int) -> str:
        """The string at `offset`; a module's strings continue those of vmlinux."""
        if offset < self._first_string and self.base:
            return self.base.string(offset)
        at = offset - self._first_string
        return self._strings[at : self._strings.index(b"\0", at)].decode()

    def _type(self, type_id: int) -> tuple[Btf, int, int, int, int]:
        """(blob, offset of what follows, kind, vlen with kind_flag in bit 31, size or type)."""
        if type_id < self._first_id and self.base:
            return self.base._type(type_id)
        at = self._begin + 4 * self._starts[type_id - self._first_id]
        _name, info, size = struct.unpack_from("<III", self._data, at)
        return self, at + 12, info >> 24 & 0x1F, info & 0x8000FFFF, size

    def resolve(self, type_id: int) -> int:
        """The type behind typedefs and qualifiers."""
        while type_id:
            _blob, _at, kind, _vlen, target = self._type(type_id)
            if kind not in TRANSPARENT:
                return type_id
            type_id = target
        return 0

    def size(self, type_id: int) -> int:
        """Size in bytes."""
        blob, at, kind, _vlen, size = self._type(self.resolve(type_id))
        if kind == PTR:
            return 8
        if kind == ARRAY:
            element, _index, count = struct.unpack_from("<III", blob._data, at)
            return int(count) * self.size(element)
        return int(size)

    def members(self, type_id: int) -> list[Member]:
        """Members of a struct or union, as declared."""
        if (known := self._members.get(type_id)) is not None:
            return known
        blob, at, _kind, vlen, _size = self._type(type_id)
        members = []
        for i in range(vlen & 0xFFFF):
            name, member, offset = struct.unpack_from("<III", blob._data, at + 12 * i)
            bits = offset >> 24 if vlen >> 31 else 0
            offset = offset & 0xFFFFFF if vlen >> 31 else offset
            members.append(Member(self.string(name), offset, bits, member))
        self._members[type_id] = members
        return members

    def leaves(self, type_id: int, path: str = "", offset: int = 0, bits: int = 0) -> list[Leaf]:
        """Every scalar of a type, in order of declaration.

        `path`, `offset` and `bits` are those of the type itself within an outer one: its C path,
        and in bits its offset and its width as a bitfield (0: it is none).
        """
        type_id = self.resolve(type_id)
        blob, at, kind, _vlen, size = self._type(type_id)
        if kind in (STRUCT, UNION):
            matches = []
            for member in self.members(type_id):
                inner = ".".join(part for part in (path, member.name) if part)
                place = offset + member.bit_offset
                matches += self.leaves(member.type_id, inner, place, member.bitfield_size)
            return matches
        if kind == ARRAY:
            element, _index, count = struct.unpack_from("<III", blob._data, at)
            step = 8 * self.size(element)
            return [
                leaf
                for i in range(count)
                for leaf in self.leaves(element, f"{path}[{i}]", offset + i * step)
            ]
        signed = False
        if kind == INT:
            (encoding,) = struct.unpack_from("<I", blob._data, at)
            signed = bool(encoding >> 24 & 1)
        return [Leaf(path, offset, bits, 8 if kind == PTR else size, signed)]

    def member_offset(self, struct_name: str, path: str) -> int | None:
        """Byte offset of a member, looked up through anonymous structs and unions; None if gone.

        A bitfield's offset is that of the byte it starts in.
        """
        ids = self.find(STRUCT, struct_name)
        if not ids and self.base:
            return self.base.member_offset(struct_name, path)
        for type_id in ids:
            bits = self._member_bits(type_id, path.split("."))
            if bits is not None:
                return bits // 8
        return None

    def _member_bits(self, type_id: int, names: list[str]) -> int | None:
        type_id = self.resolve(type_id)
        if self._type(type_id)[2] not in (STRUCT, UNION):
            return None
        for member in self.members(type_id):
            if member.name == names[0]:
                if len(names) == 1:
                    return member.bit_offset
                inner = self._member_bits(member.type_id, names[1:])
            elif not member.name:
                inner = self._member_bits(member.type_id, names)
            else:
                continue
            if inner is not None:
                return member.bit_offset + inner
        return None

    def parameters(self, function: str) -> list[str] | None:
        """Names of a function's parameters in order, None if BTF has no such function."""
        ids = self.find(FUNC, function)
        if not ids:
            return None
        proto = self._type(ids[0])[4]
        blob, at, _kind, vlen, _size = self._type(proto)
        return [
            self.string(struct.unpack_from("<I", blob._data, at + 8 * i)[0])
            for i in range(vlen & 0xFFFF)
        ]


@cache
def load(folder: Path = Path("/sys/kernel/btf")) -> Btf:
    """The running kernel's own BTF, read once: it stays as it is while the kernel runs.

    Raises:
        HostError: the kernel has none.
    """
    return Btf(_read(folder / "vmlinux"))


def load_module(name: str, base: Btf, folder: Path = Path("/sys/kernel/btf")) -> Btf | None:
    """A loaded module's BTF, or None if it carries none."""
    path = folder / name
    return Btf(_read(path), base) if path.exists() else None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise HostError(
            f"cannot read {path}: {error.strerror}",
            "the kernel must be built with CONFIG_DEBUG_INFO_BTF; distribution kernels are",
        ) from error
