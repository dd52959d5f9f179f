"""The work that a lake needs done of some bundles: bundles in, Parquet and manifest rows out.

It depends on nothing but its arguments and changes nothing but the lake, so that any process on any
host may do it, and may do it again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ...collect.ingest.identify import name_and_digest
from ...collect.ingest.ingest import Outcome, ingest
from ...collect.lake import lake_manifest as manifest
from ...collect.lake.lake_place import LakePlace, open_place, token
from ...collect.store import schema
from ...collect.store.query import Row, one
from ...collect.store.rowsets import insert_into
from ...collect.store.store import quoted
from ...probes.base.errors import BbrscopeError, StoreError
from ...probes.base.scratch import ScratchFolder
from ..diagnosis.engine import Diagnosis, diagnose_together, together
from ..replay import keep_results, replay_runs
from ..views.materialize import narrowed
from ..views.store_with_views import open_store
from .lake_tables import FILED, FLOW_LIMITS, OWN, STORED, STORED_VIEWS, stored_name, views_digest

if TYPE_CHECKING:
    import duckdb

# A group's store is thrown away once its rows are Parquet: they are compressed only where there are
# many, and the disk is not waited for. A worker has one CPU.
_SCRATCH_SETTINGS = (
    "SET checkpoint_threshold = '32MB'",
    "PRAGMA disable_checkpoint_on_shutdown",
    "SET fsync_mode = 'NONE'",
    "SET threads = 1",
)
# Rows of Parquet that are read or left as a whole: a few seconds of a busy flow.
ROW_GROUP = 50_000


@dataclass(frozen=True)
class AddOptions:
    """What holds for all bundles, as `ingest.ingest` takes them, and the host of the runs."""

    host: str = "unknown"
    salvage: bool = False
    packets: bool = True
    kind: str | None = None


@dataclass(frozen=True)
class Filed:
    """What became of one bundle: filed, there `already`, or `refused` for a reason."""

    path: Path
    run: str = ""
    already: bool = False
    events: int = 0
    exact: bool = True
    refused: BbrscopeError | None = None


def file_bundles(lake: str, paths: Sequence[Path], options: AddOptions) -> list[Filed]:
    """Load, replay, diagnose and measure bundles; write their rows, then their manifest rows.

    A bundle that cannot be loaded leaves the others alone; one that the lake has changes nothing.

    Raises:
        BbrscopeError: the lake cannot be written.
    """
    place = open_place(lake)
    results: dict[Path, Filed] = {}
    waiting = []
    known = manifest.known_runs(place)
    for path in paths:
        there = _already(path, options, known)
        if there is None:
            waiting.append(path)
        else:
            results[path] = there
    while waiting:
        with place.scratch() as folder:
            group = _Group(place, folder, options)
            later = group.load(waiting)
            group.work_out()
            results |= group.file()
        waiting = later
    return [results[path] for path in paths]


def _already(path: Path, options: AddOptions, known: set[int]) -> Filed | None:
    """Return what to say of a bundle that is in the lake or cannot be opened; None: of others."""
    try:
        run, digest = name_and_digest(path, options.kind, options.salvage)
    except BbrscopeError as error:
        return Filed(path, refused=error)
    return Filed(path, run, already=True) if manifest.run_id_of(digest) in known else None


@cache
def _empty_store() -> bytes:
    """Return the file of a store with views and no run: making one takes a second."""
    with ScratchFolder() as folder:
        path = folder.path / "empty.duckdb"
        with open_store(path) as store:
            store.con.execute("CHECKPOINT")
        return path.read_bytes()


class _Group:
    """Bundles in one store of their own, which is thrown away."""

    def __init__(self, place: LakePlace, folder: Path, options: AddOptions) -> None:
        self.place, self.folder, self.options = place, folder, options
        self.loaded: dict[Path, Outcome] = {}
        self.results: dict[Path, Filed] = {}
        self.findings: dict[int, list[Row]] = {}
        self.written = folder / "rows"
        self.written.mkdir()
        path = folder / "one.duckdb"
        path.write_bytes(_empty_store())
        self.store = open_store(path, output=self.written)
        for setting in _SCRATCH_SETTINGS:
            self.store.con.execute(setting)

    def load(self, paths: Sequence[Path]) -> list[Path]:
        """Load bundles; return those whose run has the name of another's here."""
        later: list[Path] = []
        options = self.options
        names: set[str] = set()
        for path in paths:
            try:
                outcome = ingest(
                    self.store,
                    path,
                    salvage=options.salvage,
                    packets=options.packets,
                    kind=options.kind,
                )
            except StoreError:
                if not names:
                    raise
                later.append(path)
            except BbrscopeError as error:
                self.results[path] = Filed(path, refused=error)
            else:
                names.add(outcome.run)
                self.loaded[path] = outcome
        return later

    def work_out(self) -> None:
        """Replay what can be replayed, and diagnose what has events."""
        con = self.store.con
        run_ids = sorted({outcome.run_id for outcome in self.loaded.values()})
        for run_id in run_ids:
            try:
                replay_runs.require_callbacks(con, run_id)
            except BbrscopeError:
                continue
            for flows in replay_runs.replay_runs(con, [run_id], workers=1):
                keep_results.keep(self.store, flows)
        for table in (*OWN, *STORED):
            con.execute(table.ddl(temporary=True))
        events = con.execute("SELECT run_id FROM runs WHERE events > 0 ORDER BY run_id").fetchall()
        for group in together(con, [run_id for (run_id,) in events]):
            self._diagnose(group)
        chosen = f"({', '.join(map(str, run_ids)) or 'NULL'})"
        for view in STORED_VIEWS:
            con.execute(f'INSERT INTO "{stored_name(view)}" {narrowed(view, chosen)}')

    def _diagnose(self, run_ids: Sequence[int]) -> None:
        con = self.store.con
        diagnoses = diagnose_together(con, run_ids)
        for run_id, diagnosis in zip(run_ids, diagnoses, strict=True):
            self.findings[run_id] = finding_rows(diagnosis, run_id)
        insert_into(con, OWN[0], chain.from_iterable(self.findings[run_id] for run_id in run_ids))
        con.execute(
            f"INSERT INTO {FLOW_LIMITS.name} SELECT run_id, flow, binding, sum(held_s),"
            " sum(short_bytes) FROM these_short GROUP BY run_id, flow, binding"
        )

    def file(self) -> dict[Path, Filed]:
        """Write the rows of every run into the lake, its manifest row last."""
        counts = _row_counts(self.store.con)
        filed: set[int] = set()
        for path, outcome in self.loaded.items():
            already = outcome.run_id in filed or not self._file_run(outcome.run_id, counts)
            filed.add(outcome.run_id)
            exact = self._exact(outcome.run_id)
            self.results[path] = Filed(path, outcome.run, already, outcome.events, exact)
        self.store.close()
        return self.results

    def _exact(self, run_id: int) -> bool:
        compared, exact = _agreement(self.store.con, run_id)
        return compared == exact

    def _file_run(self, run_id: int, counts: dict[tuple[str, int], int]) -> bool:
        """Write one run; return False if the lake has it."""
        row = self._manifest_row(run_id)
        name = f"{manifest.FOLDER}/{row['run_id']}.parquet"
        tables = [table.name for table in FILED if counts.get((table.name, run_id))]
        row["tables"], row["paths"], row["rows_in"], row["sizes"] = tables, [], [], []
        for table in tables:
            written = self._copy(table, run_id, row["run_id"])
            path = f"{manifest.folder_of(table, row)}/{token()}.parquet"
            row["rows_in"].append(counts[table, run_id])
            row["sizes"].append(written.stat().st_size)
            row["paths"].append(path)
            self.place.publish(written, path)
        row["bytes"] = sum(row["sizes"])
        written = self.written / "manifest.parquet"
        manifest.write_rows([row], written)
        new = self.place.publish_new(written, name)
        if not new:
            # Another process was faster; what it wrote is the same.
            self.place.delete(row["paths"])
        return new

    def _copy(self, table: str, run_id: int, number: int) -> Path:
        written = self.written / f"{table}.parquet"
        self.store.con.execute(
            f'COPY (SELECT * REPLACE ({number}::BIGINT AS run_id) FROM "{table}"'
            f" WHERE run_id = {run_id}) TO {quoted(str(written))}"
            f" (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP})"
        )
        return written

    def _manifest_row(self, run_id: int) -> Row:
        con = self.store.con
        row = one(con, "SELECT * FROM runs WHERE run_id = ?", run_id)
        compared, exact = _agreement(con, run_id)
        findings = self.findings.get(run_id)
        return {
            **row,
            "run_id": manifest.run_id_of(row["bundle_digest"]),
            "day": manifest.day_of(row["started_realtime_ns"]),
            "host": self.options.host,
            "added_ns": time.time_ns(),
            "made_by": f"bbrscope {version('bbrscope')}",
            "schema_version": schema.SCHEMA_VERSION,
            "views": views_digest(),
            "compared": compared,
            "exact": exact,
            "diagnosed": None if findings is None else len(findings),
            "generation": 0,
        }


