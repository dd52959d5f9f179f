"""Load run bundles into the store: each wholly or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...probes.base.errors import BundleError
from ..bundle import accounts
from ..bundle.bundle import EVENTS, MANIFEST, QUEUE, SS, Bundle, open_bundle
from ..bundle.quality import CODES, QualityNote, note_of
from ..bundle.recognise import recognise
from ..events import which_bbr as layout
from ..events.flows import flow_rows
from ..events.lines.left_out import LEFT_OUT, columns_left_out
from ..events.lines.text_source import SALVAGE
from ..events.read_events import EventReader
from ..lab import lab_results as lab
from ..packets.packet_run import add_packets, load_capture, load_packets
from ..samples.queue_samples import queue_rows
from ..samples.sample_run import cut_off, load_log, load_recorded
from ..store.arrow import registered, streamed
from ..store.limits import limited, write_as_it_fills
from ..store.query import first_row
from ..store.rowsets import insert
from ..store.schema.recorded_tables import ROWS_LOST
from ..store.store import Store
from . import run_facts as facts
from .single_file import note as keep_notes

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# DuckDB holds this much of the file in memory while it loads, whatever the recording's size.
LOAD_MEMORY = "256MB"
# Columns of events that loading itself asks for, of a store that is to have only some.
LOADED_BY = frozenset(
    "flow seq ns kind line complete exit_ns new_state tp_snd_una skb_end_seq".split()
)
# Notes on what is there only because it was asked to be salvaged.
SALVAGED = ("cut_off", "bad_row", "unfinished")


@dataclass(frozen=True)
class Outcome:
    """What became of one bundle; `already` if the store had it, with nothing changed.

    `sources`: ss, kernel_log, tcp_info; `left_out`: what cannot be told without which columns.
    """

    run: str
    run_id: int
    already: bool
    version: str | None
    kernel: str | None
    flows: int
    events: int
    rows: int
    notes: dict[str, int]
    lost: int
    packets: int = 0
    mains: int = 0
    matched: int = 0
    samples: int = 0
    sources: tuple[str, ...] = ()
    rung: str | None = None
    left_out: tuple[str, ...] = ()


def ingest(
    store: Store,
    path: Path,
    name: str | None = None,
    replace: bool = False,
    salvage: bool = False,
    progress: Callable[[int], None] | None = None,
    packets: bool = True,
    kind: str | None = None,
    seen: Callable[[pa.RecordBatch], None] = lambda batch: None,
    columns: frozenset[str] | None = None,
) -> Outcome:
    """Load what is at `path` into the store, wholly or not at all.

    Args:
        store: opened for writing.
        path: a bundle (folder or ``.tar.zst``); or a packet capture, a log of ``ss -tin`` or a
            kernel's log, which make runs of what is in them.
        name: name of the run instead of the bundle's own.
        replace: replace a run of that name that came from another bundle.
        salvage: keep the whole events of a damaged event stream.
        progress: called with the compressed bytes of event stream and packets read so far.
        packets: dissect the packet capture, if the bundle has one and tshark is there. A bundle
            that was loaded without gets its packets when it is loaded again.
        kind: one of `recognise.KINDS`, instead of what the content looks like.
        seen: called with each batch of a bundle's events on its way into the store.
        columns: those of events that the store has (None: all), `LOADED_BY` among them.

    Raises:
        BundleError: the bundle is missing, foreign, damaged, or says something impossible.
        StoreError: the name is taken, or the file cannot be written.
    """
    kind = recognise(path, kind)
    if kind == "pcap":
        return outcome(store.con, *load_capture(store, path, name, replace, progress))
    if kind != "bundle":
        return outcome(store.con, *load_log(store, path, kind, name, replace, progress))
    with open_bundle(path, salvage) as bundle:
        if bundle.manifest.is_unfinished and not salvage:
            raise BundleError(
                f"{bundle.shown} is a recording under way, or its recorder was killed",
                f"wait for its end, or {SALVAGE}",
            )
        run = bundle.manifest.name if name is None else name
        known = _known(store.con, bundle.digest)
        if known and (known.run == run or (name is None and not replace)):
            added = packets and add_packets(store, known.run_id, bundle, progress)
            return outcome(store.con, known.run_id, already=not added)
        with store.transaction() as con:
            run_id = store.new_run(run, bundle.shown, replace)
            return _Loader(
                con, bundle, run, run_id, salvage, progress, packets, seen, columns
            ).load()


@dataclass
class _Loader:
    """Writes one bundle inside an open transaction."""

    con: duckdb.DuckDBPyConnection
    bundle: Bundle
    run: str
    run_id: int
    salvage: bool
    progress: Callable[[int], None] | None
    packets: bool
    seen: Callable[[pa.RecordBatch], None]
    columns: frozenset[str] | None

    def load(self) -> Outcome:
        """Write every table of the run."""
        manifest = self.bundle.manifest
        if self.bundle.optional(EVENTS) is None:
            return self._load_without_events()
        reader = EventReader(
            self.bundle.events,
            f"{self.bundle.shown}/{self.bundle.events.name}",
            self.salvage,
            manifest.lost > 0,
            self.progress,
        )
        decided = layout.decide(reader.header.columns(), manifest.raw)
        self._load_events(reader)
        self._load_single_file(reader)
        notes = [*self._judge(reader), *columns_left_out(reader.header, decided.version)]
        insert(self.con, "capture_quality", (vars(row) for row in self._rows_of(notes)))
        self._load_flows(reader)
        if self.packets:
            load_packets(self.con, self.run_id, self.bundle, self.progress)
        declared = manifest.group("constants")
        observed = {name: n for name, n in reader.constants().items() if name not in declared}
        insert(self.con, "host_facts", facts.constants(self.run_id, observed))
        self._load_rest()
        self._load_samples()
        self._load_run(
            {
                "version": decided.version,
                "decoded_as": decided.reason,
                "rung": facts.rung(manifest, reader.kinds()),
                "rows": sum(reader.row_counts.values()),
                "lost_declared": manifest.lost,
                "lost_reported": reader.lost_reported,
                "half_events": sum(note.code == "half_event" for note in notes),
                "salvaged": any(note.code in SALVAGED for note in notes),
            }
        )
        return outcome(self.con, self.run_id, already=False)

    def _load_without_events(self) -> Outcome:
        """Write a run of samples (rung inet_diag), or one of the lab in which no flow had BBR."""
        self._load_samples()
        samples = self.con.execute("SELECT 1 FROM samples WHERE run_id = ? LIMIT 1", [self.run_id])
        sampled = samples.fetchall() != []
        if not sampled and lab.KEY not in self.bundle.manifest.raw:
            raise BundleError(
                f"{self.bundle.shown}/{SS} has no sample of a BBR socket",
                "record again while BBR connections are sending",
            )
        if self.packets:
            load_packets(self.con, self.run_id, self.bundle, self.progress)
        self._load_rest()
        notes = accounts.quality_notes(self.bundle.manifest, {})
        insert(self.con, "capture_quality", (vars(row) for row in self._rows_of(notes)))
        decided = {"decoded_as": "no BBR flow: no kernel events were recorded"}
        if sampled:
            decided = {"decoded_as": "samples of ss: struct bbr was not read", "rung": "inet_diag"}
        totals = dict.fromkeys(("rows", "half_events"), 0) | {"salvaged": False}
        self._load_run({**decided, **totals})
        facts.without_events(self.con, self.run_id)
        return outcome(self.con, self.run_id, already=False)

    def _load_events(self, reader: EventReader) -> None:
        """Stream the events into the store; DuckDB pulls one batch at a time."""
        batches = self._shown(reader.batches())
        first = next(batches, None)
        if first is None:
            raise BundleError(
                f"{reader.shown} has no whole event",
                "record again while BBR connections are sending",
            )
        write_as_it_fills(self.con)
        with (
            limited(self.con, memory_limit=LOAD_MEMORY),
            streamed(self.con, "incoming_events", first.schema, chain([first], batches)),
        ):
            self.con.execute(
                "INSERT INTO events BY NAME "
                f"SELECT {self.run_id}::INTEGER AS run_id, * FROM incoming_events"
            )

    def _shown(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.seen(batch)
            if self.columns is None:
                yield batch
            else:
                yield batch.select([name for name in batch.schema.names if name in self.columns])

    def _load_single_file(self, reader: EventReader) -> None:
        """Store the rows that stand alone, now that all flows are known."""
        for rows in reader.single_rows.values():
            for batch in rows.batches(self.run_id, reader.flow_of):
                with registered(self.con, "incoming_rows", batch):
                    self.con.execute(f"INSERT INTO {rows.table} BY NAME FROM incoming_rows")

    def _judge(self, reader: EventReader) -> list[QualityNote]:
        """Check the rows against the manifest; complete the notes."""
        manifest = self.bundle.manifest
        notes = list(reader.notes)
        if manifest.lost:
            notes.append(note_of("lost_declared", count=manifest.lost))
        notes += accounts.quality_notes(manifest, manifest.rows or reader.row_counts)
        notes += self._count_rows(reader)
        admitted = manifest.rows is not None or manifest.lost or reader.lost_reported
        if reader.first_unpaired and not admitted and not self.salvage:
            line, words = reader.first_unpaired
            raise BundleError(
                f"{reader.shown}, line {line}: {words}, and neither the manifest nor the "
                "recording tells of lost rows",
                SALVAGE,
            )
        return notes

    def _count_rows(self, reader: EventReader) -> list[QualityNote]:
        """Compare rows by tag with the manifest: fewer or more means that the file was changed."""
        if self.bundle.manifest.rows is None:
            return []
        wrong = []
        said_of = self.bundle.manifest.rows
        absent = (tag for tag in said_of if tag not in reader.header.skipped)
        counts = dict.fromkeys(absent, 0) | reader.row_counts
        for tag, found in counts.items():
            said = said_of.get(tag, 0)
            if found != said:
                wrong.append(CODES["row_count"].format(tag=tag, found=found, said=said))
        if wrong and not self.salvage:
            place = ""
            if reader.first_unpaired:
                line, words = reader.first_unpaired
                place = f"; line {line}: {words}"
            raise BundleError(
                f"{reader.shown} is not as it was recorded: {'; '.join(wrong)}{place}", SALVAGE
            )
        return [QualityNote("row_count", words) for words in wrong]

    def _rows_of(self, notes: list[QualityNote]) -> Iterator[facts.QualityRow]:
        for note in notes:
            yield facts.QualityRow(
                self.run_id,
                note.flow,
                note.seq,
                note.line,
                note.ns,
                note.code,
                note.detail,
            )

    def _load_flows(self, reader: EventReader) -> None:
        counted = any(rows.table == "retransmits" for rows in reader.single_rows.values())
        flows = flow_rows(self.con, self.run_id, reader.flows(), self.bundle, counted)
        insert(self.con, "flows", flows)
        params = (
            {"run_id": self.run_id, "flow": row["flow"], "ns": row["ns"]}
            | {
                facts.param_column(name): value
                for name, value in row.items()
                if name.startswith("params.")
            }
            for row in reader.params
        )
        insert(self.con, "params", params)
        self.con.execute(facts.MISSING_EXITS, {"run_id": self.run_id})
        self.con.execute(facts.NO_INIT, {"run_id": self.run_id})

    def _load_rest(self) -> None:
        manifest, run_id, salvage = self.bundle.manifest, self.run_id, self.salvage
        insert(self.con, "host_facts", facts.host_facts(run_id, manifest))
        insert(self.con, "accounting", accounts.accounting_rows(run_id, manifest))
        insert(self.con, "clocks", ({"run_id": run_id, **vars(c)} for c in manifest.clocks))
        queue = self.bundle.optional(QUEUE)
        if queue is not None:
            shown = f"{self.bundle.shown}/{QUEUE}"
            damage: list[str] = []
            rows = queue_rows(run_id, queue, shown, manifest.clocks, damage if salvage else None)
            insert(self.con, "queue_samples", rows)
            keep_notes(self.con, run_id, cut_off(damage))
        insert(self.con, "attachments", facts.attachments(run_id, self.bundle))

    def _load_samples(self) -> None:
        """Write what ss showed; flows that have no events come with it."""
        manifest, run_id = self.bundle.manifest, self.run_id
        seen = self.bundle.optional(SS)
        if seen is not None:
            shown = f"{self.bundle.shown}/{SS}"
            notes = load_recorded(self.con, run_id, seen, shown, manifest.clocks, self.salvage)
            keep_notes(self.con, run_id, notes)

    def _load_run(self, seen: dict[str, Any]) -> None:
        """Write the run's own row: `found` is what the events say of it."""
        manifest = self.bundle.manifest
        row = {
            "run_id": self.run_id,
            "run": self.run,
            "bundle_digest": self.bundle.digest,
            **facts.run_facts(manifest),
            **seen,
            "ingested_by": version("bbrscope"),
        }
        insert(self.con, "runs", [row])
        self.con.execute(facts.RUN_TOTALS, {"run_id": self.run_id})
        self._load_lab()

    def _load_lab(self) -> None:
        """Write which experiment this is; the flows of both recordings meet by their ports."""
        manifest, bundle = self.bundle.manifest, self.bundle
        if lab.KEY in manifest.raw:
            shown = f"{bundle.shown}/{MANIFEST}"
            its = lab.rows(manifest.raw[lab.KEY], bundle.folder, shown)
        else:
            its = lab.stated(manifest.raw.get("setup"), bundle.folder)
        for table, rows in (
            ("lab_runs", [{**row, "kernel": manifest.text("kernel")} for row in its.runs]),
            ("lab_flows", its.flows),
            ("lab_intervals", its.intervals),
        ):
            insert(self.con, table, ({"run_id": self.run_id, **row} for row in rows))
        self.con.execute(facts.LAB_FLOWS, {"run_id": self.run_id})


