"""Keep what a replay found in the store, and say it as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ...collect.store.arrow import streamed
from ...collect.store.query import listed
from ..bbr import codes
from ..views.materialize import forget
from .decision_codes import keep_codes
from .passes import MODES
from .replay_runs import FlowReplay
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
                    "gaps": [gap_document(replay, gap.index) for gap in replay.gaps],
                    "missing": replay.missing,
                }
            )
    return {"run": run, "flows": flows}


def gap_document(replay: FlowReplay, index: int) -> dict[str, Any]:
    """One gap: after which event, until when, and what gives it away."""
    columns = replay.places
    gap = next(gap for gap in replay.gaps if gap.index == index)
    following = min(index + 1, len(columns["ns"]) - 1)
    return {
        "seq": int(columns["seq"][index]),
        "ns": int(columns["ns"][index]),
        "next_ns": int(columns["ns"][following]),
        "line": int(columns["line"][index]),
        "kind": gap.kind,
        "detail": gap.detail,
    }


def keep(store: Store, replays: Sequence[FlowReplay]) -> None:
    """Replace what the store holds of the run's replay, in one transaction.

    Call `materialize.materialize_replayed` after the last run: it stores the rows of views of all.
    """
    keep_parts(store, iter([list(replays)] if replays else []))


def keep_parts(store: Store, parts: Iterator[list[FlowReplay]]) -> list[FlowReplay]:
    """The same for a run of which some flows come at a time; return all, without decisions."""
    first = next(parts, None)
    if first is None:
        return []
    kept: list[FlowReplay] = []
    with store.transaction() as con:
        _make_room(store, con, [first[0].info.run_id])
        for part in chain([first], parts):
            insert_results(store, part)
            kept += map(without_decisions, part)
    return kept


def keep_all(
    store: Store, runs: Iterable[Iterator[list[FlowReplay]]]
) -> Iterator[list[FlowReplay]]:
    """The same for many runs; yield each, without decisions, once it is stored.

    Small ones are stored some at a time: a commit takes as long for one as for all of them. Each
    is there wholly or not at all. If one cannot be replayed, those before it are stored.
    """
    waiting: list[list[FlowReplay]] = []
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
        waiting += [[flow for part in taken for flow in part]] if taken else []
        if not taken or _events(waiting) > EVENTS_AT_ONCE:
            yield from _keep_waiting(store, waiting)
        if not taken:
            return


def _take(
    runs: Iterator[Iterator[list[FlowReplay]]],
) -> tuple[list[list[FlowReplay]], Iterator[list[FlowReplay]] | None]:
    """Replay the next run; of a large one only its beginning, and return what yields the rest."""
    taken: list[list[FlowReplay]] = []
    rest = next(runs, None)
    for part in rest or ():
        taken.append(part)
        if _events(taken) > EVENTS_AT_ONCE:
            return taken, rest
    return taken, None


def _events(runs: Sequence[Sequence[FlowReplay]]) -> int:
    return sum(flow.count for flows in runs for flow in flows)


def _keep_waiting(store: Store, waiting: list[list[FlowReplay]]) -> list[list[FlowReplay]]:
    """Store runs in one transaction and forget them; return them without decisions."""
    runs, waiting[:] = list(waiting), []
    if not runs:
        return []
    with store.transaction() as con:
        _make_room(store, con, [flows[0].info.run_id for flows in runs if flows])
        insert_results(store, [flow for flows in runs for flow in flows])
    return [list(map(without_decisions, flows)) for flows in runs]


def _make_room(store: Store, con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> None:
    """Delete what an earlier replay of runs found, and what was worked out of it."""
    keep_codes(store)
    for table in _RESULT_TABLES:
        con.execute(f"DELETE FROM {table} WHERE run_id IN {listed(run_ids)}")
    forget(con, run_ids)


def without_decisions(one: FlowReplay) -> FlowReplay:
    """What is said about a flow; its decisions take the most memory."""
    passes = {mode: replace(found, decisions=None) for mode, found in one.passes.items()}
    return replace(one, passes=passes)


def insert_results(store: Store, replays: Sequence[FlowReplay]) -> None:
    """Insert the results of flows; the store must not have results of theirs."""
    for some in _together(replays):
        _insert_facts(store, some)
        decisions = decisions_of(some)
        if decisions is not None:
            insert_decisions(store, decisions)


def insert_facts(store: Store, replays: Sequence[FlowReplay]) -> None:
    """Insert what was found of flows, but not their decisions."""
    for some in _together(replays):
        _insert_facts(store, some)


def _together(replays: Sequence[FlowReplay]) -> Iterator[Sequence[FlowReplay]]:
    """Return some flows at a time: DuckDB plans once for them, and memory holds no more."""
    for start in range(0, len(replays), FLOWS_AT_ONCE):
        yield replays[start : start + FLOWS_AT_ONCE]


def _insert_facts(store: Store, some: Sequence[FlowReplay]) -> None:
    _insert(store, "replays", _columns(_replay_rows(some)))
    _insert(store, "replay_fields", _columns(_field_rows(some)))
    _insert(store, "gaps", _columns(_gap_rows(some)))


def decisions_of(replays: Sequence[FlowReplay]) -> pa.Table | None:
    """Return the decisions of flows as rows of table decisions; None: none were recorded."""
    import pyarrow as pa

    recorded = (one for one in replays if one.passes["step"].decisions is not None)
    tables = [pa.table(_decision_columns(one)) for one in recorded]
    return pa.concat_tables(tables) if tables else None


def insert_decisions(store: Store, decisions: pa.Table) -> None:
    """Insert rows of `decisions_of`; the store must not have these."""
    _insert(store, "decisions", decisions)


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
        {"run_id": replay.info.run_id, "flow": replay.flow, **gap_document(replay, gap.index)}
        for replay in replays
        for gap in replay.gaps
    ]


def _decision_columns(replay: FlowReplay) -> dict[str, Any]:
    """Decisions of the step replay: each is taken from the kernel's own state at that event."""
    result = replay.passes["step"]
    rows = result.decisions
    assert rows is not None
    index = rows[:, 0]
    first = np.flatnonzero(np.r_[True, index[1:] != index[:-1]]) if len(index) else index
    lengths = np.diff(np.append(first, len(index)))
    columns = replay.places
    n = len(index)
    return {
        "run_id": np.full(n, replay.info.run_id, np.int32),
        "flow": np.full(n, replay.flow, np.int32),
        "seq": columns["seq"][index].astype(np.int32),
        "ord": (np.arange(n) - np.repeat(first, lengths)).astype(np.uint16),
        "ns": columns["ns"][index].astype(np.uint64),
        "code": rows[:, 1].astype(np.uint16),
        **{f"e{i}": rows[:, 2 + i] for i in range(codes.EVIDENCE)},
    }
