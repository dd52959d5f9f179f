"""Every command uses what an imported run has, and says what it lacks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.packets.capture_file import pieces
from bbrscope.collect.packets.tshark import GET_TSHARK
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.reports.cli import cli
from click.testing import CliRunner

from tests.frames import capture, ethernet, ipv4, tcp

MODES = "GGGDWWWWMMWWWW"


def _kernel_log() -> str:
    """Lines as tcp_bbr2.c bbr_debug() prints them, ten a second."""
    return "".join(
        f"[{100 + at / 10:12.6f}] BBR 10.9.0.2:5201  {at * 100:5d},000:1448    O {mode} 40 br  0 "
        f"cr 38 rtt 30123 d    10 i 10000 mrtt 30001 lbw 1158 bw 11580 lb 0 ib 0 qb 33000 a 2 "
        f"if 38 . * dl {120 + 70 * at} l 0 al 0 # 0 t 80 . O lr 0 er 0 ea 1000 bwl -1 il -1 ih 90 "
        f"c -1 v 2 . 2 I N\n"
        for at, mode in enumerate(MODES)
    )


def _ss_log() -> str:
    gains = {"G": (2.88672, 2.88672), "D": (0.34375, 2.88672), "W": (1, 2), "M": (1, 1)}
    return "".join(
        f"{1_700_000_000 + at / 10:.3f}\nESTAB 0 0 10.1.0.1:41000 10.9.0.2:5201\n\t ts sack bbr "
        f"rtt:30.5/0.1 mss:1448 cwnd:40 bytes_acked:{at * 100_000} bbr:(bw:9.5Mbps,mrtt:30,"
        f"pacing_gain:{gains[mode][0]},cwnd_gain:{gains[mode][1]}) pacing_rate 9Mbps "
        f"delivery_rate 9Mbps delivered:{70 * at} unacked:38\n"
        for at, mode in enumerate(MODES)
    )


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run of each kind."""
    folder = tmp_path_factory.mktemp("imported")
    pcap = fixtures.path("v2_single_1bdp") / "packets.pcap.zst"
    given = [("kernel", _kernel_log().encode()), ("ss", _ss_log().encode())]
    if shutil.which("tshark"):
        given.append(("pcap", b"".join(piece for _, piece in pieces(pcap))))
    for name, content in given:
        (folder / name).write_bytes(content)
        with open_store(folder / "s.duckdb") as store:
            ingest(store, folder / name)
    return folder / "s.duckdb"


