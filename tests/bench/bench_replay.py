"""How fast is the replay? The compiled loop alone, decisions off and on, and the whole command.

    python tests/bench/bench_replay.py [STORE] [--events 1000000]

STORE must hold replayable runs (default: one is made from the shipped recordings). Figures are the
best of five passes over the flow's events, repeated to the given number; compare ratios of one run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from bbrscope import fixtures
from bbrscope.analyze.bbr import params
from bbrscope.analyze.replay import run_params
from bbrscope.analyze.replay.load_events import load_flow
from bbrscope.analyze.replay.passes import MODES, run_pass
from bbrscope.analyze.replay.prepare import FlowEvents, prepare
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store


def largest_flow(store: Store, run_id: int) -> tuple[FlowEvents, str, np.ndarray]:
    """The run's flow with the most events, ready to replay."""
    info = run_info(store.con, run_id)
    flow = store.con.execute(
        "SELECT flow FROM events WHERE run_id = ? GROUP BY flow ORDER BY count(*) DESC", [run_id]
    ).fetchone()[0]
    values = run_params.of_run(store.con, run_id, info.flavour)
    record = params.make(run_params.of_flow(store.con, run_id, flow, values))
    columns = load_flow(store.con, run_id, flow)
    return prepare(columns, info.version, record, info.last_exit_ns), info.version, record


def repeat(flow: FlowEvents, events: int) -> FlowEvents:
    """The flow's events again and again; each repetition starts from its first recorded state."""
    times = max(1, events // len(flow.events))
    states = np.concatenate([np.tile(flow.states[:-1], (times, 1)), flow.states[-1:]])
    repeated = np.tile(flow.events, times)
    ends = np.arange(1, times) * len(flow.events) - 1
    repeated["ctl"]["has_next"][ends] = 0
    return FlowEvents(states, repeated, flow.columns, flow.compared)


def bench_loops(store: Store, events: int) -> None:
    print(f"{'run':24} {'version':8} {'mode':9} {'decisions':9}   events/s")
    for run in store.runs():
        flow, version, record = largest_flow(store, store.run_id(run))
        long = repeat(flow, events)
        for mode in MODES:
            for decisions in (False, True):
                run_pass(flow, version, record, mode, decisions)  # compile
                best = min(_time(long, version, record, mode, decisions) for _ in range(5))
                rate = len(long.events) / best
                on = "on" if decisions else "off"
                print(f"{run:24} {version:8} {mode:9} {on:9} {rate / 1e6:8.2f} M")


def _time(flow: FlowEvents, version: str, record: np.ndarray, mode: str, decisions: bool) -> float:
    seconds: list[float] = []
    run_pass(flow, version, record, mode, decisions, timings=seconds)
    return sum(seconds)


def bench_command(path: Path) -> None:
    for label in ("first", "second"):
        start = time.perf_counter()
        command = [sys.executable, "-m", "bbrscope.reports", "replay", "--store", str(path)]
        subprocess.run(command, check=True, capture_output=True)
        print(f"bbrscope replay, all runs, {label} time: {time.perf_counter() - start:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", nargs="?", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.store
        if path is None:
            from bbrscope.collect.ingest.ingest import ingest

            path = Path(folder) / "bench.duckdb"
            with open_store(path) as store:
                for name in fixtures.names():
                    ingest(store, fixtures.path(name))
        with open_store(path, read_only=True) as store:
            bench_loops(store, options.events)
        bench_command(path)


if __name__ == "__main__":
    main()
