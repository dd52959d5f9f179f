"""What would BBR have decided under other rules? The recorded inputs, replayed open loop.

The answer is exact up to the first output (cwnd or pacing rate) that differs: until then the other
rules would have sent the very same packets. From there on the recorded inputs are those of packets
that would have been sent differently, and the answer is a guess that gets worse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..collect.errors import BbrscopeError
from . import run_params
from .bbr import codes, params
from .bbr.ints import BBR_UNIT
from .bbr.records import INIT
from .prepare import REQUIRED, FlowEvents, prepare
from .replay import Array, Pass, run_pass
from .session import RunInfo, load_flow

if TYPE_CHECKING:
    import duckdb

_WATCH = ("bbr_mode", "bbr_cycle_idx", "bbr_inflight_hi", "bbr_inflight_lo", "bbr_bw_lo")

# Without these, rules of that version would run on nothing.
_ESSENTIAL = {
    "v1": (),
    "v2": ("rs_tx_in_flight", "rs_lost", "tp_is_cwnd_limited", "tp_tcp_mstamp"),
    "v3": ("rs_tx_in_flight", "rs_lost", "tp_is_cwnd_limited", "tp_tcp_mstamp"),
}

# Parameters in 1/256, which may be given in percent.
_FRACTIONS = frozenset(
    "high_gain drain_gain startup_cwnd_gain cwnd_gain probe_rtt_cwnd_gain full_bw_thresh"
    " extra_acked_gain beta loss_thresh inflight_headroom bw_probe_pif_gain bw_probe_reno_gain"
    " ecn_alpha_gain ecn_alpha_init ecn_factor ecn_thresh ecn_reprobe_gain plb_cong_thresh".split()
)
_FIXED = frozenset({"version"})
_PACING_GAIN = re.compile(r"pacing_gain[.\[](\d)\]?$")
_LARGEST = (1 << 31) - 1
_LARGEST_GAIN = 2047  # the widest bitfield that holds a gain
_SMALLEST = {"HZ": 1, "max_tcp_header": 0}


@dataclass(frozen=True)
class Moment:
    """An event at which two replays part."""

    seq: int
    t_ns: int
    recorded: list[str]
    other: list[str]


@dataclass(frozen=True)
class Drift:
    """How far outputs lie apart after they have parted, and how far to trust the answer.

    Attributes:
        exact_share: share of the flow's time before any output differs: there the answer is exact.
        close_share: share of the remaining events with cwnd and pacing within 5 % of the recorded.
        same_phase_share: share of all events in the same mode and phase.
    """

    first_output: Moment | None
    exact_share: float
    close_share: float
    same_phase_share: float
    mean_cwnd: tuple[float, float]
    mean_pacing: tuple[float, float]
    transitions: tuple[int, int]
    final_inflight_hi: tuple[int, int]


@dataclass(frozen=True)
class WhatIf:
    """The answer for one flow."""

    run: str
    flow: int
    version: str
    as_version: str
    changed: dict[str, tuple[int, int]]
    first_decision: Moment | None
    drift: Drift
    caveats: list[str]


def parse_settings(texts: Sequence[str], version: str) -> dict[str, int]:
    """`name=value` pairs; values in kernel units, or percent for what the kernel keeps in 1/256.

    Raises:
        BbrscopeError: unknown name, or a value that the kernel's field could not hold.
    """
    values: dict[str, int] = {}
    aliases: dict[str, tuple[str, ...]] = params.ALIASES.get(version, {})
    for text in texts:
        name, found, value = text.partition("=")
        if not found:
            raise BbrscopeError(f"--set {text}: no '='", "write --set loss_thresh=13 or =5%")
        for target in aliases.get(name, (name,)):
            values[target] = _value(target, value)
    return values


def _value(name: str, text: str) -> int:
    gain = _PACING_GAIN.match(name)
    known = set(params.PARAMS.names or ()) - _FIXED - {"pacing_gain"}
    if name not in known and not gain:
        raise BbrscopeError(
            f"--set {name}: no such parameter", f"there are {', '.join(sorted(known))}"
        )
    fraction = name in _FRACTIONS or gain is not None
    try:
        if text.endswith("%"):
            if not fraction:
                raise BbrscopeError(f"--set {name}={text}: not a fraction", "give a whole number")
            number = round(float(text[:-1]) * BBR_UNIT / 100)
        else:
            number = int(text)
    except ValueError:
        raise BbrscopeError(
            f"--set {name}={text}: not a number", "give a whole number in kernel units, or 5%"
        ) from None
    largest = _LARGEST_GAIN if fraction else _LARGEST
    if not _SMALLEST.get(name, 0) <= number <= largest:
        raise BbrscopeError(
            f"--set {name}={text}: out of range", f"between {_SMALLEST.get(name, 0)} and {largest}"
        )
    return number


def _apply(values: Mapping[str, Any], settings: Mapping[str, int]) -> dict[str, Any]:
    result = dict(values)
    gains = list(result.get("pacing_gain", [0] * 8))
    for name, value in settings.items():
        match = _PACING_GAIN.match(name)
        if match:
            gains[int(match[1])] = value
        else:
            result[name] = value
    result["pacing_gain"] = gains
    return result


def ask(
    con: duckdb.DuckDBPyConnection,
    info: RunInfo,
    flow: int,
    settings: Mapping[str, int],
    as_version: str | None,
    seed: int = 0,
) -> WhatIf:
    """Replay one flow twice in free run, as recorded and under other rules, and compare.

    Raises:
        BbrscopeError: the recording lacks inputs that the other version's rules need.
    """
    own = run_params.of_flow(
        con, info.run_id, flow, run_params.of_run(con, info.run_id, info.flavour)
    )
    target = as_version or info.version
    base = own
    if target != info.version:
        base = dict(params.DEFAULTS[target]) | {"HZ": own["HZ"]}
    other = _apply(base, settings)
    columns = load_flow(con, info.run_id, flow)
    record, other_record = params.make(own), params.make(other)
    events = prepare(columns, info.version, record, info.last_exit_ns)
    caveats = _caveats(events, info, target, columns)
    recorded, _ = run_pass(events, info.version, record, "free-run", True, watch=_WATCH)
    changed_events = _open_loop(events, other, seed)
    replayed, _ = run_pass(changed_events, target, other_record, "free-run", True, watch=_WATCH)
    return WhatIf(
        info.run,
        flow,
        info.version,
        target,
        _changes(own, other),
        _first_decision(events, recorded, replayed),
        _drift(events, recorded, replayed),
        caveats,
    )


def _caveats(
    events: FlowEvents, info: RunInfo, target: str, columns: Mapping[str, Array]
) -> list[str]:
    """What the recording lacks for the other rules; refuses where they would run on nothing."""
    if target == info.version:
        return []

    def absent(name: str) -> bool:
        column = columns[name]
        return isinstance(column, np.ma.MaskedArray) and bool(np.ma.getmaskarray(column).all())

    lacking = [name for name in _ESSENTIAL[target] if absent(name)]
    if lacking:
        raise BbrscopeError(
            f"{info.run} is a recording of {info.version} and lacks {', '.join(lacking)}, "
            f"which {target} decides by",
            "record it on a kernel that carries the v2 or v3 patch",
        )
    if not len(events.events) or events.events["ctl"]["kind"][0] != INIT:
        raise BbrscopeError(
            f"{info.run} starts in the middle of a flow: {target}'s state at that point is unknown",
            "use --as with a recording that includes the connection's start",
        )
    lesser = [name for name in REQUIRED[target] if absent(name)]
    return [f"the recording lacks {name}, taken as 0" for name in lesser]


def _open_loop(events: FlowEvents, other: Mapping[str, Any], seed: int) -> FlowEvents:
    """The same inputs with nothing to compare; random draws where none were recorded."""
    changed = events.events.copy()
    ctl, tp = changed["ctl"], changed["tp"]
    ctl["has_next"] = np.where(ctl["kind"] == INIT, ctl["has_next"], 0)
    ctl["check"] = 0
    ctl["may_tick"] = 0
    fresh = np.flatnonzero(events.events["tp"]["draws"] == 0)
    rng = np.random.default_rng(seed)
    rounds = int(other.get("bw_probe_rand_rounds", 0))
    wait_us = int(other.get("bw_probe_rand_us", 0))
    tp["rand_rounds"][fresh] = rng.integers(0, max(rounds, 1), len(fresh))
    tp["rand_wait_us"][fresh] = rng.integers(0, max(wait_us, 1), len(fresh))
    tp["rand_cycle"][fresh] = rng.integers(0, 7, len(fresh))
    return FlowEvents(**vars(events) | {"events": changed})


def _changes(own: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    names = [name for name in params.PARAMS.names or () if name not in ("version", "pacing_gain")]
    return {
        name: (int(own.get(name, 0)), int(other.get(name, 0)))
        for name in names
        if own.get(name, 0) != other.get(name, 0)
    }


def _moment(events: FlowEvents, index: int, recorded: list[str], other: list[str]) -> Moment:
    ns = events.columns["ns"]
    return Moment(int(events.columns["seq"][index]), int(ns[index]) - int(ns[0]), recorded, other)


def _first_decision(events: FlowEvents, recorded: Pass, other: Pass) -> Moment | None:
    """The first event at which the two took different decisions (their evidence aside)."""
    assert recorded.decisions is not None
    assert other.decisions is not None
    a, b = recorded.decisions[:, :2], other.decisions[:, :2]
    shared = min(len(a), len(b))
    unequal = np.flatnonzero((a[:shared] != b[:shared]).any(axis=1))
    if not len(unequal) and len(a) == len(b):
        return None
    row = int(unequal[0]) if len(unequal) else shared
    candidates = [int(rows[row, 0]) for rows in (a, b) if row < len(rows)]
    index = min(candidates)
    names = [
        [codes.CODES[int(code)].name for event, code in rows if event == index] for rows in (a, b)
    ]
    return _moment(events, index, names[0], names[1])


def _drift(events: FlowEvents, recorded: Pass, other: Pass) -> Drift:
    cwnd = [one.after["tp"]["snd_cwnd"].astype(float) for one in (recorded, other)]
    pacing = [one.after["tp"]["sk_pacing_rate"].astype(float) for one in (recorded, other)]
    differ = np.flatnonzero((cwnd[0] != cwnd[1]) | (pacing[0] != pacing[1]))
    ns = events.columns["ns"].astype(np.int64)
    duration = max(int(ns[-1] - ns[0]), 1) if len(ns) else 1
    first = None
    exact_share, close_share = 1.0, 1.0
    if len(differ):
        index = int(differ[0])
        shown = [
            [f"snd_cwnd {int(c[index])}", f"sk_pacing_rate {int(r[index])}"]
            for c, r in zip(cwnd, pacing, strict=True)
        ]
        first = _moment(events, index, shown[0], shown[1])
        exact_share = int(ns[index] - ns[0]) / duration
        close = _within(cwnd, index) & _within(pacing, index)
        close_share = float(close.mean())
    phases = [one.history[:, 0] * 16 + one.history[:, 1] for one in (recorded, other)]
    same = float((phases[0] == phases[1]).mean()) if len(ns) else 1.0
    changes = [int((np.diff(phase) != 0).sum()) for phase in phases]
    return Drift(
        first,
        exact_share,
        close_share,
        same,
        (_mean(cwnd[0]), _mean(cwnd[1])),
        (_mean(pacing[0]), _mean(pacing[1])),
        (changes[0], changes[1]),
        (int(recorded.history[-1, 2]), int(other.history[-1, 2])) if len(ns) else (0, 0),
    )


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else 0.0


def _within(pair: list[Array], start: int) -> Array:
    """Where the second lies within 5 % of the first, from `start` on."""
    first, second = pair[0][start:], pair[1][start:]
    near: Array = np.abs(second - first) <= 0.05 * np.maximum(first, 1)
    return near
