"""Keep what a replay found in the store, and say it as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...collect.store.arrow import streamed
from ...collect.store.query import listed
from ..bbr import codes
from ..views.materialize import forget
from .decision_codes import keep_codes
from .flow_replay import Decisions, FlowPart, FlowReplay
from .passes import MODES
from .run_params import as_json

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from ...collect.store.store import Store

# Flows whose results are inserted at once.
FLOWS_AT_ONCE = 50
# Results of runs with so many events in all wait in memory, with 4 kB for 10 events, to be stored
# together.
EVENTS_AT_ONCE = 100_000
_Item = TypeVar("_Item")
_RESULT_TABLES = ("replays", "replay_fields", "decisions", "gaps")


def as_document(replays: Iterable[FlowReplay]) -> dict[str, Any]:
    """One run's agreement as the JSON object that ``bbrscope replay --json`` prints."""
    flows = []
    run = ""
    for replay in replays:
        run = replay.info.run
        for mode in MODES:
            result = replay.passes[mode]
            counts = replay.counts[mode]
            flows.append(
                {
                    "flow": replay.flow,
                    "version": replay.info.version,
                    "flavour": replay.info.flavour,
                    "decoded_as": replay.info.decoded_as,
                    "mode": mode,
                    "events": result.compared,
                    "exact": result.exact,
                    "fields": {
                        name: {"compared": compared, "exact": exact}
                        for name, (compared, exact) in counts.items()
                    },
                    "first_divergence": replay.divergences[mode],
                    "starts_mid_flow": not replay.has_init,
                    "not_replayed": {"pre_init": replay.pre_init},
                    "gaps": [asdict(gap) for gap in replay.gaps],
                    "missing": replay.missing,
                }
            )
    return {"run": run, "flows": flows}


def keep(store: Store, replays: Sequence[FlowReplay]) -> None:
    """Replace what the store holds of the run's replay, in one transaction.

    Call `materialize.materialize_replayed` after the last run: it stores the rows of views of all.
    """
    if not replays:
        return
    with store.transaction() as con:
        _make_room(store, con, [replays[0].info.run_id])
        insert_facts(store, replays)
        found = [decisions for one in replays for decisions in one.decisions]
        insert_decisions(store, [decision_table(found)] if found else [])


def keep_parts(store: Store, parts: Iterator[list[FlowPart]]) -> list[FlowReplay]:
    """The same for a run of which some flows, or parts of one, come at a time; return its flows."""
    parts = filter(None, parts)
    first = next(parts, None)
    if first is None:
        return []
    kept: list[FlowReplay] = []
    with store.transaction() as con:
        _make_room(store, con, [first[0].run_id])
        for some in chain([first], parts):
            kept += _insert_parts(store, some)
    return sorted(kept, key=lambda one: one.flow)


def keep_all(store: Store, runs: Iterable[Iterator[list[FlowPart]]]) -> Iterator[list[FlowReplay]]:
    """The same for many runs; yield the flows of each once it is stored.

    Small ones are stored some at a time: a commit takes as long for one as for all of them. Each
    is there wholly or not at all. If one cannot be replayed, those before it are stored.
    """
    waiting: list[list[FlowPart]] = []
    coming = iter(runs)
    while True:
        try:
            taken, rest = _take(coming)
        except BaseException:
            _keep_waiting(store, waiting)
            raise
        if rest is not None:
            yield from _keep_waiting(store, waiting)
            yield keep_parts(store, chain(taken, rest))
            continue
        waiting += [[part for some in taken for part in some]] if taken else []
        if not taken or _events(waiting) > EVENTS_AT_ONCE:
            yield from _keep_waiting(store, waiting)
        if not taken:
            return


def _take(
    runs: Iterator[Iterator[list[FlowPart]]],
) -> tuple[list[list[FlowPart]], Iterator[list[FlowPart]] | None]:
    """Replay the next run; of a large one only its beginning, and return what yields the rest."""
    taken: list[list[FlowPart]] = []
    rest = next(runs, None)
    for some in rest or ():
        taken.append(some)
        if _events(taken) > EVENTS_AT_ONCE:
            return taken, rest
    return taken, None


def _events(runs: Sequence[Sequence[FlowPart]]) -> int:
    return sum(part.events for parts in runs for part in parts)


def _keep_waiting(store: Store, waiting: list[list[FlowPart]]) -> list[list[FlowReplay]]:
    """Store runs in one transaction and forget them; return their flows."""
    runs, waiting[:] = list(waiting), []
    if not runs:
        return []
    with store.transaction() as con:
        _make_room(store, con, [parts[0].run_id for parts in runs if parts])
        _insert_parts(store, [part for parts in runs for part in parts])
    return [[part.flow for part in parts if part.flow] for parts in runs]


