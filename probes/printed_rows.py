"""The rows that a program prints: which values, how each is read and how it is written.

Expressions read these variables of a probe's body: $sk, $tp, $icsk and $inet the socket as its
four structs, $bbr its struct bbr, $words the same as 64-bit words, $rs the rate sample, $cb the
packet's struct tcp_skb_cb, $n the number of the event on its socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import bbr_layout as layout
from . import shared_words
from .attach import Attach, Host
from .fields import FIELDS, flat
from .packed_columns import is_packed

# What says who a socket is: names of the table of fields, with their expressions.
IDENTITY = {
    "sport": "$inet->inet_sport",
    "dport": "$sk->__sk_common.skc_dport",
    "daddr": "$sk->__sk_common.skc_daddr",
    "family": "$sk->__sk_common.skc_family",
    "saddr": "$sk->__sk_common.skc_rcv_saddr",
    "saddr6": "ntop(10, $sk->__sk_common.skc_v6_rcv_saddr.in6_u.u6_addr8)",
    "daddr6": "ntop(10, $sk->__sk_common.skc_v6_daddr.in6_u.u6_addr8)",
    "netns": "$sk->__sk_common.skc_net.net->ns.inum",
}
SEQNO = {"seqno": "$n"}
COOKIE = {"sk.cookie": f"$sk->{FIELDS['sk.cookie'].path}"}
MAX_HEADER = {"max_header": "$sk->__sk_common.skc_prot->max_header"}

# What ntop() gives, in words.
TEXT_WORDS = 3

# Groups of fields whose struct a kernel may have without the field.
_STRUCTS = {"tp": "tcp_sock", "sk": "sock", "rs": "rate_sample"}
# Groups of fields whose struct is an argument of what is probed, under the group's name.
_ARGUMENTS = ("sk", "rs")
# Variables that are not called like the group of fields that they hold.
_VARIABLES = {"skb": "cb"}


def conversion(name: str) -> str:
    """printf conversion of a column: hexadecimal where it holds several fields.

    A field that the table does not know is of a patched struct bbr, and printed as u32.
    """
    if is_packed(name):
        return "%llx"
    field = FIELDS.get(name)
    if field is None:
        return "%u"
    if field.is_text:
        return "%s"
    return ("%ll" if field.bits > 32 else "%") + ("d" if field.signed else "u")


def expression(name: str, attach: Attach) -> str:
    """The bpftrace expression that reads a field."""
    group, _, member = name.partition(".")
    if name == "jiffies32":
        return f"(uint32){attach.jiffies}"
    if name == "icsk_ca_state":
        return "$icsk->icsk_ca_state"
    if group == "bbr":
        return f"$bbr->{flat(member)}"
    if group == "params":
        return f"$bbr->{flat(name)}"
    if group in _ARGUMENTS:
        return f"{attach.members_of(group)}->{FIELDS[name].path}"
    return f"${_VARIABLES.get(group, group)}->{FIELDS[name].path}"


def wrap(values: Sequence[str], width: int = 92) -> list[str]:
    """Join expressions with commas into lines of bounded width."""
    lines = [""]
    for value in values:
        if lines[-1] and len(lines[-1]) + len(value) + 2 > width:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + value
    return lines


@dataclass(frozen=True)
class Row:
    """One output line: its tag, the fields by name and the expression of each."""

    tag: str
    names: Sequence[str]
    expressions: Sequence[str]

    @property
    def header(self) -> str:
        """The line that names the columns."""
        return ",".join([f"#{self.tag}", "ns", "sk", *self.names])

    @property
    def format(self) -> str:
        """The printf format of the row, without the newline."""
        formats = [conversion(name) for name in self.names]
        return ",".join([self.tag, "%llu", "%llx", *formats])

    def printf(self, clock: str) -> str:
        """The statement that prints the row."""
        values = ",\n    ".join(wrap([clock, "(uint64)$sk", *self.expressions]))
        return f'  printf("{self.format}\\n",\n    {values});'


class RowPrinter:
    """Writes the statements that print rows, and remembers the rows for the header lines."""

    def __init__(self, host: Host, attach: Attach) -> None:
        self.host = host
        self.attach = attach
        self.rows: list[Row] = []

    def structs(self, version: str) -> list[str]:
        """The definitions of the structs through which the rows read struct bbr of a version."""
        definition = layout.definition(self.host.layout)
        found = [f"// struct bbr of {version}, flat: bw.s[0].t is bw_s_0_t.\n{definition}\n"]
        if self.attach.words_per_row:
            found.append(f"{shared_words.definition(self.host.layout)}\n")
        return found

    def is_readable(self, name: str) -> bool:
        """Whether this kernel's structs have the field."""
        group, _, member = name.partition(".")
        if name == "jiffies32":
            return bool(self.attach.jiffies)
        if name in FIELDS and FIELDS[name].member:
            return True  # every kernel has these
        return group not in _STRUCTS or self.host.has(_STRUCTS[group], member)

    def statements(self, tag: str, names: Sequence[str], extra: dict[str, str]) -> str:
        """The statements that print `extra` (name -> expression) and then the named fields.

        They go into as many rows as needed; fields that this kernel's structs lack are left out.
        """
        fields = {name: expression(name, self.attach) for name in names if self.is_readable(name)}
        packed = self.attach.words_per_row > 0 and tag in shared_words.PACKED_ROWS
        values = shared_words.pack(extra | fields, self.host.layout) if packed else extra | fields
        words = (tag == "M" and self.attach.words_of_main) or self.attach.words_per_row
        most = words if packed else self.attach.values_per_row
        rows = self._split(tag, values, most)
        known = {row.tag for row in self.rows}
        self.rows += [row for row in rows if row.tag not in known]
        if len(rows) == 1:
            return rows[0].printf(self.attach.clock)
        # Between two rows of one event others may run on this CPU for milliseconds: what has the
        # same time belongs together.
        return "\n".join([f"  $at = {self.attach.clock};", *(row.printf("$at") for row in rows)])

    def _split(self, tag: str, values: dict[str, str], most: int) -> list[Row]:
        """Rows of about the same length, none longer than this bpftrace can print."""
        count = max(1, -(-sum(_words(name) for name in values) // most))
        rows = split(tag, values, count)
        while any(len(row.format) + 1 > self.attach.longest_text for row in rows):
            count += 1
            rows = split(tag, values, count)
        return rows


def _words(name: str) -> int:
    """The 64-bit words that a value takes in a row: ntop() gives a family and 16 bytes."""
    return TEXT_WORDS if name in FIELDS and FIELDS[name].is_text else 1


def split(tag: str, values: dict[str, str], count: int) -> list[Row]:
    """`count` rows of about the same number of values; the tags of several are numbered."""
    names, expressions = list(values), list(values.values())
    size = max(1, -(-len(values) // count))
    return [
        Row(
            f"{tag}{number}" if count > 1 else tag,
            names[number * size : (number + 1) * size],
            expressions[number * size : (number + 1) * size],
        )
        for number in range(max(1, -(-len(values) // size)))
    ]
