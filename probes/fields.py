"""Every value that a recording carries, read from one table: fields.csv beside this file.

What the probes print, which columns the store has, what `bbrscope schema` says of them, which of
them the replay needs and what the estimator's records hold all follow from it. Its columns:

==========  ====================================================================================
name        the name in ``events.csv``: `rs.` struct rate_sample and `skb.` struct tcp_skb_cb
            (include/net/tcp.h), `tp.` struct tcp_sock (include/linux/tcp.h), `sk.` struct sock
            (include/net/sock.h), `bbr.` struct bbr (net/ipv4/tcp_bbr.c, tcp_bbr2.c), `params.`
            struct bbr_params, v2's parameters in each socket (tcp_bbr2.c, bbr2_init())
type        the kernel's: u32, s64, u32:3 for a bitfield, bool, char (a letter), or text.
            A bitfield is as wide as its widest declaration among the versions, an enum as wide
            as its values need
unit        of the value
versions    whose probes record it
recorded    in which rows, see `ROWS`
role        input: BBR reads it. output: BBR writes it, outside of its own state. state: struct bbr.
            parameter: tunes BBR. context: for the reader, BBR does not use it. identity: which
            socket, and which of its events
required    versions whose replay cannot do without it
essential   versions whose rules cannot even run on another version's recording without it
all_ones    what a value of nothing but ones means; empty: it has no meaning of its own
member      where in its struct the field is, if not under its own name
meaning     in words
==========  ====================================================================================
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

VERSIONS = ("v1", "v2", "v3")

# Word of the column `recorded` -> tags of the rows that have the field. The tags are described in
# the programs' headers (bbr1.bt).
ROWS: dict[str, tuple[str, ...]] = {
    "head": ("every",),
    "identity": ("I", "N"),
    "cookie": ("X", "T"),
    "main": ("M",),
    "init": ("I",),
    "set_state": ("S",),
    "cwnd_event": ("E",),
    "skb": ("L", "K", "R"),
    "entry": ("M", "I", "IX", "S", "E", "H", "U", "L", "T"),
    "state": ("M", "IX", "S", "E", "H", "U", "L", "T"),
    "exit": ("X", "IX"),
    "params": ("P",),
}
ROLES = frozenset({"input", "output", "state", "parameter", "context", "identity"})

_OTHER_TYPES = {"bool": 1, "char": 8}
# What the kernel itself keeps far below what the type holds. tcp_output.c tcp_sync_mss() stores
# what __tcp_mtu_to_mss() lets through: no more than rx_opt.mss_clamp, a u16. Counts of packets are
# multiplied by it all over: their products fit.
_AT_MOST = {"tp.mss_cache": (1 << 16) - 1}
_TYPE = re.compile(r"([us])(8|16|32|64)(?::(\d+))?")


def flat(path: str) -> str:
    """A member's path as one identifier.

    >>> flat("bw.s[0].t"), flat("pacing_gain")
    ('bw_s_0_t', 'pacing_gain')
    """
    return re.sub(r"[.\[]", "_", path).replace("]", "")


def column_name(recorded: str) -> str:
    """The store's name of a recorded field.

    >>> column_name("bbr.bw.s[0].t"), column_name("sk.sk_pacing_rate")
    ('bbr_bw_s_0_t', 'sk_pacing_rate')
    """
    return flat(recorded.removeprefix("sk.") if recorded.startswith("sk.sk_") else recorded)


def exit_column_name(recorded: str) -> str:
    """The store's name of a field recorded at exit.

    >>> exit_column_name("tp.snd_cwnd"), exit_column_name("sk.sk_pacing_rate")
    ('exit_snd_cwnd', 'exit_sk_pacing_rate')
    """
    return "exit_" + column_name(recorded).removeprefix("tp_")


@dataclass(frozen=True)
class Field:
    """One row of the table; `text` is its column meaning, `meaning` what users read."""

    name: str
    type: str
    unit: str
    versions: tuple[str, ...]
    recorded: tuple[str, ...]
    roles: tuple[str, ...]
    required: tuple[str, ...]
    essential: tuple[str, ...]
    all_ones: str
    member: str
    text: str

    @property
    def group(self) -> str:
        """The struct's prefix: "tp" of tp.lost; "" where the name has none."""
        return self.name.rpartition(".")[0].partition(".")[0]

    @property
    def path(self) -> str:
        """The member's path in its struct.

        >>> FIELDS["tp.lost"].path, FIELDS["skb.lost"].path
        ('lost', 'tx.lost')
        """
        return self.member or self.name.removeprefix(f"{self.group}.")

    @property
    def meaning(self) -> str:
        """What `bbrscope schema` says.

        >>> FIELDS["bbr.bw_lo"].meaning
        'v2, v3: short-term lower bound; all ones: none'
        """
        versions = "" if self.versions == VERSIONS else ", ".join(self.versions) + ": "
        member = f" ({self.member})" if self.member else ""
        all_ones = f"; all ones: {self.all_ones}" if self.all_ones else ""
        return f"{versions}{self.text}{member}{all_ones}"

    @cached_property
    def column(self) -> str:
        """The column's name in the store."""
        return column_name(self.name)

    @cached_property
    def exit_column(self) -> str:
        """The store's column of the value at exit."""
        return exit_column_name(self.name)

    @cached_property
    def record_place(self) -> tuple[str, int]:
        """Name in the estimator's record (analyze/bbr/records.py) and index in its array, or -1.

        A struct minmax counts as its only member, the array s.

        >>> FIELDS["bbr.plb.pause_until"].record_place, FIELDS["bbr.bw.s[2].t"].record_place
        (('plb_pause_until', -1), ('bw_t', 2))
        """
        inner = self.name.removeprefix(f"{self.group}.").replace(".s[", "[")
        match = re.search(r"\[(\d+)\]", inner)
        bare = inner.replace(match[0], "") if match else inner
        return bare.replace(".", "_"), int(match[1]) if match else -1

    @property
    def is_text(self) -> bool:
        """Not a number."""
        return self.type == "text"

    @property
    def signed(self) -> bool:
        """The kernel's type can be negative."""
        return self.type.startswith("s")

    @cached_property
    def bits(self) -> int:
        """Width of the kernel's declaration."""
        if self.type in _OTHER_TYPES:
            return _OTHER_TYPES[self.type]
        match = _TYPE.fullmatch(self.type)
        if match is None:
            raise ValueError(f"{self.name}: no width in type {self.type!r}")
        return int(match[3] or match[2])

    @property
    def storage_bytes(self) -> int:
        """Bytes of the smallest integer type that holds the field."""
        return next(size for size in (1, 2, 4, 8) if self.bits <= 8 * size)

    @property
    def sql_type(self) -> str:
        """The DuckDB type."""
        name = {1: "TINYINT", 2: "SMALLINT", 4: "INTEGER", 8: "BIGINT"}[self.storage_bytes]
        return name if self.signed else "U" + name

    @property
    def maximum(self) -> int:
        """The largest value that the kernel stores, or that its own declaration can hold."""
        return _AT_MOST.get(self.name, int((1 << (self.bits - self.signed)) - 1))

    @property
    def minimum(self) -> int:
        """The smallest value the kernel's own declaration can hold."""
        return -self.maximum - 1 if self.signed else 0


