"""What looks on at a recording: the table and its keys, the story, and the metrics."""

from __future__ import annotations

import curses
import json
import re
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from bbrscope import fixtures
from bbrscope.analyze.live import live_session
from bbrscope.analyze.live.follower import Follower
from bbrscope.analyze.live.live_events import LiveEvent, LiveFlow
from bbrscope.analyze.live.live_flows import FlowNow, LiveFlows
from bbrscope.analyze.live.live_session import LiveSession
from bbrscope.collect.flight.triggers import LiveBatch
from bbrscope.collect.record.plan import RecordingPlan
from bbrscope.collect.samples.ss_log import samples
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.reports.commands import exporter, top
from bbrscope.reports.commands.exporter import serve
from bbrscope.reports.live import story_printer
from bbrscope.reports.live.live_metrics import LiveMetrics
from bbrscope.reports.live.live_screen import LiveScreen
from bbrscope.reports.live.story_printer import StoryPrinter
from bbrscope.reports.text import flow_screen

from tests.live_stream import batches, stream

SS = (
    "ESTAB 0 0 192.0.2.1:443 192.0.2.9:5555 sk:9 bbr wscale:7,7 rto:204 rtt:12.5/1 mss:1448 "
    "cwnd:40 unacked:30 bbr:(bw:20000000bps,mrtt:10.5,pacing_gain:1.25,cwnd_gain:2) "
    "pacing_rate 25000000bps delivery_rate 19000000bps"
)


class Replayed:
    """A session out of a recorded stream: a batch of half a second with every tick."""

    ended, rung = "", "fentry"

    def __init__(self, bundle: Path) -> None:
        self.follower, self.flows = Follower(), LiveFlows()
        document = json.loads((bundle / "manifest.json").read_text())
        self.follower.begin({**document, "rung": "fentry"})
        self.batches = list(batches(bundle))

    def tick(self) -> LiveBatch:
        """Take the next batch."""
        batch = self.batches.pop(0)
        followed = self.follower.take(batch)
        self.flows.take(self.follower.version, followed)
        return batch


@pytest.fixture(scope="module")
def session() -> Replayed:
    """Eight seconds into v2_x_spur."""
    replayed = Replayed(fixtures.path("v2_x_spur"))
    for _ in range(16):
        replayed.tick()
    return replayed


def test_the_screen_shows_flows_and_obeys_its_keys(session: Replayed) -> None:
    screen = LiveScreen(cast("LiveSession", session), "delivered_mbps", "")
    screen.look()
    (flow,) = screen.flows
    assert flow.flow.endswith("> 10.9.0.2:5300")
    assert flow.phase is not None
    assert flow.limit is not None
    assert flow.decision is not None
    assert 1 < (flow.delivered_mbps or 0) < 60
    shown = "\n".join(screen.lines(10))
    assert flow.phase in shown
    assert flow.flow in shown
    screen.press(ord("s"))
    assert screen.sort == "bw_mbps"
    for key in (ord("/"), *map(ord, "nosuchh"), curses.KEY_BACKSPACE, 10):
        screen.press(key)
    assert screen.words == "nosuch"
    screen.look()
    assert screen.flows == []
    for key in (ord("/"), 10):
        screen.press(key)
    screen.look()
    screen.press(10)
    screen.press(ord(" "))
    assert "FROZEN" in screen.lines(10)[0]
    story = screen.lines(30)[3:]
    assert len(story) > 5
    assert all(re.match(r" *-?[\d.]+ s  \S", line) for line in story)
    screen.press(27)
    assert screen.story is None
    screen.press(ord("q"))
    assert screen.done


def test_a_frozen_screen_shows_the_values_of_then() -> None:
    flows = LiveFlows()
    screen = LiveScreen(cast("LiveSession", SimpleNamespace(flows=flows, rung="")), "flow", "")
    shown = []
    for line, frozen in ((SS, False), (SS.replace("rtt:12.5", "rtt:99.5"), True), (SS, False)):
        screen.frozen = frozen
        flows.sample(samples([line]), 5)
        screen.look()
        shown.append([flow.srtt_ms for flow in screen.flows])
    assert shown == [[12.5], [12.5], [12.5]]
    flows.sample(samples([SS.replace("rtt:12.5", "rtt:99.5")]), 6)
    screen.look()
    assert [flow.srtt_ms for flow in screen.flows] == [99.5]


