"""What bpftrace prints as words is what it prints field by field, of the same memory.

No kernel with BBR v2 or v3 is needed: the kernel's own code, read as if it were sockets, has every
bit set somewhere, and does not change between two rows.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from bbrscope.collect.record.host import bpftrace
from bbrscope.probes import bbr_layout, btf, known, shared_words
from bbrscope.probes.attach import VALUES_ON_STACK, WORDS_ON_STACK, Attach, Host
from bbrscope.probes.bbr_versions import VERSIONS
from bbrscope.probes.fields import FIELDS
from bbrscope.probes.printed_rows import RowPrinter

from tests.collect.record.test_record_host import needs_bpftrace, needs_btf, needs_root
from tests.packed_rows import unpacked

SOCKETS = 60
MOUNTED = 'mount -t tracefs tracefs /sys/kernel/tracing; exec bpftrace -B line "$1"'
READ = """
interval:ms:10
/@{tag} < {count}/
{{
  $sk = (struct sock *)(kaddr("tcp_sendmsg") + @{tag} * 264);
  $tp = (struct tcp_sock *)$sk;
  $icsk = (struct inet_connection_sock *)$sk;
  $rs = (struct rate_sample *)$sk;
  $bbr = (struct bbrscope_bbr *)$sk;
  $words = (struct bbrscope_words *)$bbr;
{rows}
  @{tag} = @{tag} + 1;
}}
"""
END = f"interval:ms:100 /@S >= {SOCKETS} && @Q >= {SOCKETS}/ {{ exit(); }}\n"


def program(version: str) -> tuple[list[str], str]:
    """Header lines and text of a program that prints rows S, packed, and Q, plain, of each."""
    types, layout, fields = btf.load(), known.layout(version), VERSIONS[version]

    def has(struct: str, member: str) -> bool:
        return types.member_offset(struct, member) is not None

    attach = Attach("tcp_probe", jiffies="", clock="nsecs", values_per_row=VALUES_ON_STACK)
    attach = replace(attach, words_per_row=WORDS_ON_STACK)
    printer = RowPrinter(Host(layout, 0, has), attach)
    names = [*fields.rate_sample, *fields.socket, *layout.columns]
    parts = [bbr_layout.definition(layout), shared_words.definition(layout)]
    for tag in ("S", "Q"):  # shared_words.PACKED_ROWS has S
        rows = printer.statements(tag, names, {})
        parts.append(READ.format(tag=tag, count=SOCKETS, rows=rows))
    return [row.header for row in printer.rows], "\n".join([*parts, END])


def rows_of(lines: list[str], letter: str) -> dict[str, dict[str, str]]:
    """Values by socket and field: those of several rows on one socket are put together."""
    heads: dict[str, list[str]] = {}
    found: dict[str, dict[str, str]] = {}
    for line in unpacked(lines):
        tag, *values = line.split(",")
        if tag.startswith("#"):
            heads[tag[1:]] = values
        elif tag in heads and tag.startswith(letter):
            row = dict(zip(heads[tag], values, strict=True))
            del row["ns"]
            found.setdefault(row["sk"], {}).update(row)
    return found


@needs_root
@needs_bpftrace
@needs_btf
@pytest.mark.parametrize("version", VERSIONS)
def test_words_say_what_the_fields_say_by_themselves(version: str, tmp_path: Path) -> None:
    heads, text = program(version)
    path = tmp_path / "words.bt"
    path.write_text(text)
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", MOUNTED, "sh", str(path)],
        env=bpftrace.environment(16 << 20, False),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    lines = [*heads, *done.stdout.splitlines()]
    packed, plain = rows_of(lines, "S"), rows_of(lines, "Q")
    assert len(packed) == len(plain) == SOCKETS, done.stderr
    assert sum(head.count(":") for head in heads if head.startswith("#S")) > 50
    differ = [
        (sk, name, values[name], packed[sk][name])
        for sk, values in plain.items()
        for name in values.keys() - {"sk"}
        if (int(values[name]) - int(packed[sk][name])) % (1 << bits(name))
    ]
    assert not differ
    assert all(values.keys() == packed[sk].keys() for sk, values in plain.items())
    # Memory that says nothing proves nothing: every field has many values.
    for name in {name for values in plain.values() for name in values} - {"sk"}:
        assert len({values[name] for values in packed.values()}) > 1, name


def bits(name: str) -> int:
    """Width of a field. Of a bool, one bit is printed; by itself it is its byte, here any."""
    return FIELDS[name].bits
