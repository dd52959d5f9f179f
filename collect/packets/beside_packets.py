"""What a pcapng holds beside its packets: comments, names of addresses, decryption secrets.

Comments and names say something about a recording and are kept with it. Secrets decrypt what others
may have captured of the same connections: they are counted, and stay in the file only.
"""

from __future__ import annotations

import ipaddress
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...probes.base.errors import BundleError
from ..bundle.zstd import DamagedError
from .capture_blocks import NAMES, SECRETS, CaptureBlock, blocks
from .capture_file import PCAP_MAGICS, pieces

# More than this was not written by hand; the first of them are kept.
MOST_ENTRIES = 10_000
MOST_TEXT = 2_000
# Records of a block of names: the end, an IPv4 and an IPv6 address with their names.
_END, _SIZES = 0, {1: 4, 2: 16}


@dataclass
class BesidePackets:
    """What there is, in the order of the file.

    Attributes:
        comments: the packet that each is about, from 1 (0: the file or an interface), and its text.
        names: addresses, each with a name.
        secrets: blocks of decryption secrets.
    """

    comments: list[tuple[int, str]] = field(default_factory=list)
    names: list[tuple[str, str]] = field(default_factory=list)
    secrets: int = 0

    def __bool__(self) -> bool:
        return bool(self.comments or self.names or self.secrets)

    def counts(self) -> dict[str, int]:
        """Return how many of each there are."""
        return {
            "comments": len(self.comments),
            "names": len(self.names),
            "secrets": self.secrets,
        }

    def text(self) -> str:
        """Return comments and names as JSON."""
        comments = [{"packet": packet, "comment": text} for packet, text in self.comments]
        names = [{"address": address, "name": name} for address, name in self.names]
        return json.dumps({"comments": comments, "names": names}, ensure_ascii=False)


def beside_packets(path: Path) -> BesidePackets:
    """Return what a capture holds beside its packets: nothing, if it is no pcapng.

    What makes no sense ends it: tshark, which reads the same file, says what is wrong.
    """
    others = BesidePackets()
    try:
        _, head = next(pieces(path), (0, b""))
        if head[:4] == PCAP_MAGICS[-1]:
            for block in blocks(path):
                _add(others, block)
    except (BundleError, DamagedError, struct.error):
        pass
    return others


def _add(others: BesidePackets, block: CaptureBlock) -> None:
    others.secrets += block.kind == SECRETS
    if len(others.comments) < MOST_ENTRIES:
        others.comments += [(block.frame, text[:MOST_TEXT]) for text in block.comments()]
    if block.kind == NAMES and len(others.names) < MOST_ENTRIES:
        others.names += _names(block)


def _names(block: CaptureBlock) -> Iterator[tuple[str, str]]:
    data, at = block.raw[8:-4], 0
    while at + 4 <= len(data):
        kind, size = struct.unpack_from(block.order + "HH", data, at)
        value = data[at + 4 : at + 4 + size]
        at += 4 + size + -size % 4
        if kind == _END:
            return
        length = _SIZES.get(kind)
        if length is not None and len(value) > length:
            address = str(ipaddress.ip_address(value[:length]))
            for name in value[length:].split(b"\0"):
                if name:
                    yield address, name.decode("utf-8", "replace")[:MOST_TEXT]
