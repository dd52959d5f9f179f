"""A lake says what a store says, opens one run's files for one run, and is never half written."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest
from bbrscope import fixtures
from bbrscope.analyze.lake import fan_out, run_files
from bbrscope.analyze.lake.fleet_examples import EXAMPLES
from bbrscope.analyze.lake.lake_tables import FILED, FILED_VIEW_TABLES, OWN
from bbrscope.analyze.lake.load_runs import AddOptions, Filed, file_bundles
from bbrscope.analyze.lake.run_files import HELD, copy_run
from bbrscope.analyze.replay import keep_results, replay_runs
from bbrscope.analyze.views.asked_runs import for_asked_runs
from bbrscope.analyze.views.registry import VIEWS
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.analyze.views.view import View
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.lake import lake_upkeep
from bbrscope.collect.lake.lake_place import open_place
from bbrscope.collect.store.schema import Table
from bbrscope.collect.store.select_only import select
from bbrscope.probes.base.errors import BbrscopeError, StoreError

NAMES = ("v1_x_lt", "v2_x_spur", "v3_x_tlp5")
BUNDLES = [Path(fixtures.__file__).parent / name for name in NAMES]
# Of tables, of views over them, and of the view whose rows a lake has.
QUESTIONS = (
    "SELECT run, count(*), sum(tp_snd_cwnd), max(bbr_bw_hi_0) FROM events JOIN runs USING (run_id)"
    " GROUP BY run",
    "SELECT run, kind::VARCHAR, count(*) FROM events JOIN runs USING (run_id) GROUP BY ALL",
    "SELECT run, phase, count(*), sum(duration_ns) FROM phases GROUP BY ALL",
    "SELECT run, name, count(*), sum(e0) FROM decision_log GROUP BY ALL",
    "SELECT run, binding, sum(duration_ns) FROM binding GROUP BY ALL",
    "SELECT * EXCLUDE run_id FROM metrics_by_flow",
)


FLOAT = re.compile(r"\d+\.\d+(e[-+]?\d+)?")


def answers(store: Path) -> list[list[str]]:
    with open_store(store, read_only=True) as opened:
        found = [opened.con.execute(query).fetchall() for query in QUESTIONS]
    # Sums of floats differ in the last digit with the order in which threads add them.
    return [
        sorted(repr([f"{x:.12g}" if isinstance(x, float) else x for x in row]) for row in rows)
        for rows in found
    ]


def copy_of(bundle: Path, folder: Path, name: str) -> Path:
    """The same recording as another bundle: its manifest has another name, so another digest."""
    target = folder / name
    shutil.copytree(bundle, target)
    manifest = json.loads((target / "manifest.json").read_text())
    (target / "manifest.json").write_text(json.dumps({**manifest, "name": name}))
    return target


def contents(lake: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in lake.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake") / "lake"
    open_place(folder, create=True)
    filed = file_bundles(str(folder), BUNDLES, AddOptions(host="h 1/ö"))
    assert [(one.run, one.exact, one.already) for one in filed] == [(n, True, False) for n in NAMES]
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "lab.duckdb"
    with open_store(path) as opened:
        for bundle in BUNDLES:
            run_id = ingest(opened, bundle).run_id
            for flows in replay_runs.replay_runs(opened.con, [run_id]):
                keep_results.keep(opened, flows)
    return path


@pytest.fixture
def another(lake: Path, tmp_path: Path) -> Path:
    return shutil.copytree(lake, tmp_path / "lake")


def test_a_lake_says_what_a_store_says_merged_or_not(store: Path, another: Path) -> None:
    said = answers(store)
    assert all(said)
    assert answers(another) == said
    place = open_place(another)
    assert [runs for _, runs in lake_upkeep.compact(place)] == [3]
    assert len(list(another.glob("events/**/*.parquet"))) == 1
    assert list(lake_upkeep.check(place, read=True)) == []
    assert answers(another) == said
    lake_upkeep.remove(place, ["v2_x_spur"])
    with open_store(another, read_only=True) as opened:
        assert sorted(opened.runs()) == ["v1_x_lt", "v3_x_tlp5"]
        assert opened.con.execute("SELECT count(DISTINCT run_id) FROM events").fetchone() == (2,)
    assert list(lake_upkeep.check(place, read=True)) == []


def test_packets_come_along(tmp_path: Path) -> None:
    """The captured recording, in a lake and in a store."""
    bundle = fixtures.path("v2_single_1bdp")
    open_place(tmp_path / "lake", create=True)
    (filed,) = file_bundles(str(tmp_path / "lake"), [bundle], AddOptions())
    assert (filed.refused, filed.exact) == (None, True)
    with open_store(tmp_path / "s.duckdb") as made:
        ingest(made, bundle)
    asked = "SELECT * EXCLUDE run_id FROM packets ORDER BY packet"
    with (
        open_store(tmp_path / "lake", read_only=True) as lake,
        open_store(tmp_path / "s.duckdb", read_only=True) as store,
    ):
        rows = lake.con.execute(asked).fetchall()
        assert rows == store.con.execute(asked).fetchall()
    assert len(rows) > 30_000


def rows_and_files(con: duckdb.DuckDBPyConnection, query: str) -> tuple[int, set[tuple[str, str]]]:
    """How many rows a query has, and table and run of each file that it opened."""
    con.execute("SET enable_profiling = 'no_output'")
    count = con.sql(query).to_arrow_table().num_rows
    plan = con.get_profiling_information()
    return count, set(re.findall(r"/lake/(\w+)/day=[^/]*/host=[^/]*/run=([^/]*)/", plan))


def files_read(con: duckdb.DuckDBPyConnection, query: str) -> set[tuple[str, str]]:
    return rows_and_files(con, query)[1]


def test_a_question_about_one_run_opens_its_files_alone(lake: Path) -> None:
    with open_store(lake, read_only=True) as opened:
        number = opened.run_id("v2_x_spur")
        plan = f"EXPLAIN SELECT count(*) FROM events WHERE run_id = {number}"
        assert "Scanning Files: 1/3" in opened.con.execute(plan).fetchall()[0][1]
        by_number = files_read(
            opened.con, f"SELECT sum(duration_ns) FROM phases r WHERE run_id = {number}"
        )
        by_name = files_read(
            opened.con, "SELECT sum(duration_ns) FROM phases WHERE run = 'v2_x_spur'"
        )
        everything = files_read(opened.con, "SELECT sum(duration_ns) FROM phases")
    assert {table for table, _ in by_number} == {"events", "decisions", "flows"}
    assert {run for _, run in by_number} == {"v2_x_spur"}
    # Of a small table that DuckDB reads first, a name alone does not tell the files.
    assert {run for table, run in by_name if table != "flows"} == {"v2_x_spur"}
    assert {run for table, run in everything if table == "events"} == set(NAMES)


def has_run_id(view: View) -> bool:
    return any(column.name == "run_id" for column in view.columns)


@pytest.fixture(scope="module")
def counted(lake: Path) -> dict[str, int]:
    """How many rows each view has of one run, as DuckDB finds them among all runs' files."""
    with open_store(lake, read_only=True) as opened:
        number = opened.run_id("v2_x_spur")
        return {
            view.name: opened.con.execute(
                f'SELECT count(*) FROM "{view.name}" WHERE run_id = {number}'
            ).fetchall()[0][0]
            for view in filter(has_run_id, VIEWS)
        }