def _read(row: dict[str, str]) -> Field:
    return Field(
        name=row["name"],
        type=row["type"],
        unit=row["unit"],
        versions=tuple(row["versions"].split()),
        recorded=tuple(row["recorded"].split()),
        roles=tuple(row["role"].split()),
        required=tuple(row["required"].split()),
        essential=tuple(row["essential"].split()),
        all_ones=row["all_ones"],
        member=row["member"],
        text=row["meaning"],
    )


def _load() -> dict[str, Field]:
    with Path(__file__).with_name("fields.csv").open(encoding="utf-8", newline="") as file:
        return {row["name"]: _read(row) for row in csv.DictReader(file)}


# All fields, by name, in the table's order.
FIELDS = _load()


def recorded_in(place: str) -> tuple[Field, ...]:
    """The fields of the rows that `place`, a word of `ROWS`, stands for."""
    return tuple(field for field in FIELDS.values() if place in field.recorded)


def with_role(role: str) -> tuple[Field, ...]:
    """The fields of one role."""
    return tuple(field for field in FIELDS.values() if role in field.roles)


# What the table of events has a column for, and what it has at main's or init's exit.
EVENT_FIELDS = tuple(
    field for field in FIELDS.values() if not {"identity", "parameter"} & {*field.roles}
)
EXIT_FIELDS = recorded_in("exit")
SKB = recorded_in("skb")
PARAMS = recorded_in("params")