def _make_room(store: Store, con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> None:
    """Delete what an earlier replay of runs found, and what was worked out of it."""
    keep_codes(store)
    for table in _RESULT_TABLES:
        con.execute(f"DELETE FROM {table} WHERE run_id IN {listed(run_ids)}")
    forget(con, run_ids)


def _insert_parts(store: Store, parts: Sequence[FlowPart]) -> list[FlowReplay]:
    """Insert what was found of flows; the store must not have it. Return those that ended."""
    flows = [part.flow for part in parts if part.flow]
    insert_facts(store, flows)
    for some in _together([part.decisions for part in parts if part.decisions]):
        insert_decisions(store, [decision_table(some)])
    return flows


def insert_facts(store: Store, replays: Sequence[FlowReplay]) -> None:
    """Insert what was found of flows, but not their decisions."""
    for some in _together(replays):
        _insert_facts(store, some)


def _together(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Return some at a time: DuckDB plans once for them, and memory holds no more."""
    for start in range(0, len(items), FLOWS_AT_ONCE):
        yield items[start : start + FLOWS_AT_ONCE]


def _insert_facts(store: Store, some: Sequence[FlowReplay]) -> None:
    _insert(store, "replays", _columns(_replay_rows(some)))
    _insert(store, "replay_fields", _columns(_field_rows(some)))
    _insert(store, "gaps", _columns(_gap_rows(some)))


def decision_table(some: Sequence[Decisions]) -> pa.Table:
    """Return decisions as rows of table decisions."""
    import pyarrow as pa

    return pa.concat_tables(pa.table(_decision_columns(one)) for one in some)


def insert_decisions(store: Store, decisions: Sequence[pa.Table]) -> None:
    """Insert rows of several `decision_table`; the store must not have these."""
    import pyarrow as pa

    if decisions:
        _insert(store, "decisions", pa.concat_tables(decisions))


def _insert(store: Store, table: str, columns: dict[str, Any] | pa.Table) -> None:
    import pyarrow as pa

    if not columns:
        return
    rows: pa.Table = pa.table(columns) if isinstance(columns, dict) else columns
    # A table that is registered as it is stays in memory until the transaction ends.
    with streamed(store.con, "incoming", rows.schema, iter(rows.to_batches())):
        store.con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def _replay_rows(replays: Iterable[FlowReplay]) -> list[dict[str, Any]]:
    return [
        {
            "run_id": replay.info.run_id,
            "flow": replay.flow,
            "mode": mode,
            "version": replay.info.version,
            "flavour": replay.info.flavour,
            "first_seq": replay.first_seq,
            "events": result.compared,
            "exact": result.exact,
            "pre_init": replay.pre_init,
            "tail": replay.tail,
            "gaps": len(replay.gaps),
            "missing": ", ".join(replay.missing) or None,
            "first_divergence": json.dumps(replay.divergences[mode])
            if replay.divergences[mode]
            else None,
            "params": as_json(replay.values),
        }
        for replay in replays
        for mode, result in replay.passes.items()
    ]


def _field_rows(replays: Iterable[FlowReplay]) -> list[dict[str, Any]]:
    return [
        {
            "run_id": replay.info.run_id,
            "flow": replay.flow,
            "mode": mode,
            "field": name,
            "compared": compared,
            "exact": exact,
        }
        for replay in replays
        for mode, counts in replay.counts.items()
        for name, (compared, exact) in counts.items()
    ]


def _gap_rows(replays: Iterable[FlowReplay]) -> list[dict[str, Any]]:
    return [
        {"run_id": replay.info.run_id, "flow": replay.flow, **asdict(gap)}
        for replay in replays
        for gap in replay.gaps
    ]


def _decision_columns(decisions: Decisions) -> dict[str, Any]:
    """Columns of table decisions."""
    rows, index = decisions.rows, decisions.rows[:, 0]
    first = np.flatnonzero(np.r_[True, index[1:] != index[:-1]]) if len(index) else index
    lengths = np.diff(np.append(first, len(index)))
    n = len(index)
    return {
        "run_id": np.full(n, decisions.run_id, np.int32),
        "flow": np.full(n, decisions.flow, np.int32),
        "seq": decisions.seq.astype(np.int32),
        "ord": (np.arange(n) - np.repeat(first, lengths)).astype(np.uint16),
        "ns": decisions.ns.astype(np.uint64),
        "code": rows[:, 1].astype(np.uint16),
        **{f"e{i}": rows[:, 2 + i] for i in range(codes.EVIDENCE)},
    }
