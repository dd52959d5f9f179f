"""ingest, runs, sql and schema, as a user types them."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from bbrscope import fixtures
from bbrscope.analyze.bbr.codes import CODES
from bbrscope.analyze.views.registry import TABLES, VIEWS
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect import lab
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.lake.lake_place import open_place
from bbrscope.reports import cli

SPUR = str(fixtures.path("v2_x_spur"))


class Answer(NamedTuple):
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str


class Shell:
    """Runs commands in this process, with a store of its own."""

    def __init__(self, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = store
        self.capsys = capsys

    def __call__(self, *words: str) -> Answer:
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, *([] if words[0] == "schema" else ["--store", str(self.store)])])
        out, err = self.capsys.readouterr()
        return Answer(int(ended.value.code or 0), out, err)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    """A shell without a store yet."""
    return Shell(tmp_path / "test.duckdb", capsys)


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs."""
    path = tmp_path_factory.mktemp("two") / "two.duckdb"
    with open_store(path) as store:
        for name in ("v2_single_1bdp", "v2_x_spur"):
            ingest(store, fixtures.path(name), packets=False)
    return path


@pytest.fixture
def loaded(shell: Shell, two_runs: Path) -> Shell:
    """A shell whose store has two runs."""
    shutil.copy(two_runs, shell.store)
    return shell


def test_ingest_says_what_it_loaded_and_what_is_missing(shell: Shell) -> None:
    first = shell("ingest", SPUR, "--no-packets")
    assert first.status == 0
    assert first.out.startswith("v2_x_spur: v2, 1 flow, 5,266 events")
    assert "capture quality: 1 exits_stop" in first.out
    assert first.err == ""
    again = shell("ingest", SPUR, "--no-packets")
    assert again.out == f"v2_x_spur: already in {shell.store}, nothing changed\n"


def test_ingest_prints_a_command_that_shows_what_is_missing(shell: Shell) -> None:
    line = shell("ingest", SPUR, "--no-packets").out.splitlines()[-1]
    query = line.partition('sql "')[2].rstrip('"')
    found = json.loads(shell("sql", query, "--format", "json").out)
    assert [row["kind"] for row in found] == ["exits_stop"]


def test_ingest_of_nonsense_is_fact_and_way_out_and_leaves_no_store(
    shell: Shell, tmp_path: Path
) -> None:
    answer = shell("ingest", str(tmp_path / "none"))
    assert answer.status == 1
    assert answer.out == ""
    assert answer.err.startswith(f"bbrscope: there is no bundle at {tmp_path / 'none'}\n  a bundle")
    assert not shell.store.exists()
    assert shell("ingest").status == 2
    assert shell("ingest", SPUR, SPUR, "--as", "x").status == 2


def test_runs_lists_for_people_and_programs(loaded: Shell) -> None:
    text = loaded("runs").out
    assert text.splitlines()[0].split()[:3] == ["run", "version", "rung"]
    found = json.loads(loaded("runs", "--format", "json").out)
    assert {row["run"]: row["events"] for row in found} == {
        "v2_single_1bdp": 10602,
        "v2_x_spur": 5266,
    }
    assert "only v2's struct bbr has" in found[0]["decoded_as"]


def test_runs_removes_wholly_or_not_at_all(loaded: Shell) -> None:
    failed = loaded("runs", "--remove", "v2_x_spur", "--remove", "v2_x_spu")
    assert failed.status == 1
    assert "near: v2_x_spur" in failed.err
    assert loaded("runs", "--remove", "v2_x_spur").out == "removed v2_x_spur\n"
    assert [row["run"] for row in json.loads(loaded("runs", "--format", "json").out)] == [
        "v2_single_1bdp"
    ]
    loaded("runs", "--remove", "v2_single_1bdp")
    assert "holds no run" in loaded("runs").out


def test_runs_without_a_store_says_how_to_make_one(shell: Shell) -> None:
    answer = shell("runs")
    assert answer.status == 1
    assert "bbrscope ingest" in answer.err


@pytest.mark.parametrize("words", [["replay"], ["replay", "any"], ["runs", "--remove", "any"]])
def test_what_changes_a_store_makes_none_where_there_is_none(
    words: list[str], shell: Shell, tmp_path: Path
) -> None:
    answer = shell(*words)
    assert answer.status == 1
    assert "there is no store" in answer.err
    assert "bbrscope ingest" in answer.err
    assert not list(tmp_path.glob("*.duckdb"))


