"""Addresses are replaced so that prefixes in common stay in common, in every file of a bundle."""

from __future__ import annotations

import ipaddress
import json
import socket
import struct
from pathlib import Path

import pytest
import zstandard
from bbrscope.collect.record.output.anonymize import Anonymizer, anonymize, map_addresses
from hypothesis import given
from hypothesis import strategies as st

KEY = bytes(range(32))
ADDRESSES = st.ip_addresses().filter(
    lambda a: (
        not (a.is_loopback or a.is_unspecified or a.is_multicast)
        and not (a.version == 6 and a.ipv4_mapped)
    )
)


def common_prefix(one: bytes, two: bytes) -> int:
    bits = 8 * len(one)
    differ = int.from_bytes(one, "big") ^ int.from_bytes(two, "big")
    return bits - differ.bit_length()


@given(ADDRESSES, st.integers(0, 127))
def test_two_addresses_share_exactly_as_many_leading_bits_as_before(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, bit: int
) -> None:
    keyed = Anonymizer(KEY)
    one = address.packed
    width = 8 * len(one)
    two = (int.from_bytes(one, "big") ^ 1 << bit % width).to_bytes(len(one), "big")
    other = ipaddress.ip_address(two)
    if other.is_loopback or other.is_unspecified or other.is_multicast:
        return
    assert common_prefix(keyed.packed(one), keyed.packed(two)) == common_prefix(one, two)


def test_keys_give_different_addresses_and_one_key_the_same() -> None:
    first = Anonymizer(KEY).text("198.51.100.7")
    assert first == Anonymizer(KEY).text("198.51.100.7")
    assert first != Anonymizer(bytes(32)).text("198.51.100.7")
    assert first != "198.51.100.7"


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::", "224.0.0.1"])
def test_addresses_that_identify_nobody_stay(address: str) -> None:
    assert Anonymizer(KEY).text(address) == address


def test_a_mapped_address_is_mapped_as_the_one_inside() -> None:
    keyed = Anonymizer(KEY)
    inner = keyed.text("198.51.100.7")
    assert ipaddress.ip_address(keyed.text("::ffff:198.51.100.7")).ipv4_mapped == (
        ipaddress.ip_address(inner)
    )


def test_addresses_are_found_in_text_and_versions_are_left_alone() -> None:
    keyed = Anonymizer(KEY)
    text = "[2001:db8::7]:443 198.51.100.7:5201 kernel 6.1.176 at 12:34:56 bpftrace 0.17.0"
    changed = keyed.everywhere(text)
    assert "198.51.100.7" not in changed
    assert "2001:db8::7" not in changed
    assert changed.endswith("kernel 6.1.176 at 12:34:56 bpftrace 0.17.0")
    assert keyed.text("198.51.100.7") in changed


def tcp(payload: bytes) -> bytes:
    return struct.pack("!HHIIBBHHH", 40000, 443, 1, 2, 5 << 4, 16, 100, 0, 0) + payload


def ipv4(source: str, target: str) -> bytes:
    head = struct.pack("!BBHHHBBH", 0x45, 0, 60, 1, 0, 64, 6, 0xBEEF)
    return head + socket.inet_aton(source) + socket.inet_aton(target) + tcp(b"secret")


def test_a_packet_keeps_its_tcp_header_and_loses_addresses_payload_and_hardware() -> None:
    keyed = Anonymizer(KEY)
    for tag in (b"", b"\x81\x00\x00\x07"):
        body = bytearray(b"\x02" * 12 + tag + b"\x08\x00" + ipv4("198.51.100.7", "203.0.113.9"))
        map_addresses(body, 1, keyed)
        start = 14 + len(tag)
        assert body[:12] == bytes(12)
        assert socket.inet_ntoa(bytes(body[start + 12 : start + 16])) == keyed.text("198.51.100.7")
        assert socket.inet_ntoa(bytes(body[start + 16 : start + 20])) == keyed.text("203.0.113.9")
        assert bytes(body[start + 20 : start + 40]) == tcp(b"")
        assert b"secret" not in body


def test_a_packet_cut_anywhere_is_survived_and_never_leaks() -> None:
    whole = b"\x02" * 12 + b"\x08\x00" + ipv4("198.51.100.7", "203.0.113.9")
    for length in range(len(whole)):
        body = bytearray(whole[:length])
        map_addresses(body, 1, Anonymizer(KEY))
        assert len(body) == length
        assert socket.inet_aton("198.51.100.7") not in body


def test_every_file_of_a_bundle_is_rewritten(tmp_path: Path) -> None:
    stored = int.from_bytes(socket.inet_aton("198.51.100.7"), "little")
    header = "#I,ns,sk,sport,dport,daddr,saddr6,daddr6\n#M,ns,sk,x\n"
    rows = f"I,1,ff,2,3,{stored},2001:db8::1,2001:db8::7\nM,1,ff,{stored}\n"
    (tmp_path / "events.csv.zst").write_bytes(zstandard.compress((header + rows).encode()))
    body = b"\x02" * 12 + b"\x08\x00" + ipv4("198.51.100.7", "203.0.113.9")
    pcap = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 128, 1)
    pcap += struct.pack("<IIII", 1, 2, len(body), len(body)) + body
    (tmp_path / "packets.pcap.zst").write_bytes(zstandard.compress(pcap))
    (tmp_path / "ss.txt.zst").write_bytes(zstandard.compress(b"ESTAB 198.51.100.7:1 bbr\n"))
    manifest = {"name": "run", "scenario": {"description": "iperf3 -c 198.51.100.7"}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "probe.bt").write_text(f"skc_daddr == {stored}")
    anonymize(tmp_path, KEY)
    keyed = Anonymizer(KEY)
    text = zstandard.ZstdDecompressor().stream_reader((tmp_path / "events.csv.zst").open("rb"))
    lines = text.read().decode().splitlines()
    fields = lines[2].split(",")
    assert int(fields[5]) == keyed.number(stored)
    assert fields[7] == keyed.text("2001:db8::7")
    assert lines[3] == f"M,1,ff,{stored}", "only rows with addresses change"
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        if path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().stream_reader(path.open("rb")).read()
        assert b"198.51.100.7" not in data, path
        assert socket.inet_aton("198.51.100.7") not in data, path
    assert "anonymized" in json.loads((tmp_path / "manifest.json").read_text())
    assert not (tmp_path / "probe.bt").exists()
