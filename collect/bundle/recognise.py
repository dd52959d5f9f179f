"""Tell what a file is by what is in it, whatever it is called."""

from __future__ import annotations

from pathlib import Path

from ..packets.capture_file import PCAP_MAGICS, pieces
from ..samples import kernel_log as samples_kernel_log
from .zstd import DamagedError

KINDS = ("bundle", "pcap", "ss", "kernel_log", "tcp_info")
# In each snapshot of M-Lab's tcp-info.
TCP_INFO_MARK = '"RawIDM"'
# So much of a text is looked at.
LOOK = 4 << 20


def recognise(path: Path) -> str:
    """Return one of `KINDS`.

    What is none of the others counts as a bundle: opening it then fails with a better reason.
    """
    if not path.is_file():
        return "bundle"
    head = b""
    try:
        for _, piece in pieces(path):
            head += piece
            if head[:4] in PCAP_MAGICS:
                return "pcap"
            if b"\0" in head or len(head) >= LOOK:
                break
    except (DamagedError, OSError):
        pass
    if b"\0" in head:
        return "bundle"
    text = head.decode("utf-8", "replace")
    if TCP_INFO_MARK in text:
        return "tcp_info"
    if samples_kernel_log.LINE.search(text):
        return "kernel_log"
    if " bbr" in text and " cwnd:" in text.replace("\t", " "):
        return "ss"
    return "bundle"