def test_a_frozen_screen_is_sorted_and_filtered_as_its_first_line_says() -> None:
    session = cast("LiveSession", SimpleNamespace(flows=SimpleNamespace(flows=[]), rung="fentry"))
    session.flows.flows[:] = [FlowNow("a", loss=0.1, cwnd=9), FlowNow("b", loss=0.2, cwnd=8)]
    screen = LiveScreen(session, "cwnd", "")
    screen.look()
    screen.press(ord(" "))
    shown = []
    for sort, words in (("cwnd", ""), ("loss", ""), ("loss", "a")):
        screen.sort, screen.words = sort, words
        screen.look()
        shown.append([flow.flow for flow in screen.flows])
    assert shown == [["a", "b"], ["b", "a"], ["a"]]


def test_a_story_stands_still_with_the_screen_and_stays_when_its_flow_is_gone() -> None:
    told = {"a": [(1, "first")]}
    flows = SimpleNamespace(flows=[FlowNow("a")], story=lambda flow: list(told.get(flow, [])))
    screen = LiveScreen(cast("LiveSession", SimpleNamespace(flows=flows, rung="")), "flow", "")
    screen.look()
    screen.press(10)
    screen.press(ord(" "))
    told["a"].append((screen.taken_ns + 1, "second"))
    screen.look()
    assert screen.lines(10)[-1].endswith(" s  first")
    screen.press(27)
    screen.press(10)
    assert screen.lines(10)[-1].endswith(" s  first")
    screen.press(ord(" "))
    screen.look()
    assert screen.lines(10)[-1].endswith(" s  second")
    flows.flows, told["a"] = [], []
    screen.look()
    assert screen.lines(10)[-2].endswith(" s  second")
    assert screen.lines(10)[-1].startswith("nothing comes of this flow")
    assert screen.lines(5)[-1].startswith("nothing comes of this flow")


def test_what_a_rung_does_not_tell_is_a_dash_and_sorted_last() -> None:
    flows = LiveFlows()
    for second in (1, 2):
        acked = f"{SS} bytes_acked:{2_375_000 * second}"
        flows.sample(samples([acked]), second * 10**9)
    (flow,) = flows.flows
    assert (flow.flow, flow.phase, flow.cwnd) == (
        *("192.0.2.1:443 > 192.0.2.9:5555", "PROBE_BW_1.25", 40),
    )
    assert (flow.bw_mbps, flow.pacing_mbps, flow.delivered_mbps) == (20.0, 25.0, 19.0)
    assert flow.loss is None
    wide = flow_screen.columns([flow])
    assert len(flow_screen.line(flow, wide)) == len(flow_screen.heading(wide))
    lossy = FlowNow("a > b", loss=0.1)
    assert flow_screen.ordered([flow, lossy], "loss") == [lossy, flow]
    flows.forget(60 * 10**9)
    assert flows.flows == []


