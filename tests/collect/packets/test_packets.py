"""Packets: exact against an independent dissector, joined to the events, and never in the way."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.packets import (
    match as packets_match,
)
from bbrscope.collect.packets import (
    parts as packets_parts,
)
from bbrscope.collect.packets import (
    tshark as packets_tshark,
)
from bbrscope.collect.packets.tshark_fields import FIELDS
from bbrscope.collect.packets.tshark_text import Decoder
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BundleError, StoreError

from tests.frames import capture, ethernet, ipv4, ipv6, sll2, tcp

RUN = "v2_single_1bdp"

pytestmark = pytest.mark.skipif(
    shutil.which("tshark") is None,
    reason=f"tshark is not installed: {packets_tshark.GET_TSHARK}",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store.duckdb") as opened:
        yield opened


@pytest.fixture
def pcap(tmp_path: Path) -> Path:
    """The shipped recording's capture, unpacked."""
    target = tmp_path / "plain.pcap"
    target.write_bytes(_plain(fixtures.path(RUN) / "packets.pcap.zst"))
    return target


def _plain(path: Path) -> bytes:
    with open(path, "rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()


def _one(store: Store, query: str) -> Any:
    return store.con.execute(query).fetchall()[0]


def _changed_bundle(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of the shipped bundle with another manifest."""
    target = tmp_path / "changed"
    shutil.copytree(fixtures.path(RUN), target)
    target.chmod(0o755)
    manifest = target / "manifest.json"
    manifest.chmod(0o644)
    document = json.loads(manifest.read_text())
    change(document)
    manifest.write_text(json.dumps(document))
    return target


TCPDUMP = re.compile(
    r"(?P<s>\d+)\.(?P<us>\d{6}) IP "
    r"(?P<src>[\d.]+)\.(?P<sport>\d+) > (?P<dst>[\d.]+)\.(?P<dport>\d+): "
    r"Flags \[(?P<flags>[^\]]+)\](?:, seq (?P<seq>\d+)(?::\d+)?)?(?:, ack (?P<ack>\d+))?"
    r", win (?P<win>\d+)(?:, options \[(?P<options>.*?)\](?=, length))?, length (?P<len>\d+)"
)


@pytest.mark.skipif(
    shutil.which("tcpdump") is None, reason="tcpdump is not installed: apt install tcpdump"
)
def test_every_packet_is_as_tcpdump_prints_it(shipped: Store, pcap: Path) -> None:
    """tcpdump shares no code with tshark. No tolerance: both read the same bytes."""
    said = subprocess.run(
        ["tcpdump", "-tt", "-nn", "-S", "-r", str(pcap), "tcp"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    expected = []
    for line in said.splitlines():
        found = TCPDUMP.match(line)
        assert found, line
        options = found["options"] or ""
        stamps = re.search(r"TS val (\d+) ecr (\d+)", options)
        blocks = re.search(r"sack \d+ ((?:\{\d+:\d+\})+)", options)
        edges = [int(edge) for edge in re.findall(r"\d+", blocks[1])] if blocks else []
        expected.append(
            (
                int(found["s"]) * 10**9 + int(found["us"]) * 1000,
                found["src"],
                int(found["sport"]),
                found["dst"],
                int(found["dport"]),
                int(found["seq"]) if found["seq"] else None,
                int(found["ack"]) if found["ack"] else None,
                int(found["win"]),
                int(found["len"]),
                (int(stamps[1]), int(stamps[2])) if stamps else None,
                edges[::2],
                edges[1::2],
                "S" in found["flags"],
            )
        )
    rows = shipped.con.execute(
        "SELECT realtime_ns, src, sport, dst, dport, seq_raw, ack_raw, window_raw, len, tsval,"
        " tsecr, sack_left, sack_right, flags & 2 <> 0, ack_raw::BIGINT - ack FROM packets"
        " JOIN runs USING (run_id) WHERE run = ? ORDER BY packet",
        [RUN],
    ).fetchall()
    assert len(rows) == len(expected) > 20_000
    sacks = 0
    for row, wanted in zip(rows, expected, strict=True):
        assert row[:5] == wanted[:5]
        if wanted[5] is not None:  # tcpdump leaves it out of bare ACKs
            assert row[5] == wanted[5]
        assert (row[6], row[7], row[8]) == (wanted[6], wanted[7], wanted[8])
        assert ((row[9], row[10]) if row[9] is not None else None) == wanted[9]
        assert [(edge + row[14]) % 2**32 for edge in row[11] or []] == wanted[10]
        assert [(edge + row[14]) % 2**32 for edge in row[12] or []] == wanted[11]
        assert row[13] == wanted[12]
        sacks += len(wanted[10])
    assert sacks > 100


def test_connections_count_as_tsharks_own_conversations(shipped: Store, pcap: Path) -> None:
    """The conv tap counts by itself. No tolerance: both count frames."""
    said = subprocess.run(
        ["tshark", "-n", "-q", "-r", str(pcap), "-z", "conv,tcp"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    frames = {}
    for line in said.splitlines():
        words = line.split()
        if "<->" in words:
            numbers = [word for word in words[3:] if word.isdigit()]
            unit = words[5] if not words[5].isdigit() else "bytes"
            assert unit in ("bytes", "kB", "MB")
            frames[words[0], words[2]] = int(words[3])  # from the right end to the left
            frames[words[2], words[0]] = int(words[6])
            assert numbers
    stored = shipped.con.execute(
        "SELECT src || ':' || sport, dst || ':' || dport, streams.packets FROM streams"
        " JOIN runs USING (run_id) WHERE run = ?",
        [RUN],
    ).fetchall()
    assert {(dst, src): count for src, dst, count in stored} == {
        (left, right): count for (left, right), count in frames.items()
    }
    assert len(frames) == 4


def test_every_main_event_has_the_ack_that_caused_it(shipped: Store) -> None:
    row = _one(
        shipped,
        "SELECT mains, mains_matched, lag_min_ns, lag_p99_ns, shift_ns, clock FROM captures"
        f" JOIN runs USING (run_id) WHERE run = '{RUN}'",
    )
    mains, matched, least, most, shift, clock = row
    assert matched == mains > 9000
    assert (clock, shift) == ("manifest", 0)
    assert 0 < least < most < 1_000_000
    twice = _one(shipped, "SELECT count(*) - count(DISTINCT (run_id, packet)) FROM ack_matches")
    assert twice == (0,)


def test_what_an_ack_newly_acknowledges_is_what_the_event_found_delivered(shipped: Store) -> None:
    """rs.acked_sacked of an event with plain ACKs before and after is the ACK's advance in MSS."""
    rows = shipped.con.execute(
        """
WITH t AS (
  SELECT t.acked_sacked, (p.ack_raw::BIGINT - lag(p.ack_raw) OVER (ORDER BY t.seq) + 4294967296)
      % 4294967296 AS advance,
    p.sack_left IS NULL AND lag(p.sack_left IS NULL) OVER (ORDER BY t.seq) AS plain
  FROM ack_timeline t JOIN packets p ON p.run_id = t.run_id AND p.packet = t.packet
  JOIN flows f ON f.run_id = t.run_id AND f.flow = t.flow AND f.events > 1000
  WHERE t.run = ?
)
SELECT count(*), count_if(acked_sacked = (advance + 1447) // 1448) FROM t
WHERE plain AND advance > 0
""",
        [RUN],
    ).fetchall()
    count, equal = rows[0]
    # A SACKed range that an ACK passes was delivered before: those few differ.
    assert count > 8000
    assert equal >= 0.99 * count


def test_every_lost_packet_has_its_retransmission(shipped: Store) -> None:
    losses, seen, resent = _one(
        shipped,
        "SELECT losses, losses_seen, losses_resent FROM captures JOIN runs USING (run_id)"
        f" WHERE run = '{RUN}'",
    )
    assert losses > 50
    # The queue dropped them before the capture point.
    assert (seen, resent) == (0, losses)
    late = _one(
        shipped,
        f"SELECT count(*), min(repair_ns), max(repair_ns) FROM loss_timeline WHERE run = '{RUN}'",
    )
    assert late[0] == losses
    assert 0 < late[1] < late[2] < 1_000_000_000


@pytest.mark.parametrize("packing", ["pcap", "gz", "zst"])
def test_a_capture_alone_makes_a_run_and_packing_changes_nothing(
    store: Store, pcap: Path, tmp_path: Path, packing: str
) -> None:
    path = tmp_path / f"alone.pcap.{packing}"
    plain = pcap.read_bytes()
    pack: dict[str, Callable[[bytes], bytes]] = {
        "pcap": bytes,
        "gz": gzip.compress,
        "zst": zstandard.ZstdCompressor().compress,
    }
    path.write_bytes(pack[packing](plain))
    outcome = ingest(store, path)
    assert (outcome.run, outcome.version, outcome.events) == ("alone", None, 0)
    assert outcome.notes == {}
    assert outcome.packets > 20_000
    assert _one(store, "SELECT count(*), count(ns), count_if(ns = realtime_ns) FROM packets") == (
        (outcome.packets,) * 3
    )
    assert ingest(store, path).already


@pytest.mark.parametrize("packing", ["pcap", "gz", "zst"])
def test_a_capture_cut_in_the_middle_keeps_its_whole_packets_and_says_so(
    store: Store, pcap: Path, tmp_path: Path, packing: str
) -> None:
    plain = pcap.read_bytes()
    path = tmp_path / "cut"
    if packing == "pcap":
        kept = len(plain) // 3
        path.write_bytes(plain[:kept])
        whole, at = 0, 24
        while at + 16 <= kept:
            at += 16 + struct.unpack_from("<I", plain, at + 8)[0]
            whole += at <= kept
    else:
        packed = (
            gzip.compress(plain) if packing == "gz" else zstandard.ZstdCompressor().compress(plain)
        )
        path.write_bytes(packed[: len(packed) // 2])
        whole = 0
    outcome = ingest(store, path)
    assert outcome.notes == {"capture_cut": 1}
    frames, damage = _one(store, "SELECT frames, damage FROM captures")
    assert frames == whole or (whole == 0 and frames > 1000)
    assert "cut off" in damage or "middle of a packet" in damage


def test_a_capture_too_large_for_the_memory_keeps_what_came_first_and_says_so(
    store: Store, pcap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tshark itself takes some 150 MB; then the first MB of the capture is all it gets."""
    large = tmp_path / "large.pcap"
    plain = pcap.read_bytes()
    large.write_bytes(plain + 6 * plain[24:])
    monkeypatch.setattr(packets_parts, "free_memory", lambda: 40_000_000)
    outcome = ingest(store, large)
    assert outcome.notes["capture_cut"] == 1
    assert 1000 < outcome.packets < 7 * 30_000
    (said,) = _one(store, "SELECT damage FROM captures")
    assert "editcap" in said


def test_nanoseconds_are_kept_to_the_last_digit(store: Store, tmp_path: Path) -> None:
    frames = [ethernet(ipv4(tcp(1, 0, 2))), ethernet(ipv4(tcp(2, 0, 16)))]
    times = [(1_700_000_000, 123_456_789), (4_294_967_295, 999_999_999)]
    ingest(store, capture(tmp_path / "n.pcap", frames, times=times, nano=True))
    assert store.con.execute("SELECT realtime_ns FROM packets ORDER BY packet").fetchall() == [
        (1_700_000_000_123_456_789,),
        (4_294_967_295_999_999_999,),
    ]


def test_ipv6_vlan_sll2_and_tunnels_are_dissected_to_the_inner_addresses(
    store: Store, tmp_path: Path
) -> None:
    segment = tcp(5, 0, 2)
    cases = {
        "v6": (ethernet(ipv6(segment, 0x03)), 1, ("fd00::1", "fd00::2", 3)),
        "vlan": (ethernet(ipv4(segment, tos=1), 7), 1, ("10.0.0.1", "10.0.0.2", 1)),
        "sll2": (sll2(ipv4(segment, tos=0xBA)), 276, ("10.0.0.1", "10.0.0.2", 2)),
        "ipip": (
            ethernet(ipv4(ipv4(segment), "192.0.2.1", "192.0.2.2", 3, 4)),
            1,
            ("10.0.0.1", "10.0.0.2", 0),
        ),
    }
    for name, (frame, link, wanted) in cases.items():
        ingest(store, capture(tmp_path / f"{name}.pcap", [frame], link))
        found = _one(
            store,
            f"SELECT src, dst, ecn FROM packets JOIN runs USING (run_id) WHERE run = '{name}'",
        )
        assert found == wanted, name


def test_flags_sack_and_sequence_wrap_are_exact(store: Store, tmp_path: Path) -> None:
    start = 2**32 - 1000
    sack = b"\x01\x01\x05\x12" + struct.pack("!IIII", 3000, 4448, 500, 1948)
    back = (80, 40000)
    frames = [
        ipv4(tcp(start, 0, 2)),
        ipv4(tcp(99, start + 1, 18, ports=back), "10.0.0.2", "10.0.0.1"),
        ipv4(tcp(start + 1, 100, 16 | 128, 1448), tos=2),
        ipv4(tcp(100, 449, 16 | 64, 0, sack, back), "10.0.0.2", "10.0.0.1"),
    ]
    ingest(store, capture(tmp_path / "w.pcap", [ethernet(frame) for frame in frames]))
    rows = store.con.execute(
        "SELECT seq_raw, seq, ack_raw, ack, len, ece, cwr, ecn, sack_left, sack_right, direction"
        " FROM packets ORDER BY packet"
    ).fetchall()
    assert rows[0] == (start, 0, None, None, 0, False, False, 0, None, None, "data")
    assert rows[2] == (start + 1, 1, 100, 1, 1448, False, True, 2, None, None, "data")
    relative = [(edge - start) % 2**32 for edge in (3000, 500, 4448, 1948)]
    assert rows[3][:8] == (100, 1, 449, 1449, 0, True, False, 0)
    assert rows[3][8:] == (relative[:2], relative[2:], "ack")


@pytest.mark.parametrize(("kind", "order"), [(172, (10, 20, 30)), (174, (30, 20, 10))])
def test_accurate_ecn_is_read_from_flags_and_option(
    store: Store, tmp_path: Path, kind: int, order: tuple[int, int, int]
) -> None:
    """draft-ietf-tcpm-accurate-ecn 3.2: ACE is AE, CWR, ECE; option 174 has ECT(1) first."""
    counters = b"".join(value.to_bytes(3, "big") for value in order)
    option = bytes([kind, 11]) + counters + b"\x01"
    frame = ethernet(ipv4(tcp(5, 7, 16 | 256 | 64, 0, option)))
    ingest(store, capture(tmp_path / "a.pcap", [frame]))
    found = _one(store, "SELECT ace, ece, cwr, acc_ecn_e0b, acc_ecn_ceb, acc_ecn_e1b FROM packets")
    assert found == (5, True, False, 10, 20, 30)


def test_raw_ip_null_and_ppp_links_are_dissected(store: Store, tmp_path: Path) -> None:
    """LINKTYPE_RAW 101, NULL 0, PPP 9, and the older cooked one, 113."""
    packet = ipv4(tcp(5, 0, 2))
    links = {
        101: packet,
        0: struct.pack("<I", 2) + packet,
        9: b"\xff\x03\x00\x21" + packet,
        113: struct.pack("!HHH8sH", 0, 1, 6, bytes(8), 0x0800) + packet,
    }
    for link, frame in links.items():
        assert ingest(store, capture(tmp_path / f"{link}.pcap", [frame], link)).packets == 1


def test_a_link_that_hides_its_tcp_is_named(store: Store, tmp_path: Path) -> None:
    """Encrypted Wi-Fi (LINKTYPE 105) has no TCP to see; ESP on Ethernet neither."""
    wifi = b"\x88\x41" + bytes(24) + b"\xaa" * 60
    esp = ethernet(ipv4(b"\x00" * 60, proto=50))
    for name, frame, link in (("wifi", wifi, 105), ("esp", esp, 1)):
        with pytest.raises(BundleError, match="no TCP segment"):
            ingest(store, capture(tmp_path / f"{name}.pcap", [frame] * 3, link))
    mixed = [esp, esp, ethernet(ipv4(tcp(1, 0, 2)))]
    assert "capture_mostly_other" in ingest(store, capture(tmp_path / "m.pcap", mixed)).notes


def test_a_4_tuple_used_again_is_two_connections(store: Store, tmp_path: Path) -> None:
    frames, times = [], []
    for turn, start in enumerate((1000, 900_000)):
        for k, (seq, flags, length) in enumerate(((0, 2, 0), (1, 16, 100), (101, 17, 0))):
            frames.append(ethernet(ipv4(tcp(start + seq, 7, flags, length))))
            times.append((1_700_000_000 + 100 * turn, k))
    ingest(store, capture(tmp_path / "r.pcap", frames, times=times))
    assert store.con.execute(
        "SELECT stream, packets, payload_bytes FROM streams ORDER BY stream"
    ).fetchall() == [(0, 3, 100), (1, 3, 100)]
    assert _one(store, "SELECT max(seq) FROM packets") == (101,)


def test_a_capture_whose_clock_jumps_back_keeps_its_order_and_says_so(
    store: Store, tmp_path: Path
) -> None:
    frames = [ethernet(ipv4(tcp(1 + 10 * k, 7, 16, 10))) for k in range(6)]
    times = [(1_700_000_000 + second, 0) for second in (0, 1, 2, -3600, -3599, -3598)]
    outcome = ingest(store, capture(tmp_path / "j.pcap", frames, times=times))
    assert outcome.notes["capture_clock_back"] == 1
    (said,) = _one(store, "SELECT detail FROM capture_quality WHERE kind = 'capture_clock_back'")
    assert "1 packet" in said
    assert "3602" in said
    seqs = store.con.execute("SELECT seq FROM packets ORDER BY packet").fetchall()
    assert seqs == sorted(seqs)
    assert _one(store, "SELECT duration_ns FROM runs") == (3602 * 10**9,)


def test_packets_without_a_time_that_can_be_are_kept_and_counted(
    store: Store, tmp_path: Path
) -> None:
    """tshark reads no such fraction of a second."""
    frames = [ethernet(ipv4(tcp(1 + 10 * k, 7, 16, 10))) for k in range(4)]
    for name, odd in (("some", 2), ("all", 4)):
        times = [(1_700_000_000 + k, 0 if k >= odd else 2**32 - 1) for k in range(4)]
        outcome = ingest(store, capture(tmp_path / f"{name}.pcap", frames, times=times))
        assert outcome.notes["capture_untimed"] == 1
        timed = "SELECT count(*), count(ns), count(realtime_ns) FROM packets WHERE run_id = ?"
        counts = store.con.execute(timed, [outcome.run_id]).fetchall()
        assert counts == [(4, 4 - odd, 4 - odd)]
        store.con.execute("SELECT * FROM metrics_by_flow").fetchall()


@pytest.mark.parametrize("clocks", [True, False])
@pytest.mark.parametrize("timed", [0, 20, 15_000])
def test_packets_of_a_recording_without_a_time_tell_nothing_of_its_clocks(
    store: Store, pcap: Path, tmp_path: Path, timed: int, clocks: bool
) -> None:
    """The first `timed` packets have one, the others a fraction of a second that is none."""
    bundle = _changed_bundle(tmp_path, lambda m: None if clocks else m.update(clocks=None))
    (bundle / "packets.pcap.zst").unlink()
    changed, at, packet = bytearray(pcap.read_bytes()), 24, 0
    while at < len(changed):
        if packet >= timed:
            struct.pack_into("<I", changed, at + 4, 2**32 - 1)
        at += 16 + int(struct.unpack_from("<I", changed, at + 8)[0])
        packet += 1
    (bundle / "packets.pcap").write_bytes(changed)
    outcome = ingest(store, bundle)
    assert outcome.notes["capture_untimed"] == 1
    assert outcome.packets > 30_000
    assert _one(store, "SELECT pairs FROM captures")[0] <= timed
    assert (outcome.matched > 1000) == (timed == 15_000)


def _set_forward(plain: bytes, before: int, seconds: int) -> bytes:
    """A capture in us whose clock was set forward before a packet, counted from 1."""
    changed, at, packet = bytearray(plain), 24, 1
    while at < len(changed):
        if packet >= before:
            struct.pack_into("<I", changed, at, struct.unpack_from("<I", plain, at)[0] + seconds)
        at += 16 + int(struct.unpack_from("<I", plain, at + 8)[0])
        packet += 1
    return bytes(changed)


@pytest.mark.parametrize("seconds", [2, 3600])
def test_a_clock_that_is_set_forward_is_named_and_an_idle_time_is_not(
    store: Store, pcap: Path, tmp_path: Path, seconds: int
) -> None:
    """Timestamps, which the sender's clock makes, tell one from the other."""
    jumped = tmp_path / "jumped.pcap"
    jumped.write_bytes(_set_forward(pcap.read_bytes(), 15_000, seconds))
    assert ingest(store, jumped).notes == {"capture_clock_ahead": 1}
    (said,) = _one(store, "SELECT detail FROM capture_quality")
    assert f"set forward by {seconds}.000 s before packet 15000," in said
    frames, times = [], []
    for k in range(40):
        ms = k + (1000 * seconds if k >= 20 else 0)
        stamps = b"\x01\x01\x08\x0a" + struct.pack("!II", (2**32 - 1010 + ms) % 2**32, 1)
        frames.append(ethernet(ipv4(tcp(1 + 10 * k, 7, 16, 10, stamps))))
        times.append((1_700_000_000 + ms // 1000, ms % 1000 * 1000))
    idle = capture(tmp_path / "idle.pcap", frames, times=times)
    assert ingest(store, idle).notes == {"capture_no_syn": 1}


def test_a_clock_that_is_set_while_recording_leaves_packets_where_they_were(
    store: Store, shipped: Store, pcap: Path, tmp_path: Path
) -> None:
    """The manifest's clocks say how far, timestamps when: every time is as without the step."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["clocks"]["end"]["realtime_ns"] += 3600 * 10**9

    bundle = _changed_bundle(tmp_path, change)
    (bundle / "packets.pcap.zst").unlink()
    (bundle / "packets.pcap").write_bytes(_set_forward(pcap.read_bytes(), 15_000, 3600))
    outcome = ingest(store, bundle)
    assert outcome.notes.keys() >= {"capture_clock_ahead", "clock_drift"}
    assert outcome.matched == outcome.mains > 9000
    placed = f"SELECT sum(ns::HUGEINT) FROM packets JOIN runs USING (run_id) WHERE run = '{RUN}'"
    # The drift that there was anyhow, some us, is spread over the recording without the step.
    off = (_one(store, placed)[0] - _one(shipped, placed)[0]) / outcome.packets
    assert abs(off) < 100_000


def test_a_clock_set_back_by_more_than_the_recording_took_is_told(
    store: Store, tmp_path: Path
) -> None:
    """The end is before the beginning: there is no line through the two."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["clocks"]["end"]["realtime_ns"] -= 3600 * 10**9

    outcome = ingest(store, _changed_bundle(tmp_path, change))
    assert outcome.notes.keys() >= {"clock_drift"}
    assert outcome.matched == outcome.mains > 9000
    (said,) = _one(store, "SELECT detail FROM capture_quality WHERE kind = 'clock_drift'")
    assert "moved by -36" in said


def test_options_given_twice_and_icmp_quotes_do_no_harm(store: Store, tmp_path: Path) -> None:
    stamps = b"\x08\x0a" + struct.pack("!II", 1, 2) + b"\x08\x0a" + struct.pack("!II", 3, 4)
    quoted = struct.pack("!BBHI", 3, 4, 0, 0) + ipv4(tcp(1, 2, 16))
    frames = [
        ethernet(ipv4(tcp(1, 2, 16, 10, stamps))),
        ethernet(ipv4(quoted, "10.0.0.2", "10.0.0.1", proto=1)),
    ]
    outcome = ingest(store, capture(tmp_path / "odd.pcap", frames))
    assert outcome.packets == 1
    assert _one(store, "SELECT tsval, tsecr FROM packets") == (3, 4)
    assert outcome.notes == {"capture_no_syn": 1}


def _decoded(**cells: str) -> list[dict[str, Any]]:
    """The rows of one line of tshark's, with these fields (_ for the dot) beside the least."""
    document = {"tcp_stream": "0", "tcp_seq_raw": "7", **cells}
    line = "\t".join(document.get(field.name.replace(".", "_"), "") for field in FIELDS) + "\n"
    text = np.frombuffer(line.encode(), np.uint8)
    rows: list[dict[str, Any]] = Decoder().decode(text, len(text)).rows.to_pylist()
    return rows


def test_cells_that_are_no_numbers_become_null_and_the_last_of_several_counts() -> None:
    numbers = {"1,4294967295": 4294967295, "0x00ff": 255, "0xAb": 171, "7": 7, "0": 0}
    nulls = ("", "4294967296", "what", "-1", "9" * 40, "0x", "0xfg", "0x" + "f" * 20, "1.5", ",")
    for cell, number in {**numbers, **dict.fromkeys(nulls)}.items():
        (row,) = _decoded(tcp_options_timestamp_tsval=cell)
        assert row["tsval"] == number, cell
    times = {"1,2.000000001": 2_000_000_001, "0.5": 500_000_000, "3": 3_000_000_000}
    for cell, ns in {**times, **dict.fromkeys(("x", "1.", "1.0000000001", ".5", "-1.0"))}.items():
        assert _decoded(tcp_analysis_rto=cell)[0]["rto_ns"] == ns, cell
    (row,) = _decoded(tcp_options_sack_le="1,2", tcp_options_sack_re="1,x", ip_src="a,b")
    assert (row["sack_left"], row["sack_right"], row["src"], row["dst"]) == (
        [1, 2],
        None,
        "b",
        None,
    )
    assert _decoded(ip_src="1.2.3.4", ipv6_src="::1")[0]["src"] == "::1"
    assert _decoded(tcp_srcport="65536", ip_dsfield="0x100")[0]["sport"] is None
    assert _decoded(icmp_type="3") == _decoded(tcp_stream="") == _decoded(tcp_seq_raw="") == []


def test_a_segment_too_short_for_its_options_is_counted(store: Store, tmp_path: Path) -> None:
    frame = ethernet(ipv4(tcp(1, 2, 16, 0, b"\x01\x01\x08\x0a" + struct.pack("!II", 1, 2))))
    path = capture(tmp_path / "short.pcap", [frame])
    data = bytearray(path.read_bytes()[:-12])
    struct.pack_into("<I", data, 24 + 8, len(frame) - 12)
    path.write_bytes(data)
    assert "capture_cut_options" in ingest(store, path).notes


def test_two_taps_are_named(store: Store, tmp_path: Path) -> None:
    frames = [ethernet(ipv4(tcp(1 + 100 * (i // 2), 2, 16, 100))) for i in range(6)]
    times = [(1_700_000_000, 10 * i) for i in range(6)]
    outcome = ingest(store, capture(tmp_path / "two.pcap", frames, times=times))
    assert outcome.notes["capture_doubles"] == 1
    (said,) = _one(store, "SELECT detail FROM capture_quality WHERE kind = 'capture_doubles'")
    assert "3 packets are there twice" in said


def test_nothing_to_show_is_an_error_and_leaves_no_run(store: Store, tmp_path: Path) -> None:
    arp = bytes(12) + b"\x08\x06" + bytes(28)
    with pytest.raises(BundleError, match="no TCP segment \\(1 packet "):
        ingest(store, capture(tmp_path / "arp.pcap", [arp]))
    with pytest.raises(BundleError, match="no TCP segment"):
        ingest(store, capture(tmp_path / "none.pcap", []))
    cut = capture(tmp_path / "cut.pcap", [ethernet(ipv4(tcp(1, 0, 2)))])
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.raises(BundleError, match="ends early: the file ends in the middle of a packet;"):
        ingest(store, cut)
    strange = tmp_path / "strange.pcap"
    strange.write_bytes(b"\xd4\xc3\xb2\xa1" + b"\xff" * 400)
    with pytest.raises(BundleError):
        ingest(store, strange)
    assert store.runs() == []
    assert _one(store, "SELECT count(*) FROM packets") == (0,)


def test_a_load_that_fails_leaves_the_stores_settings_as_they_were(
    store: Store, pcap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "SELECT current_setting('threads'), current_setting('memory_limit')"
    before = _one(store, settings)
    monkeypatch.setattr(packets_match, "STAGE_STREAMS", "SELECT error('no space')")
    with pytest.raises(StoreError, match="no space"):
        ingest(store, pcap)
    assert _one(store, settings) == before
    assert store.runs() == []


def test_without_tshark_events_are_loaded_and_packets_come_later(
    store: Store, pcap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as bare:
        bare.setenv("PATH", "")
        outcome = ingest(store, fixtures.path(RUN))
        with pytest.raises(Exception, match="tshark is not installed"):
            ingest(store, pcap)
    assert outcome.events > 10_000
    assert outcome.notes.pop("packets_not_dissected") == 1
    (said,) = _one(store, "SELECT detail FROM capture_quality WHERE kind LIKE 'packets_not%'")
    assert "apt install tshark" in said
    again = ingest(store, fixtures.path(RUN))
    assert not again.already
    assert (again.run_id, again.events) == (outcome.run_id, outcome.events)
    assert again.packets > 20_000
    assert again.notes == outcome.notes
    assert ingest(store, fixtures.path(RUN)).already


def test_packets_can_be_left_aside(store: Store) -> None:
    outcome = ingest(store, fixtures.path(RUN), packets=False)
    assert (outcome.packets, outcome.notes.get("packets_not_dissected")) == (0, None)
    assert _one(store, "SELECT count(*) FROM captures") == (0,)


def test_removing_a_run_removes_its_packets(store: Store, pcap: Path) -> None:
    run_id = ingest(store, pcap).run_id
    with store.transaction():
        store.delete_run(run_id)
    for table in ("captures", "streams", "packets", "ack_matches", "loss_matches"):
        assert _one(store, f"SELECT count(*) FROM {table}") == (0,), table


def test_without_clocks_the_acks_place_the_packets(
    store: Store, shipped: Store, tmp_path: Path
) -> None:
    bundle = _changed_bundle(tmp_path, lambda manifest: manifest.update(clocks=None))
    outcome = ingest(store, bundle)
    assert outcome.notes["clock_from_acks"] == 1
    assert outcome.matched >= 0.99 * outcome.mains > 9000
    exact = _one(
        shipped, f"SELECT min(ns)::BIGINT FROM packets JOIN runs USING (run_id) WHERE run = '{RUN}'"
    )[0]
    placed = _one(store, "SELECT min(ns)::BIGINT FROM packets")[0]
    # Late by the least time an ACK takes to its event, here some 10 us.
    assert 0 < placed - exact < 100_000


@pytest.mark.parametrize("wrong_ms", [50, -50])
def test_wrong_clocks_are_noticed(store: Store, tmp_path: Path, wrong_ms: int) -> None:
    def change(manifest: dict[str, Any]) -> None:
        for reading in manifest["clocks"].values():
            reading["realtime_ns"] += wrong_ms * 1_000_000

    outcome = ingest(store, _changed_bundle(tmp_path, change))
    shift, lag = _one(store, "SELECT shift_ns, lag_p50_ns FROM captures")
    if wrong_ms > 0:
        # Packets seem 50 ms earlier than they were: possible, so only the lag shows it.
        assert (shift, lag > 49_000_000) == (0, True)
    else:
        assert -51_000_000 < shift < -49_000_000
        assert outcome.notes["clock_shift"] == 1
        assert outcome.matched >= 0.99 * outcome.mains


@pytest.mark.parametrize(
    ("hours", "words"), [(1, "s before the first event"), (-1, "s after the last event")]
)
def test_a_capture_that_lies_an_hour_from_the_events_says_so(
    hours: int, words: str, store: Store, tmp_path: Path
) -> None:
    """By the manifest's clocks no packet is of the recording's time: a clock was set wrong."""

    def change(manifest: dict[str, Any]) -> None:
        for reading in manifest["clocks"].values():
            reading["realtime_ns"] += hours * 3600 * 10**9

    bundle = _changed_bundle(tmp_path, change)
    assert ingest(store, bundle).packets > 1000
    (detail,) = store.con.execute(
        "SELECT detail FROM capture_quality WHERE kind = 'capture_no_owner'"
    ).fetchall()[0]
    assert words in detail
    assert "by the manifest's clocks" in detail


def test_a_taken_name_is_refused(store: Store, pcap: Path, tmp_path: Path) -> None:
    ingest(store, pcap)
    other = capture(tmp_path / "other.pcap", [ethernet(ipv4(tcp(1, 0, 2)))])
    with pytest.raises(StoreError, match="another run called"):
        ingest(store, other, name="plain")
    assert ingest(store, other, name="plain", replace=True).packets == 1
    assert store.runs() == ["plain"]
