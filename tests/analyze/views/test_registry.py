"""What `bbrscope schema` says is what DuckDB has, and every column says what it means."""

from __future__ import annotations

import pytest
from bbrscope.analyze.views.registry import TABLES, VIEWS, relation
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.analyze.views.view import View
from bbrscope.collect.store.schema import Table

ITEMS = (*TABLES, *VIEWS)
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
    item: Table | View, described: dict[str, list[tuple[str, str]]]
) -> None:
    assert described[item.name] == [(column.name, column.type) for column in item.columns]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_every_column_has_a_meaning_and_the_unit_its_name_promises(
    item: Table | View,
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
    assert all(relation(name) is not None for name in names)
    assert relation("nothing") is None
