"""Raw messages of inet_diag to columns of table samples, many at once.

The layouts are those of include/uapi/linux/inet_diag.h and tcp.h, to which the kernel only ever
appends: of a longer structure the known part is read, of a shorter one as much as is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..store.schema import recorded_table
from .load_samples import type_and_limit
from .ss_log import phase_by_gains

if TYPE_CHECKING:
    import pyarrow as pa

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

SOURCE = "tcp_info"
AF_INET, AF_INET6 = 2, 10
# Attributes by their numbers, INET_DIAG_INFO and INET_DIAG_BBRINFO.
TCP_INFO, BBR_INFO = 2, 16
# A row of bytes: struct inet_diag_msg up to the cookie's end, struct tcp_info, struct
# tcp_bbr_info; each from a place where numbers of 64 bits may begin.
MESSAGE_BYTES, INFO_BYTES, BBR_BYTES = 52, 216, 20
INFO_AT = 56
BBR_AT = INFO_AT + INFO_BYTES
ROW_BYTES = BBR_AT + 24

# Column of table samples, place in struct tcp_info, bytes there, and its unit in the column's.
_FIELDS = (
    ("mss", 16, 4, 1),
    ("unacked", 24, 4, 1),
    ("sacked", 28, 4, 1),
    ("lost_out", 32, 4, 1),
    ("retrans_out", 36, 4, 1),
    ("srtt_us", 68, 4, 1),
    ("rttvar_us", 72, 4, 1),
    ("snd_ssthresh", 76, 4, 1),
    ("snd_cwnd", 80, 4, 1),
    ("total_retrans", 100, 4, 1),
    ("sk_pacing_rate", 104, 8, 8),
    ("bytes_acked", 120, 8, 1),
    ("notsent_bytes", 144, 4, 1),
    ("tcp_min_rtt_us", 148, 4, 1),
    ("data_segs_out", 156, 4, 1),
    ("delivery_rate", 160, 8, 8),
    ("delivered", 192, 4, 1),
    ("delivered_ce", 196, 4, 1),
    ("bytes_sent", 200, 8, 1),
    ("bytes_retrans", 208, 8, 1),
)
# Microseconds there, milliseconds in the table.
_TIMES = (("busy_ms", 168), ("rwnd_limited_ms", 176), ("sndbuf_limited_ms", 184))
_UNSET = {"snd_ssthresh": 0x7FFFFFFF, "tcp_min_rtt_us": 0xFFFFFFFF}
_IN_FLIGHT = ("unacked", "sacked", "lost_out", "retrans_out")
_FLAGS_AT = 7
_APP_LIMITED = 1
_MIN_RTT_UNSET = 0xFFFFFFFF
# NULL in a column of whole numbers, of which none is negative.
_NULL = -1


def _limits() -> dict[str, int]:
    columns = recorded_table("samples").columns
    return {c.name: type_and_limit(c)[1] or np.iinfo(np.int64).max for c in columns}


_MOST = _limits()


def columns(raw: U8, info_sizes: I64) -> dict[str, pa.Array]:
    """Return the columns of rows of bytes; those that struct tcp_info was too short for are NULL.

    Args:
        raw: a row of `ROW_BYTES` bytes per snapshot.
        info_sizes: bytes of struct tcp_info that each had.
    """
    import pyarrow as pa

    numbers = _tcp_info(raw, info_sizes)
    low, high, min_rtt_us = (_number(raw, BBR_AT + place, 4) for place in (0, 4, 8))
    pacing, cwnd = (_number(raw, BBR_AT + place, 4) for place in (12, 16))
    numbers["bw"] = _limited("bw", high << 32 | low, 8)
    numbers["min_rtt_us"] = np.where(min_rtt_us == _MIN_RTT_UNSET, _NULL, min_rtt_us)
    arrays: dict[str, pa.Array] = {name: _nullable(each) for name, each in numbers.items()}
    arrays["app_limited"] = pa.array(
        (raw[:, INFO_AT + _FLAGS_AT] & _APP_LIMITED).astype(bool), mask=info_sizes <= _FLAGS_AT
    )
    arrays["pacing_gain"], arrays["cwnd_gain"] = pa.array(pacing / 256), pa.array(cwnd / 256)
    arrays["phase"] = _phases(pacing, cwnd)
    source = pa.array(np.zeros(len(raw), np.int8))
    arrays["source"] = pa.DictionaryArray.from_arrays(source, pa.array([SOURCE]))
    return arrays


def _tcp_info(raw: U8, sizes: I64) -> dict[str, I64]:
    numbers: dict[str, I64] = {}
    for name, at, width, scale in _FIELDS:
        values = _number(raw, INFO_AT + at, width)
        absent = (sizes < at + width) | (values == _UNSET.get(name, _NULL))
        numbers[name] = np.where(absent, _NULL, _limited(name, values, scale))
    for name, at in _TIMES:
        unsigned = _number(raw, INFO_AT + at, 8).view(np.uint64) // 1000
        numbers[name] = np.where(sizes < at + 8, _NULL, _limited(name, unsigned.view(np.int64), 1))
    unacked, sacked, lost_out, retrans_out = (
        _number(raw, INFO_AT + at, width) for name, at, width, _ in _FIELDS if name in _IN_FLIGHT
    )
    held = np.maximum(unacked - sacked - lost_out + retrans_out, 0)
    numbers["in_flight"] = np.where(sizes < 40, _NULL, _limited("in_flight", held, 1))
    return numbers


def _number(raw: U8, at: int, width: int) -> I64:
    """Return a little-endian unsigned field; one of 64 bits past 2**63 becomes negative."""
    field = np.ascontiguousarray(raw[:, at : at + width]).view(f"<u{width}")[:, 0]
    return field.view(np.int64) if width == 8 else field.astype(np.int64)


def _limited(name: str, values: I64, scale: int) -> I64:
    """Return values in the column's unit, NULL where they are more than a connection can have."""
    beyond = (values < 0) | (values > _MOST[name] // scale)
    return np.where(beyond, _NULL, values * scale)


def _nullable(values: I64) -> pa.Array:
    import pyarrow as pa

    null = values < 0
    return pa.array(values, mask=null if null.any() else None)


def _phases(pacing: I64, cwnd: I64) -> pa.Array:
    import pyarrow as pa

    gains, which = np.unique(pacing << 32 | cwnd, return_inverse=True)
    pairs = ((int(both) >> 32 & 0xFFFFFFFF, int(both) & 0xFFFFFFFF) for both in gains)
    names = pa.array([phase_by_gains(one / 256, two / 256) for one, two in pairs], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(which.astype(np.int32)), names)
