"""Sockets that leave BBR for another congestion control: the statements that tell it.

BBR has no release(), so that no callback tells it. Only what has a sequence number had BBR.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from .bbr_versions import Version
from .printed_rows import RowPrinter

# Tags: the socket has another congestion control now; or it had when it was destroyed.
LEFT, LEFT_FOR_GOOD = "O", "OX"
# Fields that grow while a socket has BBR: only init() sets them back. The second is v1's.
SET_BACK_BY_INIT = ("bbr.full_bw_reached", "bbr.rtt_cnt")
# 0 in a struct bbr that has not seen its init() yet, and never after: all modes pace by a gain.
SET_BY_INIT = "bbr.pacing_gain"


def another_control(version: Version) -> str:
    """Whether the socket has another congestion control; v3 registers as "bbr", too."""
    name = "bbr2" if version.name == "v2" else "bbr"
    return f'$icsk->icsk_ca_ops->name != "{name}"'


def tell_leaving(version: Version, printer: RowPrinter, maps: Sequence[str]) -> list[str]:
    """Leave sockets of another congestion control alone, and say so of one that had BBR.

    `maps` have an entry per socket while it has BBR: if it comes back to BBR, its events are a flow
    of their own, which is introduced and numbered from 0 on.
    """
    return [
        f"  if ({another_control(version)}) {{",
        "    if (@seq[(uint64)$sk]) {",
        textwrap.indent(printer.statements(LEFT, (), {}), "    "),
        *(f"      delete({name}[(uint64)$sk]);" for name in maps),
        "    }",
        "    return;",
        "  }",
    ]


def forget(sk: str, version: Version, printer: RowPrinter, maps: Sequence[str]) -> list[str]:
    """A socket is gone: forget what `maps` keep by its address, which another may get.

    Its congestion control is what it was up to the end (tcp_v4_destroy_sock() traces first): where
    that is not BBR, the socket had left BBR and never came back.
    """
    return [
        f"  $sk = (struct sock *){sk};",
        "  $icsk = (struct inet_connection_sock *)$sk;",
        f"  if (@over[0] == 0 && @seq[(uint64)$sk] && {another_control(version)}) {{",
        textwrap.indent(printer.statements(LEFT_FOR_GOOD, (), {}), "  "),
        "  }",
        *(f"  if ({name}[(uint64)$sk]) {{ delete({name}[(uint64)$sk]); }}" for name in maps),
    ]
