"""SQL of a user or of a stranger's file reads the store, and does nothing else at all."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.select_only import select, select_where
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BbrscopeError, StoreError

SECRET = "the content of a file of the user's"
SPILT = "written by a query"

# In each, STORE is the store's file, SECRET a file beside it, OUT one that is not there yet.
STATEMENTS = """
COPY (SELECT 'written by a query') TO 'STORE' (USE_TMP_FILE false)
COPY (SELECT 'written by a query') TO 'STORE.wal' (USE_TMP_FILE false)
COPY (SELECT 'written by a query') TO 'STORE.tmp/x' (USE_TMP_FILE false)
COPY (SELECT 'written by a query') TO 'STORE' (FORMAT parquet)
COPY (SELECT 'written by a query') TO 'OUT'
COPY runs TO 'OUT' (FORMAT csv)
COPY runs FROM 'SECRET'
COPY FROM DATABASE test TO temp
EXPORT DATABASE 'OUT'
EXPORT DATABASE 'STORE.tmp'
IMPORT DATABASE 'OUT'
WITH a AS (COPY (SELECT 'written by a query') TO 'STORE' (USE_TMP_FILE false)) FROM a
WITH a AS (COPY (SELECT 'written by a query') TO 'STORE.wal' (USE_TMP_FILE false)) FROM a
WITH a AS (COPY (SELECT 'written by a query') TO 'OUT') FROM a
WITH b AS (SELECT 1), a AS MATERIALIZED (COPY runs TO 'STORE') SELECT * FROM b, a
WITH a AS (INSERT INTO runs (run_id, run) VALUES (9, 'x') RETURNING *) FROM a
WITH a AS (UPDATE runs SET run = 'x' RETURNING *) FROM a
WITH a AS (DELETE FROM runs RETURNING *) FROM a
SELECT (WITH a AS (COPY runs TO 'STORE') SELECT 1 FROM a)
SELECT * FROM (WITH a AS (COPY runs TO 'STORE') FROM a)
FROM runs WHERE run IN (WITH a AS (DELETE FROM runs RETURNING run) FROM a)
EXPLAIN ANALYZE WITH a AS (COPY (SELECT 1) TO 'STORE' (USE_TMP_FILE false)) FROM a
EXPLAIN WITH a AS (COPY (SELECT 1) TO 'STORE' (USE_TMP_FILE false)) FROM a
EXPLAIN ANALYZE COPY (SELECT 'written by a query') TO 'STORE' (USE_TMP_FILE false)
EXPLAIN COPY runs TO 'OUT'
EXPLAIN ANALYZE EXPLAIN ANALYZE COPY (SELECT 1) TO 'STORE' (USE_TMP_FILE false)
EXPLAIN ANALYZE DELETE FROM runs
EXPLAIN (FORMAT json) COPY runs TO 'OUT'
DESCRIBE WITH a AS (COPY runs TO 'STORE') FROM a
SUMMARIZE WITH a AS (COPY runs TO 'STORE') FROM a
FROM query('SELECT 1')
FROM query('COPY (SELECT 1) TO ''STORE'' (USE_TMP_FILE false)')
FROM QUERY('SELECT 1')
FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))
FROM json_execute_serialized_sql(json_serialize_sql('WITH a AS (COPY runs TO ''OUT'') FROM a'))
PRAGMA json_execute_serialized_sql(json_serialize_sql('SELECT 1'))
ATTACH 'OUT' AS other
ATTACH 'STORE' AS other
ATTACH ':memory:' AS other
ATTACH IF NOT EXISTS 'SECRET' AS other (READ_ONLY)
DETACH test
USE memory
INSTALL httpfs
FORCE INSTALL spatial
LOAD httpfs
LOAD 'OUT.duckdb_extension'
UPDATE EXTENSIONS
PRAGMA temp_directory = 'OUT'
PRAGMA version
PRAGMA enable_profiling
PRAGMA profiling_output = 'OUT'
PRAGMA force_checkpoint
PRAGMA import_database('OUT')
SET enable_external_access = true
SET lock_configuration = false
RESET lock_configuration
SET allowed_paths = ['SECRET']
SET GLOBAL allowed_directories = ['/']
SET temp_directory = 'OUT'
SET log_query_path = 'OUT'
SET memory_limit = '1KB'
SET VARIABLE x = 1
SET custom_extension_repository = 'OUT'
CALL enable_logging(storage = 'file', storage_path = 'OUT')
CALL enable_profiling(save_location = 'OUT')
CALL pragma_version()
FROM enable_logging(storage = 'file', storage_path = 'OUT')
FROM enable_profiling(save_location = 'OUT')
FROM disable_logging()
FROM truncate_duckdb_logs()
FROM force_checkpoint()
FROM checkpoint('test')
CHECKPOINT
FORCE CHECKPOINT
VACUUM
ANALYZE
CREATE TABLE x AS SELECT 1
CREATE TEMP TABLE x AS FROM runs
CREATE OR REPLACE TEMP TABLE runs AS SELECT 1
CREATE VIEW x AS FROM runs
CREATE OR REPLACE TEMP VIEW runs AS FROM read_text('SECRET')
CREATE MACRO f() AS 1
CREATE TEMP MACRO f() AS TABLE FROM read_text('SECRET')
CREATE FUNCTION f(x) AS x
CREATE SECRET s (TYPE http)
CREATE PERSISTENT SECRET s (TYPE http)
CREATE SCHEMA x
CREATE SEQUENCE x
CREATE TYPE x AS ENUM ('a')
CREATE INDEX x ON runs (run)
DROP TABLE events
DROP VIEW phases
ALTER TABLE runs RENAME TO x
COMMENT ON TABLE runs IS 'x'
INSERT INTO runs (run_id, run) VALUES (9, 'x') RETURNING *
INSERT INTO meta VALUES ('a', 'b')
UPDATE runs SET run = 'x'
DELETE FROM runs
TRUNCATE runs
MERGE INTO runs USING meta ON true WHEN MATCHED THEN DELETE RETURNING *
BEGIN
COMMIT
PREPARE p AS DELETE FROM runs
EXECUTE p
DEALLOCATE p
SELECT 1; SELECT 2
SELECT 1; DELETE FROM runs
SELECT 1; COPY (SELECT 'written by a query') TO 'STORE' (USE_TMP_FILE false)
SELECT 1 INTO x
SELECT run INTO OUTFILE 'OUT' FROM runs
FROM read_csv('SECRET')
FROM read_csv_auto('SECRET', header = false)
SELECT * FROM read_text('SECRET')
SELECT content FROM read_blob('SECRET')
SELECT content FROM read_blob('STORE')
FROM read_json('SECRET')
FROM read_json_objects('SECRET')
FROM read_ndjson_auto('SECRET')
FROM read_parquet('SECRET')
FROM parquet_scan('SECRET')
FROM parquet_metadata('SECRET')
FROM parquet_schema('SECRET')
FROM parquet_kv_metadata('SECRET')
FROM parquet_bloom_probe('SECRET', 'a', 1)
FROM read_parquet('https://example.org/x.parquet')
FROM read_duckdb('SECRET')
FROM sniff_csv('SECRET')
FROM glob('SECRET')
FROM glob('*')
FROM 'SECRET'
FROM 'SECRET.csv'
SELECT * FROM 'SECRET', runs
SELECT (SELECT content FROM read_text('SECRET'))
SELECT run FROM runs WHERE run = (SELECT content FROM read_text('SECRET'))
SELECT 1 UNION ALL SELECT content FROM read_text('SECRET')
WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a FROM r, read_text('SECRET')) FROM r
SELECT list_transform([1], x -> (SELECT content FROM read_text('SECRET')))
PIVOT (FROM read_text('SECRET')) ON filename IN ('a') USING any_value(content)
PIVOT runs ON run
SELECT getenv('HOME')
FROM which_secret('SECRET', 'http')
FROM duckdb_secrets()
FROM duckdb_logs()
FROM arrow_scan(1, 2, 3)
FROM arrow_scan_dumb(1, 2, 3)
FROM python_arrow_scan(1)
FROM pandas_scan(1)
FROM python_map_function(1)
FROM seq_scan('runs')
FROM register_external_resource('a')
FROM test_all_types()
FROM SECRET_PATH
FROM secret_of_python
"""
LINES = [line for line in STATEMENTS.splitlines() if line]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run."""
    path = tmp_path_factory.mktemp("ingested") / "test.duckdb"
    with open_store(path) as store:
        ingest(store, fixtures.path("v2_x_spur"))
    return path


