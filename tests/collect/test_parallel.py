"""Several processes load what one loads, row for row, and stop where one would stop."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.collect import schema
from bbrscope.collect.bundle import COMPLETE
from bbrscope.collect.errors import BundleError, StoreError
from bbrscope.collect.ingest import ingest
from bbrscope.collect.parallel import Options, ingest_many
from bbrscope.collect.store import open_store


def test_the_store_is_the_same_and_loading_again_changes_nothing(
    shipped_path: Path, tmp_path: Path
) -> None:
    """Compared with the session's store, whose runs were loaded one after the other."""
    paths = [fixtures.path(name) for name in fixtures.names()]
    with open_store(tmp_path / "many.duckdb") as store:
        told = list(ingest_many(store, paths, Options(), 2))
        assert [outcome.run for outcome in told] == list(fixtures.names()) == store.runs()
        assert not any(outcome.already for outcome in told)
        store.con.execute(f"ATTACH '{shipped_path}' AS one (READ_ONLY)")
        analysed = {table.name for table in schema.analysis.TABLES}
        for table in schema.TABLES:
            if table.name in analysed or table.name == "meta":
                continue
            both = [f'SELECT * FROM {place}"{table.name}"' for place in ("", "one.")]
            for left, right in (both, both[::-1]):
                rows = store.con.execute(f"({left}) EXCEPT ALL ({right})").fetchall()
                assert rows == [], table.name
        assert all(outcome.already for outcome in ingest_many(store, paths[:2], Options(), 2))
    assert [path.name for path in tmp_path.iterdir()] == ["many.duckdb"]


def test_the_first_that_fails_ends_it_and_those_before_it_stay(tmp_path: Path) -> None:
    paths = [fixtures.path("v2_x_spur"), tmp_path / "none", fixtures.path("v1_x_lt")]
    with open_store(tmp_path / "s.duckdb") as store:
        with pytest.raises(BundleError, match="there is no bundle") as refused:
            list(ingest_many(store, paths, Options(packets=False), 2))
        assert refused.value.way_out == COMPLETE
        assert store.runs() == ["v2_x_spur"]
    assert [path.name for path in tmp_path.iterdir()] == ["s.duckdb"]


def test_names_that_are_taken_are_refused_or_replaced(tmp_path: Path) -> None:
    other = tmp_path / "v1_x_lt.log"
    other.write_text("1700000000\nESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t bbr cwnd:10\n")
    paths = [other, fixtures.path("v1_x_lt"), other]
    with open_store(tmp_path / "s.duckdb") as store:
        with pytest.raises(StoreError, match="another run called 'v1_x_lt'"):
            list(ingest_many(store, paths, Options(), 2))
        assert [row[0] for row in store.con.execute("SELECT events FROM runs").fetchall()] == [0]
        told = list(ingest_many(store, paths[1:2], Options(replace=True), 2))
        assert (store.runs(), told[0].events) == (["v1_x_lt"], 3857)
        with pytest.raises(StoreError):
            ingest(store, other)
