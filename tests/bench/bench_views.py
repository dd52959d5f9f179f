"""How long does every shipped view take on a store of ten million events?

    python tests/bench/bench_views.py [--events 10000000] [--keep FILE]

The shipped recordings are loaded, replayed and repeated under other names until there are so many
events; packets, decisions and everything else that belongs to them is repeated, too. The one with
packets has its flows twice, as if two shared its path, for the views that tell how. Each view is
then asked twice over all runs and once for one run, by a connection with two threads to the file
opened read-only: how many rows it has, an aggregate over all its numbers, and the same of one run.
Printed is the best of three, in wall time and in CPU time over both threads; on a busy machine the
half of the latter is what the former would be on two cores of one's own.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import duckdb
from bbrscope import fixtures
from bbrscope.analyze.replay import keep_results as results
from bbrscope.analyze.replay import replay_runs as session
from bbrscope.analyze.views import materialize
from bbrscope.analyze.views.registry import TABLES, VIEWS
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.analyze.views.view import View
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store

LIMIT_S = 1.0
SHARED = "v2_single_1bdp"
NUMBERS = ("INTEGER", "BIGINT", "DOUBLE", "SMALLINT", "TINYINT")


def build(path: Path, events: int) -> None:
    """Make the store."""
    with open_store(path) as store:
        for name in fixtures.names():
            ingest(store, fixtures.path(name))
        share(store, SHARED)
        ids = [store.run_id(name) for name in store.runs()]
        for flows in session.replay_runs(store.con, ids):
            results.keep(store, flows)
        materialize.materialize_replayed(store, ids)
        repeat(store, events)


def share(store: Store, run: str) -> None:
    """Double the flows of a run and their packets, under other numbers."""
    con, run_id = store.con, store.run_id(run)
    flows, stream, packet = con.execute(
        "SELECT max(ack_flow), max(stream) + 1, max(packet) FROM packets WHERE run_id = ?",
        [run_id],
    ).fetchall()[0]
    ahead = {"flow": flows, "ack_flow": flows, "stream": stream, "packet": packet}
    with store.transaction():
        for table in TABLES:
            types = {column.name: column.type for column in table.columns}
            moved = [f"({n} + {ahead[n]})::{types[n]} AS {n}" for n in ahead if n in types]
            if moved and "run_id" in types:
                con.execute(
                    f'INSERT INTO "{table.name}" SELECT * REPLACE ({", ".join(moved)})'
                    f' FROM "{table.name}" WHERE run_id = {run_id}'
                )
        con.execute(
            "UPDATE runs SET flows = 2 * flows, events = 2 * events WHERE run_id = ?", [run_id]
        )


def repeat(store: Store, events: int) -> None:
    """Repeat what is in a store under other numbers and names, one transaction per table."""
    con = store.con
    have, runs = con.execute("SELECT sum(events), max(run_id) FROM runs").fetchall()[0]
    for table in (*TABLES, *materialize.TABLES):
        names = [column.name for column in table.columns]
        if "run_id" not in names:
            continue
        changed = f"(run_id + $turn * {runs})::INTEGER AS run_id"
        if "run" in names:
            changed += ", run || '_' || $turn AS run"
        con.execute(f'CREATE OR REPLACE TEMP TABLE one AS FROM "{table.name}"')
        with store.transaction():
            for turn in range(1, events // have + 1):
                con.execute(
                    f'INSERT INTO "{table.name}" SELECT * REPLACE ({changed}) FROM one',
                    {"turn": turn},
                )
    con.execute("CHECKPOINT")


def questions(view: View) -> dict[str, str]:
    """Return the queries by what is asked."""
    numbers = [c.name for c in view.columns if c.type.lstrip("U") in NUMBERS]
    sums = ", ".join(f'avg("{name}"), max("{name}")' for name in numbers)
    one = f" WHERE run = '{SHARED}'" if any(c.name == "run" for c in view.columns) else ""
    if not one and any(c.name == "run_id" for c in view.columns):
        one = " WHERE run_id = 2"
    return {
        "count": f'SELECT count(*) FROM "{view.name}"',
        "aggregate": f'SELECT {sums or "count(*)"} FROM "{view.name}"',
        "one run": f'SELECT {sums or "count(*)"} FROM "{view.name}"{one}',
    }


def measure(con: duckdb.DuckDBPyConnection, query: str) -> tuple[float, float]:
    """Return wall and CPU seconds, the best of three each."""
    times = []
    for _ in range(3):
        before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        con.execute(query).fetchall()
        wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        times.append((wall, cpu))
    return min(wall for wall, _ in times), min(cpu for _, cpu in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--keep", type=Path, help="use this store, and make it if it is missing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "views.duckdb"
        if not path.exists():
            build(path, options.events)
        with open_store(path, read_only=True) as store:
            con = store.con
            con.execute("SET threads = 2")
            events, runs = con.execute("SELECT sum(events), count(*) FROM runs").fetchall()[0]
            print(f"{events:,} events in {runs:,} runs, {path.stat().st_size / 1e9:.1f} GB")
            print(f"{'view':22} {'rows':>12}  count s (CPU)  aggregate s (CPU)  one run s (CPU)")
            for view in VIEWS:
                rows = con.execute(f'SELECT count(*) FROM "{view.name}"').fetchall()[0][0]
                seconds = [measure(con, query) for query in questions(view).values()]
                slow = " SLOW" if any(wall > LIMIT_S for wall, _ in seconds) else ""
                cells = "".join(f"   {wall:7.3f} ({cpu:6.3f})" for wall, cpu in seconds)
                print(f"{view.name:22} {rows:12,}{cells}{slow}", flush=True)


if __name__ == "__main__":
    main()