@pytest.fixture
def folder(ingested: Path, tmp_path: Path) -> Path:
    """A folder with that store, and a file that is none of a query's business."""
    shutil.copy(ingested, tmp_path / "test.duckdb")
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret.csv").write_text(SECRET)
    return tmp_path


@pytest.fixture
def opened(folder: Path) -> Iterator[Store]:
    with open_store(folder / "test.duckdb", read_only=True) as store:
        yield store


def filled(line: str, folder: Path) -> str:
    """A line of `STATEMENTS` with the names of real files."""
    line = line.replace("STORE", str(folder / "test.duckdb"))
    line = line.replace("SECRET", str(folder / "secret"))
    return line.replace("OUT", str(folder / "out"))


def refused(store: Store, query: str) -> bool:
    """Whether a query is refused or fails, and has shown nothing of the secret before."""
    secret_of_python = [SECRET]  # a variable that DuckDB would take for a table
    try:
        shown = select(store.con, query).fetchall()
    except (BbrscopeError, duckdb.Error) as error:
        return SECRET not in str(error)
    return not secret_of_python or not shown


def test_none_of_150_statements_changes_the_store_or_reads_a_file(
    opened: Store, folder: Path
) -> None:
    before = {path.name: digest(path) for path in folder.iterdir()}
    assert len(LINES) >= 150
    ran = [line for line in LINES if not refused(opened, filled(line, folder))]
    assert ran == []
    assert {path.name: digest(path) for path in folder.iterdir()} == before
    assert opened.runs() == ["v2_x_spur"]


