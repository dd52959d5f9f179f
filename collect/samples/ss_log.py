"""Read what ``ss -tin`` printed, again and again, into samples.

Every form that people have: one line per flow (``-O``) or two, with the column of states or
without, times on lines of their own or before each line, v1's ``bbr:(...)`` or the longer one of
v3's patched ss (google/bbr, nsperf's 0001-ss-output-TCP-BBRv3-diag-information.patch). What ss
prints is in iproute2's misc/ss.c, tcp_stats_print().
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..events.addresses import decode_address
from .load_samples import Ends, Sample
from .log_times import at_start

MAX_LINE = 1 << 16
_STATES = frozenset(
    "ESTAB SYN-SENT SYN-RECV FIN-WAIT-1 FIN-WAIT-2 TIME-WAIT CLOSE CLOSE-WAIT LAST-ACK LISTEN "
    "CLOSING UNCONN NEW-SYN-RECV BOUND-INACTIVE".split()
)
_END = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<v4>\d+\.\d+\.\d+\.\d+))(?:%[\w.-]+)?:(?P<port>\d{1,5})"
)
_BARE_V6 = re.compile(r"(?P<v6>[0-9A-Fa-f]*:[0-9A-Fa-f:.]*):(?P<port>\d{1,5})")
_COOKIE = re.compile(r"\bsk:([0-9a-f]+)\b")
_BBR = re.compile(r"\bbbr:\(([^)]*)\)")
_RATE = re.compile(r"(\d+(?:\.\d+)?(?:e\+\d+)?)([KMGT]?)bps")
_SCALE = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_MAX = (1 << 63) - 1


def _whole(text: str) -> int | None:
    """A count; what follows its digits (ms, a share) is left aside."""
    match = re.match(r"\d{1,19}", text)
    return min(int(match[0]), _MAX) if match else None


def _milliseconds(text: str) -> int | None:
    """Milliseconds with a fraction as us."""
    try:
        value = float(text)
    except ValueError:
        return None
    return round(value * 1000) if 0 <= value < 1e12 else None


def _rate(text: str) -> int | None:
    match = _RATE.match(text)
    return round(min(float(match[1]) * _SCALE[match[2]], _MAX)) if match else None


def _gain(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e6 else None


def _milli_whole(text: str) -> int | None:
    return _whole(text) if text.endswith("ms") or "ms(" in text else None


def _version(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,2}", text) else None


# ss's name -> column and how to read what follows the colon.
_KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "cwnd": ("snd_cwnd", _whole),
    "ssthresh": ("snd_ssthresh", _whole),
    "mss": ("mss", _whole),
    "minrtt": ("tcp_min_rtt_us", _milliseconds),
    "unacked": ("unacked", _whole),
    "sacked": ("sacked", _whole),
    "lost": ("lost_out", _whole),
    "notsent": ("notsent_bytes", _whole),
    "bytes_acked": ("bytes_acked", _whole),
    "bytes_sent": ("bytes_sent", _whole),
    "bytes_retrans": ("bytes_retrans", _whole),
    "data_segs_out": ("data_segs_out", _whole),
    "delivered": ("delivered", _whole),
    "delivered_ce": ("delivered_ce", _whole),
    "busy": ("busy_ms", _milli_whole),
    "rwnd_limited": ("rwnd_limited_ms", _milli_whole),
    "sndbuf_limited": ("sndbuf_limited_ms", _milli_whole),
}
_WORDS = {"pacing_rate": "sk_pacing_rate", "delivery_rate": "delivery_rate"}
_BBR_KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "bw": ("bw", _rate),
    "mrtt": ("min_rtt_us", _milliseconds),
    "pacing_gain": ("pacing_gain", _gain),
    "cwnd_gain": ("cwnd_gain", _gain),
    "version": ("bbr_version", _version),
    "bw_hi": ("bw_hi", _rate),
    "bw_lo": ("bw_lo", _rate),
    "inflight_hi": ("inflight_hi", _whole),
    "inflight_lo": ("inflight_lo", _whole),
    "extra_acked": ("extra_acked", _whole),
    "phase": ("phase", str),
}


def samples(lines: Iterable[str]) -> Iterator[Sample]:
    """Yield the flows under BBR, poll by poll; everything else in the log is passed over.

    A poll of all flows begins with a time on a line of its own, with ss's line of headings, or,
    where there is neither, when flows come again.
    """
    poll, seen = 1, set[tuple[Ends, str | None]]()
    stamp: tuple[int, str] | None = None
    head: tuple[Ends, str | None, tuple[int, str] | None] | None = None
    for line in lines:
        line = line[:MAX_LINE]
        begin = at_start(line)
        rest = line[begin[2] :].strip(" :") if begin else line.strip()
        indented = line[:1] in " \t" if begin is None else line[begin[2] : begin[2] + 2] == " \t"
        if begin is not None and not rest:
            stamp, head = begin[:2], None
            poll, seen = poll + bool(seen), set()
            continue
        if rest.startswith(("State ", "Recv-Q ", "Netid ")):
            poll, seen, head = poll + bool(seen), set(), None
            continue
        when = begin[:2] if begin else stamp
        ends = None if indented else _ends(rest)
        if ends is not None:
            cookie = _COOKIE.search(rest)
            head = (ends, cookie[1] if cookie else None, when)
        if head is None or " cwnd:" not in f" {rest}":
            continue
        values = _values(rest)
        ends, name, when = head
        head = None
        if values is None:
            continue
        if (ends, name) in seen:
            poll, seen = poll + 1, set()
        seen.add((ends, name))
        yield Sample(ends, name, poll, when, values)


def _ends(text: str) -> Ends | None:
    """Local and peer address out of a line that tells a flow: [state] recv-q send-q local peer."""
    words = text.split(None, 7)
    if words and words[0] in ("tcp", "mptcp"):
        words = words[1:]
    if words and words[0] in _STATES:
        words = words[1:]
    if len(words) < 4 or not (words[0].isdigit() and words[1].isdigit()):
        return None
    local, peer = _end(words[2]), _end(words[3])
    return Ends(*local, *peer) if local and peer else None


def _end(word: str) -> tuple[str, int] | None:
    match = _END.fullmatch(word) or _BARE_V6.fullmatch(word)
    if match is None or int(match["port"]) > 65535:
        return None
    try:
        address = decode_address(match.groupdict().get("v4") or match["v6"])
    except ValueError:
        return None
    return address, int(match["port"])


def _values(text: str) -> dict[str, Any] | None:
    """The columns of one flow's sample; None: it is not under BBR."""
    bbr = _BBR.search(text)
    words = _BBR.sub(" ", text).split()
    if bbr is None and "bbr" not in words:
        return None
    values: dict[str, Any] = {"source": "ss", "app_limited": "app_limited" in words}
    for name, following in zip(words, [*words[1:], ""], strict=True):
        key, colon, value = name.partition(":")
        if not colon and name in _WORDS:
            values[_WORDS[name]] = _rate(following)
        elif key in _KEYS and colon:
            column, read = _KEYS[key]
            values[column] = read(value)
        elif key == "rtt" and colon:
            values["srtt_us"], values["rttvar_us"] = map(_milliseconds, _pair(value))
        elif key == "retrans" and colon:
            values["retrans_out"], values["total_retrans"] = map(_whole, _pair(value))
    for part in (bbr[1] if bbr else "").split(","):
        key, _, value = part.partition(":")
        if key in _BBR_KEYS:
            column, read = _BBR_KEYS[key]
            values[column] = read(value)
    if values.get("phase") in (None, "INVALID"):
        values["phase"] = phase_by_gains(values.get("pacing_gain"), values.get("cwnd_gain"))
    if values.get("unacked") is not None or values.get("snd_cwnd") is not None:
        out = [values.get(name) or 0 for name in ("unacked", "sacked", "lost_out", "retrans_out")]
        values["in_flight"] = max(0, out[0] - out[1] - out[2] + out[3])
    return values


