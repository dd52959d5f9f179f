"""Scenarios: experiments as data, one TOML file each. README.md of this folder has the format."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import ScenarioError
from . import units

CATALOGUE = Path(__file__).parent / "catalogue"

KINDS = ("bulk", "rate-limited", "fixed-size", "on-off")
AQMS = ("fifo", "fq_codel", "red", "policer")
SHAPERS = ("tbf", "htb")
# What may change while a run goes on, and what its value is.
CHANGES = ("rate", "rtt", "loss", "outage")

PATH_DEFAULTS = {
    "loss": "0",
    "jitter": "0ms",
    "reorder": "0",
    "aggregation": "0ms",
    "shaper": "tbf",
    "aqm": "fifo",
    "threshold": "1ms",
    "ecn": "no",
    "ip": "4",
    "memory": "250MB",
}
PATH_KEYS = ("rate", "rtt", "buffer", *PATH_DEFAULTS)
FLOW_KEYS = (
    *("cc", "start", "duration", "kind", "rate", "size", "on", "off", "extra_rtt", "count"),
    "every",
)
TOP_KEYS = (
    *("title", "source", "about", "duration", "reps", "path", "params", "flow", "change"),
    *("sweep", "quick", "claim", "figures", "figure"),
)
CLAIM_KEYS = ("id", "text", "source", "cc", "full", "needs", "sql", "expected", "tolerance")

_PARAMETER = re.compile(r"\$([\w-]*)")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
_CC = re.compile(r"[a-z][a-z0-9_-]{0,15}")
NAME_LENGTH = 100
# So many known names are told in full where one is unknown.
FEW = 6


@dataclass(frozen=True)
class Claim:
    """What the source says, and the query that tells whether the collected runs say it, too.

    `sql` is a query over the store that returns one row: `reproduced` (NULL: these runs cannot
    tell) and `measured`, the numbers in words; perhaps `n`, the runs that it rests on. It may use
    the relations of `analyze.study.points`, which hold the scenario's valid runs alone, and
    $expected and $tolerance where the claim has them. It is not asked unless each congestion
    control of `cc` (v1, v2, v3, cubic ...) was run, and, with `full`, in the scenario's full form.
    """

    id: str
    text: str
    source: str
    sql: str
    cc: tuple[str, ...] = ()
    full: bool = False
    needs: str = ""
    expected: float | None = None
    tolerance: float | None = None


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


@dataclass(frozen=True)
class Link:
    """The path of one run: rate in bit/s as tbf counts it, times in us, sizes in bytes."""

    rate_bps: int
    rtt_us: int
    bdp_bytes: int
    buffer_bytes: int
    loss: float
    jitter_us: int
    reorder: float
    aggregation_us: int
    shaper: str
    aqm: str
    threshold_us: int
    ecn: bool
    ip: int
    memory_bytes: int


@dataclass(frozen=True)
class Flow:
    """One flow of a run, numbered from 1: times from the start of the traffic, in us.

    `rate_bps` of a rate-limited flow, `size_bytes` of a fixed-size one, `on_us` and `off_us` of
    an on-off one; 0 elsewhere. `stop_us` is when the sender stops by itself (fixed-size: at the
    latest).
    """

    flow_no: int
    cc: str
    kind: str
    start_us: int
    stop_us: int
    extra_rtt_us: int
    rate_bps: int = 0
    size_bytes: int = 0
    on_us: int = 0
    off_us: int = 0


@dataclass(frozen=True)
class Change:
    """Something of the path that changes: `what` of CHANGES to `value` (bit/s, us, share).

    An outage's value is how long nothing passes, in us.
    """

    at_us: int
    what: str
    value: float


@dataclass(frozen=True)
class Point:
    """One run to make: every parameter has a value."""

    scenario: str
    title: str
    source: str
    quick: bool
    rep: int
    params: Mapping[str, str]
    duration_us: int
    path: Link
    flows: tuple[Flow, ...]
    changes: tuple[Change, ...]
    label: str

    @property
    def seed(self) -> int:
        """The seed of everything random in this run: the same for the same point."""
        text = f"{self.label}/{self.rep}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    def run_name(self, kernel: str) -> str:
        """Return the name of the run that this point becomes on `kernel`."""
        tail = f"+r{self.rep}@{re.sub(r'[^A-Za-z0-9._-]', '_', kernel)[:30]}"
        room = NAME_LENGTH - len(tail)
        label = self.label
        if len(label) > room:
            digest = hashlib.sha256(label.encode()).hexdigest()[:8]
            label = f"{label[: room - 9]}.{digest}"
        return label + tail


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
    if path == own and not own.is_file():
        raise ScenarioError(f"there is no file {name}", "bbrscope lab list shows the catalogue")
    if not (path == own or _NAME.fullmatch(name)) or not path.is_file():
        raise unknown("scenario", name, names(folder), "bbrscope lab list shows them all")
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScenarioError(f"cannot read {path}: {error}", "its format is TOML") from error
    try:
        loaded = _scenario(path.stem, raw)
        _try(loaded)
        _try(quick(loaded))
    except ScenarioError as error:
        raise ScenarioError(f"{path.name}: {error.fact}", error.way_out) from error
    return loaded


def _try(scenario: Scenario) -> None:
    """Read every value of every axis once, the others at their first."""
    firsts = {name: values[0] for name, values in scenario.sweep.items()}
    base = replace(scenario, reps=1, params={**scenario.params, **firsts})
    for axis in ({}, *({name: values} for name, values in scenario.sweep.items())):
        deque(points(replace(base, sweep=axis)), maxlen=0)


def unknown(what: str, name: str, known: list[str], way_out: str) -> ScenarioError:
    """Return the error for a name that is not known, with those that look alike."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    told = [f"near: {', '.join(near)}"] if near else []
    if not near or len(known) <= FEW:
        told.append(way_out)
    return ScenarioError(f"no {what} called {name!r:.60}", "; ".join(told))