def test_a_slow_ss_does_not_change_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ss tells is as old as its answer, not as the question: 19 Mbit/s stay that."""
    second, clock, takes = 10**9, [0], [10**9 // 2, 10**9 // 100]

    def answer(*_: object) -> str:
        clock[0] += takes.pop()
        return f"{SS} bytes_acked:{2_375 * clock[0] // 10**6}"

    monkeypatch.setattr(live_session, "time", SimpleNamespace(monotonic_ns=lambda: clock[0]))
    monkeypatch.setattr(live_session.samplers, "ss_lines", answer)
    session = LiveSession(RecordingPlan(Path("none"), rung="inet_diag"), lambda _: None)
    for start in (second, 3 * second):
        clock[0] = start
        session._look(start)
    assert session.flows.flows[0].delivered_mbps == pytest.approx(19.0)


def test_a_session_whose_bpftrace_died_has_failed(tmp_path: Path) -> None:
    session = LiveSession(RecordingPlan(tmp_path / "x"), print)
    session.stop()
    session.ended = "duration"
    session.require_attached()
    session.ended = "bpftrace ended by itself (signal 9)"
    with pytest.raises(BbrscopeError, match=r"by itself \(signal 9\)"):
        session.require_attached()


def test_what_matters_most_is_on_a_narrow_screen_and_no_number_is_cut() -> None:
    """The limit and the last decision stay at 80 columns; a number loses digits, never its end."""
    decided = FlowNow(
        "10.0.0.1:443 > 10.0.0.2:5555", phase="CRUISE", limit="cwnd", decision="left UP: loss"
    )
    fast = FlowNow("::1:1 > ::1:2", bw_mbps=1247242.25, pacing_mbps=123456789012.0, loss=0.5)
    for width in (60, 80, 120, 200):
        wide = flow_screen.columns([decided, fast], width)
        shown = [flow_screen.heading(wide), *(flow_screen.line(f, wide) for f in (decided, fast))]
        assert max(map(len, shown)) <= width
        assert all(words in shown[1] for words in ("CRUISE", "cwnd"))
        assert "left UP: loss" in shown[1] or width < 80
    assert shown[2].split()[5:7] == ["1247242", "1.2e+11"]


def test_long_addresses_leave_both_ends_and_their_ports_on_the_screen() -> None:
    """Flows of IPv6 between the same hosts differ in what comes last; a pipe has room for all."""
    ends = "[2001:db8:1234:5678:9abc:def0:1234:{}]:{}"
    names = [f"{ends.format('1', 443)} > {ends.format('2', port)}" for port in (50_001, 50_002)]
    flows = [FlowNow(name, decision="left UP: loss" * 6) for name in names]
    for width in (60, 80, 120):
        wide = flow_screen.columns(flows, width)
        shown = [flow_screen.line(flow, wide).split("  ")[0] for flow in flows]
        assert all(re.match(r"\[2001:\S*~\S*:1\]:443 > \[2001:\S*~\S*:2\]:", one) for one in shown)
        assert [re.findall(r":(\d+)", one)[-1] for one in shown] == ["50001", "50002"]
    wide = flow_screen.columns(flows)
    for flow in flows:
        line = flow_screen.line(flow, wide)
        assert flow.flow in line
        assert flow.decision is not None
        assert flow.decision in line


def test_a_look_that_saw_no_flow_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    silent = SimpleNamespace(ended="", tick=lambda: None, flows=LiveFlows(), rung="fentry")
    top._print_once(cast("LiveSession", silent), "loss", "", 0.1, as_json=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "nothing came of any flow within 0.1 s: -d looks for longer\n"


def test_the_choice_stays_with_its_flow_and_on_the_screen(session: Replayed) -> None:
    screen = LiveScreen(cast("LiveSession", session), "flow", "")
    screen.flows = screen.taken = [FlowNow(f"flow {number:02}") for number in range(50)]
    for _ in range(30):
        screen.press(curses.KEY_DOWN)
    assert any(line.startswith("flow 30 ") for line in screen.lines(20, 100))
    screen.flows.reverse()
    assert screen.marked == 19
    screen.press(10)
    assert screen.story == "flow 30"
    assert screen.lines(20, 100)[-1].startswith("nothing has changed")


def test_the_story_is_reported_as_it_happens(capsys: pytest.CaptureFixture[str]) -> None:
    printer, bundle = StoryPrinter(), fixtures.path("v2_x_spur")
    document = json.loads((bundle / "manifest.json").read_text())
    printer.begin({**document, "rung": "fentry"})
    for number, batch in enumerate(batches(bundle)):
        printer.say_change(printer.follower.take(batch))
        said = capsys.readouterr().out
        if number == 0:
            assert "Connection entered BBR in STARTUP" in said
        assert all(
            re.match(r"\d\d:\d\d:\d\d\.\d{3}  \S+ > \S+  ", line) for line in said.splitlines()
        )


def test_a_story_that_nobody_reads_any_more_does_not_end_the_recording(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `| head`: what is said of it is on stderr, and once."""
    printer, bundle = StoryPrinter(), fixtures.path("v2_x_spur")
    document = json.loads((bundle / "manifest.json").read_text())
    printer.begin({**document, "rung": "fentry"})
    told = list[str]()

    def say(text: str, err: bool = False) -> None:
        told.append(text)
        if not err and len(told) > 3:
            raise BrokenPipeError

    monkeypatch.setattr(story_printer, "say", say)
    heads, rows = stream(bundle)
    lines = [line for _, line in rows]
    for first in range(0, len(lines), 2000):
        printer.see(heads.splitlines(keepends=True), lines[first : first + 2000], rows[-1][0])
    printer.end()
    assert len(told) == 5
    assert told[-1].strip().startswith("nobody reads the story any more")


def test_a_terminal_that_is_not_known_is_refused_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown() -> None:
        raise curses.error("setupterm: could not find terminal")

    monkeypatch.setattr(curses, "setupterm", unknown)
    monkeypatch.setenv("TERM", "nosuch")
    with pytest.raises(BbrscopeError, match="on the terminal 'nosuch': setupterm") as refused:
        top.require_terminal()
    assert "--once" in refused.value.way_out


