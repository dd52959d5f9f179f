"""Worlds as a user describes them, and their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....probes.base.errors import ScenarioError
from ....probes.base.jit import PLAIN
from ....probes.base.plurals import plural
from ...bbr import params
from ...bbr.plain import records
from ...bbr.records import EVENT, STATE, TCP_ECN_ECT_PERMANENT, TCP_ECN_LOW, TCP_ECN_OK
from ...bbr.variants.catalogue import VARIANTS
from ..sender.application import BLOCK
from ..sender.estimator import EPOCH_NS
from ..sender.slots import SLOTS, slots
from . import world_records as rec
from .places import Sim
from .world_records import FLOW, NS, PACKET, US, WORLD
from .world_size import RMEM, window_bits

LOSS_BASED = {"cubic": rec.CC_CUBIC, "reno": rec.CC_RENO} | {
    "vegas": rec.CC_VEGAS,
    "dctcp": rec.CC_DCTCP,
}
APPS = {"bulk": rec.APP_BULK, "rate-limited": rec.APP_RATE} | {
    "fixed-size": rec.APP_SIZE,
    "on-off": rec.APP_ON_OFF,
}
CHANGES = {"rate": rec.CHANGE_RATE, "rtt": rec.CHANGE_RTT} | {
    "loss": rec.CHANGE_LOSS,
    "outage": rec.CHANGE_OUTAGE,
    "down": rec.CHANGE_DOWN,
    "acks": rec.CHANGE_ACKS,
}
Array = np.ndarray[Any, Any]
# HZ of the kernels that the recordings come from: Debian's 250, the others' 1000.
HZ = {"v1": 250, "v2": 1000, "v3": 1000}
VERSION_OF = {"bbr": "v1", "bbr1": "v1", "bbr2": "v2", "bbr3": "v3"} | {name: name for name in HZ}
HOST_US = 56  # what hosts add to each round trip
_PPB = 1_000_000_000
MOST_PACKETS = 1 << 21
RECORDED_ROWS = 1 << 14
_MOST_BUFFER = 10**12
_MOST_US = 7200 * 10**6
# What a path's rate, round trip ... may change to, in CHANGES' units.
_MOST = {"rate": 1e11, "rtt": 1e7, "loss": 1.0} | dict.fromkeys(
    ("outage", "down", "acks"), _MOST_US
)
_RCVBUF = 131_072
_WINDOW = 65_535  # a receiver's first


@dataclass(frozen=True)
class PathSetup:
    """The path: rate in bit/s on the wire, times in us, buffer in packets or bytes (0: no limit).

    `burst_bytes` is the token bucket's size, `marks_us` the time in the queue that draws a CE mark
    (0: none); with `peeks` that ends when a packet is the first, else when it leaves. `reorder` is
    the share of packets that overtake others: these wait `reorder_us` of the round trip (0: half of
    it). `in_skbs`: packets of one skb share their fate, as in a sender's netem. Hosts do something
    else every `busy_every_us` for `busy_us` on average (0: as world_loop.py has it). A full segment
    has `mss` bytes after `headers` bytes on the wire. `unresolved`: the first packet waits for ARP.
    """

    rate_bps: int
    rtt_us: int
    limit_packets: int = 0
    limit_bytes: int = 0
    burst_bytes: int = 3028
    loss: float = 0.0
    in_skbs: bool = False
    jitter_us: int = 0
    reorder: float = 0.0
    reorder_us: int = 0
    aggregation_us: int = 0
    policer: bool = False
    marks_us: int = 0
    peeks: bool = False
    unresolved: bool = False
    ecn: bool = False
    memory_bytes: int = 0
    mss: int = rec.MSS
    headers: int = rec.HEADERS
    busy_every_us: int = 0
    busy_us: int = 0
    changes: tuple[tuple[int, str, float], ...] = ()

    @property
    def opening_us(self) -> int:
        """What the first SYN takes on an empty path, with the question for the neighbour."""
        return (1 + self.unresolved) * self.rtt_us


@dataclass(frozen=True)
class FlowSetup:
    """A flow; times in us from the start of the run. `parameters` are the parameters of its BBR."""

    cc: str
    start_us: int
    stop_us: int
    kind: str = "bulk"
    rate_bps: int = 0
    size_bytes: int = 0
    on_us: int = 0
    off_us: int = 0
    extra_rtt_us: int = 0
    cookie: bool = True  # iperf3's goes before BBR begins
    begins_us: int = 0  # how long after BBR the application does; 0: as iperf3
    hz: int = 0
    ecn_low: bool = False  # v3's route feature, without which it takes no notice of marks
    parameters: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""  # its name, or a user's file; `cc` is its base
    unseen: bool = False  # stands for others that a recording does not show

    @property
    def slot(self) -> str | None:
        """Whose callbacks run: a version, or a variant; None for a loss-based control."""
        return self.variant or self.version

    @property
    def version(self) -> str | None:
        """v1, v2 or v3; None for a loss-based control. Raises ScenarioError: `cc` is not known."""
        if self.cc in LOSS_BASED:
            return None
        if self.cc not in VERSION_OF:
            known = ", ".join([*sorted({*VERSION_OF, *LOSS_BASED}), *VARIANTS])
            raise ScenarioError(f"there is no congestion control {self.cc!r:.40}", f"use {known}")
        return VERSION_OF[self.cc]


@dataclass(frozen=True)
class Setup:
    """A world to run."""

    path: PathSetup
    flows: tuple[FlowSetup, ...]
    duration_us: int
    seed: int = 0


@dataclass(frozen=True)
class Arrays:
    """A world's arrays as numpy has them, and as the engine takes them."""

    sim: Any
    world: Any
    parts: dict[str, Any]


