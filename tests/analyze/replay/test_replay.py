"""The estimator agrees with the kernels, bit for bit; where it would not, it says so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from bbrscope import fixtures
from bbrscope.analyze.bbr import loops, params
from bbrscope.analyze.bbr.records import INIT, KINDS, MAIN, SET_STATE, STATE_COLUMNS
from bbrscope.analyze.replay import gaps, keep_results, run_params
from bbrscope.analyze.replay import replay_runs as session
from bbrscope.analyze.replay.chunks import chunk_of
from bbrscope.analyze.replay.find_elsewhere import find_elsewhere
from bbrscope.analyze.replay.flow_replay import FlowPart
from bbrscope.analyze.replay.flow_rows import has_values
from bbrscope.analyze.replay.load_events import load_flow, load_flows
from bbrscope.analyze.replay.mode_replay import ModeReplay
from bbrscope.analyze.replay.passes import MODES, Pass, run_pass
from bbrscope.analyze.replay.prepare import EVENT_COLUMNS, FlowEvents, prepare
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.analyze.replay.tally import Tally
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.probes.fields import EXIT_FIELDS

# Smallest number of compared events per shipped recording: a replay of nothing proves nothing.
_AT_LEAST = {"v2_single_1bdp": 10_600, "v2_x_spur": 5_000, "v1_x_lt": 3_800, "v3_x_tlp5": 5_000}


def _largest(store: Store, run: str) -> tuple[FlowEvents, str, np.ndarray, dict[str, np.ndarray]]:
    run_id = store.run_id(run)
    info = run_info(store.con, run_id)
    flow = store.con.execute(
        "SELECT flow FROM flows WHERE run_id = ? ORDER BY events DESC", [run_id]
    ).fetchone()[0]
    values = run_params.of_run(store.con, run_id, info.flavour)
    record = params.make(run_params.of_flow(store.con, run_id, flow, values))
    # What was read cannot be written to, and tests change it.
    columns = {name: one.copy() for name, one in load_flow(store.con, run_id, flow).items()}
    return prepare(columns, info.version, record, info.last_exit_ns), info.version, record, columns


@pytest.mark.parametrize("run", sorted(_AT_LEAST))
def test_every_event_of_the_shipped_recordings_is_exact_in_both_modes(
    shipped: Store, run: str
) -> None:
    rows = shipped.con.execute(
        "SELECT mode, sum(events), sum(exact), count(first_divergence), sum(gaps)"
        " FROM replays WHERE run_id = ? GROUP BY mode",
        [shipped.run_id(run)],
    ).fetchall()
    assert {row[0] for row in rows} == set(MODES)
    for _, events, exact, divergences, gap_count in rows:
        assert events >= _AT_LEAST[run]
        assert exact == events
        assert divergences == 0
        assert gap_count == 0


@pytest.mark.slow
def test_every_event_of_every_recording_is_exact_outside_its_gaps(all_runs: Store) -> None:
    rows = all_runs.con.execute(
        "SELECT run, mode, sum(p.events), sum(exact), sum(p.gaps), any_value(runs.events)"
        " FROM replays p JOIN runs USING (run_id) GROUP BY run, mode"
    ).fetchall()
    assert len(rows) >= 2 * 40
    for run, _, events, exact, gap_count, recorded in rows:
        assert exact == events, run
        if run.startswith("lossy"):
            assert gap_count > 0, run
        else:
            assert gap_count == 0, run
            assert events >= recorded - 6, run  # a flow's last event may have nothing after it


@pytest.mark.slow
def test_the_silent_miss_is_found_and_named(all_runs: Store) -> None:
    found = all_runs.con.execute(
        "SELECT kind, detail FROM gaps WHERE run_id = ?",
        [all_runs.run_id("lossy_v2_one_silent_miss")],
    ).fetchall()
    assert found == [
        (
            "missing_main",
            "tp.delivered grew by 3 between two main() calls, rs.acked_sacked says 2",
        )
    ]


@pytest.mark.slow
def test_v2s_own_event_letters_agree_wherever_they_speak(all_runs: Store) -> None:
    compared, exact = all_runs.con.execute(
        "SELECT sum(compared), sum(exact) FROM replay_fields JOIN runs USING (run_id)"
        " WHERE field = 'debug_event' AND version = 'v2'"
    ).fetchone()
    letters = all_runs.con.execute(
        "SELECT count(DISTINCT bbr_debug_event) FROM events JOIN runs USING (run_id)"
        " WHERE version = 'v2'"
    ).fetchone()[0]
    assert compared == exact > 200_000
    assert letters >= 9


@pytest.mark.parametrize("run", ["v1_x_lt", "v2_x_spur", "v3_x_tlp5"])
def test_plain_python_and_compiled_loops_give_the_same_states_and_decisions(
    shipped: Store, shipped_path: Path, run: str
) -> None:
    flow, version, record, _ = _largest(shipped, run)
    script = f"""