def test_the_same_statements_do_harm_where_nothing_holds_them(folder: Path) -> None:
    """The test above can fail: a connection that is read-only, and no more than that, writes files.

    DuckDB up to 2.0.0 wrote over the store itself, even with its access to files turned off.
    """
    worst = next(line for line in LINES if line.startswith("WITH a AS (COPY") and "OUT" in line)
    with duckdb.connect(folder / "test.duckdb", read_only=True) as con:
        con.execute(filled(worst, folder))
    assert SPILT in (folder / "out").read_text()


@pytest.mark.parametrize(
    "query",
    [
        "FROM runs",
        "SELECT count(*) FROM events -- a comment",
        "WITH a AS (SELECT 1 AS x), b AS MATERIALIZED (FROM a) SELECT * FROM a, b;",
        "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM r WHERE a < 3) FROM r",
        "VALUES (1), (2)",
        "TABLE meta",
        "DESCRIBE runs",
        "SHOW TABLES",
        "SUMMARIZE runs",
        "EXPLAIN SELECT 1",
        "explain analyze FROM runs",
        "FROM (DESCRIBE runs)",
        "PIVOT runs ON run IN ('a') USING count(*)",
        "UNPIVOT (SELECT 1 AS a, 2 AS b) ON a, b",
        "SELECT unnest([1, 2]), (SELECT max(run) FROM runs)",
        "SELECT * FROM range(3) AS t(i) ASOF JOIN (SELECT 1 AS i) USING (i)",
        "FROM generate_series(1, 3)",
        "FROM duckdb_columns() LIMIT 1",
        "FROM json_each('[1, 2]')",
        "SELECT 'COPY (SELECT 1) TO x; read_text' AS text",
        "SELECT phase, sum(duration_ns) OVER w FROM phases WINDOW w AS (PARTITION BY flow)",
    ],
)
def test_a_query_that_only_reads_runs(query: str, opened: Store) -> None:
    assert select(opened.con, query).columns