def _known(con: duckdb.DuckDBPyConnection, digest: str) -> Outcome | None:
    """Return the run that came from a bundle with these contents, if the store has it."""
    row = first_row(con, "SELECT run_id FROM runs WHERE bundle_digest = ?", digest)
    return outcome(con, row[0], already=True) if row else None


def outcome(con: duckdb.DuckDBPyConnection, run_id: int, already: bool) -> Outcome:
    """Return what the store has of a run, as one that was just loaded."""
    row = first_row(
        con,
        f"SELECT run, rung, version, kernel, flows, events, rows, {ROWS_LOST} FROM runs"
        " WHERE run_id = ?",
        run_id,
    )
    assert row is not None  # the caller has just found or written it
    run, rung, label, kernel, flows, events, rows, lost = row
    kinds = con.execute(
        "SELECT kind, count(*), list_sort(list(detail)) FROM capture_quality WHERE run_id = ?"
        " GROUP BY kind ORDER BY kind",
        [run_id],
    ).fetchall()
    counts = {kind: count for kind, count, _ in kinds}
    left_out = tuple(text for kind, _, all_of in kinds if kind == LEFT_OUT for text in all_of)
    captured = con.execute(
        "SELECT coalesce(sum(packets), 0), coalesce(sum(mains), 0), coalesce(sum(mains_matched), 0)"
        " FROM captures WHERE run_id = ?",
        [run_id],
    ).fetchall()[0]
    samples, sources = con.execute(
        "SELECT count(*), list_sort(list(DISTINCT source)) FROM samples WHERE run_id = ?", [run_id]
    ).fetchall()[0]
    return Outcome(
        *(run, run_id, already, label, kernel, flows, events, rows, counts, lost),
        *(*captured, samples, tuple(sources or ()), rung, left_out),
    )