def _run(store: Path, *words: str) -> str:
    done = CliRunner().invoke(cli, [*words, "--store", str(store)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("run", ["kernel", "ss"])
def test_explain_tells_the_modes_that_were_seen_and_what_cannot_be_known(
    imported: Path, run: str
) -> None:
    output = _run(imported, "explain", run)
    rung = {"kernel": "kernel_log", "ss": "inet_diag"}[run]
    assert f"recorded by {rung}" in output
    assert "it cannot" in output
    assert ("? -> 10.9.0.2" in output) == (run == "kernel")
    # ss leaves the number of retransmissions out while there is none; v2alpha never prints it.
    assert ("0 packets sent again" in output) == (run == "ss")
    assert ("0 packets marked lost" in output) == (run == "kernel")
    seen = [line.split()[1] for line in output.splitlines() if " seen " in line]
    assert seen == ["STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT", "PROBE_BW"]
    with pytest.raises(BbrscopeError, match="no decisions"):
        _run(imported, "explain", run, "--only", "inflight_hi")


@pytest.mark.parametrize("run", ["kernel", "ss"])
def test_metrics_and_report_show_what_there_is(imported: Path, run: str, tmp_path: Path) -> None:
    (flow,) = json.loads(_run(imported, "metrics", run, "--format", "json"))
    # 100 kB each tenth of a second.
    assert flow["goodput_mbps"] == pytest.approx(8.0)
    assert flow["delivered_packets"] == 70 * (len(MODES) - 1)
    page = tmp_path / "page.html"
    _run(imported, "report", run, "-o", str(page))
    assert "cannot" in page.read_text()


needs_tshark = pytest.mark.skipif(
    shutil.which("tshark") is None, reason=f"tshark is not installed: {GET_TSHARK}"
)


@needs_tshark
def test_a_capture_alone_is_reported_and_drawn_with_what_packets_tell(
    imported: Path, tmp_path: Path
) -> None:
    (flow,) = json.loads(_run(imported, "explain", "pcap", "--flow", "2", "--json"))["flows"]
    output = _run(imported, "explain", "pcap")
    assert "recorded by capture" in output
    assert "it cannot see BBR's phases" in output
    assert f"{flow['summary']['pkt_segments']:,} segments" in output
    assert "Left out 1 flow that" in output
    page = tmp_path / "page.html"
    _run(imported, "report", "pcap", "-o", str(page))
    text = page.read_text()
    for chart in ("Data in flight at the capture point", "Time and sequence", "On the wire"):
        assert chart in text
    assert "cannot see BBR&#39;s phases" in text
    assert "Phase changes, and why" not in text
    for chart in ("volumes", "rtt", "loss", "sequence", "wire", "shares"):
        rows = tmp_path / f"{chart}.csv"
        _run(imported, "plot", chart, "pcap", "--data", str(rows), "-o", str(tmp_path / "x.svg"))
        (tmp_path / "x.svg").unlink()
        assert len(rows.read_text().splitlines()) > 20, chart
    for chart in ("lanes", "rates"):
        with pytest.raises(BbrscopeError, match=r"no phases|nothing to draw"):
            _run(imported, "plot", chart, "pcap", "-o", str(tmp_path / "x.svg"))


@needs_tshark
def test_runs_of_all_kinds_stand_side_by_side(imported: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    _run(imported, "report", "kernel", "ss", "pcap", "-o", str(page))
    assert page.stat().st_size > 100_000


@needs_tshark
def test_what_packets_cannot_tell_is_refused(imported: Path) -> None:
    for words in (("--only", "inflight_hi"), ("--at", "1s"), ("--between", "1s", "2s")):
        with pytest.raises(BbrscopeError, match="no decisions and no states"):
            _run(imported, "explain", "pcap", *words)


@needs_tshark
def test_times_without_an_ack_are_told_of_packets_alone_and_idle_times_are_not(
    tmp_path: Path,
) -> None:
    """Times in units of 0.1 s; a stall from 30 to 44, and silences without data, or at the end."""
    there, back = ((40000, 80), (80, 40000))
    sent = [(1, 0), (2, 1), (30, 2), (33, 2), (39, 2), (45, 3)]  # time, segment
    acked = [(2, 1), (3, 2), (44, 3)]
    steps = [(0, tcp(100, 0, 2, ports=there)), (0, tcp(500, 101, 18, ports=back))]
    steps += [(at, tcp(101 + 1000 * k, 501, 16, 1000, ports=there)) for at, k in sent]
    steps += [(at, tcp(501, 101 + 1000 * k, 16, ports=back)) for at, k in acked]
    steps.sort(key=lambda step: step[0])
    frames = [
        ethernet(ipv4(segment, *ends))
        for _, segment in steps
        for ends in [
            ("10.0.0.1", "10.0.0.2") if segment[:2] == b"\x9c\x40" else ("10.0.0.2", "10.0.0.1")
        ]
    ]
    times = [(1_700_000_000 + at // 10, at % 10 * 100_000) for at, _ in steps]
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, capture(tmp_path / "still.pcap", frames, times=times))
    told = json.loads(_run(tmp_path / "s.duckdb", "explain", "still", "--flow", "1", "--json"))
    (stall,) = told["flows"][0]["stalls"]
    assert stall["duration_s"] == pytest.approx(1.4)
    assert (stall["outstanding_bytes"], stall["resent_count"]) == (1000, 2)
    output = _run(tmp_path / "s.duckdb", "explain", "still", "--flow", "1")
    words = " ".join(output.split())
    assert "Nothing was acknowledged for 1.40 s from 3.00 s on, with 1 kB outstanding" in words
    assert "meanwhile the capture saw 2 segments sent again." in words


@needs_tshark
def test_a_capture_without_data_is_named(tmp_path: Path) -> None:
    syn = capture(tmp_path / "syn.pcap", [ethernet(ipv4(tcp(1, 0, 2)))])
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, syn)
    for words in (["report", "syn", "-o", str(tmp_path / "x.html")], ["explain", "syn"]):
        with pytest.raises(BbrscopeError, match=r"no flow (that carried|with) data"):
            _run(tmp_path / "s.duckdb", *words)


@needs_tshark
def test_metrics_of_one_direction_show_what_there_is_and_say_what_is_missing(
    tmp_path: Path,
) -> None:
    store = tmp_path / "s.duckdb"
    data = [ethernet(ipv4(tcp(1 + 10 * k, 7, 16, 10))) for k in range(100)]
    acks = [ethernet(ipv4(tcp(7, 1 + 10 * k, 16))) for k in range(100)]
    with open_store(store) as opened:
        for name, frames in (("data", data), ("acks", acks)):
            found = ingest(opened, capture(tmp_path / name, frames)).notes
            assert found["capture_one_way"] == 1
    (flow,) = json.loads(_run(store, "metrics", "data", "--format", "json"))
    assert (flow["pkt_segments"], flow["pkt_acked_bytes"]) == (100, None)
    assert "data" in _run(store, "metrics", "data").splitlines()[2]
    for by, said in (("phase", "where its phases begin"), ("flow", "no acknowledged")):
        with pytest.raises(BbrscopeError, match=said):
            _run(store, "metrics", "acks", "--by", by)


@pytest.mark.parametrize("run", ["kernel", "ss", pytest.param("pcap", marks=needs_tshark)])
def test_replay_refuses_and_points_to_what_can_be_had(imported: Path, run: str) -> None:
    with pytest.raises(BbrscopeError, match="cannot be replayed") as refused:
        _run(imported, "replay", run)
    assert f"bbrscope explain {run}" in refused.value.way_out