@pytest.mark.parametrize(
    "condition",
    [
        "true) OR (SELECT 1 FROM read_text('SECRET')) IS NULL OR (true",
        "true); COPY (SELECT 1) TO 'STORE' (USE_TMP_FILE false); SELECT (true",
        "true) UNION ALL SELECT content FROM read_text('SECRET') WHERE (true",
        "true) UNION ALL SELECT content FROM (FROM read_text('SECRET')) WHERE (true",
        "run IN (WITH a AS (COPY runs TO 'STORE') FROM a)",
        "(SELECT count(*) FROM glob('*')) > 0",
        "true /*",
        "true, true",
        "",
    ],
)
def test_a_condition_stays_in_its_place_and_only_reads(
    condition: str, opened: Store, folder: Path
) -> None:
    before = digest(folder / "test.duckdb")
    with pytest.raises((BbrscopeError, duckdb.Error)) as raised:
        select_where(opened.con, "run", "runs", filled(condition, folder), "run_id")
    assert SECRET not in str(raised.value)
    assert digest(folder / "test.duckdb") == before


def test_a_condition_may_ask_other_tables(opened: Store) -> None:
    condition = "run_id IN (SELECT run_id FROM events) AND (version = 'v2') -- yes"
    assert select_where(opened.con, "run", "runs", condition, "run_id") == ["v2_x_spur"]


@pytest.mark.parametrize("read_only", [True, False])
def test_every_connection_is_kept_from_files_before_any_sql_runs(
    read_only: bool, folder: Path
) -> None:
    secret = folder / "secret"
    with open_store(folder / "test.duckdb", read_only) as store:
        for query in (
            f"FROM read_text('{secret}')",
            f"COPY (SELECT 1) TO '{folder / 'out'}'",
            f"ATTACH '{folder / 'out'}' AS other",
            "SET enable_external_access = true",
            f"SET allowed_paths = ['{secret}']",
            "LOAD httpfs",
        ):
            with pytest.raises(duckdb.Error):
                store.con.execute(query).fetchall()
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE VIEW more AS FROM read_text('SECRET')", "calls read_text"),
        ("CREATE OR REPLACE VIEW phases AS FROM read_text('SECRET')", "calls read_text"),
        ("CREATE VIEW more AS FROM glob('/*')", "calls glob"),
        ("CREATE VIEW more AS FROM json_execute_serialized_sql('{}')", "json_execute"),
        ("CREATE MACRO f() AS TABLE FROM read_text('SECRET')", "calls read_text"),
        ("CREATE MACRO f(q) AS TABLE FROM query(q)", "calls query"),
        ("CREATE MACRO f() AS (SELECT content FROM read_text('SECRET'))", "calls read_text"),
        ("DROP TABLE runs; CREATE VIEW runs AS SELECT 1 AS run_id, 'x' AS run", "runs is a view"),
        ("DROP TABLE meta; CREATE VIEW meta AS FROM read_csv('SECRET')", "not a store"),
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_strangers_store_that_would_reach_out_is_refused(
    statement: str, words: str, read_only: bool, folder: Path
) -> None:
    path = folder / "test.duckdb"
    with duckdb.connect(path) as con:
        con.execute("DROP VIEW IF EXISTS more")
        if "DROP TABLE runs" in statement:
            for (view,) in con.execute("SELECT view_name FROM duckdb_views").fetchall():
                con.execute(f'DROP VIEW "{view}"')
        try:
            con.execute(filled(statement, folder))
        except duckdb.Error:
            # A view must bind when it is made: what it takes must be there then.
            con.execute(statement.replace("'{}'", "json_serialize_sql('SELECT 1')"))
    with pytest.raises(StoreError, match=words):
        open_store(path, read_only)
    assert os.listdir(folder).count("test.duckdb") == 1


def test_views_of_bbrscopes_own_are_taken(folder: Path) -> None:
    with open_store(folder / "test.duckdb", read_only=True) as store:
        assert store.con.execute("SELECT count(*) FROM phases").fetchall()
