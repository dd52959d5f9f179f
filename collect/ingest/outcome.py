"""What became of a bundle that was to be loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..events.lines.left_out import LEFT_OUT
from ..store.query import first_row
from ..store.schema.recorded_tables import ROWS_LOST

if TYPE_CHECKING:
    import duckdb

    from ..store.store import Store
    from .run_facts import QualityRow


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


def run_of(store: Store, digest: str) -> tuple[int, str] | None:
    """Return number and name of the run that came from content with this digest, if any."""
    for waiting in store.waiting.of_table("runs"):
        if waiting["bundle_digest"] == digest:
            return waiting["run_id"], waiting["run"]
    row = first_row(store.con, "SELECT run_id, run FROM runs WHERE bundle_digest = ?", digest)
    return (row[0], row[1]) if row else None


def known_run(store: Store, digest: str) -> Outcome | None:
    """Return the run that came from a bundle with these contents, if the store has it."""
    known = run_of(store, digest)
    return stored_outcome(store, known[0], already=True) if known else None


def stored_outcome(store: Store, run_id: int, already: bool) -> Outcome:
    """Return what `outcome` finds, with the rows that still wait for the transaction's end."""
    store.insert_waiting()
    return outcome(store.con, run_id, already)


def outcome_of(run: Mapping[str, Any], notes: Sequence[QualityRow]) -> Outcome:
    """Return what `outcome` finds of a run without packets and samples: by its row and notes."""
    counts = Counter(note.kind for note in notes)
    return Outcome(
        *(run["run"], run["run_id"], False, run["version"], run.get("kernel")),
        *(run["flows"], run["events"], run["rows"], dict(sorted(counts.items()))),
        max(run.get("lost_declared", 0), run.get("lost_reported", 0)),
        rung=run["rung"],
        left_out=tuple(sorted(note.detail for note in notes if note.kind == LEFT_OUT)),
    )


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
