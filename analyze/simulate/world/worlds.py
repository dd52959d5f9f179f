"""Worlds from what users write: a point of the lab's catalogue, or a path in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....collect.lab import units
from ....collect.lab.lab_points import FlowSpec, LabPoint, PathSpec, link_rate
from ....probes.base.errors import ScenarioError
from ...bbr.params import DEFAULTS
from ...bbr.variants.own_variant import is_variant, own_variant
from .world_setup import FlowSetup, PathSetup, Setup

# A full packet on the wire.
PATH_PACKET = units.PACKET_BYTES
PATH_WORDS = (
    *("rate", "rtt", "buffer", "loss", "reorder", "jitter", "aggregation", "memory", "host"),
)
_PATH_DEFAULTS = {"rate": "10mbit", "rtt": "40ms", "buffer": "1bdp"}


def of_point(point: LabPoint, parameters: dict[str, Any] | None = None) -> Setup:
    """The world of one run of the lab; `parameters` hold for every flow with BBR."""
    path = path_of_link(point.path)
    flows = tuple(_flow(flow, parameters or {}, path.ecn) for flow in point.flows)
    changes = tuple((change.at_us, change.what, change.value) for change in point.changes)
    return Setup(replace(path, changes=changes), flows, point.duration_us, point.seed)


def _flow(flow: FlowSpec, parameters: Mapping[str, Any], ecn: bool) -> FlowSetup:
    """A flow; with ECN, BBR heeds it whatever the round trip, as the lab's testbed has it."""
    setup = FlowSetup(
        cc=flow.cc,
        start_us=flow.start_us,
        stop_us=flow.stop_us,
        kind=flow.kind,
        rate_bps=flow.rate_bps,
        size_bytes=flow.size_bytes,
        on_us=flow.on_us,
        off_us=flow.off_us,
        extra_rtt_us=flow.extra_rtt_us,
        ecn_low=ecn,
        parameters=parameters,
    )
    if is_variant(flow.cc):
        return with_control(setup, flow.cc)
    if ecn and setup.version == "v2":
        heeds = {"ecn_enable": 1, "ecn_max_rtt_us": 0}
        return replace(setup, parameters=(dict(parameters) or DEFAULTS["v2"]) | heeds)
    return setup


def path_of_link(link: PathSpec) -> PathSetup:
    """The path that the lab's testbed builds, whatever manages its queue."""
    policer = link.aqm == "policer"
    marks = link.aqm in ("fq_codel", "red")
    return PathSetup(
        rate_bps=link.rate_bps,
        rtt_us=link.rtt_us,
        limit_bytes=0 if policer else link.buffer_bytes,
        burst_bytes=link.buffer_bytes if policer else bucket_bytes(link.rate_bps),
        loss=link.loss,
        jitter_us=link.jitter_us,
        reorder=link.reorder,
        aggregation_us=link.aggregation_us,
        policer=policer,
        marks_us=link.threshold_us if marks and link.ecn else 0,
        # RED looks at the queue that a packet finds.
        peeks=marks and (link.shaper == "tbf" or link.aqm == "red"),
        ecn=link.ecn and marks,
        memory_bytes=link.memory_bytes,
        host_bps=link.host_bps,
    )


def bucket_bytes(rate_bps: int) -> int:
    """The token bucket that the lab's tbf has: two packets, or half a millisecond."""
    return max(2 * units.PACKET_BYTES, rate_bps // 16_000)


def path_of(text: str) -> PathSetup:
    """A path from a text such as ``rate=10mbit,rtt=40ms,buffer=1bdp,loss=1%``.

    What is left out is as in _PATH_DEFAULTS, or 0.

    Raises:
        ScenarioError: an unknown word, or a value that cannot be understood.
    """
    said: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or name not in PATH_WORDS:
            raise ScenarioError(
                f"--path: {part[:40]!r} is not understood", f"there are {', '.join(PATH_WORDS)}"
            )
        if name in said:
            raise ScenarioError(f"--path: {name} is there twice", "leave one of them out")
        said[name] = value
    given = _PATH_DEFAULTS | said
    rate, rtt = units.rate(given["rate"]), units.time_us(given["rtt"])
    if rate < 8000 or rtt < 10:
        raise ScenarioError(
            f"--path: no such path: rate {given['rate']}, rtt {given['rtt']}",
            "at least 8kbit and 10us",
        )
    bdp = rate * rtt // 8_000_000
    return PathSetup(
        rate_bps=rate,
        rtt_us=rtt,
        limit_bytes=units.buffer(given["buffer"], bdp),
        burst_bytes=bucket_bytes(rate),
        loss=units.share(given.get("loss", "0")),
        reorder=units.share(given.get("reorder", "0")),
        jitter_us=units.time_us(given.get("jitter", "0ms")),
        aggregation_us=units.time_us(given.get("aggregation", "0ms")),
        memory_bytes=units.size(given["memory"]) if "memory" in given else 0,
        host_bps=link_rate("--path: host", given["host"]) if "host" in given else 0,
    )


def with_control(flow: FlowSetup, name: str) -> FlowSetup:
    """A flow with the congestion control of this name: a kernel's, a variant, or a user's file.

    Raises:
        BbrscopeError: a user's file cannot be loaded.
    """
    if not is_variant(name):
        return replace(flow, cc=name)
    own = own_variant(name)
    return replace(flow, cc=own.base, variant=name, parameters=own.parameters)


def of_path(path: PathSetup, controls: str, duration_us: int, seed: int) -> Setup:
    """A world of bulk flows that begin together, one per name in `controls`, as ``v2,cubic``.

    Raises:
        ScenarioError: `controls` names none.
        BbrscopeError: a user's file cannot be loaded.
    """
    names = [name.strip() for name in controls.split(",") if name.strip()]
    if not names:
        raise ScenarioError("--cc names no congestion control", "write --cc v2 or --cc v3,cubic")
    flows = tuple(with_control(FlowSetup("", 0, duration_us), name) for name in names)
    return Setup(path, flows, duration_us, seed)