def check_path(path: PathSetup) -> None:
    """Raise ScenarioError if such a path is impossible."""
    if not 8000 <= path.rate_bps <= 100_000_000_000:
        raise ScenarioError(f"a rate of {path.rate_bps} bit/s", "from 8 kbit/s to 100 Gbit/s")
    if not 10 <= path.rtt_us <= 10_000_000:
        raise ScenarioError(f"a round trip of {path.rtt_us} us", "from 10 us to 10 s")
    if not 88 <= path.mss <= 65_483:
        raise ScenarioError(f"segments of {plural(path.mss, 'byte')}", "from 88 to 65483")
    if not 0 <= path.loss <= 1 or not 0 <= path.reorder <= 1:
        raise ScenarioError("a share that is not between 0 and 1", "write 1% or 0.01")
    if path.loss >= 1:
        raise ScenarioError("a path that loses every packet", "write a loss below 100%")
    if not 0 <= path.jitter_us <= 10_000_000 or not 0 <= path.aggregation_us <= 10_000_000:
        raise ScenarioError("jitter or aggregation of more than 10 s", "write 2ms, for example")
    rates = [value for _, what, value in path.changes if what == "rate"]
    if any(not 8000 <= rate <= 100_000_000_000 for rate in rates):
        raise ScenarioError("a change to an impossible rate", "from 8 kbit/s to 100 Gbit/s")
    buffer = (path.limit_packets, path.limit_bytes)
    if min(buffer) < 0 or max(buffer) > _MOST_BUFFER:
        raise ScenarioError("an impossible buffer", "from 0, which is none, to 1 TB")
    if not all(_is_possible(*change) for change in path.changes):
        raise ScenarioError("an impossible change of the path", "times and values from 0 on")


def _is_possible(at_us: int, what: str, value: float) -> bool:
    """Whether a change comes at a time, and to a value, that a path may have."""
    return what in _MOST and 0 <= at_us <= _MOST_US and 0 <= value <= _MOST[what]


def _check(setup: Setup) -> None:
    check_path(setup.path)
    if not setup.flows or len(setup.flows) > 512:
        raise ScenarioError(plural(len(setup.flows), "flow"), "from 1 to 512")
    if not 0 < setup.duration_us <= _MOST_US:
        raise ScenarioError(
            f"a run of {setup.duration_us / 1e6:g} s", "more than 0 s, up to 7200 s"
        )


