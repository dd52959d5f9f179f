"""Tell what a file is by what is in it, whatever it is called."""

from __future__ import annotations

import re
from pathlib import Path

from ...probes.base.errors import BundleError
from ...probes.base.no_file import no_file
from ..packets.capture_file import PCAP_MAGICS, pieces
from ..samples import kernel_log as samples_kernel_log
from .zstd import DamagedError

KINDS = ("bundle", "pcap", "ss", "kernel_log", "tcp_info")
# In each snapshot of M-Lab's tcp-info.
TCP_INFO_MARK = '"RawIDM"'
# The first line of each of its archives, of one that has no snapshot, too.
_TCP_INFO_HEAD = re.compile(r'\s*\{"Metadata":\s*\{"UUID":')
# So much of a text is looked at.
LOOK = 4 << 20
# The mark comes early: most small archives need not be unpacked wholly for it.
AT_A_TIME = 64 << 10


def recognise(path: Path, kind: str | None = None) -> str:
    """Return one of `KINDS`: `kind` if it is given.

    What is none of the others counts as a bundle: opening it then fails with a better reason.

    Raises:
        BundleError: a `kind` is given that is that of a file, and there is none.
    """
    why = no_file(path)
    if kind not in (None, "bundle") and why:
        raise BundleError(why, "give a file of that kind")
    if kind or why:
        return kind or "bundle"
    head = bytearray()
    mark = TCP_INFO_MARK.encode()
    try:
        for _, piece in pieces(path, AT_A_TIME):
            head += piece
            if head[:4] in PCAP_MAGICS:
                return "pcap"
            if b"\0" in piece or mark in piece or len(head) >= LOOK:
                break
    except (DamagedError, OSError):
        pass
    if b"\0" in head:
        return "bundle"
    text = head.decode("utf-8", "replace")
    if TCP_INFO_MARK in text or _TCP_INFO_HEAD.match(text):
        return "tcp_info"
    if samples_kernel_log.LINE.search(text):
        return "kernel_log"
    if " bbr" in text and " cwnd:" in text.replace("\t", " "):
        return "ss"
    return "bundle"
