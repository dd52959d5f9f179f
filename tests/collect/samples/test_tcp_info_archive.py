"""M-Lab's tcp-info archives, written here by the kernel's own order of fields."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import pytest
import zstandard
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.bundle.recognise import recognise
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.probes.base.errors import BundleError
from bbrscope.reports.commands.ingest import describe

# include/uapi/linux/tcp.h: sizes in bytes, in order.
TCP_INFO = [
    *((f"byte{number}", 1) for number in range(8)),
    *((name, 4) for name in "rto ato snd_mss rcv_mss unacked sacked lost retrans fackets".split()),
    *((name, 4) for name in "data_sent ack_sent data_recv ack_recv pmtu rcv_ssthresh".split()),
    *((name, 4) for name in "rtt rttvar snd_ssthresh snd_cwnd advmss reordering rcv_rtt".split()),
    *((name, 4) for name in "rcv_space total_retrans".split()),
    *((name, 8) for name in "pacing_rate max_pacing_rate bytes_acked bytes_received".split()),
    *((name, 4) for name in "segs_out segs_in notsent_bytes min_rtt data_in data_out".split()),
    *((name, 8) for name in "delivery_rate busy_time rwnd_limited sndbuf_limited".split()),
    *((name, 4) for name in "delivered delivered_ce".split()),
    *((name, 8) for name in "bytes_sent bytes_retrans".split()),
]


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def snapshot(second: int, number: int, port: int = 5000) -> str:
    values = {name: 1000 * number + place for place, (name, _) in enumerate(TCP_INFO) if place > 7}
    values |= {"byte7": 1, "snd_ssthresh": 0x7FFFFFFF, "retrans": 0, "lost": 0, "sacked": 1}
    info = b"".join(values.get(name, 0).to_bytes(size, "little") for name, size in TCP_INFO)
    source, target = (bytes(10) + b"\xff\xff" + bytes(ip) for ip in ((10, 0, 0, 1), (10, 0, 0, 2)))
    message = struct.pack(">BBBBHH16s16s", 10, 1, 0, 0, port, 443, source, target)
    message += struct.pack("<IQ", 0, port) + bytes(20)
    bbr = struct.pack("<5I", 0x80000000, 1, 20_000, 739, 512)
    attributes: list[str | None] = [None] * 17
    attributes[2], attributes[4], attributes[16] = text(info), text(b"bbr\0"), text(bbr)
    time = f"2019-07-16T21:09:{second:02d}.000000{number % 1000:03d}Z"
    return json.dumps({"Timestamp": time, "RawIDM": text(message), "Attributes": attributes})


def archive(path: Path, lines: list[str]) -> Path:
    path.write_bytes(zstandard.compress(("\n".join(lines) + "\n").encode()))
    return path


def test_an_archive_becomes_a_run_of_rung_inet_diag(tmp_path: Path) -> None:
    lines = ['{"Metadata": {"UUID": "x_1", "Sequence": 0}}', snapshot(1, 1), snapshot(2, 2)]
    broken = snapshot(3, 3).replace("bbr", "BBR")[:-30]
    lines += [snapshot(3, 1, 6000), broken, '{"RawIDM": "!", "Timestamp": 5}', '{"RawIDM": [[1]]}']
    path = archive(tmp_path / "x_1.00000.jsonl.zst", lines)
    assert recognise(path) == "tcp_info"
    with open_store(tmp_path / "s.duckdb") as store:
        outcome = ingest(store, path)
        assert (outcome.rung, outcome.run, outcome.flows) == ("inet_diag", "x_1.00000", 2)
        assert ", 3 samples of tcp-info" in describe(outcome, store.path)
        rows = store.con.sql("FROM samples ORDER BY flow, ns").pl().to_dicts()
        ends = "SELECT local_address, local_port, remote_address, remote_port FROM flows"
        assert store.con.execute(ends).fetchall()[0] == ("10.0.0.1", 5000, "10.0.0.2", 443)
        (said,) = store.con.execute("SELECT detail FROM capture_quality").fetchall()
    assert "a pause says that nothing did" in said[0]
    place = {name: number for number, (name, _) in enumerate(TCP_INFO)}
    first, second, other = rows
    assert (first["flow"], second["flow"], other["flow"]) == (1, 1, 2)
    assert first["ns"] == 1_563_311_341_000_000_001
    for column, name, scale in (
        ("mss", "snd_mss", 1),
        ("srtt_us", "rtt", 1),
        ("snd_cwnd", "snd_cwnd", 1),
        ("sk_pacing_rate", "pacing_rate", 8),
        ("bytes_acked", "bytes_acked", 1),
        ("tcp_min_rtt_us", "min_rtt", 1),
        ("delivery_rate", "delivery_rate", 8),
        ("delivered", "delivered", 1),
        ("delivered_ce", "delivered_ce", 1),
        ("bytes_retrans", "bytes_retrans", 1),
    ):
        assert first[column] == (1000 + place[name]) * scale, column
        assert second[column] == (2000 + place[name]) * scale, column
    assert first["busy_ms"] == (1000 + place["busy_time"]) // 1000
    assert first["snd_ssthresh"] is None
    assert first["app_limited"] is True
    assert first["in_flight"] == 1000 + place["unacked"] - 1
    # 0x180000000 bytes/s; 739 / 256 = 2.887, BBR's gain in STARTUP.
    assert (first["bw"], first["min_rtt_us"]) == (0x180000000 * 8, 20_000)
    assert first["phase"] == "STARTUP"


def test_an_archive_without_bbr_is_refused(tmp_path: Path) -> None:
    line = json.loads(snapshot(1, 1))
    line["Attributes"][16] = None
    path = archive(tmp_path / "a.jsonl.zst", [json.dumps(line)])
    with (
        open_store(tmp_path / "s.duckdb") as store,
        pytest.raises(BundleError, match="no sample of a BBR flow"),
    ):
        ingest(store, path)
