"""Replay whole runs out of the store: load, replay both modes, tell gaps from divergences."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...collect.store.limits import limited, memory_for
from ...collect.store.query import first_row
from ..bbr import codes, loops, params
from ..bbr.records import INIT, KINDS, STATE_COLUMNS
from ..bbr.variants.own_variant import base_of, is_variant
from . import gaps as gap_finder
from . import run_params
from .hidden_inputs import DRAWN, illegal_draws
from .load_events import load_flows
from .passes import FIELD_NAMES, Array, Pass, run_pass
from .prepare import FlowEvents, copy_of, prepare
from .run_info import RunInfo, run_infos

if TYPE_CHECKING:
    import duckdb

# Runs with so many events in all are read by one query, which takes some 50 MB.
EVENTS_TOGETHER = 40_000
# Of an event that differs, the inputs worth printing.
_SHOWN_INPUTS = (
    "tp_delivered",
    "tp_snd_cwnd",
    "tp_packets_out",
    "rs_delivered",
    "rs_interval_us",
    "rs_rtt_us",
    "rs_acked_sacked",
    "rs_losses",
    "rs_tx_in_flight",
    "rs_lost",
    "icsk_ca_state",
    "jiffies32",
    "exit_jiffies32",
)


@dataclass
class FlowReplay:
    """What the replay found out about one flow: all that is stored and told, but not its inputs.

    A run may have thousands of flows, whose results wait in memory until it is stored.

    Attributes:
        values: the parameters that it ran with.
        count: events that were replayed.
        first_seq, pre_init, tail, missing: see `prepare.FlowEvents`.
        has_init: the recording has the flow's init; else it starts in the middle of the flow.
        places: columns seq, ns and line of the replayed events.
        passes: by mode; without what the callbacks wrote, and decisions of step mode alone.
        counts: by mode, then by field or output: events compared, and of these exact.
        divergences: by mode, the first event that differs.
    """

    info: RunInfo
    flow: int
    values: dict[str, Any]
    count: int
    first_seq: int
    pre_init: int
    tail: int
    missing: list[str]
    has_init: bool
    places: dict[str, Array]
    passes: dict[str, Pass]
    counts: dict[str, dict[str, tuple[int, int]]]
    gaps: list[gap_finder.Gap]
    divergences: dict[str, dict[str, Any] | None]

    @property
    def exact(self) -> bool:
        """Nothing differs from the kernel outside the recording's gaps."""
        return not any(self.divergences.values())


def replay_flow(
    info: RunInfo,
    flow: int,
    columns: dict[str, Array],
    values: dict[str, Any],
    decisions: bool = True,
) -> FlowReplay:
    """Replay one flow in both modes; gaps are found in step mode, then cut out of both."""
    record = params.make(values)
    rules = info.rules
    events = prepare(columns, rules, record, info.last_exit_ns)
    step = _one_pass(events, rules, record, "step", decisions)
    gaps: list[gap_finder.Gap] = []
    if step.first_difference() is not None:
        suspected = gap_finder.suspects(events, info.version)
        gaps = gap_finder.classify(events, step, suspected, info.rows_lost)
        if gaps:
            outputs_too = _outputs_differ(events, rules, record, gaps, decisions)
            gap_finder.cut(events, gaps, outputs_too)
            step = _one_pass(events, rules, record, "step", decisions)
    passes: dict[str, Pass] = {}
    counts: dict[str, dict[str, tuple[int, int]]] = {}
    divergences: dict[str, dict[str, Any] | None] = {}

    def settle(one: Pass) -> None:
        passes[one.mode] = _found(one)
        counts[one.mode] = field_counts(events, one)
        divergences[one.mode] = _describe_first(events, rules, record, one)

    settle(step)
    del step  # what its callbacks wrote takes a kB per event, and the next pass as much again
    settle(_one_pass(events, rules, record, "free-run", decisions))
    kinds = events.events["ctl"]["kind"]
    return FlowReplay(
        info,
        flow,
        values,
        len(kinds),
        events.first_seq,
        events.pre_init,
        events.tail,
        events.missing,
        has_init=bool(len(kinds) and kinds[0] == INIT),
        places={name: events.columns[name].copy() for name in ("seq", "ns", "line")},
        passes=passes,
        counts=counts,
        gaps=gaps,
        divergences=divergences,
    )


