"""Read M-Lab's tcp-info archives into samples: raw messages of inet_diag, one JSON object a line.

A line has ``Metadata``, or is a snapshot: ``Timestamp``, ``RawIDM`` (struct inet_diag_msg)
and ``Attributes``, a list by INET_DIAG_* of what the kernel added, all in base64. The layouts are
those of include/uapi/linux/inet_diag.h and tcp.h, to which the kernel only ever appends: of a
longer structure the known part is read, of a shorter one as much as is there. Snapshots are written
when something changed, so that a pause is no gap.
"""

from __future__ import annotations

import ipaddress
import json
import struct
from binascii import a2b_base64
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from .load_samples import Ends, Sample
from .ss_log import phase_by_gains

SOURCE = "tcp_info"
MARK = '"RawIDM"'
_TCP_INFO, _BBR_INFO = 2, 16
_AF_INET, _AF_INET6 = 2, 10
# Bytes of struct inet_diag_msg up to the cookie's end.
_MESSAGE = 52
_BBR = struct.Struct("<5I")
# Column of table samples, place in struct tcp_info, its format there, and its unit in the column's.
_FIELDS = (
    ("mss", 16, "I", 1),
    ("unacked", 24, "I", 1),
    ("sacked", 28, "I", 1),
    ("lost_out", 32, "I", 1),
    ("retrans_out", 36, "I", 1),
    ("srtt_us", 68, "I", 1),
    ("rttvar_us", 72, "I", 1),
    ("snd_ssthresh", 76, "I", 1),
    ("snd_cwnd", 80, "I", 1),
    ("total_retrans", 100, "I", 1),
    ("sk_pacing_rate", 104, "Q", 8),
    ("bytes_acked", 120, "Q", 1),
    ("notsent_bytes", 144, "I", 1),
    ("tcp_min_rtt_us", 148, "I", 1),
    ("data_segs_out", 156, "I", 1),
    ("delivery_rate", 160, "Q", 8),
    ("delivered", 192, "I", 1),
    ("delivered_ce", 196, "I", 1),
    ("bytes_sent", 200, "Q", 1),
    ("bytes_retrans", 208, "Q", 1),
)
# Microseconds there, milliseconds in the table.
_TIMES = (("busy_ms", 168), ("rwnd_limited_ms", 176), ("sndbuf_limited_ms", 184))
_UNSET = {"snd_ssthresh": 0x7FFFFFFF, "tcp_min_rtt_us": 0xFFFFFFFF}


def samples(lines: Iterable[str]) -> Iterator[Sample]:
    """Yield the snapshots of BBR flows; whatever else is there is passed over."""
    for poll, line in enumerate(lines, 1):
        if MARK not in line:
            continue
        try:
            record = json.loads(line)
            sample = _sample(record.get("Snapshot", record), poll)
        except (ValueError, TypeError, LookupError, AttributeError, struct.error, RecursionError):
            continue
        if sample is not None:
            yield sample


def _sample(snapshot: dict[str, Any], poll: int) -> Sample | None:
    attributes: list[str | None] = snapshot.get("Attributes") or []
    bbr = _attribute(attributes, _BBR_INFO)
    if len(bbr) < _BBR.size:
        return None
    message = a2b_base64(snapshot["RawIDM"])
    values = {"source": SOURCE, **_tcp_info(_attribute(attributes, _TCP_INFO)), **_bbr_info(bbr)}
    ends = _ends(message)
    cookie = message[44:52].hex()
    return Sample(ends, cookie, poll, (_ns(snapshot["Timestamp"]), "realtime"), values)


def _attribute(attributes: list[str | None], number: int) -> bytes:
    text = attributes[number] if len(attributes) > number else None
    return a2b_base64(text) if text else b""


@lru_cache(maxsize=4096)
def _socket(family: int, socket: bytes) -> Ends:
    local_port, remote_port = (int.from_bytes(socket[at : at + 2]) for at in (0, 2))
    size = 4 if family == _AF_INET else 16
    local, remote = (socket[at : at + size] for at in (4, 20))
    return Ends(_address(local), local_port, _address(remote), remote_port)


def _ends(message: bytes) -> Ends:
    family = message[0]
    if family not in (_AF_INET, _AF_INET6) or len(message) < _MESSAGE:
        raise ValueError("not a message of inet_diag")
    return _socket(family, message[4:40])


def _address(packed: bytes) -> str:
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _tcp_info(raw: bytes) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, at, kind, scale in _FIELDS:
        if len(raw) >= at + (4 if kind == "I" else 8):
            (value,) = struct.unpack_from(f"<{kind}", raw, at)
            values[name] = None if _UNSET.get(name) == value else value * scale
    for name, at in _TIMES:
        if len(raw) >= at + 8:
            values[name] = struct.unpack_from("<Q", raw, at)[0] // 1000
    if len(raw) > 7:
        values["app_limited"] = bool(raw[7] & 1)
    if all(name in values for name in ("unacked", "sacked", "lost_out", "retrans_out")):
        held = values["unacked"] - values["sacked"] - values["lost_out"] + values["retrans_out"]
        values["in_flight"] = max(0, held)
    return values


def _bbr_info(raw: bytes) -> dict[str, Any]:
    low, high, min_rtt_us, pacing_gain, cwnd_gain = _BBR.unpack_from(raw)
    pacing, cwnd = pacing_gain / 256, cwnd_gain / 256
    return {
        "bw": min((high << 32 | low) * 8, (1 << 63) - 1),
        "min_rtt_us": None if min_rtt_us == 0xFFFFFFFF else min_rtt_us,
        "pacing_gain": pacing,
        "cwnd_gain": cwnd,
        "phase": phase_by_gains(pacing, cwnd),
    }


def _ns(text: str) -> int:
    """Return a time of RFC 3339 as nanoseconds since 1970; only UTC is written."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return _second(whole) * 1_000_000_000 + int(fraction[:9].ljust(9, "0") or 0)


@lru_cache(maxsize=4096)
def _second(whole: str) -> int:
    return int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
