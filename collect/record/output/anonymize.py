"""Replace addresses in a bundle so that prefixes in common stay in common (Crypto-PAn).

The published algorithm (J. Xu, J. Fan, M. Ammar, S. Moon: Prefix-Preserving IP Address
Anonymization, ICNP 2002), with HMAC-SHA256 as the keyed pseudo-random function in place of AES,
because Python's own library has it: bit i of the result is bit i of the address XOR one bit of
F(key, first i bits). The key is made for the bundle and thrown away.

Loopback, unspecified and multicast addresses are left alone: they identify nobody.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import ipaddress
import json
import os
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import zstandard

from ....probes.base.errors import BundleError
from ..captures.headers_only import ETHERNET, FRAGMENT, LINKS, SLL, SLL2, TCP, network_header
from .address_text import replace_addresses
from .replaced import compressed_anew, replaced

# Where a link's header has hardware addresses: they identify a host as well.
HARDWARE = {ETHERNET: (0, 12), SLL: (6, 14), SLL2: (12, 20)}
# Kinds of TCP's options, and MPTCP's that offers another address.
END, NOTHING, MPTCP, ADD_ADDR = 0, 1, 30, 3


class Anonymizer:
    """Maps addresses with one key; the same address always becomes the same one."""

    def __init__(self, key: bytes | None = None) -> None:
        self.key = key or os.urandom(32)
        self.packed = lru_cache(1 << 16)(self._packed)

    def _packed(self, address: bytes) -> bytes:
        """Map an address of 4 or 16 bytes."""
        known = ipaddress.ip_address(address)
        if known.is_loopback or known.is_unspecified or known.is_multicast:
            return address
        if isinstance(known, ipaddress.IPv6Address) and known.ipv4_mapped:
            return address[:12] + self.packed(address[12:])
        bits = 8 * len(address)
        value = int.from_bytes(address, "big")
        result = 0
        for done in range(bits):
            prefix = value >> (bits - done) << (bits - done)
            message = struct.pack("!BB", len(address), done) + prefix.to_bytes(len(address), "big")
            flip = hmac.digest(self.key, message, hashlib.sha256)[0] >> 7
            result = result << 1 | (value >> (bits - 1 - done) & 1) ^ flip
        return result.to_bytes(len(address), "big")

    def text(self, address: str) -> str:
        """Map an address as written; anything else comes back unchanged."""
        try:
            packed = ipaddress.ip_address(address).packed
        except ValueError:
            return address
        mapped = ipaddress.ip_address(self.packed(packed))
        inner = mapped.ipv4_mapped if isinstance(mapped, ipaddress.IPv6Address) else None
        return f"::ffff:{inner}" if inner else str(mapped)

    def number(self, stored: int) -> int:
        """Map an IPv4 address as the kernel stores it: network byte order in a native integer."""
        return int.from_bytes(self.packed(stored.to_bytes(4, "little")), "little")

    def everywhere(self, text: str) -> str:
        """Map every address that occurs in a text."""
        return replace_addresses(text, self.text)

    def in_document(self, value: object) -> object:
        """Map every address in the texts of a JSON document."""
        if isinstance(value, str):
            return self.everywhere(value)
        if isinstance(value, list):
            return [self.in_document(each) for each in value]
        if isinstance(value, dict):
            return {self.everywhere(key): self.in_document(each) for key, each in value.items()}
        return value


def anonymize(folder: Path, key: bytes | None = None) -> None:
    """Rewrite a bundle in place, file by file, each beside itself and then renamed.

    Raises:
        BundleError: the packets have a link type whose addresses cannot be found, or the disk
            refuses; there are addresses in the bundle still.
    """
    try:
        _in_all_files(folder, Anonymizer(key))
    except (BundleError, OSError) as error:
        why = error.fact if isinstance(error, BundleError) else f"{error.strerror}"
        raise BundleError(
            f"{folder} still holds addresses: {why}",
            "bbrscope ingest reads it; pass on nothing of it, and record again",
        ) from error


def _in_all_files(folder: Path, with_key: Anonymizer) -> None:
    rewrite(folder / "events.csv.zst", lambda raw: events(raw, with_key))
    rewrite(folder / "packets.pcap.zst", lambda raw: packets(raw, with_key))
    rewrite(folder / "ss.txt.zst", lambda raw: plain(raw, with_key))
    for path in [folder / "manifest.json", *folder.glob("iperf*.json")]:
        if path.exists():
            document = with_key.in_document(json.loads(path.read_text()))
            if path.name == "manifest.json" and isinstance(document, dict):
                document["anonymized"] = "addresses, prefix-preserving, with a discarded key"
            with replaced(path) as target:
                target.write(f"{json.dumps(document, indent=1)}\n".encode())
    # Filters are written into the program as numbers.
    (folder / "probe.bt").unlink(missing_ok=True)


def rewrite(path: Path, change: Callable[[io.BufferedReader], Iterator[bytes]]) -> None:
    """Stream a compressed file through `change`."""
    if not path.exists():
        return
    with path.open("rb") as source, compressed_anew(path) as writer:
        reader = zstandard.ZstdDecompressor().stream_reader(source, read_across_frames=True)
        for piece in change(io.BufferedReader(reader)):
            writer.write(piece)


def events(raw: io.BufferedReader, with_key: Anonymizer) -> Iterator[bytes]:
    """Rows with addresses are those of I and N; everything else passes untouched."""
    places: dict[str, list[str]] = {}
    for line in raw:
        if line.startswith(b"#"):
            tag, *names = line.decode().rstrip("\n")[1:].split(",")
            places[tag] = names
        elif line[:1] in b"IN":
            tag, *values = line.decode().rstrip("\n").split(",")
            names = places.get(tag, [])
            for i, name in enumerate(names):
                if name in ("saddr", "daddr"):
                    values[i] = str(with_key.number(int(values[i])))
                elif name in ("saddr6", "daddr6"):
                    values[i] = with_key.text(values[i])
            line = (",".join([tag, *values]) + "\n").encode()
        yield line


def plain(raw: io.BufferedReader, with_key: Anonymizer) -> Iterator[bytes]:
    """Map every address in lines of plain text."""
    for line in raw:
        yield with_key.everywhere(line.decode(errors="replace")).encode()


def packets(raw: io.BufferedReader, with_key: Anonymizer) -> Iterator[bytes]:
    """Map the addresses of IPv4 and IPv6 headers; checksums no longer fit and are set to zero."""
    header = raw.read(24)
    if len(header) < 24:
        yield header
        return
    order = "<" if header[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    link = struct.unpack(order + "I", header[20:24])[0] & 0xFFFF
    if link not in LINKS:
        raise BundleError(
            f"packets of link type {link} cannot be anonymized, --no-packets leaves them out"
        )
    yield header
    while len(head := raw.read(16)) == 16:
        length = struct.unpack(order + "I", head[8:12])[0]
        body = bytearray(raw.read(length))
        map_addresses(body, link, with_key)
        yield head + bytes(body)


def map_addresses(body: bytearray, link: int, with_key: Anonymizer) -> None:
    """Map the addresses of one packet in place; what is neither IPv4 nor IPv6 is blanked."""
    begin, end = HARDWARE.get(link, (0, 0))
    body[begin:end] = bytes(len(body[begin:end]))
    if len(body) <= LINKS[link][0]:
        return
    start, kind = network_header(body, link)
    version = body[start] >> 4
    if kind in (None, 0x0800) and version == 4 and len(body) >= start + 20:
        body[start + 10 : start + 12] = bytes(2)
        at, size = start + 12, 4
        transport = start + 4 * (body[start] & 15)
        # Options may hold the addresses of routers; zeros end them.
        body[start + 20 : transport] = bytes(len(body[start + 20 : transport]))
        is_later = int.from_bytes(body[start + 6 : start + 8], "big") & FRAGMENT
        blank_payload(body, transport, 0 if is_later else body[start + 9])
        map_options(body, transport, with_key)
    elif kind in (None, 0x86DD) and version == 6 and len(body) >= start + 40:
        at, size = start + 8, 16
        blank_payload(body, start + 40, body[start + 6])
        map_options(body, start + 40, with_key)
    else:
        body[start:] = bytes(len(body) - start)
        return
    for place in (at, at + size):
        body[place : place + size] = with_key.packed(bytes(body[place : place + size]))


def map_options(body: bytearray, start: int, with_key: Anonymizer) -> None:
    """Map the addresses that a TCP header's options offer to its peer (RFC 8684, 3.4.1)."""
    at = start + 20
    while at + 4 <= len(body):
        kind, length = body[at], body[at + 1]
        if kind == END:
            return
        if kind == NOTHING:
            at += 1
            continue
        if kind == MPTCP and body[at + 2] >> 4 == ADD_ADDR:
            # With a port, and with the sender's proof, IPv4's are up to 18 bytes long.
            size = 16 if length >= 4 + 16 else 4
            place = slice(at + 4, at + 4 + size)
            if len(body[place]) == size:
                body[place] = with_key.packed(bytes(body[place]))
            else:
                body[place] = bytes(len(body[place]))
        at += max(length, 2)


def blank_payload(body: bytearray, start: int, protocol: int) -> None:
    """Keep a TCP header and zero what follows: the snap length lets some payload through."""
    if protocol == TCP and len(body) > start + 12:
        start += 4 * (body[start + 12] >> 4)
    body[start:] = bytes(max(len(body) - start, 0))
