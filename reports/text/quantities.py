"""Numbers as people read them: durations, amounts with their unit, shares, counts."""

from __future__ import annotations

from ...probes.base.plurals import plural


def fixed(value: float, digits: int) -> str:
    """Return a number with so many digits behind the point, and no sign before a zero.

    >>> fixed(-0.001, 2), fixed(-1.25, 1)
    ('0.00', '-1.2')
    """
    return f"{round(value, digits) + 0.0:.{digits}f}"


def clock(ns: int, zero_ns: int, digits: int = 2) -> str:
    """Return a time on the run's clock; both in ns, CLOCK_MONOTONIC.

    >>> clock(62_000_000_000, 60_000_000_000), clock(59_999_999_999, 60_000_000_000)
    ('2.00 s', '0.00 s')
    """
    return f"{fixed((ns - zero_ns) / 1e9, digits)} s"


def seconds(value: float) -> str:
    """Return a duration in the unit that suits it.

    >>> seconds(25.1038), seconds(0.3814), seconds(0.00052), seconds(-1e-9)
    ('25.10 s', '381 ms', '0.52 ms', '0.00 ms')
    """
    if abs(value) >= 1:
        return f"{value:.2f} s"
    milli = value * 1e3
    return f"{milli:.0f} ms" if abs(milli) >= 10 else f"{fixed(milli, 2)} ms"


def quantity(value: float, unit: str) -> str:
    """Return a number with an SI prefix and its unit.

    >>> quantity(29312000, "B"), quantity(9.35e6, "bit/s"), quantity(512, "B")
    ('29.3 MB', '9.35 Mbit/s', '512 B')
    """
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def share(value: float) -> str:
    """Return a share as a percentage; small ones keep a digit that counts.

    Below 10 % lie BBR's limits on loss and ECN, which are whole themselves.

    >>> share(0.613), share(0.0128), share(0.02), share(0.0037), share(0.00004), share(0)
    ('61 %', '1.3 %', '2 %', '0.37 %', '< 0.01 %', '0 %')
    """
    percent = round(100 * value, 9)
    if percent == round(percent):
        return f"{percent:.0f} %"
    if percent < 0.01:
        return "< 0.01 %"
    return f"{percent:.{2 if percent < 1 else 1 if percent < 9.95 else 0}f} %"


def times(count: int) -> str:
    """Return how often.

    >>> times(1), times(2), times(14)
    ('once', 'twice', '14 times')
    """
    return {1: "once", 2: "twice"}.get(count, plural(count, "time"))


def number_of(value: float, unit: str, is_share: bool = False) -> str:
    """Return a measured number with its unit; times in ms, shares as percentages.

    >>> number_of(44150.5, "us"), number_of(0.0039, "", True), number_of(0.97, "")
    ('44.2 ms', '0.39 %', '0.97')
    """
    if is_share:
        return share(value)
    if unit == "us":
        return f"{value / 1e3:.3g} ms"
    whole = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{whole} {unit}".strip()
