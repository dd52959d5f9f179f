"""Quantities as scenarios write them: 20mbit, 30ms, 1bdp, 100pkt, 50kB, 2%."""

from __future__ import annotations

import re
from fractions import Fraction

from ...probes.base.errors import ScenarioError

# A full-sized packet as tbf counts it: 1500 bytes of IP and 14 of Ethernet.
PACKET_BYTES = 1514

_NUMBER = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?(?:e-?[0-9]{1,2})?)\s*([A-Za-z%]*)")
# The largest quantity of any unit: 1 Tbit/s, 11 days, 1 TB.
MOST = 10**12
_RATES = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_TIMES = {"us": 1, "ms": 10**3, "s": 10**6, "min": 60 * 10**6}
_SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20}


def _split(text: object, what: str, examples: str) -> tuple[Fraction, str]:
    match = _NUMBER.fullmatch(str(text).strip())
    if match is None:
        raise ScenarioError(f"{what} {str(text)[:40]!r} is not understood", f"write {examples}")
    return Fraction(match[1]), match[2]


def _scaled(text: object, what: str, units: dict[str, int], examples: str) -> Fraction:
    number, unit = _split(text, what, examples)
    if unit not in units:
        raise ScenarioError(f"{what} {str(text)[:40]!r} is not understood", f"write {examples}")
    return _bounded(number * units[unit], text, what)


def _bounded(value: Fraction, text: object, what: str) -> Fraction:
    if value > MOST:
        raise ScenarioError(f"{what} {str(text)[:40]!r} is too large", "write less")
    return value


def rate(text: object) -> int:
    """Return bit/s. Raises ScenarioError."""
    return round(_scaled(text, "rate", _RATES, "20mbit, 500kbit or 1gbit"))


def time_us(text: object, duration_us: int | None = None) -> int:
    """Return microseconds; 50% is that part of the run's duration, where one is given.

    A number without a unit is in seconds. Raises ScenarioError.
    """
    number, unit = _split(text, "time", "30ms, 2s or 500us")
    if unit == "%" and duration_us is not None:
        return round(_bounded(number * duration_us / 100, text, "time"))
    return round(_scaled(text, "time", {**_TIMES, "": 10**6}, "30ms, 2s or 500us"))


def size(text: object, bdp_bytes: int | None = None) -> int:
    """Return bytes; the text may be a sum: 1.5bdp+50kB. Raises ScenarioError.

    pkt is a full-sized packet as tbf counts it; bdp can be used only if `bdp_bytes` is given.
    """
    units = {**_SIZES, "pkt": PACKET_BYTES}
    if bdp_bytes is not None:
        units["bdp"] = bdp_bytes
    parts = str(text).split("+")
    total = sum(_scaled(part, "size", units, "50kB, 100pkt or 1bdp") for part in parts)
    return round(_bounded(Fraction(total), text, "size"))


def buffer(text: object, bdp_bytes: int) -> int:
    """Return the bytes of a bottleneck's buffer: two packets at least, or tbf drops everything.

    A part of the BDP may come to less, and is two packets then. Raises ScenarioError: not
    understood, or it says itself that it holds less.
    """
    least = 2 * PACKET_BYTES
    given = size(text, bdp_bytes)
    if given < least and ("bdp" not in str(text) or size(text, least) == 0):
        raise ScenarioError(f"buffer {str(text)[:40]!r} holds less than two packets", "write 2pkt")
    return max(given, least)


def share(text: object) -> float:
    """Return a share between 0 and 1: 2% or 0.02. Raises ScenarioError."""
    number, unit = _split(text, "share", "2% or 0.02")
    value = float(number / 100 if unit == "%" else number)
    if unit not in ("", "%") or not 0 <= value <= 1:
        raise ScenarioError(f"share {str(text)[:40]!r} is not understood", "write 2% or 0.02")
    return value
