"""The runs of a scenario: every parameter has a value, every quantity one unit."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...probes.base.errors import ScenarioError
from ...probes.base.plurals import plural
from . import units
from .toml_tables import unknown

if TYPE_CHECKING:
    from .scenario import Scenario

KINDS = ("bulk", "rate-limited", "fixed-size", "on-off")
AQMS = ("fifo", "fq_codel", "red", "policer")
SHAPERS = ("tbf", "htb")
# What may change while a run goes on, and what its value is.
CHANGES = ("rate", "rtt", "loss", "outage")

_PARAMETER = re.compile(r"\$([\w-]*)")
# A kernel's names have 16 characters at most; those of simulated variants are longer.
_CC = re.compile(r"[a-z][a-z0-9_.-]{0,31}")
NAME_LENGTH = 100
MOST_FLOWS = 500
LONGEST_VALUE = 1000

# The key of [path] that has no value unless a scenario says it, and what says that there is none.
HOST, NO_LINK = "host", "none"
# What a scenario leaves out of [path].
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


@dataclass(frozen=True)
class PathSpec:
    """The path of one run: rates in bit/s as tbf counts them, times in us, sizes in bytes.

    `host_bps` is of the senders' own links, 0: these are as fast as the host.
    """

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
    host_bps: int


@dataclass(frozen=True)
class FlowSpec:
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

    def described(self, bbr_version: str | None, start_s: float) -> dict[str, Any]:
        """Return what a run's manifest says of the flow, which began to send at `start_s`."""
        return {
            "flow_no": self.flow_no,
            "cc": self.cc,
            "bbr_version": bbr_version,
            "kind": self.kind,
            "start_s": start_s,
            "extra_rtt_us": self.extra_rtt_us,
            "size_bytes": self.size_bytes,
        }


@dataclass(frozen=True)
class PathChange:
    """Something of the path that changes: `what` of CHANGES to `value` (bit/s, us, share).

    An outage's value is how long nothing passes, in us.
    """

    at_us: int
    what: str
    value: float


@dataclass(frozen=True)
class LabPoint:
    """One run to make: every parameter has a value."""

    scenario: str
    title: str
    source: str
    quick: bool
    rep: int
    params: Mapping[str, str]
    duration_us: int
    path: PathSpec
    flows: tuple[FlowSpec, ...]
    changes: tuple[PathChange, ...]
    label: str

    @property
    def seed(self) -> int:
        """The seed of everything random in this run: the same for the same point."""
        text = f"{self.label}/{self.rep}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    def described(self, place: str) -> dict[str, Any]:
        """Return what a run's manifest says of its scenario, parameters and path."""
        link = self.path
        return {
            "scenario": self.scenario,
            "title": self.title,
            "source": self.source,
            "rep": self.rep,
            "seed": self.seed,
            "quick": self.quick,
            "place": place,
            "params": dict(self.params),
            "duration_s": self.duration_us / 1e6,
            "rate_bps": link.rate_bps,
            "rtt_us": link.rtt_us,
            "bdp_bytes": link.bdp_bytes,
            "buffer_bytes": link.buffer_bytes,
            "loss": link.loss,
            "aqm": link.aqm,
        }

    def run_name(self, kernel: str) -> str:
        """Return the name of the run that this point becomes on `kernel`."""
        tail = f"+r{self.rep}@{re.sub(r'[^A-Za-z0-9._-]', '_', kernel)[:30]}"
        room = NAME_LENGTH - len(tail)
        label = self.label
        if len(label) > room:
            digest = hashlib.sha256(label.encode()).hexdigest()[:8]
            label = f"{label[: room - 9]}.{digest}"
        return label + tail


def _label(scenario: Scenario, params: Mapping[str, str]) -> str:
    """Name the point by what the catalogue leaves open or the user has set."""
    named = {*scenario.axes, *scenario.sweep}
    shown = [key for key in params if key in named or params[key] != scenario.base.get(key)]
    parts = [scenario.name + (".quick" if scenario.is_quick else "")]
    parts += [f"{key}={params[key]}" for key in sorted(shown)]
    return "+".join(re.sub(r"[^\w.+@=-]", "_", part.replace("%", "pct")) for part in parts)


