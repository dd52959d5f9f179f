"""The commands that write, what each finds, and what has to be true when it was killed."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bbrscope.analyze.views.registry import RESULT_TABLES
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.schema.table import CACHE_PREFIX
from bbrscope.collect.store.store import Store

from tests.fuzz.commands import run
from tests.fuzz.inputs import bundle_of

# Rows of an event stream that a recording here has: enough for each command to take a second.
ROWS = 2000
Content = dict[str, object]


@dataclass(frozen=True)
class Case:
    """One command that is killed.

    Attributes:
        name: what it is called.
        words: its command line, in a folder where `before` was run.
        before: command lines that make what it finds.
        content: what there is of results: a result is whole, or not there, or as it was.
        once: it refuses to do again what is done.
        tidy: the command line that clears away, an hour later, what may be another process' work.
    """

    name: str
    words: tuple[str, ...]
    before: tuple[tuple[str, ...], ...]
    content: Callable[[Path], Content]
    once: bool = False
    tidy: tuple[str, ...] = ()


def prepare(folder: Path) -> None:
    """Write the recordings that all cases use."""
    folder.mkdir()
    (folder / "tmp").mkdir()
    for name in ("v2_single_1bdp", "v1_x_lt", "v2_x_spur"):
        bundle_of(folder / name, name, ROWS)


def store_content(folder: Path) -> Content:
    """What a store holds of each run, table by table; {}: there is no store."""
    path = folder / "s.duckdb"
    if not path.exists():
        return {}
    with open_store(path) as store:
        return {
            f"{run}, {what}": _rows(store, run_id, tables)
            for run, run_id in _runs(store)
            for what, tables in _parts(store).items()
        }


def _runs(store: Store) -> list[tuple[str, int]]:
    return store.con.execute("SELECT run, run_id FROM runs ORDER BY ALL").fetchall()


def _parts(store: Store) -> dict[str, list[str]]:
    """The tables of a store in parts that are each written in one transaction per run."""
    found = store.con.execute(
        "SELECT table_name FROM duckdb_tables() JOIN duckdb_columns() USING (table_name)"
        " WHERE column_name = 'run_id' ORDER BY ALL"
    ).fetchall()
    names = [name for (name,) in found if name not in _TIMES]
    results = {table.name for table in RESULT_TABLES}
    stored = [name for name in names if name.startswith(CACHE_PREFIX)]
    return {
        "recorded": [name for name in names if name not in results and name not in stored],
        "replayed": [name for name in names if name in results],
        "stored views": stored,
    }


def _rows(store: Store, run_id: int, tables: list[str]) -> tuple[object, ...] | None:
    """Rows of a run in each table that has some, with a sum over all that they say; None: none."""
    sums = (
        f"SELECT '{name}' AS name, count(*) AS n, bit_xor(hash(x)) FROM"
        f' (SELECT * REPLACE (0 AS run_id) FROM "{name}" WHERE run_id = {run_id}) x'
        for name in tables
    )
    found = store.con.execute(f"FROM ({' UNION ALL '.join(sums)}) WHERE n > 0 ORDER BY name")
    return tuple(found.fetchall()) or None


# It says when something was done, and how long that took.
_TIMES = ("runs", "replays")


def tree_content(folder: Path) -> Content:
    """How many rows each file of an export has, which is whole under its name or the next's."""
    import pyarrow.parquet as pq

    for root in (folder / "lab", folder / ".lab.partial", folder / ".lab.replaced"):
        if (root / "_SUCCESS").is_file():
            files = sorted(root.rglob("*.parquet"))
            return {
                "all": tuple(
                    (str(file.relative_to(root)), pq.read_metadata(file).num_rows) for file in files
                )
            }
    return {}


def file_content(name: str) -> Callable[[Path], Content]:
    """What a file has: its digest, without the day and the time that it may name."""

    def content(folder: Path) -> Content:
        path = folder / name
        if not path.exists():
            return {}
        return {name: hashlib.sha256(path.read_bytes()).hexdigest()}

    return content


def lake_content(folder: Path) -> Content:
    """What a lake holds of each run; {}: there is none."""
    if not (folder / "lake/lake.json").is_file():
        return {}
    with open_store(folder / "lake", read_only=True) as store:
        runs = _runs(store)
        return {
            run: tuple(
                store.con.execute(
                    f"SELECT count(*), bit_xor(hash(x)) FROM {table} x WHERE run_id = {run_id}"
                ).fetchall()
                for table in ("events", "findings", "flow_limits", "packets")
            )
            for run, run_id in runs
        }


STORE = ("--store", "s.duckdb")
_A = ("ingest", *STORE, "--salvage", "v2_single_1bdp")
_B = ("ingest", *STORE, "--salvage", "v1_x_lt", "v2_x_spur")
_REPLAY = ("replay", *STORE)
_ADD = ("lake", "add", "lake", "--salvage", "--jobs", "1", "v2_single_1bdp", "v1_x_lt")
_COMPACT = ("lake", "compact", "lake")
_REMOVE = ("lake", "remove", "lake", "v1_x_lt")


def _export(form: str, name: str) -> tuple[str, ...]:
    return ("export", *STORE, "v2_single_1bdp", "--format", form, "--force", "-o", name)


CASES = (
    Case("first ingest", _A, (), store_content),
    Case("later ingest", _B, (_A, _REPLAY), store_content),
    Case("replay", _REPLAY, (_A, _B), store_content),
    Case(
        "export of Parquet",
        ("export", *STORE, "--format", "parquet", "--views", "--force", "-o", "lab"),
        (_A, _B, _REPLAY, ("export", *STORE, "--format", "parquet", "-o", "lab")),
        tree_content,
    ),
    Case(
        "export of a trace",
        _export("perfetto", "a.pftrace"),
        (_A, _REPLAY),
        file_content("a.pftrace"),
    ),
    Case("export of qlog", _export("qlog", "a.qlog"), (_A, _REPLAY), file_content("a.qlog")),
    Case(
        "report",
        ("report", *STORE, "--force", "-o", "a.html", "v2_single_1bdp"),
        (_A, _REPLAY),
        file_content("a.html"),
    ),
    Case("lake add", _ADD, (), lake_content, tidy=_COMPACT),
    Case("lake compact", _COMPACT, (_ADD,), lake_content, tidy=_COMPACT),
    Case("lake remove", _REMOVE, (_ADD,), lake_content, once=True, tidy=_COMPACT),
    Case("lake remove, merged", _REMOVE, (_ADD, _COMPACT), lake_content, True, _COMPACT),
)


def make(case: Case, recordings: Path, folder: Path) -> None:
    """Make in `folder` what a case finds."""
    shutil.copytree(recordings, folder, symlinks=True)
    for words in case.before:
        do(words, folder)


def do(words: tuple[str, ...], folder: Path) -> None:
    """Run a command line here, in a folder, with its own TMPDIR.

    Raises:
        AssertionError: it failed.
    """
    before = tempfile.tempdir
    try:
        tempfile.tempdir = f"{folder}/tmp"
        with contextlib.chdir(folder):
            done = run(*words)
    finally:
        tempfile.tempdir = before
    # A replay of half a recording has differences, perhaps.
    assert done.is_sound, done
    assert done.status in (0, int(words[0] == "replay")), done
