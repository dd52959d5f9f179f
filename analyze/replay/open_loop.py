"""The open loop: the recorded inputs replayed under other rules, and where the decisions part.

The answer is exact up to the first output (cwnd or pacing rate) that differs: until then the other
rules would have sent the very same packets. From there on the recorded inputs are those of packets
that would have been sent differently, and the answer is a guess that gets worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...probes.base.errors import BbrscopeError
from ...probes.fields import with_role
from ..bbr import codes, params
from ..bbr.records import INIT, MAIN
from ..bbr.variants.own_process import guarded
from ..bbr.variants.own_variant import base_of, parameters_under
from ..story.clock import run_zero
from . import run_params
from .drift import WATCHED, Drift, Moment, first_other_decision, measure_drift
from .flow_rows import has_values
from .load_events import load_flow
from .parameter_settings import apply_settings, parse_settings
from .passes import Array, Pass, run_pass
from .prepare import FlowEvents, copy_of, prepare
from .run_info import RunInfo, run_info

if TYPE_CHECKING:
    import duckdb

    from ...collect.store.store import Store

# Calls of main(). A flow with fewer is a control connection, which says nothing about rules.
LEAST_EVENTS = 100


@dataclass(frozen=True)
class OpenLoopAnswer:
    """The answer for one flow.

    Attributes:
        version, as_version: the recorded rules, and the other ones.
        changed: by parameter, its recorded and its other value in kernel units.
        first_decision: where the decisions differ first; None: nowhere.
        caveats: inputs that the recording lacks, in words.
        decided: by code, how often it was decided under the other rules.
    """

    run: str
    flow: int
    version: str
    as_version: str
    changed: dict[str, tuple[int, int]]
    first_decision: Moment | None
    drift: Drift
    caveats: list[str]
    decided: dict[str, int]


def ask_run(
    store: Store,
    run: str,
    settings: Sequence[str],
    as_version: str | None,
    flow: int | None,
    seed: int = 0,
) -> list[OpenLoopAnswer]:
    """Ask for the flows of a run: `flow`, or those that carry data; `settings` as users write them.

    Raises:
        BbrscopeError: no such run, flow or parameter, and what `ask` raises.
    """
    info = run_info(store.con, store.run_id(run))
    flavour = base_of(as_version) if as_version else info.flavour
    values = parse_settings(settings, flavour, readers=[as_version or info.rules])
    if flow is not None and flow not in info.flows:
        known = ", ".join(map(str, info.flows)) or "none"
        raise BbrscopeError(f"{run} has no flow {flow}", f"it has {known}")
    chosen = busy_flows(store.con, info) if flow is None else (flow,)
    return [ask(store.con, info, one, values, as_version, seed) for one in chosen]


def ask(
    con: duckdb.DuckDBPyConnection,
    info: RunInfo,
    flow: int,
    settings: Mapping[str, int],
    as_version: str | None,
    seed: int = 0,
) -> OpenLoopAnswer:
    """Replay one flow twice in free run, as recorded and under other rules, and compare.

    Raises:
        BbrscopeError: the recording lacks inputs that the other rules need, or a user's file
            cannot be loaded or run.
    """
    target = as_version or info.rules
    needs = base_of(target)
    own = run_params.of_flow(
        con, info.run_id, flow, run_params.of_run(con, info.run_id, info.flavour)
    )
    other = apply_settings(parameters_under(target, info.rules, own), settings)
    columns, record = load_flow(con, info.run_id, flow), params.make(own)
    events = prepare(columns, info.rules, record, info.last_exit_ns)
    caveats = _caveats(events, info, needs, columns)
    recorded, _ = run_pass(events, info.rules, record, "free-run", True, watch=WATCHED)
    # After the first pass, which finds the random draws.
    replayed = _replay(_open_loop(events, other, seed), target, other)
    zero_ns = run_zero(con, info.run_id) or 0
    return OpenLoopAnswer(
        info.run,
        flow,
        info.rules,
        target,
        _changes(own, other),
        first_other_decision(events, zero_ns, recorded, replayed),
        measure_drift(events, zero_ns, recorded, replayed),
        caveats,
        _decided(replayed),
    )


def _replay(events: FlowEvents, target: str, other: dict[str, Any]) -> Pass:
    """Free run under other rules; those of a user's file run in a process of their own."""

    def replay(stop: int | None = None) -> Pass:
        record = params.make(other)
        return run_pass(events, target, record, "free-run", True, stop, watch=WATCHED)[0]

    return guarded([target], replay, len(events.events), lambda: replay(0))