def _found(result: Pass) -> Pass:
    """A pass without what takes the most memory and nobody asks for."""
    decisions = result.decisions if result.mode == "step" else None
    shed = {name: getattr(result, name)[:0].copy() for name in ("after", "differing")}
    return replace(result, **shed, decisions=decisions)


def _one_pass(events: FlowEvents, rules: str, record: Array, mode: str, decisions: bool) -> Pass:
    result, _ = run_pass(events, rules, record, mode, decisions)
    drew = events.events["tp"]["draws"] > 0
    settled = events.events["ctl"]["has_next"] == 1
    if not is_variant(rules):  # what it draws, and what may come of it, only its file says
        _differ_at_illegal_draws(events, rules, record, result, drew & settled)
    if base_of(rules) == "v1" and len(drew) and drew[-1] and not settled[-1]:
        # The last event's draw decides its pacing, and nothing recorded after it tells the draw.
        _leave_out_last(result)
    return result


def _differ_at_illegal_draws(
    events: FlowEvents, version: str, record: Array, result: Pass, drew: Array
) -> None:
    """Count as different the events that drew a number no kernel could have drawn."""
    comparable = result.outcome != loops.NOT_COMPARED
    for index in illegal_draws(events.events, drew & comparable, version, record):
        if result.outcome[index] == loops.EXACT:
            result.differ_in(index, DRAWN[version])


def _leave_out_last(result: Pass) -> None:
    """Compare the last event with nothing: neither it nor its outputs are counted."""
    if result.outcome[-1] == loops.DIFFERENT:
        tp, ctl = result.after["tp"][-1], result.after["ctl"][-1]
        for bit, name in enumerate(loops.OUTPUTS):
            if ctl["check"] >> bit & 1 and int(tp[name]) != int(ctl[f"exit_{name}"]):
                result.differences[len(STATE_COLUMNS) + bit] -= 1
    result.outcome[-1] = loops.NOT_COMPARED


def _outputs_differ(
    events: FlowEvents, rules: str, record: Array, gaps: list[gap_finder.Gap], decisions: bool
) -> Array:
    """Events at gaps whose outputs do not fit either, the state after them aside."""
    trial = FlowEvents(**vars(events) | {"events": copy_of(events.events)})
    for gap in gaps:
        trial.events["ctl"]["has_next"][gap.index] = 0
    result, _ = run_pass(trial, rules, record, "step", decisions)
    differ: Array = result.outcome == loops.DIFFERENT
    return differ


def _describe_first(
    events: FlowEvents, rules: str, record: Array, result: Pass
) -> dict[str, Any] | None:
    """The first event that differs: where it is, its inputs, expected and got, its decisions."""
    index = result.first_difference()
    if index is None:
        return None
    again, machine = run_pass(events, rules, record, result.mode, True, stop=index + 1)
    ctl = events.events["ctl"][index]
    recorded = events.states[index if ctl["kind"] == INIT else index + 1]
    got = machine.vector
    fields: dict[str, dict[str, int]] = {}
    if ctl["has_next"]:
        for position, name in enumerate(STATE_COLUMNS):
            if events.compared[position] and got[position] != recorded[position]:
                fields[name.removeprefix("bbr_")] = {
                    "before": int(events.states[index][position]),
                    "expected": int(recorded[position]),
                    "got": int(got[position]),
                }
    outputs = {"snd_cwnd": int(machine.carry[0]), "sk_pacing_rate": int(machine.carry_rate[0])}
    for bit, (name, value) in enumerate(outputs.items()):
        expected = int(ctl[f"exit_{name}"])
        if ctl["check"] >> bit & 1 and value != expected:
            before = int(ctl[f"entry_{name}"])
            fields[name] = {"before": before, "expected": expected, "got": value}
    columns = events.columns
    assert again.decisions is not None
    return {
        "seq": int(columns["seq"][index]),
        "ns": int(columns["ns"][index]),
        "line": int(columns["line"][index]),
        "kind": KINDS[int(ctl["kind"])],
        "argument": int(ctl["arg"]),
        "fields": fields,
        "inputs": {name: int(columns[name][index]) for name in _SHOWN_INPUTS},
        "decisions": [codes.CODES[int(row[1])].name for row in again.decisions if row[0] == index],
    }