def arrays(setup: Setup, record: bool) -> Arrays:
    """The arrays of a world before it begins. Raises ScenarioError: it is impossible."""
    _check(setup)
    n, bits = len(setup.flows), window_bits(setup)
    packets = min(MOST_PACKETS, (2 * n << bits) + 1024)
    heap = 2 * packets + 64 * n + 1024
    path, versions = setup.path, sorted({f.slot for f in setup.flows if f.slot})
    if len(versions) > SLOTS:
        raise ScenarioError(f"{plural(len(versions), 'variant')} at once", f"{SLOTS} at most")
    world, flows, events = np.zeros(1, WORLD), np.zeros(n, FLOW), np.zeros(n, EVENT)
    pool = np.zeros(packets, PACKET)
    pool["next"] = np.arange(1, packets + 1)
    pool["next"][-1] = -1
    parameters = [parameters_of(flow) for flow in setup.flows]
    pars = np.concatenate([params.make(each) for each in parameters])
    _fill_world(world, path, setup)
    for index, flow in enumerate(setup.flows):
        _fill_flow(flows, index, flow, path, versions)
        _fill_socket(events, index, parameters[index], path.mss)
        events["tp"]["ecn_flags"][index] = ecn_flags(flow) if path.ecn else 0
    rows = RECORDED_ROWS if record else 1
    world["record"] = int(record)
    parts = {
        "flows": flows,
        "events": events,
        "states": np.zeros(n, STATE),
        "params": pars,
        "segs": np.zeros(n << bits, rec.SEG),
        "got": np.zeros(n << bits, rec.GOT),
        "blocks": np.zeros(4 * n, rec.BLOCK),
        "packets": pool,
        "heap": np.zeros(heap, rec.COMING),
        "changes": _changes(path),
        "out_events": np.zeros(rows, EVENT),
        "out_states": np.zeros(rows, STATE),
        "out_rows": np.zeros(rows, rec.OUT),
        "samples": np.zeros(setup.duration_us // 100_000 + 2, rec.SAMPLE),
        "reached": np.zeros((setup.duration_us // 1_000_000 + 1) * n, rec.REACHED),
    }
    world["bits"], world["n_flows"] = bits, n
    for name, part in {"n_changes": "changes", "n_heap": "heap"}.items():
        world[name] = len(parts[part])
    world["n_out"], world["n_samples"] = rows, len(parts["samples"])
    return Arrays(_sim(world, parts, slots(tuple(versions))), world, parts)


def _sim(world: Array, parts: dict[str, Any], callbacks: tuple[Any, ...]) -> Any:
    """What the engine takes: in plain Python the arrays, else one record with their addresses."""
    if PLAIN:
        plain = {name: records(part) for name, part in parts.items()}
        return Sim(world=records(world), callbacks=callbacks, **plain)
    for name, part in parts.items():
        world[name] = part.ctypes.data
    world["callbacks"] = [callbacks]
    return world[0]


def _changes(path: PathSetup) -> Any:
    changes = np.zeros(len(path.changes), rec.CHANGE)
    for row, change in enumerate(sorted(path.changes)):
        changes["at"][row], changes["what"][row], changes["value"][row] = _change(*change)
    return changes


def parameters_of(flow: FlowSetup) -> dict[str, Any]:
    """The parameters of a flow's BBR: its version's, unless it has its own."""
    version = flow.version
    base = dict(flow.parameters) or dict(params.DEFAULTS[version or "v1"])
    if not base.get("HZ"):
        base["HZ"] = flow.hz or HZ[version or "v3"]
    return base


def _change(at_us: int, what: str, value: float) -> tuple[int, int, int]:
    scaled = {"rate": 1, "loss": _PPB}.get(what, US)
    return at_us * US, CHANGES[what], round(value * scaled)


def _fill_world(world: Array, path: PathSetup, setup: Setup) -> None:
    burst_ns = max(path.burst_bytes, path.mss + path.headers) * 8 * NS // path.rate_bps
    wait_us = path.reorder_us or path.rtt_us // 2
    values = {
        "random": (setup.seed * 0x5DEECE66D + 0x1234ABCD) & 0xFFFFFFFFFFFF,
        "end_ns": setup.duration_us * US,
        "rate_bps": path.rate_bps,
        "burst_ns": burst_ns,
        "tokens_ns": burst_ns,
        "limit_packets": path.limit_packets,
        "limit_bytes": path.limit_bytes,
        "queue_head": -1,
        "queue_tail": -1,
        "rtt_ns": (path.rtt_us - (wait_us if path.reorder else 0)) * US,
        "loss_ppb": round(path.loss * _PPB),
        "in_skbs": int(path.in_skbs),
        "jitter_ns": path.jitter_us * US,
        "reorder_ppb": round(path.reorder * _PPB),
        "reorder_ns": wait_us * US,
        "mss": path.mss,
        "headers": path.headers,
        "policer": int(path.policer),
        "ce_ns": path.marks_us * US,
        "peeks": int(path.peeks),
        "resolved_at": -int(path.unresolved),
        "aggregate_ns": path.aggregation_us * US,
        "host_ns": HOST_US * US,
        "noise_ns": 10_000,
        "busy_ns": path.busy_us * US,
        "busy_every_ns": path.busy_every_us * US,
    }
    for name, value in values.items():
        world[name] = value


def ecn_of(flow: FlowSetup) -> int:
    """How the receiver, which has the sender's congestion control, echoes CE marks.

    ECN_PRECISE: ECE tells the mark of each packet, as in DCTCP (RFC 8257); ECN_CLASSIC: ECE until
    CWR arrives (RFC 3168).
    """
    if flow.cc == "dctcp":
        return rec.ECN_PRECISE
    parameters = parameters_of(flow)
    asks = parameters.get("ecn_enable") if flow.version == "v2" else flow.ecn_low
    heard = flow.version in ("v2", "v3") and asks and parameters.get("precise_ece_ack")
    return rec.ECN_PRECISE if heard else rec.ECN_CLASSIC


def ecn_flags(flow: FlowSetup) -> int:
    """tp->ecn_flags as the handshake and BBR's init() leave them."""
    flags = TCP_ECN_OK
    if flow.version == "v3" and flow.ecn_low:
        flags |= TCP_ECN_LOW
    if flow.version and ecn_of(flow) == rec.ECN_PRECISE:
        flags |= TCP_ECN_ECT_PERMANENT[flow.version]
    return flags


def _fill_flow(flows: Array, i: int, flow: FlowSetup, path: PathSetup, versions: list[str]) -> None:
    version = flow.version
    block_ns = BLOCK * 8 * NS // flow.rate_bps if flow.rate_bps else 0
    values = {
        "cc": LOSS_BASED.get(flow.cc, rec.CC_BBR),
        "slot": versions.index(flow.slot) if flow.slot else 0,
        "grows": int(not {"v1", "v2"} & {*versions}),
        "version": int(version[1:]) if version else 3,
        "hz": parameters_of(flow)["HZ"],  # the estimator's jiffies and TCP's are one clock
        "app": APPS[flow.kind],
        "app_bytes_ns": block_ns,
        "app_segments": 1 + -(-flow.size_bytes // path.mss),
        "on_ns": flow.on_us * US,
        "off_ns": flow.off_us * US,
        "start_ns": flow.start_us * US,
        "stop_ns": flow.stop_us * US,
        "extra_ns": flow.extra_rtt_us * US,
        "cookie": int(flow.cookie),
        "begins_ns": flow.begins_us * US,
        "wnd_end": _WINDOW // path.mss,
        "rto_us": 1_000_000,
        "reordering": 3,
        "undo_marker": -1,
        "tlp_high_seq": -1,
        "rack_steps": 1,
        "sent_head": -1,
        "sent_tail": -1,
        "timer_event_ns": -1,
        "pace_ns": -1,
        "min_rtt": -1,
        "ack_tsecr": -1,
        "rcv_ssthresh": _WINDOW,
        "rcv_clamp": _RCVBUF * 151 >> 8 if version == "v3" else _RCVBUF >> 1,
        "rcv_space": min(_WINDOW, 10 * path.mss),
        "rmem_max": path.memory_bytes or RMEM,
        "rcv_right": _WINDOW // path.mss,
        "delack_ns": -1,
        "comp_ns": -1,
        "d_s": -1,
        "ts_recent": -1,
        "ecn": ecn_of(flow) if path.ecn else rec.ECN_NONE,
    } | {f"cache_{edge}{k}": -1 for edge in "se" for k in range(4)}
    for name, value in values.items():
        flows[name][i] = value


def _fill_socket(events: Array, i: int, parameters: Mapping[str, Any], mss: int) -> None:
    tp = events["tp"]
    values = {
        "snd_cwnd": 10,
        "snd_cwnd_clamp": 0xFFFFFFFF,
        "mss_cache": mss,
        "snd_ssthresh": 0x7FFFFFFF,
        "sk_pacing_shift": 10,
        "sk_max_pacing_rate": (1 << 64) - 1,
        "rcv_nxt": 1,
        "tcp_wstamp_ns": EPOCH_NS,
    }
    for name, value in values.items():
        tp[name][i] = value
    tp["sk_pacing_rate"][i] = 723_000
    # How the estimator is to read the clock: it stands still inside a callback.
    tp["jiffies_split"][i] = 0