def test_a_session_of_one_run_opens_its_files_alone_for_every_view(
    lake: Path, counted: dict[str, int]
) -> None:
    """Even where DuckDB carries no condition to the files."""
    number_of_files = 0
    with open_store(lake, read_only=True) as opened:
        opened.restrict_to(["v2_x_spur"])
        for view in VIEWS:
            count, read = rows_and_files(opened.con, f'SELECT * FROM "{view.name}"')
            assert {run for _, run in read} <= {"v2_x_spur"}, view.name
            number_of_files += len(read)
            assert counted.get(view.name, count) == count, view.name
        assert set(opened.runs()) == set(NAMES)
        opened.restrict_to(NAMES)
        assert {run for _, run in files_read(opened.con, "FROM events")} == set(NAMES)
    assert number_of_files > len(VIEWS)


def test_a_query_of_one_run_opens_its_files_alone_for_every_view(
    lake: Path, counted: dict[str, int]
) -> None:
    """By `bbrscope sql`, even where DuckDB carries no condition to the files."""
    with open_store(lake, read_only=True) as opened:
        number = opened.run_id("v2_x_spur")
        for view in filter(has_run_id, VIEWS):
            named = any(column.name == "run" for column in view.columns)
            wheres = [f"run_id = {number}", *(["run = 'v2_x_spur'"] if named else [])]
            for where in wheres:
                query = f'SELECT * FROM "{view.name}" WHERE {where}'
                count, read = rows_and_files(opened.con, for_asked_runs(opened, query, {}))
                assert {run for _, run in read} <= {"v2_x_spur"}, query
                assert count == counted[view.name], query