def _agreement(con: duckdb.DuckDBPyConnection, run_id: int) -> tuple[int, int]:
    compared, exact = con.execute(
        "SELECT coalesce(sum(events), 0)::BIGINT, coalesce(sum(exact), 0)::BIGINT FROM replays"
        " WHERE run_id = ? AND mode = 'step'",
        [run_id],
    ).fetchall()[0]
    return compared, exact


def _row_counts(con: duckdb.DuckDBPyConnection) -> dict[tuple[str, int], int]:
    counts = " UNION ALL ".join(
        f"SELECT '{table.name}', run_id, count(*) FROM \"{table.name}\" GROUP BY run_id"
        for table in FILED
    )
    return {(table, run_id): count for table, run_id, count in con.execute(counts).fetchall()}


def finding_rows(diagnosis: Diagnosis, run_id: int) -> list[Row]:
    """Return a run's findings as rows of table findings."""
    return [
        {
            "run_id": run_id,
            "rank": rank,
            "name": finding.rule.name,
            "title": finding.rule.title,
            "flow": finding.flow,
            "severity": finding.severity,
            "confidence": finding.confidence,
            "cost_s": finding.cost_s,
            "cost_bytes": finding.cost_bytes,
            "t0_ns": finding.t0_ns,
            "t1_ns": finding.t1_ns,
            "numbers": json.dumps(finding.values, default=str),
        }
        for rank, finding in enumerate(diagnosis.findings, 1)
    ]
