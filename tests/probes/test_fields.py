"""The table of fields says what the kernels declare and what the programs print."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from pathlib import Path

import pytest
from bbrscope.probes import bbr_versions, fields, known
from bbrscope.probes.attach import Attach, Host
from bbrscope.probes.bbr_layout import is_state
from bbrscope.probes.fields import FIELDS, Field
from bbrscope.probes.printed_rows import IDENTITY
from bbrscope.probes.program import Program

TABLE = Path(fields.__file__).with_name("fields.csv")


def test_every_name_is_declared_once_and_every_word_has_a_meaning() -> None:
    with TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(FIELDS) > 180
    for field in FIELDS.values():
        assert field.text, field.name
        assert field.unit, field.name
        assert field.roles, field.name
        assert set(field.roles) <= fields.ROLES
        assert field.recorded, field.name
        assert set(field.recorded) <= set(fields.ROWS)
        assert field.versions == tuple(v for v in fields.VERSIONS if v in field.versions) != ()
        assert set(field.essential) <= set(field.required) <= set(field.versions)
        assert field.is_text or 1 <= field.bits <= 64


def test_the_versions_are_those_that_have_programs() -> None:
    assert tuple(bbr_versions.VERSIONS) == fields.VERSIONS


def test_what_depends_on_a_field_uses_it() -> None:
    for field in FIELDS.values():
        if field.required:
            assert {"input", "state"} & set(field.roles), field.name
        if "output" in field.roles:
            assert {"entry", "exit"} <= set(field.recorded), field.name


def test_struct_bbr_is_as_the_kernels_types_have_it() -> None:
    """Versions, widths and signs, from the BTF of kernels with v1, v2 and v3."""
    versions = defaultdict(list)
    widths: dict[str, int] = defaultdict(int)
    signed = {}
    for version in fields.VERSIONS:
        for leaf in known.layout(version).leaves:
            if is_state(leaf.path):
                name = leaf.path if leaf.path.startswith("params.") else f"bbr.{leaf.path}"
                versions[name].append(version)
                widths[name] = max(widths[name], leaf.bitfield_size or 8 * leaf.size)
                signed[name] = leaf.signed
    declared = {name: f for name, f in FIELDS.items() if f.group in ("bbr", "params")}
    assert declared.keys() == versions.keys()
    for name, field in declared.items():
        assert list(field.versions) == versions[name], name
        assert field.bits == widths[name], name
        assert field.signed == signed[name] or field.type == "char", name


STRUCTS = {"bbr": ("bbr", 70), "rate_sample": ("rs", 19), "tcp_skb_cb": ("skb", 7)}
WIDTHS = {"char": 8, "u8": 8, "u16": 16, "u32": 32, "u64": 64, "s32": 32, "int": 32, "bool": 1}
WIDTHS |= {"long": 64, "long int": 64, "_Bool": 1}


@pytest.mark.parametrize("struct", STRUCTS)
def test_fields_are_as_wide_as_pahole_printed_them(struct: str, traces: Path) -> None:
    """The widest declaration among the kernels of the reference recordings."""
    table = traces.parent / "reference" / "struct-layouts.csv"
    if not table.is_file():
        pytest.skip(f"no {table}: put the kernels' struct layouts there")
    widths: dict[str, int] = defaultdict(int)
    with table.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["struct"] == struct:
                bare = row["type"].removeprefix("__").partition("[")[0]
                width = int(row["bitfield_size"] or 0) or WIDTHS.get(bare, 0)
                widths[row["field"]] = max(widths[row["field"]], width)
    group, enough = STRUCTS[struct]
    checked = 0
    for field in FIELDS.values():
        width = widths.get(field.path.partition("[")[0], 0)
        if field.group == group and width:
            assert field.bits == width, field.name
            checked += 1
    assert checked >= enough


@pytest.mark.parametrize("version", fields.VERSIONS)
@pytest.mark.parametrize("rung", ["fentry", "tcp_probe"])
def test_the_programs_print_each_field_in_the_rows_that_the_table_names(
    version: str, rung: str
) -> None:
    host = Host(known.layout(version), known.CB, marks=True)
    parameters = ("sk", "rs") if version == "v2" else ("sk", "ack", "flag", "rs")
    program = Program(
        bbr_versions.VERSIONS[version], host, Attach(rung, parameters=parameters)
    ).text()
    printed: dict[str, set[str]] = defaultdict(set)
    tags = set()
    for line in re.findall(r'printf\("#([^"\\]*)\\n"\)', program):
        tag, *names = line.split(",")
        tags.add(tag.rstrip("0123456789"))
        for name in names:
            printed[name].add(tag.rstrip("0123456789"))
    for field in FIELDS.values():
        rows = {row for place in field.recorded for row in fields.ROWS[place]} & tags
        if "head" not in field.recorded and version in field.versions:
            assert printed.pop(field.name, set()) == rows, field.name
    assert set(printed) == {f.name for f in fields.recorded_in("head")}


def test_a_socket_is_identified_by_the_fields_that_the_table_names() -> None:
    identity = {field.name for field in fields.recorded_in("identity")}
    assert {*IDENTITY, "max_header"} == identity


def test_a_field_that_not_every_version_has_says_so() -> None:
    assert FIELDS["bbr.rtt_cnt"].meaning.startswith("v1: ")
    assert FIELDS["bbr.mode"].meaning.startswith("STARTUP 0")


@pytest.mark.parametrize("field", FIELDS.values(), ids=lambda field: field.name)
def test_a_field_has_a_type_that_holds_it(field: Field) -> None:
    if field.is_text:
        with pytest.raises(ValueError, match=field.name):
            _ = field.bits
        return
    bits = 8 * field.storage_bytes
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if field.signed else (0, (1 << bits) - 1)
    assert low <= field.minimum < field.maximum <= high
