"""How long does a report take to build, how much memory, and how large is the file?

    python tests/bench/bench_report.py [RUN] [--events 1000000] [--flows 1] [--keep FOLDER]

Repeats the largest flow of a recording (default: the shipped v2_single_1bdp, whose bundle is given
with --bundle if it has packets) until it has that many events, with all its decisions and packets:
times, counters and sequence numbers go on growing, so that the run looks like one long flow. Then
builds the report in a process of its own and prints seconds (wall and CPU), the peak of its memory
and the file's size. The bound to meet: 1 million events with packets in 12 s, 1 GB and 4 MB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bbrscope import fixtures
from bbrscope.analyze.replay import keep_results as results
from bbrscope.analyze.replay import replay_runs as session
from bbrscope.analyze.views.materialize import forget, materialize_replayed
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store

# Counters of 32 bits that go on growing from one repetition to the next.
COUNTERS = (
    "tp_delivered",
    "tp_lost",
    "tp_snd_una",
    "tp_snd_nxt",
    "tp_delivered_ce",
    "bbr_next_rtt_delivered",
)
PAUSE_NS = 1_000_000
MODULUS = 1 << 32


def enlarge(store: Store, run_id: int, events: int, flows: int) -> int:
    """Repeat the largest flow until `flows` of them have `events` in all; drop the other flows.

    Returns the number of events.
    """
    con = store.con
    con.execute("SET preserve_insertion_order = true")
    row = con.execute(
        "SELECT flow, events, last_ns - first_ns FROM flows WHERE run_id = ?"
        " ORDER BY events DESC LIMIT 1",
        [run_id],
    ).fetchone()
    assert row is not None
    flow, own, span = int(row[0]), int(row[1]), int(row[2]) + PAUSE_NS
    repeats = max(1, events // (own * flows))
    _keep_only(store, run_id, flow)
    grown = {
        name: con.execute(
            f"SELECT (arg_max({name}, seq)::BIGINT - arg_min({name}, seq) + {MODULUS}) % {MODULUS}"
            " FROM events WHERE run_id = ?",
            [run_id],
        ).fetchall()[0][0]
        for name in COUNTERS
    }
    # The first copy is there; init happens once.
    turns = f"(SELECT unnest(range(1, {repeats})) AS turn)"
    counters = ", ".join(
        f"(({name}::BIGINT + turn * {grown[name] or 0}) % {MODULUS})::UINTEGER AS {name}"
        for name in COUNTERS
    )
    later = f"ns + turn * {span} AS ns, (seq + turn * {own})::INTEGER AS seq"
    con.execute(
        f"INSERT INTO events BY NAME SELECT * EXCLUDE (turn) REPLACE ({later}, {counters})"
        f" FROM events, {turns} WHERE run_id = {run_id} AND kind <> 'init' ORDER BY turn, seq"
    )
    con.execute(
        f"INSERT INTO decisions BY NAME SELECT * EXCLUDE (turn) REPLACE ({later})"
        f" FROM decisions, {turns} WHERE run_id = {run_id} AND seq NOT IN"
        f" (SELECT seq FROM events WHERE run_id = {run_id} AND kind = 'init')"
        " ORDER BY turn, seq, ord"
    )
    _repeat_packets(store, run_id, turns, span, repeats)
    con.execute(
        "UPDATE flows SET events = (SELECT count(*) FROM events e WHERE e.run_id = flows.run_id),"
        " last_ns = (SELECT max(ns) FROM events e WHERE e.run_id = flows.run_id) WHERE run_id = ?",
        [run_id],
    )
    _copy_flows(store, run_id, flow, flows)
    con.execute(
        "UPDATE runs SET events = n, last_ns = last, duration_ns = last - first FROM (SELECT"
        " count(*) AS n, min(ns) AS first, max(ns) AS last FROM events) WHERE run_id = ?",
        [run_id],
    )
    return own * repeats * flows


def _keep_only(store: Store, run_id: int, flow: int) -> None:
    for table in ("events", "decisions", "flows", "replays", "gaps"):
        store.con.execute(
            f"DELETE FROM {table} WHERE run_id <> {run_id} OR flow <> {flow}",
        )
    for table in ("packets", "streams"):
        store.con.execute(
            f"DELETE FROM {table} WHERE run_id <> {run_id} OR stream NOT IN (SELECT stream FROM"
            f" streams WHERE run_id = {run_id} AND coalesce(flow, ack_flow) = {flow})"
        )


def _repeat_packets(store: Store, run_id: int, turns: str, span: int, repeats: int) -> None:
    ends = store.con.execute(
        "SELECT max(packet), max(seq + len), max(ack) FROM packets"
        " WHERE run_id = ? AND direction = 'data'",
        [run_id],
    ).fetchall()[0]
    if ends[0] is None:
        return
    count, bytes_ = int(ends[0]) + 1, int(ends[1])
    moved = f"""packet + turn * {count} AS packet, ns + turn * {span} AS ns,
      CASE direction WHEN 'data' THEN (seq + turn * {bytes_}) % {MODULUS} ELSE seq END AS seq,
      CASE direction WHEN 'ack' THEN (ack + turn * {bytes_}) % {MODULUS} ELSE ack END AS ack,
      list_transform(sack_left, lambda x: (x + turn * {bytes_}) % {MODULUS}) AS sack_left,
      list_transform(sack_right, lambda x: (x + turn * {bytes_}) % {MODULUS}) AS sack_right"""
    store.con.execute(
        f"INSERT INTO packets BY NAME SELECT * EXCLUDE (turn) REPLACE ({moved})"
        f" FROM packets, {turns} WHERE run_id = {run_id} AND flags & 7 = 0 ORDER BY turn, packet"
    )
    store.con.execute(
        f"UPDATE streams SET last_ns = last_ns + {(repeats - 1) * span} WHERE run_id = {run_id}"
    )


def _copy_flows(store: Store, run_id: int, flow: int, flows: int) -> None:
    """Make flows beside the first: each the same, with other ports."""
    for number in range(1, flows):
        new = 1000 + number
        for table in ("events", "decisions", "replays", "gaps"):
            store.con.execute(
                f"INSERT INTO {table} BY NAME SELECT * REPLACE ({new} AS flow) FROM {table}"
                f" WHERE run_id = {run_id} AND flow = {flow}"
            )
        store.con.execute(
            f"INSERT INTO flows BY NAME SELECT * REPLACE ({new} AS flow, local_port + {number} AS"
            f" local_port) FROM flows WHERE run_id = {run_id} AND flow = {flow}"
        )


def prepare(path: Path, bundle: Path, events: int, flows: int) -> tuple[str, int]:
    """Make a store with the enlarged run at `path`; return the run's name and its events."""
    with open_store(path) as store:
        run_id = ingest(store, bundle).run_id
        for found in session.replay_runs(store.con, [run_id]):
            results.keep(store, found)
        forget(store.con, [run_id])
        count = enlarge(store, run_id, events, flows)
        materialize_replayed(store, [run_id])
        return store.runs()[0], count