@pytest.mark.parametrize(("ns", "shown"), [(999_600_000, "00.999"), (1_000_000_000, "01.000")])
def test_the_time_of_a_line_is_never_a_second_early(
    ns: int, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.9996 s is not 0.000 s."""
    printer = StoryPrinter()
    monkeypatch.setattr(printer, "_ahead_ns", 0)
    printer._say(LiveEvent(LiveFlow(1, "9"), "main", ns, 0, {}), "words")
    assert f":{shown}  socket 9  words" in capsys.readouterr().out


def test_metrics_are_read_back_by_prometheus_own_parser(session: Replayed) -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    metrics, again = LiveMetrics(), Replayed(fixtures.path("v3_x_tlp5"))
    events = 0
    while again.batches:
        batch = again.tick()
        followed = again.follower.take(batch)
        events += len(followed.events)
        metrics.take(followed)
        metrics.update_flows(again.flows.flows, 7)
    server = serve("127.0.0.1:0", metrics)
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}/../etc/passwd")
    finally:
        server.shutdown()
        server.server_close()
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    counted = families["bbrscope_live_events"].samples
    assert sum(sample.value for sample in counted) == events
    decisions = {s.labels["decision"] for s in families["bbrscope_live_decisions"].samples}
    assert {"INIT", "DRAIN_ENTER"} <= decisions
    rtt = families["bbrscope_live_rtt_seconds"].samples
    assert {"phase", "limit", "le"} == {name for sample in rtt for name in sample.labels}
    assert not re.search(r"\d+\.\d+\.\d+\.\d+|socket", text)
    assert families["bbrscope_live_lost_rows"].samples[0].value == 7


def test_a_flow_is_observed_while_it_is_heard_of_and_counted_while_it_may_live() -> None:
    """Nothing tells that a flow has ended: it is shown for ten seconds more."""
    metrics = LiveMetrics()
    short = FlowNow("a > b", phase="STARTUP", srtt_ms=5.0, delivered_mbps=1.0, loss=0.0, ns=7)
    long = FlowNow("a > c", phase="STARTUP", srtt_ms=50.0, ns=8)
    for _ in range(10):
        metrics.update_flows([short, long], 0)
        long.ns += 5
    lines = metrics.text().splitlines()
    labels = '{phase="STARTUP",limit="unknown"}'
    assert f"bbrscope_live_flows{labels} 2" in lines
    assert f"bbrscope_live_rtt_seconds_count{labels} 11" in lines
    assert f"bbrscope_live_delivery_bits_per_second_count{labels} 1" in lines


def test_a_scrape_that_hangs_or_hangs_up_holds_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One who never ends its request, one who never reads, and one who is gone."""
    monkeypatch.setattr(exporter, "PATIENCE_S", 0.3)
    asked, gone = threading.Event(), threading.Event()

    def answer() -> str:
        asked.set()
        gone.wait(10)
        return "x" * 50_000_000

    before = threading.active_count()
    server = serve("127.0.0.1:0", cast("LiveMetrics", SimpleNamespace(text=answer)))
    where = ("127.0.0.1", int(server.server_address[1]))
    request = b"GET /metrics HTTP/1.1\r\n\r\n"
    with socket.create_connection(where) as half, socket.create_connection(where) as slow:
        half.sendall(request[:9])
        slow.sendall(request)
        with socket.create_connection(where) as one:
            one.sendall(request)
            assert asked.wait(10)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.set()
        half.settimeout(10)
        assert half.recv(1) == b""
        deadline = time.monotonic() + 10
        while threading.active_count() > before + 1 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert threading.active_count() == before + 1  # the one that listens
    server.shutdown()
    server.server_close()
    assert capfd.readouterr().err == ""


def test_an_address_of_ipv6_is_served() -> None:
    server = serve("[::1]:0", LiveMetrics())
    try:
        with urllib.request.urlopen(f"http://[::1]:{server.server_address[1]}/metrics") as answer:
            assert answer.read().endswith(b"# EOF\n")
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:99999", "256.0.0.1:0", ":80"])
def test_an_address_that_is_none_is_refused_with_a_way_out(listen: str) -> None:
    with pytest.raises(BbrscopeError) as refused:
        serve(listen, LiveMetrics())
    assert refused.value.way_out


def test_a_name_neither_moves_the_cursor_nor_begins_a_line() -> None:
    hostile = FlowNow("[fe80::1%\x1b[2J\u202e\r\n]:443", phase="UP\x07", decision="x\nflow")
    shown = flow_screen.line(hostile, flow_screen.columns([hostile]))
    assert all(text in shown for text in (r"%\x1b[2J\u202e\r\n]", r"UP\x07", r"x\nflow"))
    assert shown.isprintable()