def _decided(replayed: Pass) -> dict[str, int]:
    """How often each code was decided, by name, in the order of their numbers."""
    assert replayed.decisions is not None
    numbers, counts = np.unique(replayed.decisions[:, 1], return_counts=True)
    pairs = zip(numbers.tolist(), counts.tolist(), strict=True)
    return {codes.CODES[number].name: count for number, count in pairs}


def busy_flows(con: duckdb.DuckDBPyConnection, info: RunInfo) -> tuple[int, ...]:
    """Return the run's flows worth asking about: those with enough decisions, or else the busiest.

    What counts are calls of cong_control(). A receiver's socket has none, though CE marks on the
    data that it receives call its BBR, too (cwnd_event()).
    """
    rows = con.execute(
        'SELECT flow, "main" FROM flows WHERE run_id = ? ORDER BY "main" DESC, events DESC',
        [info.run_id],
    ).fetchall()
    busy = sorted(int(flow) for flow, decided in rows if decided >= LEAST_EVENTS)
    return tuple(busy or [int(flow) for flow, _ in rows[:1]])


def _caveats(
    events: FlowEvents, info: RunInfo, target: str, columns: Mapping[str, Array]
) -> list[str]:
    """What the recording lacks for the other rules; refuses where they would run on nothing."""
    if target == info.version:
        return []

    absent = [one for one in with_role("input") if not has_values(columns[one.column])]
    _refuse_guesses(events, info, target, [c.column for c in absent if target in c.essential])
    return [
        f"the recording lacks {one.column}, taken as 0" for one in absent if target in one.required
    ]


def _refuse_guesses(events: FlowEvents, info: RunInfo, target: str, lacking: Sequence[str]) -> None:
    """Refuse rules that would decide by what was not recorded: inputs, or the state at the start.

    Raises:
        BbrscopeError: they would.
    """
    if not (events.columns["kind"] == MAIN).any():
        raise BbrscopeError(
            f"main() was never recorded in {info.run}: no ACK tells {target} what to decide",
            f"see what other calls show: bbrscope explain {info.run} --flow 1",
        )
    if lacking:
        raise BbrscopeError(
            f"{info.run} is a recording of {info.version} and lacks {', '.join(lacking)}, "
            f"which {target} decides by",
            "record it on a kernel that carries the v2 or v3 patch",
        )
    if not len(events.events) or events.events["ctl"]["kind"][0] != INIT:
        raise BbrscopeError(
            f"{info.run} starts in the middle of a flow: {target}'s state at that point is unknown",
            "use --as with a recording that includes the connection's start",
        )


def _open_loop(events: FlowEvents, other: Mapping[str, Any], seed: int) -> FlowEvents:
    """The same inputs with nothing to compare; random draws where none were recorded."""
    changed = copy_of(events.events)
    ctl, tp = changed["ctl"], changed["tp"]
    ctl["has_next"] = np.where(ctl["kind"] == INIT, ctl["has_next"], 0)
    ctl["check"] = 0
    ctl["may_tick"] = 0
    fresh = np.flatnonzero(events.events["tp"]["draws"] == 0)
    rng = np.random.default_rng(seed)
    rounds = int(other.get("bw_probe_rand_rounds", 0))
    wait_us = int(other.get("bw_probe_rand_us", 0))
    tp["rand_rounds"][fresh] = rng.integers(0, max(rounds, 1), len(fresh))
    tp["rand_wait_us"][fresh] = rng.integers(0, max(wait_us, 1), len(fresh))
    tp["rand_cycle"][fresh] = rng.integers(0, 7, len(fresh))
    return FlowEvents(**vars(events) | {"events": changed})


def _changes(own: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    names = [name for name in params.PARAMS.names or () if name != "pacing_gain"]
    return {
        name: (int(own.get(name, 0)), int(other.get(name, 0)))
        for name in names
        if own.get(name, 0) != other.get(name, 0)
    }
