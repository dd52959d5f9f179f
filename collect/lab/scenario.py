"""Scenarios: experiments as data, one TOML file each. README.md of this folder has the format."""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...probes.base.errors import ScenarioError
from ...probes.base.no_file import no_file
from ...probes.base.plurals import plural
from . import toml_tables as toml
from .lab_points import HOST, PATH_DEFAULTS, LabPoint, point_of
from .scenario_claims import Claim, read_claims

CATALOGUE = Path(__file__).parent / "catalogue"

PATH_KEYS = ("rate", "rtt", "buffer", *PATH_DEFAULTS, HOST)
FLOW_KEYS = (
    *("cc", "start", "duration", "kind", "rate", "size", "on", "off", "extra_rtt", "count"),
    "every",
)
TOP_KEYS = (
    *("title", "source", "about", "duration", "reps", "path", "params", "flow", "change"),
    *("sweep", "quick", "claim", "figures", "figure"),
)

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
MAX_FILE = 1 << 20
# Axes of a sweep and values of each: far more than anybody has the time for.
MOST_AXES = 16
MOST_VALUES = 1000
MOST_RUNS = 100_000


@dataclass(frozen=True)
class Scenario:
    """An experiment: `params` are its parameters as text, `sweep` the lists they go through.

    `base` is `params` as the file has them, before a user sets any, and `axes` the parameters that
    its sweep goes through: a run is called by these and by what differs from `base`, however the
    user has asked for it.
    """

    name: str
    title: str
    source: str
    about: str
    reps: int
    base: Mapping[str, str]
    axes: tuple[str, ...]
    params: Mapping[str, str]
    sweep: Mapping[str, tuple[str, ...]]
    flows: tuple[Mapping[str, Any], ...]
    changes: tuple[Mapping[str, Any], ...]
    claims: tuple[Claim, ...]
    figures: tuple[str, ...] = ()
    own_figures: tuple[Mapping[str, Any], ...] = ()
    quick: Mapping[str, Any] = field(default_factory=dict)
    is_quick: bool = False


