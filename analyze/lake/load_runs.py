"""The work that a lake needs done of some bundles: bundles in, Parquet and manifest rows out.

It depends on nothing but its arguments and changes nothing but the lake, so that any process on any
host may do it, and may do it again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

from ...collect.ingest.identify import name_and_digest
from ...collect.ingest.ingest import ingest
from ...collect.ingest.outcome import Outcome
from ...collect.ingest.worker_shares import size_of
from ...collect.lake import lake_manifest as manifest
from ...collect.lake.lake_place import LakePlace, open_place, token
from ...collect.store import schema
from ...collect.store.query import Row, rows
from ...collect.store.rowsets import insert_into
from ...collect.store.store import Store, quoted
from ...probes.base.errors import BbrscopeError, StoreError
from ...probes.base.own_version import own_version
from ...probes.base.plurals import plural
from ..diagnosis.engine import Diagnosis, diagnose_together
from ..diagnosis.tables import SHARED_PREFIX
from ..replay import keep_results
from ..replay.flow_replay import FlowReplay
from ..replay.flow_rows import FlowRows, rows_at_hand
from ..replay.load_events import flows_of_batches, rows_of_flows
from ..replay.replay_outside import replay_outside
from ..replay.run_info import RunInfo
from ..views.materialize import materialized_name, narrowed
from ..views.runs_together import together
from .lake_tables import FILED, FILED_VIEWS, FLOW_LIMITS, OWN, views_digest
from .run_files import DecisionsFile, EventsFile, copy_run, small_tables, write_run
from .scratch_store import PARTLY_STORED, asked_decisions, event_columns, scratch_store

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# Runs with so many events in all are replayed after one another, with one query for what is known
# of them; their events, some 800 bytes each, are held until then.
REPLAYED_TOGETHER = 45_000
# Runs with so many events in all are diagnosed together, in the memory that a worker's store has.
DIAGNOSED_TOGETHER = 300_000
# So many decisions are inserted at once.
ASKED_TOGETHER = 100_000


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
    samples: int = 0
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
    waiting: dict[Path, _NewBundle] = {}
    known = manifest.known_runs(place)
    for path in paths:
        there = _look(path, options, known)
        if isinstance(there, _NewBundle):
            waiting[path] = there
        else:
            results[path] = there
    while waiting:
        now, waiting = _of_different_names(waiting)
        largest = max(map(size_of, now))
        with (
            place.writing(),
            place.scratch() as folder,
            scratch_store(folder.parent, largest) as store,
        ):
            group = _Group(place, folder, options, store)
            group.load(now)
            group.work_out()
            results |= group.file()
    return [results[path] for path in paths]


@dataclass(frozen=True)
class _NewBundle:
    """A bundle that the lake lacks: its run's name, and its number in the lake."""

    run: str
    number: int


@dataclass(frozen=True)
class _Written:
    """A file of a run's rows of a table, under the number that it has in the lake."""

    path: Path
    number: int
    rows: int


def _of_different_names(
    bundles: Mapping[Path, _NewBundle],
) -> tuple[dict[Path, _NewBundle], dict[Path, _NewBundle]]:
    """Divide bundles into those that one store can hold, and the others."""
    numbers: dict[str, int] = {}
    for bundle in bundles.values():
        numbers.setdefault(bundle.run, bundle.number)
    first = {path: one for path, one in bundles.items() if numbers[one.run] == one.number}
    return first, {path: one for path, one in bundles.items() if path not in first}


def _look(path: Path, options: AddOptions, known: set[int]) -> Filed | _NewBundle:
    """Return what to say of a bundle that is in the lake or cannot be opened; or what it is."""
    try:
        run, digest = name_and_digest(path, options.kind, options.salvage)
    except BbrscopeError as error:
        return Filed(path, refused=error)
    number = manifest.run_id_of(digest)
    return Filed(path, run, already=True) if number in known else _NewBundle(run, number)


