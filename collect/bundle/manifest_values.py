"""The one place where a manifest's values are checked: what is wrong, in which line of which file.

Keys that BUNDLE.md does not list may hold anything: nothing reads them as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...probes.base.errors import BundleError
from .numbers import JSON_TEXT, MAX_NS, MAX_NUMBER, is_32_bits

MAX_NAME = 100
# Not an option of a command, not a formula of a spreadsheet, and not the folder . or .. itself.
RUN_NAME = re.compile(rf"(?!\.+$)[\w.][\w.+@=-]{{0,{MAX_NAME - 1}}}")
NAME_HOLDS = (
    f"1 to {MAX_NAME} letters, digits or ._+@=-, not beginning with one of +@=-, and not dots alone"
)
# Groups of settings, and how the names begin of those that are BBR's or TCP's.
_SETTINGS = {"constants": "", "module_params": "", "rules": "", "sysctls": "net.ipv4.tcp_"}
_WHOLE = re.compile(r"[-+]?[0-9][0-9_]*")
# Numbers that count something, or are a time; * is any key.
_COUNTS = (
    "events_lost",
    "polls",
    "socket_samples",
    "traffic_start_uptime_s",
    "packets.snaplen",
    "accounting.missed_runs",
    "accounting.probes.*.*",
)
_TOKEN = re.compile(rf"{JSON_TEXT}|[{{}}\[\],:]|\n")


Keys = tuple[str | int, ...]


def place_of(shown: str, text: str, keys: Keys) -> str:
    """Return where in a file of JSON a value is: the file, and the line if it is found.

    Args:
        shown: what the user calls the file.
        text: its text, which can be read as JSON.
        keys: names, and numbers of places in lists, from the outermost object inwards.
    """
    line = _line_of(text, keys)
    return shown if line is None else f"{shown}, line {line}"


def dotted(keys: Keys) -> str:
    """Return keys as people write them."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).lstrip(".")


def _line_of(text: str, keys: Keys) -> int | None:
    line, found = 1, None
    # Of each open object or list: the key or number that its value is for.
    path: list[str | int | None] = []
    last = ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
        elif token in "{[":
            # Of a key that is there twice, the last one counts.
            path.append(0 if token == "[" else None)
            found = line if path == [*keys] else found
        elif token in "}]":
            path.pop()
        elif token == ":":
            path[-1] = last
            found = line if path == [*keys] else found
        elif token == "," and isinstance(path[-1], int):
            path[-1] += 1
            found = line if path == [*keys] else found
        elif token != ",":
            last = token[1:-1]
    return found


class ManifestChecker:
    """Takes values out of a manifest, or says which one is wrong."""

    def __init__(self, shown: str, text: str, raw: dict[str, Any]) -> None:
        self.shown = shown
        self.text = text
        self.raw = raw

    def fail(self, keys: Keys, what: str) -> BundleError:
        """The error on the value that `keys` lead to, with its line."""
        where = place_of(self.shown, self.text, keys)
        return BundleError(f"{where}: {dotted(keys)} {what}", "BUNDLE.md describes the manifest")

    def name(self) -> str:
        """The run's name."""
        name = self.raw.get("name")
        if not isinstance(name, str) or not RUN_NAME.fullmatch(name):
            raise self.fail(("name",), f"must be {NAME_HOLDS} (found {name!r:.60})")
        return name

    def group(self, key: str) -> dict[str, Any]:
        """An object that must be there."""
        value = self.raw.get(key)
        if not isinstance(value, dict):
            raise self.fail((key,), f"must be an object (found {value!r:.60})")
        return value

    def integer(self, group: dict[str, Any], keys: tuple[str, ...], low: int, high: int) -> int:
        """The whole number that `keys` lead to, of which the last is one of `group`."""
        value = group.get(keys[-1])
        if type(value) is not int or not low <= value <= high:
            raise self.fail(keys, f"must be a whole number {low}..{high} (found {value!r:.60})")
        return value

    def lost(self) -> int:
        """How many rows the collector knows to have lost."""
        return self.integer({"events_lost": 0} | self.raw, ("events_lost",), 0, MAX_NUMBER)

    def hz(self) -> int | None:
        """Jiffies per second; None: the collector could not tell."""
        if self.group("constants").get("HZ") is None:
            return None
        return self.integer(self.group("constants"), ("constants", "HZ"), 1, 100_000)

    def settings(self) -> None:
        """Refuse settings of BBR and TCP, on which a replay rests, that 32 bits do not hold."""
        for scope, of_tcp in _SETTINGS.items():
            group = self.raw.get(scope)
            for name, value in group.items() if isinstance(group, dict) else ():
                text = str(value).strip()
                if name.startswith(of_tcp) and _WHOLE.fullmatch(text) and not is_32_bits(text):
                    raise self.fail((scope, name), f"is {text:.40}, which 32 bits do not hold")

    def counts(self) -> None:
        """Refuse counts and times that are negative, or that no column holds."""
        for pattern in _COUNTS:
            for keys, value in _values(self.raw, pattern.split(".")):
                number = isinstance(value, int | float) and not isinstance(value, bool)
                if number and not 0 <= value <= MAX_NUMBER:
                    raise self.fail(keys, f"must be a number 0..{MAX_NUMBER} (found {value!r:.60})")

    def rows(self) -> dict[str, int] | None:
        """Rows by tag; None: the collector did not count them."""
        if self.raw.get("events") is None:
            return None
        group = self.group("events")
        return {tag: self.integer(group, ("events", tag), 0, MAX_NUMBER) for tag in group}

    def clocks(self) -> Iterator[tuple[str, int, int, int]]:
        """The readings of the clocks: start or end, and realtime, monotonic and boottime in ns."""
        if self.raw.get("clocks") is None:
            return
        group = self.group("clocks")
        for point in ("start", "end"):
            reading = group.get(point)
            if reading is None:
                return
            if not isinstance(reading, dict):
                raise self.fail(("clocks", point), f"must be an object (found {reading!r:.60})")
            realtime, monotonic, boottime = (
                self.integer(reading, ("clocks", point, f"{clock}_ns"), 0, MAX_NS)
                for clock in ("realtime", "monotonic", "boottime")
            )
            yield point, realtime, monotonic, boottime


def _values(raw: object, keys: list[str], before: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """The values that keys lead to, each with its own keys."""
    if not keys:
        yield before, raw
    elif isinstance(raw, dict):
        for key in raw if keys[0] == "*" else [keys[0]]:
            if key in raw:
                yield from _values(raw[key], keys[1:], (*before, key))
