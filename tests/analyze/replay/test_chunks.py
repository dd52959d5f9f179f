"""A flow that is replayed some events at a time gives what it gives as a whole."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from bbrscope.analyze.bbr import params
from bbrscope.analyze.bbr.records import (
    CWND_EVENT,
    INIT,
    MAIN,
    SET_STATE,
    SSTHRESH,
    STATE_COLUMNS,
    UNDO_CWND,
)
from bbrscope.analyze.replay import keep_results, load_events, replay_runs, run_info, run_params
from bbrscope.analyze.replay.chunks import chunks_of
from bbrscope.analyze.replay.flow_facts import facts_of
from bbrscope.analyze.replay.flow_replay import FlowPart, FlowReplay, whole_flows
from bbrscope.analyze.replay.flow_rows import Columns, FlowRows, joined, part_of, rows_at_hand
from bbrscope.analyze.replay.prepare import prepare
from bbrscope.analyze.replay.replay_flow import replay_flow
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BbrscopeError

RUNS = ("v1_x_lt", "v2_x_spur", "v3_x_tlp5")
# Few events, of which every one is at a chunk's edge, and many.
FEW, MANY = 60, 3_000
SIZES = {FEW: (1, 3, 7), MANY: (311, 1009)}
TABLES = ("replays", "replay_fields", "decisions", "gaps")

_KINDS = {
    (SSTHRESH,): {"missing_ssthresh"},
    (CWND_EVENT, SET_STATE, UNDO_CWND): {"missing_cwnd_event", "missing_set_state"},
    (MAIN,): {"missing_main"},
    (): {"missing_main"},
}

Given = tuple[run_info.RunInfo, dict[str, object], Columns]


def given(store: Store, run: str, start: int = 0, count: int = MANY) -> Given:
    """Some rows of the largest flow of a recording, which may be changed."""
    run_id = store.run_id(run)
    info = run_info.run_info(store.con, run_id)
    (flow,) = store.con.execute(
        "SELECT flow FROM flows WHERE run_id = ? ORDER BY events DESC", [run_id]
    ).fetchone()
    values = run_params.of_run(store.con, run_id, info.flavour)
    columns = load_events.load_flow(store.con, run_id, flow)
    some = part_of(columns, slice(start, start + count))
    return info, run_params.of_flow(store.con, run_id, flow, values), copied(some)


def copied(columns: Columns) -> Columns:
    return {name: column.copy() for name, column in columns.items()}


def blocks(columns: Columns, size: int) -> FlowRows:
    """The rows of a flow, so many at a time."""
    starts = range(0, len(columns["kind"]), size)
    return FlowRows(1, [partial(part_of, columns, slice(at, at + size)) for at in starts])


def found(rows: FlowRows, one: Given) -> FlowReplay:
    info, values, _ = one
    (flow,) = whole_flows(replay_flow(info, rows, values))
    return flow


def same_in_chunks(one: Given, sizes: tuple[int, ...]) -> FlowReplay:
    """Check that all chunks together give what the flow does as a whole; return that."""
    columns = one[2]
    whole = found(rows_at_hand(1, columns), one)
    assert len(whole.decisions) == 1
    for size in sizes:
        again = found(blocks(columns, size), one)
        assert len(again.decisions) > whole.count // (size + 3) // 2
        assert replace(again, decisions=()) == replace(whole, decisions=()), size
        tables = (keep_results.decision_table(flow.decisions) for flow in (again, whole))
        chunks, alone = (table.combine_chunks() for table in tables if table)
        assert chunks.equals(alone), size
    return whole


def without(columns: Columns, gone: np.ndarray) -> Columns:
    return {name: column[~gone] for name, column in columns.items()}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize(("start", "count"), [(0, FEW), (0, MANY), (1_700, FEW), (900, MANY)])
def test_an_exact_flow_from_its_start_or_its_middle(
    shipped: Store, run: str, start: int, count: int
) -> None:
    """v1 draws its phases, v2 and v3 rounds and times: read off the events that follow."""
    whole = same_in_chunks(given(shipped, run, start, count), SIZES[count])
    assert whole.exact
    assert whole.has_init == (start == 0)
    assert whole.count >= min(count - 1, 2_900)  # one is before init
    assert all(mode.exact == mode.compared >= whole.count - 1 for mode in whole.passes.values())


@pytest.mark.parametrize("calls", [(SSTHRESH,), (CWND_EVENT, SET_STATE, UNDO_CWND), (MAIN,), ()])
def test_gaps(shipped: Store, calls: tuple[int, ...]) -> None:
    """Some calls are missing, of one kind or of any; long stretches of main(), too."""
    random = np.random.default_rng(5)
    kinds: set[str] = set()
    for run in RUNS:
        info, values, columns = given(shipped, run)
        gone = random.random(MANY) < (0.03 if calls in ((MAIN,), ()) else 0.5)
        if calls:
            gone &= np.isin(columns["kind"], calls)
        if calls == (MAIN,):
            gone |= (columns["kind"] == MAIN) & (np.arange(MANY) // 300 % 2 == 1)
        gone[0] = False
        lossy = without(columns, gone)
        whole = same_in_chunks((info, values, lossy), SIZES[MANY])
        assert whole.exact or calls == (MAIN,)
        kinds |= {gap.kind for gap in whole.gaps}
        places = [gap.seq for gap in whole.gaps] or [MANY // 2]
        middle = int(np.searchsorted(lossy["seq"], places[len(places) // 2]))
        few = part_of(lossy, slice(max(0, middle - FEW // 2), middle + FEW // 2))
        same_in_chunks((info, values, few), SIZES[FEW])
    assert kinds >= _KINDS[calls]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("lost", [0, 4])
def test_a_flow_without_main_whatever_is_lost(shipped: Store, run: str, lost: int) -> None:
    info, values, columns = given(shipped, run, 0, 10_000)
    rest = without(columns, np.asarray(columns["kind"]) == MAIN)
    one = (replace(info, rows_lost=lost), values, part_of(rest, slice(0, FEW)))
    whole = same_in_chunks(one, SIZES[FEW])
    assert any("no main()" in gap.detail for gap in whole.gaps)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", ["bbr_min_rtt_us", "tp_snd_cwnd", "rs_acked_sacked"])
def test_divergences(shipped: Store, run: str, name: str) -> None:
    """A value that the kernel did not have, at several events; some of it explained as gaps."""
    info, values, columns = given(shipped, run)
    mains = np.flatnonzero(np.asarray(columns["kind"]) == MAIN)
    for place in mains[[130, 131, 700, 1_400]]:
        columns[name][place] += 3
    for lost in (0, 1):
        one = (replace(info, rows_lost=lost), values, columns)
        whole = same_in_chunks(one, SIZES[MANY])
        # Of a wrong rs.acked_sacked, the counters say that an ACK is missing.
        assert whole.exact == bool(lost) or "acked" in name
        assert whole.gaps if lost or "acked" in name else not whole.gaps
    few = part_of(columns, slice(int(mains[120]), int(mains[120]) + FEW // 2))
    same_in_chunks((info, values, few), (1, 3))


@pytest.mark.parametrize("run", RUNS)
def test_the_edges_of_a_recording(shipped: Store, run: str) -> None:
    """Rows before init; an init whose exit is missing; a state that was recorded late, or in part;
    probes that were detached; and a socket that was disconnected at the end."""
    info, values, columns = given(shipped, run, 0, FEW)
    _, _, late = given(shipped, run, 2_000, 5)
    columns = joined([late, columns])
    at = int(np.flatnonzero(columns["kind"] == INIT)[0])
    masked = [*STATE_COLUMNS, *(name for name in columns if name.startswith("exit_"))]
    for name in masked:
        columns[name] = np.ma.array(columns[name])
        columns[name][at] = np.ma.masked
    columns["bbr_min_rtt_stamp"][: FEW // 2] = np.ma.masked
    columns["bbr_pacing_gain"][:] = np.ma.masked
    lone = FEW - 20
    for name in columns:
        if name.startswith("exit_"):
            columns[name][lone:] = np.ma.masked
    columns = without(columns, (np.arange(FEW + 5) > lone) & (np.arange(FEW + 5) % 5 == 0))
    cleared = copied(part_of(columns, slice(-1, None)))
    for name in (*STATE_COLUMNS, "tp_delivered", "new_state", "icsk_ca_state"):
        cleared[name][:] = np.ma.masked if name == "bbr_pacing_gain" else 0
    cleared["kind"][:] = SET_STATE
    last_exit = int(np.max(np.ma.filled(columns["exit_ns"][at:], 0)))
    one = (replace(info, last_exit_ns=last_exit), values, joined([columns, cleared]))
    whole = same_in_chunks(one, SIZES[FEW])
    assert whole.pre_init == at >= 5
    assert whole.has_init
    assert whole.tail > 5
    assert {gap.kind for gap in whole.gaps} >= {"disconnected"}
    # A column that one event has is compared at all of them.
    assert "min_rtt_stamp" in whole.counts["step"]
    assert "pacing_gain" not in whole.counts["step"]


@pytest.mark.parametrize("run", RUNS)
def test_each_chunk_has_the_inputs_of_the_whole_flow(shipped: Store, run: str) -> None:
    info, values, columns = given(shipped, run)
    record = params.make(values)
    whole = prepare(columns, info.rules, record, info.last_exit_ns)
    for size in (101, 1009):
        rows = blocks(columns, size)
        chunks = list(chunks_of(rows, facts_of(rows, info.last_exit_ns), info.rules, record))
        assert chunks[-1].is_last
        assert len(chunks) > MANY // (size + 3)
        for name, want in (("events", whole.events), ("states", whole.states[:-1])):
            of = [getattr(chunk.own, name)[: len(chunk.own.events)] for chunk in chunks]
            assert np.array_equal(np.concatenate(of), want), name
        following = [chunk.own.states[-1] for chunk in chunks]
        ends = np.cumsum([len(chunk.own.events) for chunk in chunks])
        assert np.array_equal(following, whole.states[ends])


def test_rules_that_look_ahead_for_a_whole_cycle_have_one_chunk(shipped: Store) -> None:
    info, values, columns = given(shipped, "v1_x_lt")
    record, rows = params.make(values), blocks(columns, 67)
    facts = facts_of(rows, info.last_exit_ns)
    (chunk,) = chunks_of(rows, facts, "bbrplus", record)
    whole = prepare(columns, "bbrplus", record, info.last_exit_ns)
    assert np.array_equal(chunk.own.events, whole.events)


def test_blocks_that_were_replayed_are_held_by_nobody(shipped: Store) -> None:
    info, values, columns = given(shipped, "v2_x_spur")
    held: list[weakref.ref[np.ndarray]] = []

    def read(block: Callable[[], Columns]) -> Columns:
        assert sum(one() is not None for one in held) <= 1
        found = copied(block())
        held.append(weakref.ref(found["seq"]))
        return found

    rows = FlowRows(1, [partial(read, block) for block in blocks(columns, 500).blocks])
    assert [part.events for part in replay_flow(info, rows, values)][-1] < 600
    assert len(held) == 12


def _sums(store: Store, run_ids: list[int]) -> list[list[tuple[int, int]]]:
    chosen = ", ".join(map(str, run_ids))
    query = "SELECT count(*), bit_xor(hash(x)) FROM {} x WHERE run_id IN ({})"
    return [store.con.execute(query.format(table, chosen)).fetchall() for table in TABLES]


def test_long_flows_are_stored_in_parts_and_wholly_or_not_at_all(
    shipped_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "long.duckdb"
    shutil.copy(shipped_path, path)
    for module in (load_events, run_info):
        monkeypatch.setattr(module, "LONGEST_BLOCK", 1009)
    with open_store(path) as store:
        # A second long flow beside one, and holes between numbers of seq.
        twice = store.run_id("v2_single_1bdp")
        for table in ("events", "flows", "params"):
            store.con.execute(
                f"INSERT INTO {table} BY NAME SELECT * REPLACE (3 AS flow) FROM {table}"
                f" WHERE run_id = {twice} AND flow = 1"
            )
        store.con.execute("UPDATE events SET seq = seq * 3 WHERE seq > 2000")
        run_ids = [store.run_id("v1_x_lt"), twice]
        monkeypatch.setattr(load_events, "LONGEST_BLOCK", 10**9)
        monkeypatch.setattr(run_info, "LONGEST_BLOCK", 10**9)
        for flows in replay_runs.replay_runs(store.con, run_ids):
            keep_results.keep(store, flows)
        want = _sums(store, run_ids)
        monkeypatch.setattr(load_events, "LONGEST_BLOCK", 1009)
        monkeypatch.setattr(run_info, "LONGEST_BLOCK", 1009)
        monkeypatch.setattr(keep_results, "EVENTS_AT_ONCE", 3_000)

        def ending(parts: Iterator[list[FlowPart]]) -> Iterator[list[FlowPart]]:
            for number, some in enumerate(parts):
                yield some
                if number == 4:
                    raise BbrscopeError("the rest cannot be replayed", "none")

        of_runs = replay_runs.replay_parts(store.con, [twice])
        parts = next(of_runs)
        with pytest.raises(BbrscopeError):
            keep_results.keep_parts(store, ending(parts))
        of_runs.close()
        assert _sums(store, run_ids) == want
        turns: list[int] = []

        def seen(parts: Iterator[list[FlowPart]]) -> Iterator[list[FlowPart]]:
            for some in parts:
                turns.append(len(some))
                yield some

        for table in TABLES:
            store.con.execute(f"DELETE FROM {table}")
        told: list[int] = []
        of_runs = replay_runs.replay_parts(store.con, run_ids, advance=told.append)
        flows = [*keep_results.keep_all(store, map(seen, of_runs))]
        assert _sums(store, run_ids) == want
        assert [[flow.flow for flow in one] for one in flows][run_ids.index(twice)] == [1, 2, 3]
        assert sum(told) == sum(flow.count for one in flows for flow in one)
        assert len(turns) > 25