import sys
from pathlib import Path
import numpy as np
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_replay import _largest
from bbrscope.analyze.replay.load_events import load_flow, load_flows
from bbrscope.analyze.replay.passes import run_pass
from bbrscope.probes.base.jit import PLAIN
from bbrscope.analyze.views.store_with_views import open_store
assert PLAIN
with open_store(Path({str(shipped_path)!r}), read_only=True) as store:
    flow, version, record, _ = _largest(store, {run!r})
for mode in ("step", "free-run"):
    result, machine = run_pass(flow, version, record, mode, True)
    np.save(f"{{sys.argv[1]}}/{{mode}}-decisions.npy", result.decisions)
    np.save(f"{{sys.argv[1]}}/{{mode}}-state.npy", machine.vector)
    np.save(f"{{sys.argv[1]}}/{{mode}}-outcome.npy", result.outcome)
"""
    folder = shipped_path.parent / f"plain-{run}"
    folder.mkdir(exist_ok=True)
    environment = os.environ | {"BBRSCOPE_PLAIN": "1"}
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True, env=environment)
    for mode in MODES:
        result, machine = run_pass(flow, version, record, mode, True)
        assert np.array_equal(np.load(folder / f"{mode}-decisions.npy"), result.decisions)
        assert np.array_equal(np.load(folder / f"{mode}-state.npy"), machine.vector)
        assert np.array_equal(np.load(folder / f"{mode}-outcome.npy"), result.outcome)
        assert len(result.decisions) > 5_000


def test_decisions_on_and_off_replay_alike(shipped: Store) -> None:
    flow, version, record, _ = _largest(shipped, "v2_x_spur")
    for mode in MODES:
        on, machine_on = run_pass(flow, version, record, mode, True)
        off, machine_off = run_pass(flow, version, record, mode, False)
        assert np.array_equal(on.outcome, off.outcome)
        assert np.array_equal(machine_on.vector, machine_off.vector)
        assert off.decisions is None


@pytest.mark.parametrize(
    "column", ["bbr_inflight_hi", "bbr_pacing_gain", "bbr_extra_acked_1", "bbr_cycle_mstamp"]
)
def test_a_single_altered_bit_of_state_is_a_divergence_at_that_event(
    shipped: Store, column: str
) -> None:
    flow, version, record, _ = _largest(shipped, "v2_single_1bdp")
    event = 5_000
    flow.states[event + 1, STATE_COLUMNS.index(column)] ^= 1
    for mode in MODES:
        result, _ = run_pass(flow, version, record, mode, False)
        assert result.first_difference() == event
        position = STATE_COLUMNS.index(column)
        assert result.differences[position] >= 1


def test_an_altered_input_is_noticed_in_free_run(shipped: Store) -> None:
    flow, version, record, _ = _largest(shipped, "v2_single_1bdp")
    mains = np.flatnonzero(flow.events["ctl"]["kind"] == MAIN)
    flow.events["rs"]["delivered"][mains[3_000]] += 7
    result, _ = run_pass(flow, version, record, "free-run", False)
    assert result.first_difference() is not None


def test_a_wrong_parameter_is_noticed(shipped: Store) -> None:
    flow, version, record, _ = _largest(shipped, "v2_single_1bdp")
    record["HZ"] = 250
    result, _ = run_pass(flow, version, record, "step", False)
    assert result.first_difference() is not None


def test_a_wrong_output_is_a_divergence(shipped: Store) -> None:
    flow, version, record, _ = _largest(shipped, "v1_x_lt")
    event = int(np.flatnonzero(flow.events["ctl"]["kind"] == MAIN)[1_000])
    flow.events["ctl"]["exit_sk_pacing_rate"][event] += 1
    result, _ = run_pass(flow, version, record, "step", False)
    assert result.first_difference() == event


def _last_exit(columns: dict[str, np.ndarray]) -> int:
    return int(np.max(np.ma.filled(columns["exit_ns"], 0)))


def _is_exact(flow: FlowEvents, version: str, record: np.ndarray) -> None:
    """Check that all events, thousands of them, are exact in both modes."""
    for mode in MODES:
        result, _ = run_pass(flow, version, record, mode, False)
        assert result.exact == result.compared > 3_000


def _classified(flow: FlowEvents, step: Pass, version: str) -> list[gaps.Gap]:
    """The gaps that explain differences of a whole flow."""
    chunk = chunk_of(flow)
    (elsewhere,) = find_elsewhere([chunk], version)
    return gaps.classify(step, gaps.suspects(chunk, version, elsewhere), rows_lost=0)


def _without(columns: dict[str, np.ndarray], rows: list[int]) -> dict[str, np.ndarray]:
    keep = np.ones(len(columns["kind"]), bool)
    keep[rows] = False
    return {name: column[keep] for name, column in columns.items()}


@pytest.mark.parametrize("run", ["v1_x_lt", "v2_single_1bdp", "v3_x_tlp5"])
@pytest.mark.parametrize("kind", ["main", "first main", "set_state"])
def test_a_removed_event_is_found_as_a_gap_and_everything_else_is_exact(
    shipped: Store, run: str, kind: str
) -> None:
    _, version, record, columns = _largest(shipped, run)
    kinds = np.asarray(columns["kind"])
    candidates = np.flatnonzero(kinds == (SET_STATE if kind == "set_state" else MAIN))
    removed = int(candidates[len(candidates) // 2])
    if kind == "first main":
        removed = int(candidates[candidates > np.flatnonzero(kinds == INIT)[0]][0])
    lossy = prepare(_without(columns, [removed]), version, record, _last_exit(columns))
    step, _ = run_pass(lossy, version, record, "step", False)
    different = np.flatnonzero(step.outcome == loops.DIFFERENT)
    found = _classified(lossy, step, version)
    assert {gap.index for gap in found} == set(different.tolist())
    # What a cwnd_event() left is known from the next event alone, which main() came before.
    outputs_too = np.zeros(len(lossy.events), bool)
    outputs_too[different] = kind == "first main"
    gaps.cut(lossy, found, outputs_too)
    for mode in MODES:
        result, _ = run_pass(lossy, version, record, mode, False)
        assert result.exact == result.compared >= len(lossy.events) - 3


@pytest.mark.parametrize("run", ["v1_x_lt", "v2_single_1bdp", "v3_x_tlp5"])
@pytest.mark.parametrize("later", [0, 1, 20])
def test_a_clock_that_ticks_inside_init_is_no_difference(
    shipped: Store, run: str, later: int
) -> None:
    """Seen where probes are slow: min_rtt_stamp is the jiffies at init's exit, not its entry; where
    init was interrupted for longer, too, one between them."""
    _, version, record, columns = _largest(shipped, run)
    init = np.flatnonzero(np.asarray(columns["kind"]) == INIT)
    assert len(init) == 1
    columns["exit_jiffies32"][init] = columns["jiffies32"][init] + later
    columns["jiffies32"][init] -= 1
    _is_exact(prepare(columns, version, record, _last_exit(columns)), version, record)


@pytest.mark.parametrize("run", ["v1_x_lt", "v2_single_1bdp", "v3_x_tlp5"])
def test_what_init_left_is_unknown_where_its_exit_row_has_a_time_only(
    shipped: Store, run: str
) -> None:
    """IX0 was lost, and IX1 came: 0 was taken for what init left in snd_cwnd."""
    _, version, record, columns = _largest(shipped, run)
    init = np.flatnonzero(np.asarray(columns["kind"]) == INIT)
    for name in (one.exit_column for one in EXIT_FIELDS):
        columns[name] = np.ma.array(columns[name])
        columns[name][init] = np.ma.masked
    assert not np.ma.getmaskarray(columns["exit_ns"])[init].any()
    _is_exact(prepare(columns, version, record, _last_exit(columns)), version, record)


@pytest.mark.parametrize("run", ["v1_x_lt", "v2_single_1bdp", "v3_x_tlp5"])
def test_a_struct_that_tcp_disconnect_cleared_is_named_and_replayed(
    shipped: Store, run: str
) -> None:
    """tcp_disconnect() clears struct bbr and tp.delivered, then calls set_state(TCP_CA_Open)."""
    _, version, record, columns = _largest(shipped, run)
    cleared = {name: np.ma.append(column, column[-1:]) for name, column in columns.items()}
    for name in (*STATE_COLUMNS, "tp_delivered", "new_state", "icsk_ca_state"):
        if has_values(columns[name]):
            cleared[name][-1] = 0
    cleared["kind"][-1] = SET_STATE
    flow = prepare(cleared, version, record, _last_exit(columns))
    step, _ = run_pass(flow, version, record, "step", False)
    found = _classified(flow, step, version)
    assert [(gap.index, gap.kind) for gap in found] == [(len(flow.events) - 2, "disconnected")]
    gaps.cut(flow, found, np.zeros(len(flow.events), bool))
    _is_exact(flow, version, record)


def test_a_recording_that_starts_mid_flow_is_replayed_from_its_first_full_state(
    shipped: Store,
) -> None:
    _, version, record, columns = _largest(shipped, "v2_single_1bdp")
    tail = {name: column[4_000:] for name, column in columns.items()}
    flow = prepare(tail, version, record, _last_exit(columns))
    for mode in MODES:
        result, _ = run_pass(flow, version, record, mode, False)
        assert result.exact == result.compared >= len(flow.events) - 1


def test_a_last_event_whose_draw_nothing_tells_is_not_counted(shipped: Store) -> None:
    """v1's draw decides the pacing; guessed wrongly, it is no difference of a field either."""
    _, version, record, columns = _largest(shipped, "v1_x_lt")
    guessed = 0
    for last in np.flatnonzero(columns["bbr_mode"][1:] != columns["bbr_mode"][:-1]):
        cut = {name: column[: last + 1] for name, column in columns.items()}
        flow = prepare(cut, version, record, _last_exit(columns))
        replay, tally = ModeReplay("step", version, record, False), Tally()
        result = replay.run(chunk_of(flow))
        tally.add(chunk_of(flow), replay, result)
        guessed += int(result.outcome[-1] == loops.NOT_COMPARED)
        assert result.exact == result.compared
        assert all(exact == compared for compared, exact in tally.counts.values()), tally.counts
    assert guessed


