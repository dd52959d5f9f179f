"""A store whose tables are not as bbrscope makes them is refused when it is opened, never later."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.catalog_check import check_tables
from bbrscope.collect.store.schema import Column, Table
from bbrscope.probes.base.errors import StoreError


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run."""
    path = tmp_path_factory.mktemp("ingested") / "test.duckdb"
    with open_store(path) as store:
        ingest(store, fixtures.path("v3_x_tlp5"))
    return path


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        ("CREATE MACRO count(x) AS 1", "its macro 'count' stands before"),
        ("CREATE MACRO SUM(x) AS error('x')", "its macro '(?i:sum)' stands before"),
        ("CREATE MACRO range(x) AS TABLE SELECT x", "its macro 'range' stands before"),
        ("DROP TABLE events", "it has no table events"),
        ("DROP TABLE decisions", "it has no table decisions"),
        ("DROP TABLE materialized_runs", "it has no table materialized_runs"),
        ("ALTER TABLE runs DROP run", "table runs there has other columns"),
        ("ALTER TABLE runs ADD more INTEGER", "table runs there has other columns"),
        ("ALTER TABLE flows RENAME flow TO number", "table flows there has other columns"),
        ("ALTER TABLE decisions ALTER run_id TYPE VARCHAR", "table decisions there has other"),
        (
            "CREATE TABLE t AS FROM meta; DROP TABLE meta; INSERT INTO t VALUES ('a', 'b');"
            " CREATE TABLE meta (key VARCHAR, value VARCHAR, of INTEGER AS (length(key)));"
            " INSERT INTO meta (key, value) FROM t",
            "table meta there has other columns",
        ),
        ("UPDATE runs SET run = NULL", "one has none"),
        ("UPDATE runs SET run_id = NULL", "one has none"),
        ("INSERT INTO runs FROM runs", "two runs there have one name"),
        ("INSERT INTO runs BY NAME SELECT 9 AS run_id, run FROM runs", "two runs there have one"),
        ("UPDATE runs SET version = 'v9'", "a run there is of version 'v9'"),
        ("UPDATE meta SET value = 'abc' WHERE key = 'schema_version'", "'abc', which is none"),
        ("UPDATE meta SET value = NULL WHERE key = 'schema_version'", "old schema version 0"),
        ("DELETE FROM meta WHERE key = 'schema_version'", "old schema version 0"),
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_that_lacks_what_every_query_relies_on_is_refused(
    statements: str, words: str, read_only: bool, ingested: Path, tmp_path: Path
) -> None:
    path = tmp_path / "test.duckdb"
    shutil.copy(ingested, path)
    with duckdb.connect(path) as con:
        for statement in statements.split(";"):
            con.execute(statement)
    with pytest.raises(StoreError, match=words):
        open_store(path, read_only)


def test_a_store_with_a_trigger_is_refused(ingested: Path, tmp_path: Path) -> None:
    path = tmp_path / "test.duckdb"
    with duckdb.connect() as con:
        # Files of the version that bbrscope makes cannot hold one.
        con.execute(f"ATTACH '{path}' AS theirs (STORAGE_VERSION 'v2.0.0')")
        con.execute(f"ATTACH '{ingested}' AS ours (READ_ONLY)")
        con.execute("COPY FROM DATABASE ours TO theirs; USE theirs")
        con.execute("CREATE TRIGGER t AFTER INSERT ON runs FOR EACH STATEMENT DELETE FROM events")
    with pytest.raises(StoreError, match="it holds triggers"):
        open_store(path)


def test_a_table_that_duckdb_writes_in_other_words_is_taken() -> None:
    """What counts are its columns, not the text that this version of DuckDB has for them."""
    table = Table("t", "", (Column("a", "INTEGER", "", ""), Column("b", "VARCHAR[]", "", "")))
    with duckdb.connect() as con:
        con.execute("CREATE TABLE t (a INTEGER NOT NULL, b VARCHAR[] DEFAULT ['x'])")
        check_tables(con, Path("s.duckdb"), [table])