def test_a_lake_is_sealed(lake: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.csv"
    outside.write_text("a\n1\n")
    with open_store(lake, read_only=True) as opened:
        with pytest.raises(BbrscopeError, match="read_csv"):
            select(opened.con, f"FROM read_csv('{outside}')")
        # Not even what does not go through `select` leaves the lake.
        for statement in (
            f"FROM read_csv('{outside}')",
            f"FROM '{lake}/../../{tmp_path.name}/outside.csv'",
            f"COPY (SELECT 1) TO '{tmp_path}/x.csv'",
            "SET enable_external_access = true",
        ):
            with pytest.raises(Exception, match=r"disabled|cannot|Cannot"):
                opened.con.execute(statement)
    with pytest.raises(StoreError, match="is a lake"):
        open_store(lake)


def rows_of(store: Path, run: str, tables: Sequence[Table]) -> dict[str, list[str]]:
    found = {}
    with open_store(store, read_only=True) as opened:
        number = opened.run_id(run)
        for table in tables:
            names = [f'"{column.name}"' for column in table.columns if column.name != "run_id"]
            query = f'SELECT {", ".join(names)} FROM "{table.name}" WHERE run_id = {number}'
            rows = map(repr, opened.con.execute(query).fetchall())
            # The last digit of a sum depends on where DuckDB divides the rows that it adds.
            found[table.name] = sorted(FLOAT.sub(_rounded, row) for row in rows)
    return found


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):.12g}"