def test_sql_reads_from_standard_input(loaded: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT run FROM runs ORDER BY run"))
    assert loaded("sql", "-", "--format", "csv").out == "run\nv2_single_1bdp\nv2_x_spur\n"


@pytest.mark.parametrize(
    ("query", "fact", "way"),
    [
        ("SELECT bbr_mod FROM events", 'Referenced column "bbr_mod" not found', '"bbr_mode"'),
        ("FROM event", "Table with name event does not exist", '"events"'),
        ("SELEC 1", 'syntax error at or near "SELEC"', "bbrscope schema"),
        ("SELECT 'x'::INTEGER", "Could not convert string 'x'", "bbrscope schema"),
        ("FROM read_text('/etc/passwd')", "'read_text'", "only read the store"),
        ("COPY runs TO '/tmp/x.csv'", "COPY is not a query", "only read the store"),
        ("DELETE FROM runs", "DELETE is not a query", "only read the store"),
        ("SET threads = 1", "SET is not a query", "only read the store"),
        ("", "no statements", "SELECT, FROM"),
    ],
)
def test_a_wrong_query_is_explained(query: str, fact: str, way: str, loaded: Shell) -> None:
    answer = loaded("sql", query)
    assert answer.status == 1
    assert answer.out == ""
    first, rest = answer.err.split("\n", 1)
    assert fact in first
    assert way in rest
    assert "Traceback" not in answer.err


def test_sql_leaves_the_store_as_it_is_whatever_the_query(loaded: Shell) -> None:
    """DuckDB itself would replace the file: it may write its own, and WITH may hold COPY."""
    before = loaded.store.read_bytes()
    copy = f"COPY (SELECT 1) TO '{loaded.store}' (USE_TMP_FILE false)"
    for query in (
        copy,
        f"WITH a AS ({copy}) FROM a",
        f"EXPLAIN ANALYZE {copy}",
        f"SELECT 1; {copy}",
    ):
        assert loaded("sql", query).status == 1
        assert loaded.store.read_bytes() == before


def test_sql_stops_early_on_a_query_without_end(loaded: Shell) -> None:
    answer = loaded("sql", "SELECT a.ns FROM events a, events b, events c")
    assert answer.status == 0
    assert answer.out.splitlines()[-1].startswith("... only the first 10,000 rows")


def test_sql_draws_a_plan_whole(loaded: Shell) -> None:
    """As a cell of a table it would be one line, cut."""
    query = "EXPLAIN SELECT kind, count(*) FROM events GROUP BY kind"
    lines = loaded("sql", query).out.splitlines()
    (row,) = json.loads(loaded("sql", query, "--format", "json").out)
    assert lines == row["explain_value"].splitlines()
    assert len(lines) > 10


def test_schema_prints_every_column_and_knows_near_names(shell: Shell) -> None:
    text = shell("schema").out
    for item in (*TABLES, *VIEWS):
        assert f" {item.name}\n" in text
        assert all(f"  {column.name} " in text for column in item.columns)
    found = json.loads(shell("schema", "events", "--format", "json").out)
    assert [row["column"] for row in found][:3] == ["run_id", "flow", "seq"]
    assert all(row["meaning"] for row in found)
    unknown = shell("schema", "event")
    assert (unknown.status, "near: events" in unknown.err) == (1, True)


def test_schema_lists_the_decisions_and_needs_no_store_for_it(shell: Shell) -> None:
    listed = json.loads(shell("schema", "--codes", "--format", "json").out)
    assert {row["code"]: row["name"] for row in listed} == {n: c.name for n, c in CODES.items()}
    text = shell("schema", "--codes").out
    assert all(f"{code.name} ({code.about}; " in text for code in CODES.values())
    assert shell("schema", "events", "--codes").status == 2


def test_schema_of_a_lake_has_its_own_tables_besides(shell: Shell, tmp_path: Path) -> None:
    assert shell("schema", "flow_limits").status == 1
    lake = str(tmp_path / "lake")
    open_place(lake, create=True)
    text = shell("schema", "--store", lake).out
    with open_store(Path(lake), read_only=True) as opened:
        for name in ("events", "findings", "flow_limits", "lake_runs"):
            columns = opened.con.execute(f"DESCRIBE {name}").fetchall()
            described = json.loads(shell("schema", name, "--store", lake, "--format", "json").out)
            assert [(row["column"], row["type"]) for row in described] == [
                column[:2] for column in columns
            ]
            assert f"table {name}\n" in text


def complete(words: str, folder: Path, **variables: str) -> list[str]:
    """Return what bash would offer for the last word."""
    answer = subprocess.run(
        [Path(sys.executable).with_name("bbrscope")],
        env={
            **os.environ,
            "_BBRSCOPE_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
            **variables,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.partition(",")[2] for line in answer.stdout.splitlines() if line]


def test_the_shell_completes_commands_runs_and_tables(two_runs: Path, tmp_path: Path) -> None:
    store = {"BBRSCOPE_STORE": str(two_runs)}
    assert complete("bbrscope inge", tmp_path) == ["ingest"]
    assert complete("bbrscope explain v2_", tmp_path, **store) == ["v2_single_1bdp", "v2_x_spur"]
    assert complete("bbrscope replay v2_x_spur v2_", tmp_path, **store) == ["v2_single_1bdp"]
    assert complete("bbrscope runs --remove v2_x", tmp_path, **store) == ["v2_x_spur"]
    assert complete(f"bbrscope report --store {two_runs} v2_s", tmp_path) == ["v2_single_1bdp"]
    assert complete("bbrscope schema flo", tmp_path)[0] == "flows"
    assert complete("bbrscope explain v2_", tmp_path) == []
    assert complete("bbrscope lab run song-cubic-r", tmp_path) == ["song-cubic-ratchet"]
    assert complete("bbrscope lab run song-cubic --set rt", tmp_path) == ["rtt="]
    assert complete("bbrscope lab run --set rt", tmp_path) == []
    # What a stranger's scenario calls its parameters stays out of the command line.
    own = tmp_path / "own.toml"
    text = (Path(lab.__path__[0]) / "catalogue" / "song-cubic.toml").read_text()
    own.write_text(text.replace("[params]", '[params]\n"rt$(reboot)" = "1"'))
    assert complete("bbrscope lab run ./own.toml --set rt", tmp_path) == ["rtt="]