class _Group:
    """Bundles in an empty store of their own, whose rows are written in `folder` first."""

    def __init__(self, place: LakePlace, folder: Path, options: AddOptions, store: Store) -> None:
        self.place, self.folder, self.options, self.store = place, folder, options, store
        self.loaded: dict[Path, Outcome] = {}
        self.results: dict[Path, Filed] = {}
        self.written: dict[tuple[str, int], _Written] = {}
        self.unreplayed: dict[int, EventsFile] = {}
        self.replayed: list[FlowReplay] = []
        self.findings: dict[int, list[Row]] = {}
        self.small: dict[str, pa.Table] = {}
        self.agreement: dict[int, tuple[int, int]] = {}
        self.runs: dict[int, Row] = {}

    def load(self, bundles: Mapping[Path, _NewBundle]) -> None:
        """Load bundles of different names."""
        with self.store.joined() as spoilt:
            self._load_each(bundles, spoilt)
        if spoilt():
            self.results, self.loaded, self.written, self.replayed = {}, {}, {}, []
            self.unreplayed = {}
            self._load_each(bundles, lambda: False)

    def _load_each(self, bundles: Mapping[Path, _NewBundle], stop: Callable[[], bool]) -> None:
        for path, bundle in bundles.items():
            try:
                self.loaded[path] = self._load_one(path, bundle.number)
            except BbrscopeError as error:
                if stop():
                    return
                if isinstance(error, StoreError):
                    raise
                self.results[path] = Filed(path, refused=error)
        self._replay_loaded()

    def _load_one(self, path: Path, number: int) -> Outcome:
        """Load a bundle; its events go into their Parquet file at once."""
        options = self.options
        with EventsFile(self.folder / f"events-{number}.parquet", number) as events:
            outcome = ingest(
                self.store,
                path,
                salvage=options.salvage,
                packets=options.packets,
                kind=options.kind,
                seen=events.add_batch,
                columns=event_columns(),
            )
        if not outcome.already:
            self.written["events", outcome.run_id] = _Written(events.path, number, events.rows)
            self.unreplayed[outcome.run_id] = events
        if sum(events.rows for events in self.unreplayed.values()) > REPLAYED_TOGETHER:
            self._replay_loaded()
        return outcome

    def _replay_loaded(self) -> None:
        """Replay the runs loaded since the last time; decisions go into Parquet files as found."""
        self.store.insert_waiting()
        con, events = self.store.con, self.unreplayed
        self.unreplayed = {}
        found = replay_outside(con, [*events], lambda info: _flows(con, info, events[info.run_id]))
        asked: list[pa.Table] = []
        for run_id, parts in groupby(found, lambda part: part.run_id):
            number = events[run_id].number
            with DecisionsFile(self.folder / f"decisions-{number}.parquet", number) as file:
                for part in parts:
                    if part.decisions:
                        decisions = keep_results.decision_table([part.decisions])
                        file.add(decisions)
                        asked.append(asked_decisions(decisions))
                    if part.flow:
                        self.replayed.append(part.flow)
                    if sum(map(len, asked)) > ASKED_TOGETHER:
                        keep_results.insert_decisions(self.store, asked)
                        asked = []
            if file.rows:
                self.written["decisions", run_id] = _Written(file.path, number, file.rows)
        keep_results.insert_decisions(self.store, asked)

    def work_out(self) -> None:
        """Diagnose what has events, and measure all runs."""
        con = self.store.con
        run_ids = sorted({outcome.run_id for outcome in self.loaded.values()})
        keep_results.insert_facts(self.store, self.replayed)
        events = con.execute("SELECT run_id FROM runs WHERE events > 0 ORDER BY run_id").fetchall()
        diagnosed = [run_id for (run_id,) in events]
        for group in together(con, diagnosed, most_events=DIAGNOSED_TOGETHER):
            self._diagnose(group)
            self._measure(group, _shared_views(con))
        if others := sorted(set(run_ids) - set(diagnosed)):
            self._measure(others, {})

    def _measure(self, run_ids: Sequence[int], shared: Mapping[str, str]) -> None:
        """Store the rows of `FILED_VIEWS`; `shared` tables have these runs' rows of some views."""
        chosen = f"({', '.join(map(str, run_ids))})"
        for view in FILED_VIEWS:
            query = narrowed(view, chosen, shared)
            self.store.con.execute(f'INSERT INTO "{materialized_name(view)}" {query}')

    def _diagnose(self, run_ids: Sequence[int]) -> None:
        con = self.store.con
        limits = (
            f"INSERT INTO {FLOW_LIMITS.name} SELECT run_id, flow, binding, sum(held_s),"
            " sum(short_bytes) FROM these_short GROUP BY run_id, flow, binding"
        )
        diagnoses = diagnose_together(con, run_ids, at_tables=lambda: con.execute(limits))
        for run_id, diagnosis in zip(run_ids, diagnoses, strict=True):
            self.findings[run_id] = finding_rows(diagnosis, run_id)
        insert_into(con, OWN[0], chain.from_iterable(self.findings[run_id] for run_id in run_ids))

    def file(self) -> dict[Path, Filed]:
        """Write the rows of every run into the lake, its manifest row last."""
        counts = _row_counts(self.store.con)
        counts |= {key: written.rows for key, written in self.written.items() if written.rows}
        self.small = small_tables(self.store.con, counts)
        self.agreement = _agreement(self.store.con)
        self.runs = {row["run_id"]: row for row in rows(self.store.con, "SELECT * FROM runs")}
        filed: set[int] = set()
        for path, outcome in self.loaded.items():
            already = outcome.run_id in filed or not self._file_run(outcome.run_id, counts)
            filed.add(outcome.run_id)
            compared, exact = self.agreement.get(outcome.run_id, (0, 0))
            agrees = compared == exact
            self.results[path] = Filed(
                path, outcome.run, already, outcome.events, outcome.samples, agrees
            )
        return self.results

    def _file_run(self, run_id: int, counts: dict[tuple[str, int], int]) -> bool:
        """Write one run; return False if the lake has it."""
        row = self._manifest_row(run_id)
        name = f"{manifest.FOLDER}/{row['run_id']}.parquet"
        tables = [table.name for table in FILED if counts.get((table.name, run_id))]
        row["tables"], row["rows_in"], row["sizes"] = tables, [], []
        with self.place.published() as row["paths"]:
            for table in tables:
                written = self._write(table, run_id, row["run_id"], counts[table, run_id])
                row["rows_in"].append(counts[table, run_id])
                row["sizes"].append(written.stat().st_size)
                row["paths"].append(f"{manifest.folder_of(table, row)}/{token()}.parquet")
                self.place.publish(written, row["paths"][-1])
            row["bytes"] = sum(row["sizes"])
            written = self.folder / "manifest.parquet"
            manifest.write_rows([row], written)
            new = self.place.publish_new(written, name)
        if not new:
            # Another process was faster; what it wrote is the same.
            self.place.delete(row["paths"])
        return new

    def _write(self, table: str, run_id: int, number: int, count: int) -> Path:
        """Write a run's rows of a table into a file in the folder."""
        there = self.written.get((table, run_id))
        if there and (there.number, there.rows) == (number, count):
            return there.path
        if table in PARTLY_STORED:
            raise AssertionError(f"{plural(count, 'row')} of {table} of run {number} not filed")
        written = self.folder / f"{table}.parquet"
        if table in self.small:
            write_run(self.small[table], run_id, number, written)
        else:
            copy_run(self.store.con, table, run_id, number, written)
        return written

    def _manifest_row(self, run_id: int) -> Row:
        row = self.runs[run_id]
        compared, exact = self.agreement.get(run_id, (0, 0))
        findings = self.findings.get(run_id)
        return {
            **row,
            "run_id": manifest.run_id_of(row["bundle_digest"]),
            "day": manifest.day_of(row["started_realtime_ns"]),
            "host": self.options.host,
            "added_ns": time.time_ns(),
            "made_by": f"bbrscope {own_version()}",
            "schema_version": schema.SCHEMA_VERSION,
            "views": views_digest(),
            "compared": compared,
            "exact": exact,
            "diagnosed": None if findings is None else len(findings),
            "merges": 0,
        }


