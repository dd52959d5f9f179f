"""Times as people put them into logs: epoch seconds, ISO 8601, `date`, dmesg's brackets."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

from ..bundle.numbers import is_time

EPOCH = re.compile(r"(\d{9,10}(?:\.\d{1,9})?|\d{13}|\d{16}|\d{19})(?=\s|$|:)")
ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\s*(Z|UTC|[+-]\d\d:?\d\d)?(?=\s|$|:)"
)
# date without a format, and dmesg -T: both in English, the year before or after the zone.
DATE = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? (\w{3}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d)"
    r"(?: (?:[AP]M ))?(?: ?[A-Z]{2,5})? (\d{4})"
)
# printk's and journalctl -o short-monotonic's: local_clock(), within ms of CLOCK_MONOTONIC.
BRACKET = re.compile(r"\[\s*(\d{1,10}\.\d{1,9})\]")
# /proc/uptime, which `collect --print-script` has: the same but for time spent suspended.
UPTIME = re.compile(r"#?\s*uptime_s (\d{1,10}(?:\.\d{1,9})?)(?=\s|$)")
MONOTONIC = re.compile(r"#?\s*monotonic_ns (\d{1,19})(?=\s|$)")


def at_start(text: str) -> tuple[int, str, int] | None:
    """Return the time that a line begins with: ns, its clock, and where the rest begins.

    ``#`` before it is passed over. A time without a zone is taken for UTC. None: there is none, or
    one before 1970 or after 2116.

    >>> at_start("1700000000.5 ESTAB")
    (1700000000500000000, 'realtime', 12)
    >>> at_start("# monotonic_ns 77")
    (77, 'monotonic', 17)
    >>> at_start("2023-11-14T22:13:20.25+00:00")
    (1700000000250000000, 'realtime', 28)
    >>> at_start("# uptime_s 4.25")
    (4250000000, 'monotonic', 15)
    >>> at_start("ESTAB 0 0") is None
    True
    """
    written = _parsed_at_start(text)
    return written if written is not None and is_time(written[0]) else None


def _parsed_at_start(text: str) -> tuple[int, str, int] | None:
    """Return what `at_start` does, whatever time it is."""
    skipped = len(text) - len(text.lstrip("# \t"))
    if match := MONOTONIC.match(text):
        return int(match[1]), "monotonic", match.end()
    if match := UPTIME.match(text):
        return int(Decimal(match[1]) * 10**9), "monotonic", match.end()
    if match := EPOCH.match(text, skipped):
        return _epoch(match[1]), "realtime", match.end()
    if match := ISO.match(text, skipped):
        zone = (match[4] or "Z").replace("UTC", "Z")
        moment = _moment(f"{match[1]}T{match[2]}{zone}", None)
        fraction = int((match[3] or "").ljust(9, "0"))
        return None if moment is None else (moment + fraction, "realtime", match.end())
    if match := DATE.match(text, skipped):
        moment = _moment(" ".join(match.groups()), "%b %d %H:%M:%S %Y")
        return None if moment is None else (moment, "realtime", match.end())
    if match := BRACKET.match(text, skipped):
        return int(Decimal(match[1]) * 10**9), "monotonic", match.end()
    return None


def _epoch(text: str) -> int:
    """Seconds with a fraction, or whole ms, us or ns, as ns without going through a float."""
    if "." in text or len(text) <= 10:
        return int(Decimal(text) * 10**9)
    return int(text.ljust(19, "0"))


def _moment(text: str, layout: str | None) -> int | None:
    """Whole seconds as ns; None for the 31st of June."""
    try:
        if layout is None:
            whole = datetime.fromisoformat(text)
        else:
            whole = datetime.strptime(text, layout).replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return int(whole.timestamp()) * 10**9