def _peak() -> int:
    """The most memory of this process only: getrusage would count its parent's before exec."""
    (line,) = [
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line
    ]
    return int(line.split()[1]) * 1024


def measure(store: Path, run: str, output: Path) -> None:
    """Build the report in this process; print a JSON object."""
    from bbrscope.reports.commands.report import write_report

    begin, cpu = time.perf_counter(), time.process_time()
    with open_store(store, read_only=True) as opened:
        size = write_report(opened, opened.run_id(run), output)
    used = {"wall": time.perf_counter() - begin, "cpu": time.process_time() - cpu, "size": size}
    used["peak"] = _peak()
    print(json.dumps(used))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=Path, default=fixtures.path("v2_single_1bdp"))
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--flows", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep store and report in this folder")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        store, run, output = options.measure
        measure(Path(store), run, Path(output))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        path, output = folder / "big.duckdb", folder / "big.html"
        if not path.exists():
            run, events = prepare(path, options.bundle, options.events, options.flows)
            print(f"{run}: {events:,} events, {options.flows} flows, {path.stat().st_size:,} bytes")
        with open_store(path, read_only=True) as store:
            run = store.runs()[0]
        command = [sys.executable, __file__, "--measure", str(path), run, str(output)]
        used = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    print(
        f"report: {used['wall']:.1f} s (CPU {used['cpu']:.1f}), peak {used['peak'] / 1e6:,.0f} MB, "
        f"file {used['size'] / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    main()
