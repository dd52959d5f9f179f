"""What the schema says is what DuckDB has, and every column says what it means."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.collect import schema
from bbrscope.collect.schema.fields import (
    EVENT_FIELDS,
    EXIT_FIELDS,
    PARAMS,
    Field,
    column_name,
    exit_column_name,
)
from bbrscope.collect.schema.recording import EVENTS, MOVING
from bbrscope.collect.store import open_store

ITEMS = (*schema.TABLES, *schema.VIEWS)
UNITS = {"_ns": "ns", "_us": "us", "_ms": "ms", "_bytes": "bytes", "_pkts": "packets"}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, str]]]:
    path = tmp_path_factory.mktemp("schema") / "empty.duckdb"
    with open_store(path) as store:
        return {
            item.name: [
                (row[0], row[1]) for row in store.con.execute(f'DESCRIBE "{item.name}"').fetchall()
            ]
            for item in ITEMS
        }


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_every_column_is_what_duckdb_has(
    item: schema.Table | schema.View, described: dict[str, list[tuple[str, str]]]
) -> None:
    assert described[item.name] == [(column.name, column.type) for column in item.columns]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_every_column_has_a_meaning_and_the_unit_its_name_promises(
    item: schema.Table | schema.View,
) -> None:
    assert item.meaning.strip()
    for column in item.columns:
        assert column.meaning.strip(), column.name
        for suffix, unit in UNITS.items():
            # A stamp's name may end in its unit where a C bitfield shifts it: us << 3.
            if column.name.endswith(suffix):
                assert column.unit.split(" ")[0] == unit, column.name


def test_names_of_tables_and_views_are_unique() -> None:
    names = [item.name for item in ITEMS]
    assert len(names) == len(set(names))
    assert all(schema.relation(name) is not None for name in names)
    assert schema.relation("nothing") is None


@pytest.mark.parametrize("field", [*EVENT_FIELDS, *EXIT_FIELDS, *PARAMS], ids=lambda f: f.name)
def test_every_kernel_field_has_a_unit_and_a_type_that_holds_it(field: Field) -> None:
    assert field.unit
    bits = 8 * field.storage_bytes
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if field.signed else (0, (1 << bits) - 1)
    assert low <= field.minimum < field.maximum <= high


def test_kernel_names_become_columns_by_one_rule() -> None:
    assert column_name("rs.delivered") == "rs_delivered"
    assert column_name("sk.sk_pacing_rate") == "sk_pacing_rate"
    assert column_name("bbr.bw.s[0].t") == "bbr_bw_s_0_t"
    assert column_name("bbr.extra_acked[1]") == "bbr_extra_acked_1"
    assert column_name("icsk_ca_state") == "icsk_ca_state"
    assert exit_column_name("tp.app_limited") == "exit_app_limited"
    assert exit_column_name("jiffies32") == "exit_jiffies32"


def test_the_columns_that_move_are_columns_of_events() -> None:
    assert {column.name for column in EVENTS.columns} >= MOVING


def test_every_field_of_struct_bbr_fits_the_kernels_own_layout(traces: Path) -> None:
    """The layouts as pahole printed them from the kernels' BTF."""
    table = traces.parent / "reference" / "struct-layouts.csv"
    if not table.is_file():
        pytest.skip(f"no {table}: put the kernels' struct layouts there")
    widths = {"u8": 8, "u16": 16, "u32": 32, "u64": 64, "char": 8}
    declared: dict[str, int] = {}
    for line in table.read_text().splitlines()[1:]:
        _, struct, name, _, _, bits, kind = line.split(",")
        width = int(bits or 0) or widths.get(kind.removesuffix("[2]"), 0)
        if struct == "bbr" and width:
            declared[name] = max(declared.get(name, 0), width)
    checked = 0
    for field in EVENT_FIELDS:
        name = field.name.removeprefix("bbr.").partition("[")[0]
        if field.name.startswith("bbr.") and name in declared:
            assert field.bits == declared[name], field.name
            checked += 1
    assert checked > 70