def _pair(text: str) -> tuple[str, str]:
    first, _, second = text.partition("/")
    return first, second


def phase_by_gains(pacing_gain: float | None, cwnd_gain: float | None) -> str | None:
    """Tell the phase by the gains, as far as they tell it; the versions' gains differ.

    tcp_bbr.c: bbr_high_gain 2.887, bbr_drain_gain 0.344, bbr_pacing_gain[], cwnd_gain 1 in
    PROBE_RTT; v3 has 2.773 in STARTUP and 0.5 for cwnd in PROBE_RTT. At a gain of 1 in PROBE_BW
    they do not tell cruising from refilling, so v1's names are used for all.

    >>> phase_by_gains(2.88672, 2.88672), phase_by_gains(1, 2), phase_by_gains(1, 1)
    ('STARTUP', 'PROBE_BW_1.0', 'PROBE_RTT')
    """
    if pacing_gain is None or cwnd_gain is None:
        return None
    if pacing_gain > 2:
        return "STARTUP"
    if pacing_gain < 0.6:
        return "DRAIN"
    if cwnd_gain <= 1:
        return "PROBE_RTT"
    if pacing_gain == 1:
        return "PROBE_BW_1.0"
    return "PROBE_BW_1.25" if pacing_gain > 1 else "PROBE_BW_0.75"
