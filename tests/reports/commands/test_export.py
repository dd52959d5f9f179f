"""export writes what the store has, whole or not at all, for DuckDB and polars to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import polars
import pytest
from bbrscope import fixtures
from bbrscope.analyze.views import parquet as export
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.reports.cli import cli
from click.testing import CliRunner


@pytest.fixture
def shipped(shipped_path: Path, tmp_path: Path) -> Iterator[Store]:
    """The shipped recordings' store, whose queries may write below the test's folder."""
    with open_store(shipped_path, read_only=True, output=tmp_path) as store:
        yield store


def _ids(store: Store) -> list[int]:
    return [store.run_id(name) for name in store.runs()]


def test_every_table_comes_back_row_by_row(shipped: Store, tmp_path: Path) -> None:
    target = tmp_path / "it's a lab"
    tables, _ = export.exported()
    counts = export.export(shipped.con, target, _ids(shipped), tables)
    runs = dict(shipped.con.execute("SELECT run, run_id FROM runs").fetchall())
    other = duckdb.connect()
    for table in tables:
        stored = shipped.con.execute(f'SELECT count(*) FROM "{table}"').fetchall()[0][0]
        assert counts[table] == stored, table
        read = other.read_parquet(f"{target}/{table}/**/*.parquet", hive_partitioning=True)
        assert read.aggregate("count(*)").fetchall() == [(stored,)], table
        if "run_id" in read.columns and stored:
            pairs = read.select("run", "run_id").distinct().fetchall()
            assert all(runs[run] == run_id for run, run_id in pairs), table
    columns = "run_id, flow, seq, ns, kind, bbr_inflight_hi, exit_snd_cwnd"
    read = other.read_parquet(f"{target}/events/**/*.parquet", hive_partitioning=True)
    events = other.sql(f"SELECT {columns} FROM read ORDER BY ALL")
    assert events.fetchall() == [
        *shipped.con.execute(
            f"SELECT {columns.replace('kind', 'kind::VARCHAR')} FROM events ORDER BY ALL"
        ).fetchall()
    ]


def test_polars_reads_it_as_one_table_with_a_column_run(shipped: Store, tmp_path: Path) -> None:
    export.export(shipped.con, tmp_path / "lab", _ids(shipped), ["events"])
    read = polars.scan_parquet(tmp_path / "lab" / "events").group_by("run").len().collect()
    stored = shipped.con.execute("SELECT run, events FROM runs").fetchall()
    assert dict(read.iter_rows()) == dict(stored)


def test_names_types_and_counts_come_back_in_polars_and_duckdb(tmp_path: Path) -> None:
    """Partitions are escaped and guessed at: a number, and what the lab calls its runs."""
    names = {"007": "v3_x_tlp5", "x.quick+cc=cubic+r1@6.1.0": "v1_x_lt"}
    with open_store(tmp_path / "s.duckdb", output=tmp_path) as store:
        for name, fixture in names.items():
            ingest(store, fixtures.path(fixture), name=name)
        tables, _ = export.exported()
        export.export(store.con, tmp_path / "lab", _ids(store), tables)
        other = duckdb.connect()
        for table in tables:
            stored = store.con.sql(f'FROM "{table}"')
            folder = tmp_path / "lab" / table
            read = polars.scan_parquet(folder).collect()
            again = other.sql(f"FROM '{folder}/**/*.parquet'")
            assert read.height == len(again) == len(stored), table
            kinds = dict(zip(stored.columns, map(str, stored.types), strict=True))
            kinds = {n: "VARCHAR" if k.startswith("ENUM") else k for n, k in kinds.items()}
            found = dict(zip(again.columns, map(str, again.types), strict=True))
            assert {name: found[name] for name in kinds} == kinds, table
            assert {"run", *kinds} >= set(read.columns) >= set(kinds), table
            if "run_id" in kinds and read.height:
                assert read.schema["run"] == polars.String
                assert set(read["run"]) | set(names) == set(names), table
                assert {row[0] for row in again.select("run").fetchall()} == set(read["run"])
        sums = "sum(ns)::DOUBLE, sum(tp_delivered)::DOUBLE, count(exit_ns)"
        counted = store.con.execute(f"SELECT {sums} FROM events").fetchall()[0]
    read = polars.read_parquet(tmp_path / "lab" / "events")
    sums_read = (read["ns"].cast(float).sum(), read["tp_delivered"].sum(), read["exit_ns"].count())
    assert sums_read == pytest.approx(counted)


def test_views_and_chosen_runs_by_the_command(shipped_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "lab"
    args = [
        "export",
        "v2_x_spur",
        "--store",
        str(shipped_path),
        "--format",
        "parquet",
        "-o",
        str(target),
    ]
    said = CliRunner().invoke(cli, [*args, "--only", "phases"], catch_exceptions=False)
    assert said.output.startswith(f"{target}: 1 table of 1 run, ")
    assert [path.name for path in (target / "phases").iterdir()] == ["run=v2_x_spur"]
    with duckdb.connect() as other:
        rows = other.sql(f"SELECT * FROM '{target}/phases/**/*.parquet'").fetchall()
    assert len(rows) > 10
    unknown = CliRunner().invoke(cli, [*args, "--only", "phase"])
    assert unknown.exit_code == 2
    assert "near: phases" in unknown.output


def test_nothing_is_overwritten_unless_forced_and_never_what_is_no_export(
    shipped: Store, tmp_path: Path
) -> None:
    target = tmp_path / "lab"
    export.export(shipped.con, target, _ids(shipped)[:1], ["runs"])
    with pytest.raises(BbrscopeError, match="exists"):
        export.export(shipped.con, target, _ids(shipped), ["runs"])
    assert export.export(shipped.con, target, _ids(shipped), ["runs"], force=True)["runs"] == 4
    assert len(list((target / "runs").iterdir())) == 4
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis").touch()
    with pytest.raises(BbrscopeError, match="no earlier export"):
        export.export(shipped.con, home, _ids(shipped), ["runs"], force=True)
    assert (home / "thesis").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "lab"]


def test_a_failure_leaves_the_old_export_and_no_scraps(shipped: Store, tmp_path: Path) -> None:
    target = tmp_path / "lab"
    export.export(shipped.con, target, _ids(shipped), ["runs"])
    with pytest.raises(BbrscopeError, match="no table or view 'nosuch'"):
        export.export(shipped.con, target, _ids(shipped), ["runs", "nosuch"], force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["lab"]
    assert (target / "runs").is_dir()
    with pytest.raises(BbrscopeError, match="there is no folder"):
        export.export(shipped.con, tmp_path / "no" / "lab", _ids(shipped), ["runs"])


class KilledError(BaseException):
    """Nothing may run after it, as after kill -9."""


@pytest.mark.parametrize("steps", range(7))
def test_an_export_killed_between_any_two_steps_loses_nothing(
    steps: int, shipped: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither then nor by the next one, even if that fails: one whole export is always there."""
    target, ids = tmp_path / "lab", _ids(shipped)
    export.export(shipped.con, target, ids, ["runs"])
    done: list[object] = []

    def until_killed(step: Callable[..., object]) -> Callable[..., object]:
        def called(*args: object, **how: object) -> object:
            if len(done) == steps:
                raise KilledError
            done.append(step)
            return step(*args, **how)

        return called

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", until_killed(Path.rename))
        patched.setattr(export.shutil, "rmtree", until_killed(export.shutil.rmtree))
        with pytest.raises(KilledError):
            export.export(shipped.con, target, ids, ["runs"], force=True)
    assert any((path / "_SUCCESS").is_file() for path in tmp_path.iterdir())
    with pytest.raises(BbrscopeError, match="no table or view"):
        export.export(shipped.con, target, ids, ["nosuch"], force=True)
    assert len(list((target / "runs").iterdir())) == 4
    export.export(shipped.con, target, ids, ["runs"], force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["lab"]


def test_an_export_is_not_put_inside_another(shipped: Store, tmp_path: Path) -> None:
    export.export(shipped.con, tmp_path / "lab", _ids(shipped), ["runs"])
    with pytest.raises(BbrscopeError, match="lies inside the export"):
        export.export(shipped.con, tmp_path / "lab" / "runs" / "x", _ids(shipped), ["runs"])


@pytest.mark.parametrize("target", [".", "/", "..", "lab/..", ""])
def test_a_target_without_a_name_is_refused(target: str, shipped_path: Path) -> None:
    """Nothing could be written aside for it and then renamed."""
    words = ["export", "--store", str(shipped_path), "--format", "parquet", "--force"]
    done = CliRunner().invoke(cli, [*words, "-o", target])
    assert isinstance(done.exception, BbrscopeError)
    assert "does not end in a folder's name" in done.exception.fact


def test_a_table_without_rows_still_tells_its_columns(shipped: Store, tmp_path: Path) -> None:
    run = shipped.run_id("v1_x_lt")
    export.export(shipped.con, tmp_path / "lab", [run], ["packets", "samples"])
    for table in ("packets", "samples"):
        read = duckdb.connect().sql(f"FROM '{tmp_path}/lab/{table}/**/*.parquet'")
        assert read.columns[:2] == ["run", "run_id"]
        assert read.fetchall() == []
