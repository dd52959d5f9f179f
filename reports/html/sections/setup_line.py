"""What a run's set-up was, as one line: link, delay, buffer, flows, in the units people read."""

from __future__ import annotations

import json

from ....collect.lab import units
from ....probes.base.errors import BbrscopeError
from ...text.quantities import quantity

# The settings that a manifest has by these names: what they are called here, and their unit.
_SETTINGS = {
    "rate": ("bottleneck", "bit/s"),
    "delay": ("base RTT", "ms"),
    "limit": ("buffer", "packets"),
    "limit_bytes": ("buffer", "B"),
    "burst_bytes": ("token bucket", "B"),
    "loss": ("random loss", "%"),
    "ccs": ("congestion control", ""),
    "starts": ("started at", "s"),
    "t": ("each for", "s"),
}
# Of these, 0 means that nothing was set.
_UNSET_AT_ZERO = {"limit", "limit_bytes", "loss"}
# Words with blanks between them: one per flow, or one for all that have the same.
_LISTS = {"ccs", "starts"}


def setup_line(text: str | None) -> str:
    """Return a run's set-up in a line; $NAME stands for the value that is called NAME.

    Args:
        text: the manifest's `setup` as JSON; what is no object is shown as it is.

    >>> setup_line('{"ccs": "bbr cubic", "starts": "0 2", "delay": "40", "n": "2"}')
    'base RTT 40 ms; congestion control bbr, cubic; started at 0, 2 s; 2 flows'
    >>> setup_line('{"rate": "$high", "high": "20mbit", "loss": "0.0"}')
    'bottleneck 20 Mbit/s; high 20mbit'
    >>> setup_line('{"loss": "0.03", "burst_bytes": "3028", "starts": "0 0 0", "n": "3"}')
    'token bucket 3.03 kB; random loss 3 %; started at 0 s; 3 flows'
    """
    try:
        setup = json.loads(text or "{}")
    except ValueError:
        return text or ""
    if not isinstance(setup, dict):
        return str(setup)
    setup = {
        name: setup.get(value[1:], value) if str(value).startswith("$") else value
        for name, value in setup.items()
    }
    known = [name for name in _SETTINGS if name in setup]
    # A command is what the scenario is called after.
    other = [name for name in setup if name not in _SETTINGS and name != "command"]
    lines = (_setting(name, plain(setup[name])) for name in known + other)
    return "; ".join(filter(None, lines))


def _setting(name: str, value: str) -> str:
    """A setting's name, value and unit; empty if there was none.

    >>> _setting("limit_bytes", "300000"), _setting("limit", "0"), _setting("outage", "8:1.5")
    ('buffer 300 kB', '', 'outage 8:1.5')
    >>> _setting("rate", "$each"), _setting("delay", "30ms"), _setting("delay", "30")
    ('bottleneck $each', 'base RTT 30ms', 'base RTT 30 ms')
    >>> _setting("loss", "1%"), _setting("loss", "0.0015"), _setting("loss", "gemodel 1 10")
    ('random loss 1 %', 'random loss 0.15 %', 'random loss gemodel 1 10')
    """
    numbers = _numbers(value)
    if not value or (name in _UNSET_AT_ZERO and numbers == [0.0]):
        return ""
    words, unit = _SETTINGS.get(name, (name, ""))
    if unit == "bit/s":
        return f"{words} {_rate(value)}"
    if unit == "%":
        return f"{words} {_share(value)}"
    if unit == "B" and len(numbers) == 1:
        return f"{words} {quantity(numbers[0], unit)}"
    if name == "n":
        return f"{value} flow{'' if value == '1' else 's'}"
    shown = value
    if name in _LISTS:
        each = value.split()
        shown = each[0] if len(set(each)) == 1 else ", ".join(each)
    return f"{words} {shown} {unit if numbers else ''}".rstrip()


def _numbers(text: str) -> list[float]:
    """The numbers of a text; none if anything else is in it, as a unit."""
    try:
        return [float(word) for word in text.split()]
    except ValueError:
        return []


def _rate(text: str) -> str:
    """A rate [bit/s, or with its unit] as it is shown elsewhere; what is none, as it is written."""
    try:
        return quantity(units.rate(f"{text}bit" if text.isdecimal() else text), "bit/s")
    except BbrscopeError:
        return text


def _share(text: str) -> str:
    """A share [0.01 or 1%] as a percentage; what is none, as it is written."""
    try:
        return f"{100 * units.share(text):g} %"
    except BbrscopeError:
        return text


def plain(value: object) -> str:
    """Return a setting without brackets, braces and quotes.

    >>> plain({"ports": [443, 5201]})
    'ports 443, 5201'
    """
    if isinstance(value, dict):
        return "; ".join(f"{name} {plain(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
