"""Load run bundles into the store: each wholly or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...probes.base.errors import BundleError
from ...probes.base.own_version import own_version
from ...probes.base.plurals import worded
from ..bundle import accounts
from ..bundle.bundle import EVENTS, MANIFEST, QUEUE, SS, Bundle, open_bundle
from ..bundle.quality import CODES, QualityNote, note_of
from ..bundle.recognise import recognise
from ..events import which_bbr as layout
from ..events.flows import flow_rows, retransmits
from ..events.lines.left_out import columns_left_out
from ..events.lines.text_source import SALVAGE
from ..events.read_events import EventReader, is_out_of_order
from ..lab import lab_results as lab
from ..packets.packet_run import add_packets, load_capture, load_packets
from ..samples.queue_samples import queue_rows
from ..samples.sample_run import cut_off, load_log, load_recorded
from ..store.arrow import registered, streamed
from ..store.store import Store
from . import run_facts as facts
from .event_totals import RecordedTotals
from .outcome import Outcome, known_run, outcome, outcome_of
from .recorded_flows import recorded_flows

if TYPE_CHECKING:
    import pyarrow as pa

# Columns of events that loading itself asks for, of a store that is to have only some.
LOADED_BY = frozenset(
    "flow seq ns kind line complete exit_ns new_state tp_snd_una skb_end_seq".split()
)
# Notes on what is there only because it was asked to be salvaged.
SALVAGED = ("cut_off", "bad_row", "unfinished")


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
        return load_capture(store, path, name, replace, progress)
    if kind != "bundle":
        return load_log(store, path, kind, name, replace, progress)
    with open_bundle(path, salvage) as bundle:
        if bundle.manifest.is_unfinished and not salvage:
            raise BundleError(
                f"{bundle.shown} is a recording under way, or its recorder was killed",
                f"wait for its end, or {SALVAGE}",
            )
        run = bundle.manifest.name if name is None else name
        known = known_run(store, bundle.digest)
        if known and (known.run == run or (name is None and not replace)):
            added = packets and add_packets(store, known.run_id, bundle, progress)
            return outcome(store.con, known.run_id, already=not added)
        with store.transaction():
            run_id = store.new_run(run, bundle.shown, replace)
            return _Loader(
                store, bundle, run, run_id, salvage, progress, packets, seen, columns
            ).load()


@dataclass
class _Loader:
    """Writes one bundle inside an open transaction; few rows of a table wait for its end."""

    store: Store
    bundle: Bundle
    run: str
    run_id: int
    salvage: bool
    progress: Callable[[int], None] | None
    packets: bool
    seen: Callable[[pa.RecordBatch], None]
    columns: frozenset[str] | None

    def __post_init__(self) -> None:
        self.con = self.store.con
        self.totals = RecordedTotals()
        self.notes: list[facts.QualityRow] = []

    def load(self) -> Outcome:
        """Write every table of the run."""
        manifest = self.bundle.manifest
        if self.bundle.optional(EVENTS) is None:
            return self._load_without_events()
        path = self.bundle.events
        shown = f"{self.bundle.shown}/{path.name}"
        in_order = self.salvage and is_out_of_order(path, shown)
        reader = EventReader(path, shown, self.salvage, manifest.lost > 0, self.progress, in_order)
        decided = layout.decide(reader.header.columns(), manifest.raw)
        if not self._load_events(reader):
            return self._load_eventless(reader)
        self._load_single_file(reader)
        notes = [*self._judge(reader), *columns_left_out(reader.header, decided.version)]
        self._note(self._rows_of(notes))
        flows = self._load_flows(reader)
        more = self._load_packets()
        declared = manifest.group("constants")
        observed = {name: n for name, n in reader.constants().items() if name not in declared}
        self._add("host_facts", facts.constants(self.run_id, observed))
        self._load_rest()
        more = self._load_samples() or more
        run = {
            "version": decided.version,
            "decoded_as": decided.reason,
            "rung": facts.rung(manifest, reader.kinds()),
            "rows": sum(reader.row_counts.values()),
            "lost_declared": manifest.lost,
            "lost_reported": reader.lost_reported,
            "half_events": sum(note.code == "half_event" for note in notes),
            "salvaged": any(note.code in SALVAGED for note in notes),
        }
        return self._load_run(run, flows, more)

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
        self._load_packets()
        self._load_rest()
        self._note(self._rows_of(accounts.quality_notes(self.bundle.manifest, {})))
        decided = {"decoded_as": "no BBR flow: no kernel events were recorded"}
        if sampled:
            decided = {"decoded_as": "samples of ss: struct bbr was not read", "rung": "inet_diag"}
        totals = dict.fromkeys(("rows", "half_events"), 0) | {"salvaged": False}
        return self._load_run({**decided, **totals}, [], more=True)

    def _load_eventless(self, reader: EventReader) -> Outcome:
        """Write a run of which ss alone saw sockets: filters left them out, or they were idle."""
        self._count_rows(reader)
        if self.bundle.optional(SS) is None:
            raise BundleError(
                f"{reader.shown} has no whole event",
                "record again while BBR connections are sending",
            )
        return self._load_without_events()

    def _load_events(self, reader: EventReader) -> bool:
        """Stream the events into the store, a batch at a time; False where there is none."""
        batches = self._shown(reader.batches())
        first = next(batches, None)
        if first is None:
            return False
        with streamed(self.con, "incoming_events", first.schema, chain([first], batches)):
            self.con.execute(
                "INSERT INTO events BY NAME "
                f"SELECT {self.run_id}::INTEGER AS run_id, * FROM incoming_events"
            )
        return True

    def _shown(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.seen(batch)
            self.totals.add(batch)
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
        counts = dict.fromkeys(said_of, 0) | reader.row_counts | reader.skipped_counts
        for tag, found in counts.items():
            said = said_of.get(tag, 0)
            if found != said:
                wrong.append(worded(CODES["row_count"], tag=tag, found=found, said=said))
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

    def _add(self, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        self.store.waiting.add(self.con, table, rows)

    def _note(self, rows: Iterable[facts.QualityRow]) -> None:
        new = list(rows)
        self.notes += new
        self._add("capture_quality", map(vars, new))

    def _load_flows(self, reader: EventReader) -> list[dict[str, Any]]:
        """Write the flows and their parameters, and return the flows."""
        totals = self.totals
        counted = any(rows.table == "retransmits" for rows in reader.single_rows.values())
        again = retransmits(self.con, self.run_id) if counted else None
        flows = list(flow_rows(self.run_id, reader.flows(), self.bundle, totals.flows, again))
        self._add("flows", flows)
        params = (
            {"run_id": self.run_id, "flow": row["flow"], "ns": row["ns"]}
            | {
                facts.param_column(name): value
                for name, value in row.items()
                if name.startswith("params.")
            }
            for row in reader.params
        )
        self._add("params", params)
        if totals.incomplete and totals.has_exits:
            self._note(facts.missing_exits(self.con, self.run_id))
        self._note(facts.without_init(flows))
        return flows

    def _load_packets(self) -> bool:
        """Write the bundle's packets, if it has any and they are wanted."""
        if not self.packets or self.bundle.packets() is None:
            return False
        self.store.insert_waiting()
        load_packets(self.con, self.run_id, self.bundle, self.progress)
        return True

    def _load_rest(self) -> None:
        manifest, run_id, salvage = self.bundle.manifest, self.run_id, self.salvage
        self._add("host_facts", facts.host_facts(run_id, manifest))
        self._add("accounting", accounts.accounting_rows(run_id, manifest))
        self._add("clocks", ({"run_id": run_id, **vars(c)} for c in manifest.clocks))
        queue = self.bundle.optional(QUEUE)
        if queue is not None:
            shown = f"{self.bundle.shown}/{QUEUE}"
            damage: list[str] = []
            rows = queue_rows(run_id, queue, shown, manifest.clocks, damage if salvage else None)
            self._add("queue_samples", rows)
            self._note(facts.notes_on_run(run_id, cut_off(damage)))
        self._add("attachments", facts.attachments(run_id, self.bundle))

    def _load_samples(self) -> bool:
        """Write what ss showed, if it did; flows that have no events come with it."""
        seen = self.bundle.optional(SS)
        if seen is None:
            return False
        self.store.insert_waiting()
        shown, clocks = f"{self.bundle.shown}/{SS}", self.bundle.manifest.clocks
        notes = load_recorded(self.con, self.run_id, seen, shown, clocks, self.salvage)
        self._note(facts.notes_on_run(self.run_id, notes))
        return True

    def _load_run(
        self, seen: dict[str, Any], flows: Sequence[Mapping[str, Any]], more: bool
    ) -> Outcome:
        """Write the run's own row and the lab's.

        Args:
            seen: what the events say of the run.
            flows: those that have events.
            more: packets or samples were written, which bring flows and notes of their own.
        """
        row = {
            "run_id": self.run_id,
            "run": self.run,
            "bundle_digest": self.bundle.digest,
            **facts.run_facts(self.bundle.manifest),
            **seen,
            **self.totals.of_run(),
            "flows": len(flows),
            "quality_notes": len(self.notes),
            "ingested_by": own_version(),
        }
        self._load_lab(row, flows)
        self._add("runs", [row])
        if not more:
            return outcome_of(row, self.notes)
        self.store.insert_waiting()
        facts.count_more(self.con, self.run_id)
        return outcome(self.con, self.run_id, already=False)

    def _load_lab(self, run: Mapping[str, Any], flows: Sequence[Mapping[str, Any]]) -> None:
        """Write which experiment this is; the flows of both recordings meet by their ports."""
        manifest, bundle = self.bundle.manifest, self.bundle
        if lab.KEY in manifest.raw:
            shown = f"{bundle.shown}/{MANIFEST}"
            its = lab.rows(manifest.raw[lab.KEY], bundle.folder, shown)
        else:
            its = lab.stated(manifest.raw.get("setup"), bundle.folder)
        for table, rows in (
            ("lab_runs", [{**row, "kernel": manifest.text("kernel")} for row in its.runs]),
            ("lab_flows", recorded_flows(its, run, flows)),
            ("lab_intervals", its.intervals),
        ):
            self._add(table, ({"run_id": self.run_id, **row} for row in rows))
