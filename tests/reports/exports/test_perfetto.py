"""A trace says to Perfetto's own schema what the store says, and the queries of its page work."""

from __future__ import annotations

import re
import sqlite3
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.reports import exports
from bbrscope.reports.cli import cli
from click.testing import CliRunner

schema = pytest.importorskip(
    "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="pip install perfetto"
)
RUNS = ("v2_single_1bdp", "v1_x_lt")
ZERO = 1_000_000_000


def packets(path: Path) -> list[Any]:
    """All packets of a trace, by Perfetto's own schema."""
    found = []
    for packet in schema.Trace.FromString(path.read_bytes()).packet:
        if packet.compressed_packets:
            found += schema.Trace.FromString(zlib.decompress(packet.compressed_packets)).packet
        else:
            found.append(packet)
    return found


class TraceTables:
    """The tables that the trace processor makes of a trace, as far as the queries use them."""

    def __init__(self, trace: list[Any]) -> None:
        self.con = sqlite3.connect(":memory:")
        self.arguments: list[dict[str, Any]] = []
        self.con.create_function("extract_arg", 2, lambda n, key: self.arguments[n].get(key))
        self.con.executescript(
            "CREATE TABLE track (id, name, parent_id, unit);"
            "CREATE TABLE slice (id, ts, dur, track_id, name, arg_set_id);"
            "CREATE TABLE counter (ts, track_id, value);"
            "CREATE TABLE flow (slice_out, slice_in);"
        )
        self.open: dict[int, list[int]] = {}
        self.arrows: dict[int, list[tuple[int, int]]] = {}
        assert all(packet.trusted_packet_sequence_id == 1 for packet in trace)
        assert trace[0].sequence_flags == 1
        for packet in sorted(trace, key=lambda packet: packet.timestamp):
            if packet.HasField("track_descriptor"):
                self._track(packet.track_descriptor)
            else:
                self._event(packet.timestamp, packet.track_event)
        assert not any(self.open.values())
        for ends in self.arrows.values():
            pairs = [(a[1], b[1]) for a, b in pairwise(ends)]
            self.con.executemany("INSERT INTO flow VALUES (?, ?)", pairs)

    def _track(self, about: Any) -> None:
        name = about.name or about.process.process_name
        row = (about.uuid, name, about.parent_uuid or None, about.counter.unit_name)
        self.con.execute("INSERT INTO track VALUES (?, ?, ?, ?)", row)

    def _event(self, ts: int, event: Any) -> None:
        track = event.track_uuid
        if event.type == event.TYPE_COUNTER:
            double = event.HasField("double_counter_value")
            value = event.double_counter_value if double else event.counter_value
            self.con.execute("INSERT INTO counter VALUES (?, ?, ?)", (ts, track, value))
            return
        if event.type == event.TYPE_SLICE_END:
            number = self.open[track].pop()
            self.con.execute("UPDATE slice SET dur = ? - ts WHERE id = ?", (ts, number))
            return
        number = len(self.arguments)
        self.arguments.append(
            {f"debug.{a.name}": getattr(a, a.WhichOneof("value")) for a in event.debug_annotations}
        )
        row = (number, ts, 0, track, event.name, number)
        self.con.execute("INSERT INTO slice VALUES (?, ?, ?, ?, ?, ?)", row)
        if event.type == event.TYPE_SLICE_BEGIN:
            assert not self.open.get(track), "slices of a lane follow each other"
            self.open.setdefault(track, []).append(number)
        for arrow in event.flow_ids:
            self.arrows.setdefault(arrow, []).append((ts, number))

    def rows(self, query: str) -> list[Any]:
        return self.con.execute(query).fetchall()


def export(store: Path, output: Path, *options: str) -> TraceTables:
    args = ["export", "--store", str(store), "--format", "perfetto", "-o", str(output)]
    said = CliRunner().invoke(cli, [*args, *options], catch_exceptions=False)
    assert said.exit_code == 0, said.output
    return TraceTables(packets(output))


@pytest.fixture(scope="module")
def trace(shipped_path: Path, tmp_path_factory: pytest.TempPathFactory) -> TraceTables:
    return export(shipped_path, tmp_path_factory.mktemp("trace") / "two.pftrace", *RUNS)


@pytest.fixture(scope="module")
def queries() -> list[str]:
    page = Path(exports.__path__[0], "PERFETTO.md").read_text()
    found = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert len(found) == 3
    return found