def test_a_run_has_the_same_rows_alone_among_others_and_beside_a_broken_bundle(
    store: Path, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = copy_of(BUNDLES[1], tmp_path, "broken")
    events = (broken / "events.csv.zst").read_bytes()
    (broken / "events.csv.zst").write_bytes(events[: len(events) // 2])
    mixed, alone = str(tmp_path / "mixed"), str(tmp_path / "alone")
    for place, bundles in ((mixed, [BUNDLES[0], broken, BUNDLES[2]]), (alone, BUNDLES[2:])):
        # The replay reads a large recording, which the last one passes for, out of its file.
        monkeypatch.setattr(run_files, "HELD", HELD if place == mixed else 1)
        open_place(place, create=True)
        filed = file_bundles(place, bundles, AddOptions())
        assert [one.path for one in filed if one.refused] == [broken] * (place == mixed)
    last = NAMES[2]
    together = rows_of(lake, last, FILED)
    assert sum(map(bool, together.values())) > 8
    assert rows_of(Path(mixed), last, FILED) == together == rows_of(Path(alone), last, FILED)
    assert rows_of(Path(mixed), NAMES[0], FILED) == rows_of(lake, NAMES[0], FILED)
    stored = [table for table in FILED if table not in (*OWN, *FILED_VIEW_TABLES)]
    for run in NAMES:
        found = rows_of(lake, run, stored)
        assert found == rows_of(store, run, stored)
        assert found["events"]


def test_a_run_is_written_as_a_store_has_it(store: Path, lake: Path, tmp_path: Path) -> None:
    with open_store(store, output=tmp_path) as opened:
        for table in ("events", "decisions", "flows", "replays"):
            written = next(lake.glob(f"{table}/**/*.parquet"))
            ours = pq.read_table(written, partitioning=None)
            number = int(ours["run_id"][0].as_py())
            (run,) = (name for name in NAMES if f"run={name}" in str(written))
            path = tmp_path / "theirs.parquet"
            copy_run(opened.con, table, opened.run_id(run), number, path)
            theirs = pq.read_table(path, partitioning=None)
            assert theirs.schema.types == ours.schema.types
            assert theirs.cast(ours.schema).equals(ours), table


def test_adding_again_changes_nothing(lake: Path) -> None:
    before = contents(lake)
    assert all(one.already for one in file_bundles(str(lake), BUNDLES, AddOptions()))
    assert contents(lake) == before


def test_two_bundles_of_one_name_are_two_runs(another: Path, tmp_path: Path) -> None:
    twin = copy_of(BUNDLES[0], tmp_path, "twin")
    manifest = json.loads((twin / "manifest.json").read_text())
    (twin / "manifest.json").write_text(json.dumps({**manifest, "name": "v1_x_lt"}))
    file_bundles(str(another), [twin, tmp_path / "none"], AddOptions(host="h2"))
    with open_store(another, read_only=True) as opened:
        assert sorted(opened.runs()) == sorted([*NAMES, "v1_x_lt@h2"])
        query = "SELECT DISTINCT run FROM metrics_by_flow WHERE run LIKE 'v1%' ORDER BY run"
        assert opened.con.execute(query).fetchall() == [("v1_x_lt",), ("v1_x_lt@h2",)]


def test_damage_is_reported_and_a_manifest_leads_nowhere(another: Path, tmp_path: Path) -> None:
    place = open_place(another)
    (events,) = another.glob("events/**/run=v1_x_lt/**/*.parquet")
    events.write_bytes(events.read_bytes()[:-1] + b"x")
    (phases,) = another.glob("flows/**/run=v3_x_tlp5/**/*.parquet")
    phases.unlink()
    (another / "events" / "stray.parquet").write_bytes(b"")
    faults = " ".join(fault.what for fault in lake_upkeep.check(place, read=True))
    assert "is damaged" in faults
    assert "of run v3_x_tlp5 is missing" in faults
    assert "events/stray.parquet belongs to no run" in faults
    import pyarrow.parquet as pq

    kept = next((another / "manifest").iterdir())
    row = pq.read_table(kept, partitioning=None).to_pylist()[0]
    from bbrscope.collect.lake.lake_manifest import write_rows

    write_rows([{**row, "paths": ["../../x.parquet"] * len(row["paths"])}], kept)
    with pytest.raises(StoreError, match="not as bbrscope writes it"):
        open_store(another, read_only=True)


@pytest.fixture
def many(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "bundles"
    folder.mkdir()
    return [copy_of(BUNDLES[number % 3], folder, f"run{number}") for number in range(4)]


def kill_one_when_there_is_work(lake: Path, pids: Iterator[list[int]]) -> threading.Thread:
    """Kill a worker as soon as one has begun to write a run's events."""

    def wait_and_kill() -> None:
        deadline = time.monotonic() + 120
        for found in pids:
            if found and any(lake.glob(".bbrscope-scratch-*/events-*.parquet")):
                os.kill(found[0], 9)
                return
            assert time.monotonic() < deadline
            time.sleep(0.02)

    thread = threading.Thread(target=wait_and_kill)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_killed_worker_of_a_cluster_costs_nothing(tmp_path: Path, many: list[Path]) -> None:
    from distributed import get_client

    lake = tmp_path / "lake"
    place = open_place(lake, create=True)
    (tmp_path / "broken").mkdir()
    with fan_out.dask_cluster("local:2") as workers:
        processes = list(get_client().run(os.getpid).values())
        assert len(set(processes)) == 2
        killer = kill_one_when_there_is_work(lake, iter(lambda: processes, None))
        bundles = [*many, tmp_path / "broken"]
        filed = list(fan_out.file_all(str(lake), bundles, AddOptions(), workers))
        killer.join()
        assert set(get_client().run(os.getpid).values()) != set(processes)
    assert sorted(one.path for one in filed) == sorted(bundles)
    assert [one.path.name for one in filed if one.refused] == ["broken"]
    assert list(lake_upkeep.check(place, read=True)) == []
    with open_store(lake, read_only=True) as opened:
        assert sorted(opened.runs()) == [f"run{number}" for number in range(4)]


class Dying(Executor):
    """Breaks, as a pool of processes does, with every job that holds the bundle `killer`.

    Jobs that hold the bundle `odd` raise an error that nobody foresaw.
    """

    jobs = 0

    def submit(self, fn: object, /, *args: object, **_: object) -> Future[list[Filed]]:  # type: ignore[override]
        future: Future[list[Filed]] = Future()
        paths = args[1]
        assert isinstance(paths, tuple)
        names = [path.name for path in paths]
        Dying.jobs += 1
        if "killer" in names:
            future.set_exception(BrokenProcessPool("died"))
        elif "odd" in names:
            future.set_exception(ValueError("7 is odd"))
        else:
            future.set_result([Filed(path, path.name) for path in paths])
        return future


def test_a_bundle_that_kills_its_process_is_named_and_the_others_are_filed() -> None:
    paths = [Path(name) for name in ("a", "killer", "b", "c", "odd", "d", "e", "f")]
    Dying.jobs = 0
    filed = list(fan_out.file_all("", paths, AddOptions(), fan_out.Workers(Dying, 1)))
    assert sorted(one.run for one in filed if not one.refused) == ["a", "b", "c", "d", "e", "f"]
    refused = {one.path.name: one.refused for one in filed if one.refused}
    assert sorted(refused) == ["killer", "odd"]
    assert "killer: the process that loads it died 3 times" in refused["killer"].fact
    assert refused["odd"].fact == "odd cannot be filed: ValueError: 7 is odd"
    assert "report it" in refused["odd"].way_out
    # One job of eight, each of them alone, and the killer once more; the odd one is not.
    assert Dying.jobs == 1 + 8 + 1


def test_the_examples_of_its_page_run(lake: Path) -> None:
    page = (Path(__file__).parents[3] / "analyze/lake/README.md").read_text()
    assert all(f"-- {title}\n{query};\n" in page for title, query in EXAMPLES)
    with open_store(lake, read_only=True) as opened:
        found = [select(opened.con, query).fetchall() for _, query in EXAMPLES]
    assert [bool(rows) for rows in found] == [True, True, False]