def field_counts(events: FlowEvents, result: Pass) -> dict[str, tuple[int, int]]:
    """Per field of struct bbr and per output: events compared, and of these exact."""
    ctl = events.events["ctl"]
    comparable = result.outcome != loops.NOT_COMPARED
    with_state = int((comparable & (ctl["has_next"] == 1)).sum())
    counts: dict[str, tuple[int, int]] = {}
    for position, name in enumerate(FIELD_NAMES):
        if position < len(STATE_COLUMNS):
            compared = with_state if events.compared[position] else 0
        else:
            bit = position - len(STATE_COLUMNS)
            compared = int((comparable & (ctl["check"] >> bit & 1 == 1)).sum())
        if compared:
            counts[name] = (compared, compared - int(result.differences[position]))
    return counts


def replay_runs(
    con: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    decisions: bool = True,
    workers: int = 2,
    advance: Callable[[int], None] = lambda events: None,
) -> Iterator[list[FlowReplay]]:
    """Replay runs, flows in parallel; yields one list of flows per run, in order.

    `advance` is called with how many events were finished, for a progress bar.
    """
    for parts in replay_parts(con, run_ids, decisions, workers, advance):
        yield [flow for part in parts for flow in part]


def replay_parts(
    con: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    decisions: bool = True,
    workers: int = 2,
    advance: Callable[[int], None] = lambda events: None,
) -> Iterator[Iterator[list[FlowReplay]]]:
    """The same, some flows of a run at a time: take all of one run before the next."""
    infos = run_infos(con, run_ids)
    settings = run_params.recorded_settings(con, run_ids)
    shared = {
        info.run_id: run_params.of_recorded(settings[info.run_id], info.flavour) for info in infos
    }
    of_flow = run_params.of_flows(con, run_ids)

    def task(some: list[_Part]) -> list[list[FlowReplay]]:
        found: dict[int, list[FlowReplay]] = {part.info.run_id: [] for part in some}
        infos = {part.info.run_id: part.info for part in some}
        first, last = min(part.flows[0] for part in some), max(part.flows[-1] for part in some)
        with con.cursor() as cursor:
            for run_id, flow, columns in load_flows(cursor, [*found], first, last):
                values = of_flow(run_id, flow, shared[run_id])
                found[run_id].append(replay_flow(infos[run_id], flow, columns, values, decisions))
        return [*found.values()]

    tasks = _together(_Part(info, group) for info in infos for group in info.groups)
    # The CPUs are shared by flows: DuckDB's threads, which would wait for work, cost a tenth.
    memory = memory_for(max((info.events for info in infos), default=0))
    with (
        limited(con, threads=1, memory_limit=memory),
        ThreadPoolExecutor(max_workers=max(1, workers)) as pool,
    ):
        # As few as keep the workers busy: finished flows wait in memory until they are taken.
        ahead = deque(pool.submit(task, one) for one in islice(tasks, 2 * max(1, workers)))

        def parts() -> Iterator[list[FlowReplay]]:
            while ahead:
                done = ahead.popleft().result()
                ahead.extend(pool.submit(task, one) for one in islice(tasks, 1))
                for part in done:
                    advance(sum(flow.count for flow in part))
                    yield part

        coming = parts()
        try:
            for info in infos:
                yield islice(coming, len(info.groups))
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Part:
    """A group of flows of a run, see `flow_groups`."""

    info: RunInfo
    flows: tuple[int, ...]


def _together(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
    """Divide parts into those that are read at once: small runs, or a group of a large one."""
    some: list[_Part] = []
    held = 0
    for part in parts:
        alone = len(part.info.groups) > 1
        if some and (alone or held + part.info.events > EVENTS_TOGETHER):
            yield some
            some, held = [], 0
        if alone:
            yield [part]
            continue
        some.append(part)
        held += part.info.events
    if some:
        yield some


def total_events(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> int:
    """Events of the runs, for a progress bar."""
    query = "SELECT count(*) FROM events WHERE run_id IN (SELECT unnest(?))"
    row = first_row(con, query, list(run_ids))
    return int(row[0]) if row else 0