def names(folder: Path = CATALOGUE) -> list[str]:
    """Return the names of the scenarios in `folder`, sorted."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def load(name: str, folder: Path = CATALOGUE) -> Scenario:
    """Load a scenario by name, or one of your own by the path of its file.

    Raises:
        ScenarioError: unknown, or its file says something impossible.
    """
    own = Path(name)
    path = own if own.suffix == ".toml" else folder / f"{name}.toml"
    if path == own and (why := no_file(name)):
        raise ScenarioError(why, "bbrscope lab list shows the catalogue")
    if not (path == own or _NAME.fullmatch(name)) or not path.is_file():
        raise toml.unknown("scenario", name, names(folder), "bbrscope lab list shows them all")
    try:
        raw = tomllib.loads(_read(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ScenarioError(f"cannot read {path}: {error}", "its format is TOML") from error
    try:
        loaded = _scenario(path.stem, raw)
        _try(loaded)
        _try(quick(loaded))
    except ScenarioError as error:
        raise ScenarioError(f"{path.name}: {error.fact}", error.way_out) from error
    return loaded


def _read(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise ScenarioError(f"{path.name} is larger than {MAX_FILE >> 20} MiB", "take sweeps out")
    return data.decode("utf-8")


def _try(scenario: Scenario) -> None:
    """Read every value of every axis once, the others at their first."""
    firsts = {name: values[0] for name, values in scenario.sweep.items()}
    deque(itertools.islice(points(scenario), 1), maxlen=0)  # refuses too many runs
    base = replace(scenario, reps=1, params={**scenario.params, **firsts})
    for axis in ({}, *({name: values} for name, values in scenario.sweep.items())):
        deque(points(replace(base, sweep=axis)), maxlen=0)


def _scenario(name: str, raw: Mapping[str, Any]) -> Scenario:
    toml.only(raw, TOP_KEYS, "a scenario")
    path, more = toml.table(raw, "path"), toml.table(raw, "params")
    toml.only(path, PATH_KEYS, "[path]")
    params = {**PATH_DEFAULTS, **{key: str(value) for key, value in path.items()}}
    params["duration"] = toml.text(raw, "duration")
    params |= {key: str(value) for key, value in more.items()}
    flows, changes = toml.tables(raw, "flow"), toml.tables(raw, "change")
    if not flows:
        raise ScenarioError("it has no flow", "[[flow]]")
    for flow in flows:
        toml.only(flow, FLOW_KEYS, "[[flow]]")
    for change in changes:
        toml.only(change, ("at", "what", "value"), "[[change]]")
    scenario = Scenario(
        name=name,
        title=toml.text(raw, "title"),
        source=toml.text(raw, "source"),
        about=str(raw.get("about", "")),
        reps=toml.repetitions(raw.get("reps", 1)),
        base=params,
        axes=(),
        params=params,
        sweep={},
        flows=flows,
        changes=changes,
        claims=read_claims(toml.tables(raw, "claim")),
        figures=toml.texts(raw, "figures"),
        own_figures=toml.tables(raw, "figure"),
        quick=toml.table(raw, "quick"),
    )
    return _with_sweep(scenario, toml.table(raw, "sweep"))


def _with_sweep(scenario: Scenario, raw: Mapping[str, Any]) -> Scenario:
    sweep = {}
    if len(raw) > MOST_AXES:
        raise ScenarioError(
            f"the sweep has {plural(len(raw), 'axis', 'axes')}", f"{MOST_AXES} at most"
        )
    for key, values in raw.items():
        _known(scenario, key)
        if not isinstance(values, list) or not values:
            raise ScenarioError(f"axis {key} must be a list of values", f'{key} = ["a", "b"]')
        if len(values) > MOST_VALUES:
            raise ScenarioError(
                f"axis {key} has {plural(len(values), 'value')}", f"{MOST_VALUES} at most"
            )
        sweep[key] = tuple(str(value) for value in values)
    return replace(scenario, sweep=sweep, axes=tuple(sweep))


def _known(scenario: Scenario, name: str) -> None:
    if name not in scenario.params and name != HOST:
        known = sorted(scenario.params)
        raise toml.unknown(
            f"parameter of {scenario.name}", name, known, f"it has: {', '.join(known)}"
        )


def quick(scenario: Scenario) -> Scenario:
    """Return the scenario's form that ends in minutes: [quick] over everything."""
    sweep = toml.table(scenario.quick, "sweep") if "sweep" in scenario.quick else None
    changed = {key: value for key, value in scenario.quick.items() if key != "sweep"}
    reps = toml.repetitions(changed.pop("reps", 1))
    small = replace(scenario, reps=reps, is_quick=True)
    small = override(small, {key: [str(value)] for key, value in changed.items()})
    small = replace(small, base=small.params)
    return small if sweep is None else _with_sweep(small, sweep)


def override(scenario: Scenario, values: Mapping[str, list[str]]) -> Scenario:
    """Set parameters: one value fixes it, several make it an axis of the sweep.

    Raises:
        ScenarioError: the scenario has no such parameter.
    """
    params, sweep = dict(scenario.params), dict(scenario.sweep)
    for name, given in values.items():
        _known(scenario, name)
        if len(given) == 1:
            params[name] = given[0]
            sweep.pop(name, None)
        else:
            sweep[name] = tuple(given)
    return replace(scenario, params=params, sweep=sweep)


def points(scenario: Scenario) -> Iterator[LabPoint]:
    """Yield every run of the scenario: repetitions go round last, so that all axes fill evenly.

    Raises:
        ScenarioError: a value cannot be understood, or there are too many runs.
    """
    axes = list(scenario.sweep)
    count = scenario.reps * math.prod(len(values) for values in scenario.sweep.values())
    if count > MOST_RUNS:
        raise ScenarioError(
            f"the sweep is {plural(count, 'run')}", f"{MOST_RUNS} at most: take values out"
        )
    for rep in range(1, scenario.reps + 1):
        for combination in itertools.product(*scenario.sweep.values()):
            params = {**scenario.params, **dict(zip(axes, combination, strict=True))}
            yield point_of(scenario, params, rep)
