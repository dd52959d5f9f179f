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

    def place(found: re.Match[str]) -> str:
        kind = _KINDS[found[2]]
        return rf" *{kind}" if found[1] == "_" else rf" *(?P<{found[1]}>{kind})"

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
    look = 0
    for line in lines:
        line = line[:MAX_LINE]
        found = LINE.search(line)
        if found is None:
            continue
        look += 1
        before = line[: found.start()]
        ends = Ends(None, None, found["address"], int(found["port"]) & 0xFFFF)
        yield Sample(ends, None, look, _time(before), _values(found))


def _time(before: str) -> tuple[int, str] | None:
    bracket = BRACKET.search(before)
    told = at_start(before[bracket.start() :] if bracket else _LEVEL.sub("", before))
    return told[:2] if told else None


def _values(found: re.Match[str]) -> dict[str, Any]:
    mode, cycle = _MODES.get(found["mode"]), int(found["cycle"])
    phase = f"PROBE_BW_{_CYCLE[cycle]}" if mode == "PROBE_BW" and cycle < 4 else mode
    return {
        "source": "kernel_log",
        "bbr_version": min(int(found["version"]), 255),
        "phase": phase,
        "bw": _kbps(found["bw"]),
        "bw_lo": _kbps(found["bw_lo"]),
        "sample_bw": _kbps(found["sample_bw"]),
        "inflight_hi": _bound(found["inflight_hi"]),
        "inflight_lo": _bound(found["inflight_lo"]),
        "extra_acked": _count(found["extra_acked"]),
        "min_rtt_us": _bound(found["min_rtt"]),
        "sk_pacing_rate": _kbps(found["pacing"]),
        "app_limited": found["limited"] == "_",
        "snd_cwnd": _count(found["cwnd"]),
        "rtt_us": _bound(found["rtt"]),
        "in_flight": _count(found["in_flight"]),
        "bytes_acked": int(found["una_k"]) * 1000 + int(found["una"]),
        "delivered": _count(found["delivered"]),
        "lost": _count(found["lost"]),
        "ca_state": _CA_STATES.get(found["ca"]),
        "ack_phase": _ACK_PHASES.get(found["ack_phase"]),
        "event": None if found["event"] == "." else found["event"],
        "loss_rate": int(found["loss"]) / 1000,
        "ce_rate": int(found["ce"]) / 1000,
        "ecn_alpha": int(found["alpha"]) / 1000,
        "round_start": found["round"] == "*",
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
