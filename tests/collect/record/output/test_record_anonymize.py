"""Addresses are replaced so that prefixes in common stay in common, in every file of a bundle."""

from __future__ import annotations

import ipaddress
import json
import socket
import stat
import struct
from pathlib import Path

import pytest
import zstandard
from bbrscope.collect.record.output.anonymize import Anonymizer, anonymize, map_addresses
from bbrscope.probes.base.errors import BundleError
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


@pytest.mark.parametrize(
    "text",
    [
        "iperf3 -c198.51.100.7 -t 3",
        "cannot reach 198.51.100.7.",
        "peer_198.51.100.7_down",
        "198.51.100.7.443 > 198.51.100.7.5201",
        "198.051.100.007",
        "[::ffff:198.51.100.7]:443",
        "64:ff9b::198.51.100.7",
        "iperf3 -c2001:db8::7",
        "x2001:db8:0:0:0:0:0:7",
        "2001:DB8::7: no route",
        "--resolve=h:443:2001:db8::7",
        "2001:db8:0:0:0:0:0:7:443",
    ],
)
def test_no_address_stays_in_a_text_whatever_stands_around_it(text: str) -> None:
    changed = Anonymizer(KEY).everywhere(text)
    left = [part for part in ("198.51", "51.100", "100.7", "198.051", "2001:") if part in changed]
    assert left == []
    assert "2001:db8" not in changed.lower()


def test_a_mapped_address_in_a_text_is_that_of_the_rows() -> None:
    """As ss prints it; what is replaced twice, or in part, joins nothing."""
    keyed = Anonymizer(KEY)
    mapped = keyed.text("::ffff:198.51.100.7")
    assert mapped == f"::ffff:{keyed.text('198.51.100.7')}"
    assert keyed.everywhere("[::ffff:198.51.100.7]:443 x") == f"[{mapped}]:443 x"


def test_a_document_is_searched_text_by_text() -> None:
    """Written as JSON, a newline before an address is a backslash and a letter."""
    keyed = Anonymizer(KEY)
    command = ["sh", "-c", "ping\n198.51.100.7\t2001:db8::7"]
    document = {"setup": {"command": command, "n": 7, "198.51.100.7": None}}
    text = json.dumps(keyed.in_document(document))
    assert "198.51" not in text
    assert "2001:db8" not in text
    assert json.loads(text)["setup"]["n"] == 7


def tcp(payload: bytes, options: bytes = b"") -> bytes:
    words = 5 + len(options) // 4
    head = struct.pack("!HHIIBBHHH", 40000, 443, 1, 2, words << 4, 16, 100, 0, 0)
    return head + options + payload


def ipv4(
    source: str,
    target: str,
    body: bytes | None = None,
    options: bytes = b"",
    fragment: int = 0,
) -> bytes:
    first = 0x45 + len(options) // 4
    head = struct.pack("!BBHHHBBH", first, 0, 60, 1, fragment, 64, 6, 0xBEEF)
    body = tcp(b"secret") if body is None else body
    return head + socket.inet_aton(source) + socket.inet_aton(target) + options + body


@pytest.mark.parametrize(
    "offered",
    [
        socket.inet_aton("192.0.2.9"),
        socket.inet_aton("192.0.2.9") + b"\x01\xbb",
        socket.inet_aton("192.0.2.9") + b"\x55" * 8,
        socket.inet_pton(socket.AF_INET6, "2001:db8::9"),
        socket.inet_pton(socket.AF_INET6, "2001:db8::9") + b"\x01\xbb" + b"\x55" * 8,
    ],
)
def test_an_address_that_mptcp_offers_is_replaced_and_other_options_stay(offered: bytes) -> None:
    keyed = Anonymizer(KEY)
    size = 16 if len(offered) >= 16 else 4
    option = bytes([30, 4 + len(offered), 3 << 4, 7]) + offered
    before = b"\x01\x01\x05\x06wwww"
    options = before + option + b"\x01" * (-len(option) % 4)
    body = bytearray(bytes(12) + b"\x08\x00")
    body += ipv4("198.51.100.7", "203.0.113.9", tcp(b"secret", options))
    whole = bytes(body)
    map_addresses(body, 1, keyed)
    at = 14 + 20 + 20 + len(before) + 4
    assert body[at : at + size] == keyed.packed(offered[:size])
    assert body[14 + 40 : at] == whole[14 + 40 : at]
    assert body[at + size : -6] == whole[at + size : -6]
    for length in range(at, at + size):
        cut = bytearray(whole[:length])
        map_addresses(cut, 1, keyed)
        assert bytes(cut[at:]) == bytes(length - at)


def test_routers_in_options_and_payload_of_later_fragments_are_blanked() -> None:
    route = b"\x07\x07\x08" + socket.inet_aton("192.0.2.9") + b"\x00"
    body = bytearray(bytes(12) + b"\x08\x00")
    body += ipv4("198.51.100.7", "203.0.113.9", options=route)
    map_addresses(body, 1, Anonymizer(KEY))
    assert socket.inet_aton("192.0.2.9") not in body
    assert tcp(b"") in body
    body = bytearray(bytes(12) + b"\x08\x00")
    body += ipv4("198.51.100.7", "203.0.113.9", b"secret" * 20, fragment=100)
    map_addresses(body, 1, Anonymizer(KEY))
    assert b"secret" not in body


@pytest.mark.parametrize("link", [1, 113, 276])
def test_hardware_addresses_are_blanked_whatever_the_packet_is(link: int) -> None:
    """Up to the header's length, of a packet that is cut off or of another protocol."""
    head = {1: 14, 113: 16, 276: 20}[link]
    for length in (head - 2, head + 30):
        body = bytearray(b"\xee" * length)
        map_addresses(body, link, Anonymizer(KEY))
        assert b"\xee\xee\xee\xee\xee\xee" not in body[{1: 0, 113: 6, 276: 12}[link] :]


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
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
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


def test_what_cannot_be_anonymized_says_that_addresses_are_still_there(tmp_path: Path) -> None:
    pcap = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 128, 147)
    (tmp_path / "packets.pcap.zst").write_bytes(zstandard.compress(pcap))
    with pytest.raises(BundleError, match="still holds addresses: packets of link type 147"):
        anonymize(tmp_path, KEY)
    assert [path.name for path in tmp_path.iterdir()] == ["packets.pcap.zst"]