def _flows(con: duckdb.DuckDBPyConnection, info: RunInfo, events: EventsFile) -> Iterator[FlowRows]:
    """Yield a run's flows with what the replay reads: of the batches held, or of their file."""
    if events.held is not None:
        for flow, columns in flows_of_batches(events.held):
            yield rows_at_hand(flow, columns)
        return
    source = f"read_parquet({quoted(str(events.path))})"
    for group in info.groups:
        for _, of_flow in rows_of_flows(con, [events.number], group, info.long_flows, source):
            yield of_flow


def _shared_views(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the tables that hold rows of views of the runs last prepared, by the views' names."""
    query = "SELECT table_name FROM duckdb_tables() WHERE temporary AND table_name LIKE ?"
    tables = con.execute(query, [f"{SHARED_PREFIX}%"]).fetchall()
    return {table.removeprefix(SHARED_PREFIX): table for (table,) in tables}


def _agreement(con: duckdb.DuckDBPyConnection) -> dict[int, tuple[int, int]]:
    """Events compared and exact ones of each run that was replayed, step by step."""
    rows = con.execute(
        "SELECT run_id, sum(events)::BIGINT, sum(exact)::BIGINT FROM replays WHERE mode = 'step'"
        " GROUP BY run_id"
    ).fetchall()
    return {run_id: (compared, exact) for run_id, compared, exact in rows}


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