def test_the_queries_of_the_page_say_what_the_store_says(
    trace: TraceTables, queries: list[str], shipped_path: Path
) -> None:
    in_phases, moves, acks = (trace.rows(query) for query in queries)
    with open_store(shipped_path, read_only=True) as store:
        expected = store.con.execute(
            "SELECT phase, count(*), sum(duration_ns) / 1e9 FROM phases"
            " WHERE run IN ('v2_single_1bdp', 'v1_x_lt') AND flow = 1 GROUP BY run, phase"
        ).fetchall()
        changes = store.con.execute(
            "SELECT d.name, e0, e1, (d.ns - f.first_ns) / 1e9 FROM decision_log d JOIN flows f"
            " USING (run_id, flow) WHERE run = 'v2_single_1bdp' AND about = 'inflight_hi' AND"
            " change AND flow = 1 ORDER BY d.ns"
        ).fetchall()
        seen = store.con.execute(
            "SELECT m.packet FROM transitions t JOIN ack_matches m USING (run_id, flow, seq)"
            " WHERE run = 'v2_single_1bdp' ORDER BY t.seq"
        ).fetchall()
    shown = sorted((phase, times, round(seconds, 6)) for _, phase, times, seconds in in_phases)
    assert shown == sorted((phase, times, round(s, 6)) for phase, times, s in expected)
    assert {flow for flow, *_ in in_phases} == {
        "flow 1 10.1.1.2:41778 -> 10.9.0.2:5201",
        *(row[0] for row in in_phases if "41778" not in row[0]),
    }
    assert [row[2] for row in moves] == [name for name, *_ in changes]
    for (seconds, _, _, function, old, new), (_, e0, e1, t) in zip(moves, changes, strict=True):
        assert seconds == pytest.approx(t + ZERO / 1e9, abs=0.1)
        assert function.startswith("bbr2_")
        assert (old, new) in ((e0, e1), (None, e0), (None, None))
    matched = [packet for _, _, packet, _ in acks if packet is not None]
    assert sorted(set(matched)) == sorted({packet for (packet,) in seen})
    assert all(us >= 0 for *_, us in acks)


def test_counters_have_every_value_of_the_events(trace: TraceTables, shipped_path: Path) -> None:
    def counted(name: str) -> list[tuple[int, int]]:
        return trace.rows(
            "SELECT ts, value FROM counter JOIN track ON track_id = track.id JOIN track f"
            f" ON track.parent_id = f.id WHERE track.name = '{name}' AND f.name LIKE '%41778%'"
            " ORDER BY ts"
        )

    with open_store(shipped_path, read_only=True) as store:
        base, zero = store.con.execute(
            "SELECT run_id, zero_ns FROM senders WHERE run = 'v2_single_1bdp' AND flow = 1"
        ).fetchall()[0]
        of_flow = f"WHERE run_id = {base} AND flow = 1 AND kind <> 'sample' ORDER BY seq"
        rtts = store.con.execute(
            f"SELECT ns, rs_rtt_us * 1000 FROM (SELECT * FROM events {of_flow}) WHERE rs_rtt_us > 0"
        ).fetchall()
        bounds = store.con.execute(
            "SELECT ns, new FROM bounds_history WHERE run_id = ? AND flow = 1"
            " AND bound = 'inflight_hi' ORDER BY seq",
            [base],
        ).fetchall()
    changes = [row for n, row in enumerate(rtts) if n == 0 or row[1] != rtts[n - 1][1]]
    assert counted("RTT sample") == [(ns - zero + ZERO, value) for ns, value in changes]
    # Nothing is told of a bound before it is set for the first time.
    shown = counted("inflight_hi (0: unset)")
    assert shown == [(ns - zero + ZERO, new) for ns, new in bounds]


def test_names_of_the_draft_windows_and_hostile_names(
    hostile_path: Path, hostile: str, tmp_path: Path
) -> None:
    with open_store(hostile_path) as store:
        store.con.execute("UPDATE materialized_flow_summary SET local = ?", [f"{hostile}\x1b[2J\n"])
    options = ("--flow", "1", "--between", "1s", "2s", "--names", "draft", "--all")
    window = export(hostile_path, tmp_path / "w.pftrace", "v2_x_spur", *options)
    names = {name for (name,) in window.rows("SELECT name FROM track")}
    assert any(f"{hostile}\\x1b[2J\\n" in name for name in names)
    assert not any("\x1b" in name or "\n" in name for name in names)
    assert not any("inflight_hi" in name for name in names)
    lanes = "SELECT min(ts), max(ts + dur) FROM slice JOIN track ON track_id = track.id WHERE"
    for lane in ("phase", "limit", "congestion state"):
        ((first, last),) = window.rows(f"{lanes} track.name = '{lane}'")
        assert (first, last) == (10**9 + ZERO, 2 * 10**9 + ZERO)
    with open_store(hostile_path, read_only=True) as store:
        kept = store.con.execute(
            "SELECT count(*) FROM decision_log d JOIN senders s USING (run_id, flow)"
            " WHERE d.run = 'v2_x_spur' AND name = 'CRUISE_STAY'"
            " AND d.ns - zero_ns BETWEEN 1000000000 AND 2000000000"
        ).fetchall()
    about = "extract_arg(arg_set_id, 'debug.decision') = 'CRUISE_STAY'"
    assert window.rows(f"SELECT count(*) FROM slice WHERE {about}") == kept != [(0,)]