def point_of(scenario: Scenario, params: Mapping[str, str], rep: int) -> LabPoint:
    """The run that these parameters make of a scenario.

    Raises:
        ScenarioError: a value cannot be understood.
    """
    duration_us = units.time_us(params["duration"])
    if not 0 < duration_us <= 7200 * 10**6:
        raise ScenarioError(f"duration is {params['duration']}", "more than 0s, up to 7200s")
    values = _Values(params, duration_us)
    link = _link(values)
    flows: list[FlowSpec] = []
    for given in scenario.flows:
        flows += _flows(_Values(params, duration_us, given), len(flows) + 1, link)
    if len(flows) > MOST_FLOWS:
        raise ScenarioError(plural(len(flows), "flow"), f"{MOST_FLOWS} at most")
    changes = [_change(_Values(params, duration_us, given), link) for given in scenario.changes]
    return LabPoint(
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
        """The value of `key` without any $name left. Raises ScenarioError."""
        value = self.table.get(key, default)
        if value is None:
            raise ScenarioError(f"{key} is missing", f"say {key} = ...")
        text, seen = str(value), 0
        while match := _PARAMETER.search(text):
            name, seen = match[1], seen + 1
            if name not in self.params or seen > 5:
                known = ", ".join(sorted(self.params))
                raise unknown("parameter", name, list(self.params), f"parameters: {known}")
            text = text[: match.start()] + self.params[name] + text[match.end() :]
            if len(text) > LONGEST_VALUE:
                raise ScenarioError(f"{key} is too long", f"{LONGEST_VALUE} characters at most")
        return text

    def choice(self, key: str, default: str, allowed: tuple[str, ...]) -> str:
        """One of the `allowed` words. Raises ScenarioError."""
        text = self.text(key, default)
        if text not in allowed:
            raise unknown(key, text, list(allowed), f"{key} is one of {', '.join(allowed)}")
        return text

    def time_us(self, key: str, default: str | None = None) -> int:
        """A time in microseconds, or a share of the run's duration. Raises ScenarioError."""
        return units.time_us(self.text(key, default), self.duration_us)


def path_of_params(params: Mapping[str, str]) -> PathSpec:
    """Return the path that a run's parameters say; what they leave out is as in PATH_DEFAULTS.

    Raises:
        ScenarioError: a value cannot be understood, or there is no rate, rtt or buffer.
    """
    return _link(_Values({**PATH_DEFAULTS, **params}, 0))


def _link(values: _Values) -> PathSpec:
    rate, rtt = link_rate("rate", values.text("rate")), units.time_us(values.text("rtt"))
    host = values.text(HOST, NO_LINK)
    bdp = rate * rtt // 8_000_000
    return PathSpec(
        rate_bps=rate,
        rtt_us=rtt,
        bdp_bytes=bdp,
        buffer_bytes=units.buffer(values.text("buffer"), bdp),
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
        host_bps=0 if host == NO_LINK else link_rate(HOST, host),
    )


def link_rate(key: str, text: str) -> int:
    """Return the rate of a link [bit/s], which `key` has.

    Raises:
        ScenarioError: it cannot be understood, or is below 8 kbit/s.
    """
    rate = units.rate(text)
    if rate < 8000:
        raise ScenarioError(f"{key} is {text}", "at least 8kbit")
    return rate


def _memory(text: str) -> int:
    """Return the most that a socket may buffer; 0 leaves the kernel's own."""
    return 0 if text == "default" else units.size(text)


def _flows(values: _Values, first: int, link: PathSpec) -> list[FlowSpec]:
    """Return the flows of one [[flow]], `count` of them, each `every` after the one before."""
    kind = values.choice("kind", "bulk", KINDS)
    cc = values.text("cc")
    if not _CC.fullmatch(cc):
        raise ScenarioError(f"cc is {cc!r:.40}", "a name such as bbr, bbr2, cubic or reno")
    count = values.text("count", "1")
    if not re.fullmatch(r"[0-9]{1,3}", count) or not 1 <= int(count) <= MOST_FLOWS:
        raise ScenarioError(
            f"count is {count!r:.40}", f"write a whole number from 1 to {MOST_FLOWS}"
        )
    start, every = values.time_us("start", "0s"), values.time_us("every", "0s")
    flows = []
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
        flows.append(
            FlowSpec(
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
    return flows


def _change(values: _Values, link: PathSpec) -> PathChange:
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
    return PathChange(at, what, value)
