"""What a pcapng holds beside packets is kept with the run, but for secrets."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.packets.beside_packets import beside_packets
from bbrscope.collect.packets.packet_run import load_capture

from tests.frames import capture, ethernet, ipv4, tcp

SECRET = "CLIENT_RANDOM " + "ab" * 32 + " " + "cd" * 48


def names_block() -> bytes:
    """10.0.0.1 by two names."""
    records = struct.pack("<HH4s10s2x", 1, 14, bytes((10, 0, 0, 1)), b"sender\0tx\0")
    body = records + struct.pack("<HH", 0, 0)
    size = 12 + len(body)
    return struct.pack("<II", 4, size) + body + struct.pack("<I", size)


@pytest.mark.skipif(shutil.which("editcap") is None, reason="no tshark: apt-get install tshark")
def test_comments_and_names_are_kept_and_secrets_are_reported_of(tmp_path: Path) -> None:
    frames = [ethernet(ipv4(tcp(1000 + n * 100, 5, 16, 100))) for n in range(3)]
    plain = capture(tmp_path / "plain.pcap", frames)
    assert not beside_packets(plain)
    keys, noted = tmp_path / "keys", tmp_path / "noted.pcapng"
    keys.write_text(f"{SECRET}\n")
    beside = ["-a", "2:slow from here, \u0416", "--inject-secrets", f"tls,{keys}"]
    subprocess.run(["editcap", "-F", "pcapng", *beside, str(plain), str(noted)], check=True)
    noted.write_bytes(noted.read_bytes() + names_block())
    with open_store(tmp_path / "s.duckdb") as store:
        run_id = load_capture(store, noted, None, False, None).run_id
        ((name, text),) = store.con.execute(
            "SELECT name, text FROM attachments WHERE run_id = ?", [run_id]
        ).fetchall()
        ((said,),) = store.con.execute(
            "SELECT detail FROM capture_quality WHERE kind = 'capture_beside'"
        ).fetchall()
    assert name == "noted.pcapng beside its packets"
    assert json.loads(text) == {
        "comments": [{"packet": 2, "comment": "slow from here, \u0416"}],
        "names": [
            {"address": "10.0.0.1", "name": "sender"},
            {"address": "10.0.0.1", "name": "tx"},
        ],
    }
    assert said.startswith("noted.pcapng holds more than packets: 1 comment and 2 names")
    assert "1 block of decryption secrets" in said
    assert b"ab" * 32 not in (tmp_path / "s.duckdb").read_bytes()


def test_what_is_cut_off_or_makes_no_sense_ends_it(tmp_path: Path) -> None:
    section = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    cut = struct.pack("<IIHH", 4, 24, 1, 60000) + b"\1\2\3\4abcd" + struct.pack("<I", 24)
    path = tmp_path / "odd.pcapng"
    path.write_bytes(section + names_block() + cut + struct.pack("<II", 6, 1 << 30))
    names = beside_packets(path).names
    assert names[:2] == [("10.0.0.1", "sender"), ("10.0.0.1", "tx")]
    assert len(names) <= 3
