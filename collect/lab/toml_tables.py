"""Reading a scenario's TOML: tables, texts and lists, each refused with what is wrong about it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ...probes.base.errors import ScenarioError

# So many known names are listed in full where one is unknown.
FEW = 6


def unknown(what: str, name: str, known: list[str], way_out: str) -> ScenarioError:
    """Return the error for a name that is not known, with those that look alike."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    ways = [f"near: {', '.join(near)}"] if near else []
    if not near or len(known) <= FEW:
        ways.append(way_out)
    return ScenarioError(f"no {what} called {name!r:.60}", "; ".join(ways))


def only(given: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    """Refuse keys that are not `known`. Raises ScenarioError."""
    for key in given:
        if key not in known:
            raise unknown(f"key of {where}", key, list(known), f"known: {', '.join(known)}")


def table(raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The table `key`, empty where there is none. Raises ScenarioError."""
    value = raw.get(key, {})
    if not isinstance(value, dict):
        raise ScenarioError(f"{key} must be a table", f"[{key}]")
    return value


def tables(raw: Mapping[str, Any], key: str) -> tuple[dict[str, Any], ...]:
    """The tables [[key]]. Raises ScenarioError."""
    value = raw.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ScenarioError(f"{key} must be tables", f"[[{key}]]")
    return tuple(value)


def text(raw: Mapping[str, Any], key: str) -> str:
    """A text that must be there. Raises ScenarioError."""
    value = raw.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ScenarioError(f"{key} is missing", f'{key} = "..."')
    return value


def repetitions(value: object) -> int:
    """How often each point is run. Raises ScenarioError."""
    if type(value) is not int or not 1 <= value <= 1000:
        raise ScenarioError(f"reps is {value!r:.40}", "write a whole number from 1 to 1000")
    return value


def texts(raw: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of texts, empty where there is none. Raises ScenarioError."""
    value = raw.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ScenarioError(f"{key} must be a list of names", f'{key} = ["a", "b"]')
    return tuple(value)