def _only(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise unknown(f"key of {where}", key, list(known), f"known: {', '.join(known)}")


def _table(raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = raw.get(key, {})
    if not isinstance(value, dict):
        raise ScenarioError(f"{key} must be a table", f"[{key}]")
    return value


def _tables(raw: Mapping[str, Any], key: str) -> tuple[dict[str, Any], ...]:
    value = raw.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise ScenarioError(f"{key} must be tables", f"[[{key}]]")
    return tuple(value)


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ScenarioError(f"{key} is missing", f'{key} = "..."')
    return value


def _reps(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= 1000:
        raise ScenarioError(f"reps is {value!r:.40}", "write a whole number from 1 to 1000")
    return value


def _scenario(name: str, raw: Mapping[str, Any]) -> Scenario:
    _only(raw, TOP_KEYS, "a scenario")
    path, more = _table(raw, "path"), _table(raw, "params")
    _only(path, PATH_KEYS, "[path]")
    params = {**PATH_DEFAULTS, **{key: str(value) for key, value in path.items()}}
    params["duration"] = _text(raw, "duration")
    params |= {key: str(value) for key, value in more.items()}
    flows, changes = _tables(raw, "flow"), _tables(raw, "change")
    if not flows:
        raise ScenarioError("it has no flow", "[[flow]]")
    for flow in flows:
        _only(flow, FLOW_KEYS, "[[flow]]")
    for change in changes:
        _only(change, ("at", "what", "value"), "[[change]]")
    made = Scenario(
        name=name,
        title=_text(raw, "title"),
        source=_text(raw, "source"),
        about=str(raw.get("about", "")),
        reps=_reps(raw.get("reps", 1)),
        base=params,
        axes=(),
        params=params,
        sweep={},
        flows=flows,
        changes=changes,
        claims=_claims(_tables(raw, "claim")),
        figures=_texts(raw, "figures"),
        own_figures=_tables(raw, "figure"),
        quick=_table(raw, "quick"),
    )
    return _with_sweep(made, _table(raw, "sweep"))


def _texts(raw: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = raw.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ScenarioError(f"{key} must be a list of names", f'{key} = ["a", "b"]')
    return tuple(value)


def _claims(tables: tuple[dict[str, Any], ...]) -> tuple[Claim, ...]:
    claims = tuple(_claim(each, number) for number, each in enumerate(tables, 1))
    ids = [claim.id for claim in claims]
    for name in ids:
        if ids.count(name) > 1:
            raise ScenarioError(f"two claims are called {name!r:.60}", "give each its own id")
    return claims


def _claim(raw: Mapping[str, Any], number: int) -> Claim:
    _only(raw, CLAIM_KEYS, "[[claim]]")
    numbers = {key: float(raw[key]) for key in ("expected", "tolerance") if key in raw}
    return Claim(
        id=str(raw.get("id", number)),
        text=_text(raw, "text"),
        source=_text(raw, "source"),
        sql=_text(raw, "sql"),
        cc=_texts(raw, "cc"),
        full=raw.get("full") is True,
        needs=str(raw.get("needs", "")),
        **numbers,
    )


def _with_sweep(scenario: Scenario, raw: Mapping[str, Any]) -> Scenario:
    sweep = {}
    for key, values in raw.items():
        _known(scenario, key)
        if not isinstance(values, list) or not values:
            raise ScenarioError(f"axis {key} must be a list of values", f'{key} = ["a", "b"]')
        sweep[key] = tuple(str(value) for value in values)
    return replace(scenario, sweep=sweep, axes=tuple(sweep))


def _known(scenario: Scenario, name: str) -> None:
    if name not in scenario.params:
        known = sorted(scenario.params)
        raise unknown(f"parameter of {scenario.name}", name, known, f"it has: {', '.join(known)}")


def quick(scenario: Scenario) -> Scenario:
    """Return the scenario's form that ends in minutes: [quick] over everything."""
    changed = dict(scenario.quick)
    sweep = changed.pop("sweep", None)
    reps = _reps(changed.pop("reps", 1))
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


def points(scenario: Scenario) -> Iterator[Point]:
    """Yield every run of the scenario: repetitions go round last, so that all axes fill evenly.

    Raises:
        ScenarioError: a value cannot be understood.
    """
    axes = list(scenario.sweep)
    combinations = list(itertools.product(*scenario.sweep.values()))
    for rep in range(1, scenario.reps + 1):
        for combination in combinations:
            params = {**scenario.params, **dict(zip(axes, combination, strict=True))}
            yield _point(scenario, params, rep)


def _label(scenario: Scenario, params: Mapping[str, str]) -> str:
    """Name the point by what the catalogue leaves open or the user has set."""
    named = {*scenario.axes, *scenario.sweep}
    shown = [key for key in params if key in named or params[key] != scenario.base[key]]
    parts = [scenario.name + (".quick" if scenario.is_quick else "")]
    parts += [f"{key}={params[key]}" for key in sorted(shown)]
    return "+".join(re.sub(r"[^\w.+@=-]", "_", part.replace("%", "pct")) for part in parts)


def _point(scenario: Scenario, params: Mapping[str, str], rep: int) -> Point:
    duration_us = units.time_us(params["duration"])
    if not 0 < duration_us <= 7200 * 10**6:
        raise ScenarioError(f"duration is {params['duration']}", "more than 0s, up to 7200s")
    values = _Values(params, duration_us)
    link = _link(values)
    flows: list[Flow] = []
    for given in scenario.flows:
        flows += _flows(_Values(params, duration_us, given), len(flows) + 1, link)
    if len(flows) > 500:
        raise ScenarioError(f"{len(flows)} flows", "500 at most")
    changes = [_change(_Values(params, duration_us, given), link) for given in scenario.changes]
    return Point(
        scenario=scenario.name,
        title=scenario.title,
        source=scenario.source,
        quick=scenario.is_quick,
        rep=rep,
        params=params,
        duration_us=duration_us,
        path=link,
        flows=tuple(flows),
        changes=tuple(sorted(changes, key=lambda change: change.at_us)),
        label=_label(scenario, params),
    )


class _Values:
    """The values of a table, with $name replaced by the parameter of that name."""

    def __init__(
        self, params: Mapping[str, str], duration_us: int, table: Mapping[str, Any] | None = None
    ) -> None:
        self.params = params
        self.duration_us = duration_us
        self.table = params if table is None else table

    def text(self, key: str, default: str | None = None) -> str:
        value = self.table.get(key, default)
        if value is None:
            raise ScenarioError(f"{key} is missing", f"say {key} = ...")
        text, seen = str(value), 0
        while found := _PARAMETER.search(text):
            name, seen = found[1], seen + 1
            if name not in self.params or seen > 5:
                known = ", ".join(sorted(self.params))
                raise unknown("parameter", name, list(self.params), f"parameters: {known}")
            text = text[: found.start()] + self.params[name] + text[found.end() :]
        return text

    def choice(self, key: str, default: str, allowed: tuple[str, ...]) -> str:
        text = self.text(key, default)
        if text not in allowed:
            raise unknown(key, text, list(allowed), f"{key} is one of {', '.join(allowed)}")
        return text

    def time_us(self, key: str, default: str | None = None) -> int:
        return units.time_us(self.text(key, default), self.duration_us)


def _link(values: _Values) -> Link:
    rate, rtt = units.rate(values.text("rate")), units.time_us(values.text("rtt"))
    if rate < 8000:
        raise ScenarioError(f"rate is {values.text('rate')}", "at least 8kbit")
    bdp = rate * rtt // 8_000_000
    return Link(
        rate_bps=rate,
        rtt_us=rtt,
        bdp_bytes=bdp,
        # Less than two packets is no queue at all: tbf would drop everything.
        buffer_bytes=max(units.size(values.text("buffer"), bdp), 2 * units.PACKET_BYTES),
        loss=units.share(values.text("loss")),
        jitter_us=units.time_us(values.text("jitter")),
        reorder=units.share(values.text("reorder")),
        aggregation_us=units.time_us(values.text("aggregation")),
        shaper=values.choice("shaper", "tbf", SHAPERS),
        aqm=values.choice("aqm", "fifo", AQMS),
        threshold_us=units.time_us(values.text("threshold")),
        ecn=values.choice("ecn", "no", ("no", "yes")) == "yes",
        ip=int(values.choice("ip", "4", ("4", "6"))),
        memory_bytes=_memory(values.text("memory")),
    )


def _memory(text: str) -> int:
    """Return the most that a socket may buffer; 0 leaves the kernel's own."""
    return 0 if text == "default" else units.size(text)


def _flows(values: _Values, first: int, link: Link) -> list[Flow]:
    """Return the flows of one [[flow]], `count` of them, each `every` after the one before."""
    kind = values.choice("kind", "bulk", KINDS)
    cc = values.text("cc")
    if not _CC.fullmatch(cc):
        raise ScenarioError(f"cc is {cc!r:.40}", "a name such as bbr, bbr2, cubic or reno")
    count = values.text("count", "1")
    if not count.isdecimal() or not 1 <= int(count) <= 500:
        raise ScenarioError(f"count is {count!r:.40}", "write a whole number from 1 to 500")
    start, every = values.time_us("start", "0s"), values.time_us("every", "0s")
    found = []
    for number in range(int(count)):
        begin = start + number * every
        stop = values.duration_us
        if "duration" in values.table:
            stop = min(stop, begin + values.time_us("duration"))
        if begin >= stop:
            raise ScenarioError(
                f"flow {first + number} starts at {begin / 1e6:g} s, but the run or the flow ends "
                f"at {stop / 1e6:g} s",
                "set a longer duration",
            )
        found.append(
            Flow(
                flow_no=first + number,
                cc=cc,
                kind=kind,
                start_us=begin,
                stop_us=stop,
                extra_rtt_us=values.time_us("extra_rtt", "0ms"),
                rate_bps=units.rate(values.text("rate")) if kind == "rate-limited" else 0,
                size_bytes=(
                    units.size(values.text("size"), link.bdp_bytes) if kind == "fixed-size" else 0
                ),
                on_us=values.time_us("on") if kind == "on-off" else 0,
                off_us=values.time_us("off") if kind == "on-off" else 0,
            )
        )
    return found


def _change(values: _Values, link: Link) -> Change:
    what = values.choice("what", "", CHANGES)
    text = values.text("value")
    if what == "rate":
        value: float = units.rate(text)
    elif what == "loss":
        value = units.share(text)
    else:
        value = units.time_us(text, values.duration_us)
    if what == "rate" and link.aqm == "policer":
        raise ScenarioError("a policer's rate cannot change", "use another aqm")
    at = values.time_us("at")
    if at >= values.duration_us:
        raise ScenarioError(
            f"a change at {at / 1e6:g} s, but the run ends at {values.duration_us / 1e6:g} s",
            "set a longer duration",
        )
    return Change(at, what, value)
