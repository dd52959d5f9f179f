"""Read the debug lines that v2alpha prints into the kernel's log, one per ACK of note.

The format is that of google/bbr v2alpha, tcp_bbr2.c bbr_debug(), which module parameter
debug_with_printk turns on. It names no local address, no port of the sender, and sequence numbers
from the connection's beginning on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from .load_samples import Ends, Sample
from .log_times import BRACKET, at_start

MAX_LINE = 1 << 12
# printf's conversions of bbr_debug(), in its order, under the names used below; "_" is not kept.
_FORMAT = """
BBR {address:A}:{port:N} {una_k:N},{una:N}:{fack:S} {ca:C} {mode:C} {cwnd:N} br {extra_acked:N}
cr {tx_in_flight:S} rtt {rtt:S} d {_:S} i {_:S} mrtt {min_rtt:S} {limited:C}bw {sample_bw:N}
bw {bw:N} lb {_:N} ib {_:N} qb {pacing:N} a {_:N} if {in_flight:N} {_:C} {round:C} dl {delivered:N}
l {lost:N} al {_:N} # {_:N} t {_:N} {_:C} {_:C} lr {loss:S} er {ce:S} ea {alpha:S} bwl {bw_lo:S}
il {inflight_lo:S} ih {inflight_hi:S} c {_:S} v {version:N} {event:C} {cycle:N} {ack_phase:C} {_:C}
"""
_KINDS = {"A": r"[0-9.]{7,15}", "N": r"\d{1,20}", "S": r"-?\d{1,20}", "C": r"\S"}


def _pattern() -> re.Pattern[str]:
    """The regular expression of a line; blanks are as many as printf's widths make them."""

    def place(match: re.Match[str]) -> str:
        kind = _KINDS[match[2]]
        return rf" *{kind}" if match[1] == "_" else rf" *(?P<{match[1]}>{kind})"

    parts = re.split(r"(\{\w+:\w\})", " ".join(_FORMAT.split()))
    text = "".join(
        re.sub(r"\{(\w+):(\w)\}", place, part) if part.startswith("{") else
        re.escape(part).replace(r"\ ", " +")
        for part in parts
    )  # fmt: skip
    # A blank and the blanks of a width after it are one.
    return re.compile(text.replace(" + *", " +"))


LINE = _pattern()
_MODES = {"G": "STARTUP", "D": "DRAIN", "W": "PROBE_BW", "M": "PROBE_RTT"}
_CYCLE = ("UP", "DOWN", "CRUISE", "REFILL")
_CA_STATES = {"O": "Open", "D": "Disorder", "C": "CWR", "R": "Recovery", "L": "Loss"}
_ACK_PHASES = {
    "I": "init",
    "R": "refilling",
    "B": "probe_starting",
    "F": "probe_feedback",
    "A": "probe_stopping",
}
# printk's level before a line, and the bracket of dmesg -T.
_LEVEL = re.compile(r"^(<\d+>)?\[?")
_MAX = (1 << 63) - 1


def samples(lines: Iterable[str]) -> Iterator[Sample]:
    """Yield BBR's lines; all others are passed over.

    The time is the one in brackets, which printk prints (dmesg, kern.log) as does ``journalctl -k
    -o short-monotonic``, else one that the line begins with.
    """
    poll = 0
    for line in lines:
        line = line[:MAX_LINE]
        match = LINE.search(line)
        if match is None:
            continue
        poll += 1
        before = line[: match.start()]
        ends = Ends(None, None, match["address"], int(match["port"]) & 0xFFFF)
        yield Sample(ends, None, poll, _time(before), _values(match))


def _time(before: str) -> tuple[int, str] | None:
    bracket = BRACKET.search(before)
    stamp = at_start(before[bracket.start() :] if bracket else _LEVEL.sub("", before))
    return stamp[:2] if stamp else None


def _values(match: re.Match[str]) -> dict[str, Any]:
    mode, cycle = _MODES.get(match["mode"]), int(match["cycle"])
    phase = f"PROBE_BW_{_CYCLE[cycle]}" if mode == "PROBE_BW" and cycle < 4 else mode
    return {
        "source": "kernel_log",
        "bbr_version": min(int(match["version"]), 255),
        "phase": phase,
        "bw": _kbps(match["bw"]),
        "bw_lo": _kbps(match["bw_lo"]),
        "sample_bw": _kbps(match["sample_bw"]),
        "inflight_hi": _bound(match["inflight_hi"]),
        "inflight_lo": _bound(match["inflight_lo"]),
        "extra_acked": _count(match["extra_acked"]),
        "min_rtt_us": _bound(match["min_rtt"]),
        "sk_pacing_rate": _kbps(match["pacing"]),
        "app_limited": match["limited"] == "_",
        "snd_cwnd": _count(match["cwnd"]),
        "rtt_us": _bound(match["rtt"]),
        "in_flight": _count(match["in_flight"]),
        "bytes_acked": int(match["una_k"]) * 1000 + int(match["una"]),
        "delivered": _count(match["delivered"]),
        "lost": _count(match["lost"]),
        "ca_state": _CA_STATES.get(match["ca"]),
        "ack_phase": _ACK_PHASES.get(match["ack_phase"]),
        "event": None if match["event"] == "." else match["event"],
        "loss_rate": int(match["loss"]) / 1000,
        "ce_rate": int(match["ce"]) / 1000,
        "ecn_alpha": int(match["alpha"]) / 1000,
        "round_start": match["round"] == "*",
    }


def _count(text: str) -> int | None:
    return min(int(text), _MAX)


def _kbps(text: str) -> int | None:
    """A rate that is printed in kbit/s, in bit/s; -1: unset."""
    value = int(text)
    return None if value < 0 else min(value * 1000, _MAX)


def _bound(text: str) -> int | None:
    """A value printed with %d; ~0U, unset, shows as -1."""
    value = int(text)
    return None if value < 0 else min(value, _MAX)