def test_a_field_the_recording_lacks_is_named_and_the_rest_is_still_exact(shipped: Store) -> None:
    _, version, record, columns = _largest(shipped, "v2_single_1bdp")
    lacking = dict(columns)
    empty = np.zeros(len(columns["kind"]), np.int64)
    lacking["bbr_loss_round_delivered"] = np.ma.array(empty, mask=True)
    flow = prepare(lacking, version, record, _last_exit(columns))
    assert flow.facts.missing(version) == ["bbr_loss_round_delivered"]
    for mode in MODES:
        result, _ = run_pass(flow, version, record, mode, False)
        assert result.exact == result.compared > 10_000


def test_v1_on_a_kernel_with_v2s_patch_is_its_own_flavour(
    shipped_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "patched.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id("v1_x_lt")
        assert run_info(store.con, run_id).flavour == "v1"
        # a patched kernel's rate samples carry tx_in_flight, though its v1 ignores it
        store.con.execute("UPDATE events SET rs_tx_in_flight = 5 WHERE run_id = ?", [run_id])
        info = run_info(store.con, run_id)
        (flows,) = session.replay_runs(store.con, [run_id])
    assert (info.version, info.flavour) == ("v1", "v1-patched")
    assert "carries v2's patch" in info.decoded_as
    assert flows[0].values["tso_segs_cap"] == 0
    assert flows[0].exact  # too slow a flow for the two to differ
    assert flows[0].passes["step"].compared > 3_000


def _bytes_held(item: object) -> int:
    """Bytes of all arrays that can be reached from an object, views counted as what they hold."""
    if isinstance(item, np.ndarray):
        return _bytes_held(item.base) if isinstance(item.base, np.ndarray) else item.nbytes
    if isinstance(item, dict):
        return sum(map(_bytes_held, item.values()))
    if isinstance(item, tuple | list):
        return sum(map(_bytes_held, item))
    return _bytes_held(vars(item)) if hasattr(item, "__dataclass_fields__") else 0


def test_flows_that_wait_to_be_stored_do_not_hold_their_inputs(shipped: Store) -> None:
    """A run may have thousands of flows: a replay takes 4 kB an event."""
    (flows,) = session.replay_runs(shipped.con, [shipped.run_id("v2_single_1bdp")])
    for flow in flows:
        (decisions,) = flow.decisions
        places = decisions.seq.nbytes + decisions.ns.nbytes
        assert _bytes_held(flow) == decisions.rows.nbytes + places
        assert len(decisions.rows) == len(decisions.seq) > 0


def test_flows_are_stored_as_they_come_and_all_of_a_run_or_none(
    shipped_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "parts.duckdb"
    shutil.copy(shipped_path, path)
    tables = ("replays", "replay_fields", "decisions", "gaps")
    with open_store(path) as store:
        run_id = store.run_id("v2_single_1bdp")
        sums = [
            f"SELECT count(*), bit_xor(hash(x)) FROM {table} x WHERE run_id = {run_id}"
            for table in tables
        ]
        before = [store.con.execute(query).fetchall() for query in sums]
        held: list[int] = []

        def one_by_one(ending: bool) -> Iterator[list[FlowPart]]:
            (of_run,) = map(list, session.replay_parts(store.con, [run_id]))
            parts = [part for some in of_run for part in some]
            before_first = pa.total_allocated_bytes()
            yield parts[:1]
            held.append(pa.total_allocated_bytes() - before_first)
            if ending:
                raise BbrscopeError("a flow cannot be replayed", "none")
            yield parts[1:]

        with pytest.raises(BbrscopeError):
            keep_results.keep_parts(store, one_by_one(ending=True))
        assert [store.con.execute(query).fetchall() for query in sums] == before
        flows = keep_results.keep_parts(store, one_by_one(ending=False))
        assert [store.con.execute(query).fetchall() for query in sums] == before
    # Decisions that were inserted do not wait in memory for the end of the transaction.
    assert max(held) < 8 * before[tables.index("decisions")][0][0]
    assert [flow.flow for flow in flows] == [1, 2]
    assert not any(flow.decisions for flow in flows)


def test_small_flows_are_read_together_and_are_the_same_as_alone(shipped: Store) -> None:
    run_id = shipped.run_id("v2_single_1bdp")
    assert run_info(shipped.con, run_id).groups == ((1, 2),)
    other = shipped.run_id("v1_x_lt")
    named = ", ".join(EVENT_COLUMNS).replace(" kind,", " kind::VARCHAR AS kind,")
    query = f"SELECT {named} FROM events WHERE run_id = ? AND flow = ? ORDER BY seq"
    found = list(load_flows(shipped.con, [run_id, other], 1, 2))
    assert [(run, flow) for run, flow, _ in found] == [(run_id, 1), (run_id, 2), (other, 1)]
    for run, flow, columns in found:
        stored = shipped.con.execute(query, [run, flow]).fetchnumpy()
        stored["kind"] = np.array([KINDS.index(kind) for kind in stored["kind"]])
        assert [*columns] == [*stored]
        assert len(columns["seq"]) > 0
        for name, column in columns.items():
            assert column.dtype == stored[name].dtype, name
            assert (np.ma.filled(column, 0) == np.ma.filled(stored[name], 0)).all(), name
            masks = np.ma.getmaskarray(column), np.ma.getmaskarray(stored[name])
            assert (masks[0] == masks[1]).all(), name
    nothing = load_flow(shipped.con, run_id, 3)
    assert {name: (len(column), column.dtype) for name, column in nothing.items()} == {
        name: (0, column.dtype) for name, column in columns.items()
    }


def _command(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bbrscope.reports", "replay", "--store", str(path)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def test_the_command_prints_the_documented_json(shipped_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.duckdb"
    shutil.copy(shipped_path, path)
    done = _command(path, "v2_x_spur", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (run,) = document["runs"]
    assert run["run"] == "v2_x_spur"
    assert {flow["mode"] for flow in run["flows"]} == set(MODES)
    for flow in run["flows"]:
        assert flow["version"] == "v2"
        assert flow["events"] == flow["exact"] > 5_000
        assert flow["first_divergence"] is None
        hi = flow["fields"]["inflight_hi"]
        assert hi["compared"] == hi["exact"] > 5_000


def test_the_command_fails_and_explains_when_something_differs(tmp_path: Path) -> None:
    path = tmp_path / "altered.duckdb"
    with open_store(path) as store:
        ingest(store, fixtures.path("v2_x_spur"))
        store.con.execute("UPDATE events SET bbr_inflight_hi = 77 WHERE seq = 3000")
    done = _command(path, "--json")
    assert done.returncode == 1
    flows = json.loads(done.stdout)["runs"][0]["flows"]
    for flow in flows:
        first = flow["first_divergence"]
        assert first["seq"] == 2999
        assert first["fields"]["inflight_hi"]["expected"] == 77
        assert first["inputs"]["rs_acked_sacked"] >= 0
        assert first["decisions"]
    assert "expected 77" in _command(path).stdout
