"""A world's arrays of records before it begins."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....probes.base.errors import ScenarioError
from ....probes.base.jit import PLAIN
from ....probes.base.plurals import plural
from ...bbr import params
from ...bbr.plain import records
from ...bbr.records import EVENT, STATE
from ..sender.application import BLOCK
from ..sender.estimator import EPOCH_NS
from ..sender.slots import SLOTS, slots
from . import world_records as rec
from .kept_rows import OUT, REACHED, SAMPLE
from .places import Sim
from .receiver import SCALING_RATIO, SEGMENT_MEMORY
from .world_records import FLOW, NS, PACKET, US, WORLD
from .world_setup import (
    APPS,
    CHANGES,
    LOSS_BASED,
    FlowSetup,
    PathSetup,
    Setup,
    asks_for_marks,
    check_setup,
    ecn_flags,
    ecn_of,
    parameters_of,
)
from .world_size import RMEM, window_bits
from .worlds import bucket_bytes

Array = np.ndarray[Any, Any]
MOST_PACKETS = 1 << 21
RECORDED_ROWS = 1 << 14
_PPB = 1_000_000_000
_RCVBUF = 131_072
_WINDOW = 65_535  # a receiver's first


@dataclass(frozen=True)
class Arrays:
    """A world's arrays as numpy has them, and as the engine takes them."""

    sim: Any
    world: Any
    parts: dict[str, Any]


def arrays(setup: Setup, record: bool) -> Arrays:
    """The arrays of a world before it begins. Raises ScenarioError: it is impossible."""
    check_setup(setup)
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
        flows["host"][index] = [one.extra_rtt_us for one in setup.flows].index(flow.extra_rtt_us)
        _fill_socket(events, index, parameters[index], path.mss, flow.most_paced)
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
        "out_rows": np.zeros(rows, OUT),
        "samples": np.zeros(setup.duration_us // 100_000 + 2, SAMPLE),
        "reached": np.zeros((setup.duration_us // 1_000_000 + 1) * n, REACHED),
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
        values = _change(path, *change)
        changes["at"][row], changes["what"][row], changes["value"][row] = values
    return changes


def _waits_us(path: PathSetup) -> int:
    """How long packets wait so that others can overtake them."""
    return path.reorder_us or path.rtt_us // 2


def _ack_us(path: PathSetup, rtt_us: float) -> float:
    """How much of a round trip the ACK takes.

    Where packets overtake others, these wait for the rest of it, as long after a change as before.
    """
    return max(rtt_us - (_waits_us(path) if path.reorder else 0), 0)


def _change(path: PathSetup, at_us: int, what: str, value: float) -> tuple[int, int, int]:
    scaled = {"rate": 1, "loss": _PPB}.get(what, US)
    changed = _ack_us(path, value) if what == "rtt" else value
    return at_us * US, CHANGES[what], round(changed * scaled)


def _fill_world(world: Array, path: PathSetup, setup: Setup) -> None:
    burst_bytes = max(path.burst_bytes, path.mss + path.headers)
    burst_ns = burst_bytes * 8 * NS // path.rate_bps
    values = {
        "random": (setup.seed * 0x5DEECE66D + 0x1234ABCD) & 0xFFFFFFFFFFFF,
        "end_ns": setup.duration_us * US,
        "rate_bps": path.rate_bps,
        "burst_bytes": burst_bytes,
        "burst_ns": burst_ns,
        "tokens_ns": burst_ns,
        "limit_packets": path.limit_packets,
        "limit_bytes": path.limit_bytes,
        "queue_head": -1,
        "queue_tail": -1,
        "rtt_ns": round(_ack_us(path, path.rtt_us)) * US,
        "loss_ppb": round(path.loss * _PPB),
        "in_skbs": int(path.in_skbs),
        "whole_skbs": int(path.whole_skbs),
        "jitter_ns": path.jitter_us * US,
        "reorder_ppb": round(_after_waiting(path) * _PPB),
        "reorder_again_ppb": round((path.reorder_again or path.reorder) * _PPB),
        "reorder_ns": _waits_us(path) * US,
        "mss": path.mss,
        "headers": path.headers,
        "policer": int(path.policer),
        "ce_ns": path.marks_us * US,
        "peeks": int(path.peeks),
        "resolved_at": -int(path.unresolved),
        "aggregate_ns": path.aggregation_us * US,
        "timestamp_phase_ns": random.Random(setup.seed).randrange(1_000_000),
        "busy_ns": path.busy_us * US,
        "busy_every_ns": path.busy_every_us * US,
        "late_readers": int(path.late_readers),
        "ack_ns": path.ack_us * US,
    } | _own_link(path)
    for name, value in values.items():
        world[name] = value


def _own_link(path: PathSetup) -> dict[str, int]:
    """The senders' own link, with the bucket that the lab gives a tbf of its rate."""
    if not path.host_bps:
        return {}
    size = max(bucket_bytes(path.host_bps), path.mss + path.headers)
    rate = {"host_bps": path.host_bps, "host_burst_bytes": size}
    return rate | {"host_burst_ns": size * 8 * NS // path.host_bps}


def _after_waiting(path: PathSetup) -> float:
    """The chance to overtake after one that did not, with which the share comes to `reorder`."""
    again = path.reorder_again or path.reorder
    return min(1.0, path.reorder * (1 - again) / (1 - path.reorder)) if path.reorder < 1 else 1.0


def _fill_flow(flows: Array, i: int, flow: FlowSetup, path: PathSetup, versions: list[str]) -> None:
    version = flow.version
    block_ns = BLOCK * 8 * NS // flow.rate_bps if flow.rate_bps else 0
    # tcp_init_buffer_space(): a segment of it stays free.
    window = (_RCVBUF >> 1) - path.mss
    scaled = (_RCVBUF - path.mss - SEGMENT_MEMORY) * SCALING_RATIO >> 8
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
        "max_window": _WINDOW,
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
        "rcv_ssthresh": min(_WINDOW, window),
        "rcv_clamp": scaled if version in (None, "v3") else window,
        "rcv_space": min(_WINDOW, 10 * path.mss),
        "rmem_max": path.memory_bytes or RMEM,
        "rcv_right": _WINDOW // path.mss,
        "delack_ns": -1,
        "comp_ns": -1,
        "d_s": -1,
        "ts_recent": -1,
        "ecn": ecn_of(flow) if path.ecn else rec.ECN_NONE,
        "ect_again": int(path.ecn and asks_for_marks(flow)),
    } | {f"cache_{edge}{k}": -1 for edge in "se" for k in range(3)}
    for name, value in values.items():
        flows[name][i] = value


def _fill_socket(
    events: Array, i: int, parameters: Mapping[str, Any], mss: int, most_paced: int
) -> None:
    tp = events["tp"]
    values = {
        "snd_cwnd": 10,
        "snd_cwnd_clamp": 0xFFFFFFFF,
        "mss_cache": mss,
        "snd_ssthresh": 0x7FFFFFFF,
        "sk_pacing_shift": 10,
        "sk_max_pacing_rate": most_paced or (1 << 64) - 1,
        "rcv_nxt": 1,
        "tcp_wstamp_ns": EPOCH_NS,
    }
    for name, value in values.items():
        tp[name][i] = value
    tp["sk_pacing_rate"][i] = 723_000
    # How the estimator is to read the clock: it stands still inside a callback.
    tp["jiffies_split"][i] = 0
