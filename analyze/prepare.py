"""From the store's event rows to what the loops replay: states, inputs, hidden inputs, controls.

Hidden inputs are settled here: random draws are read off the state after the event, and a clock
that ticked inside a callback is marked, so that the loop may try where (estimators: A.4).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .bbr.records import (
    CHECK_APP_LIMITED,
    CHECK_CWND,
    CHECK_PACING,
    CHECK_SSTHRESH,
    CWND_EVENT,
    EVENT,
    INIT,
    KINDS,
    MAIN,
    RATE_SAMPLE,
    SET_STATE,
    SKB,
    STATE,
    TCP_CA_LOSS,
    UNDO_CWND,
)

Array = np.ndarray[Any, Any]

# A tick is tried before each of the seven clock reads of one callback, and at last none again: of
# an event that no tick explains, state and decisions are those of a clock that stood still.
_TICK_ATTEMPTS = 8

# Fields of the state record -> columns of events.
_ARRAYS = {
    "extra_acked": ("bbr_extra_acked_0", "bbr_extra_acked_1"),
    "bw_hi": ("bbr_bw_hi_0", "bbr_bw_hi_1"),
    "bw_t": ("bbr_bw_s_0_t", "bbr_bw_s_1_t", "bbr_bw_s_2_t"),
    "bw_v": ("bbr_bw_s_0_v", "bbr_bw_s_1_v", "bbr_bw_s_2_v"),
}


def _state_columns() -> tuple[str, ...]:
    columns: list[str] = []
    for name in STATE.names or ():
        columns.extend(_ARRAYS.get(name, (f"bbr_{name}",)))
    return tuple(columns)


# One column per int64 of the state record, in its order.
STATE_COLUMNS = _state_columns()

_SOCKET_COLUMNS = {
    name: f"tp_{name}"
    for name in [
        "delivered",
        "delivered_ce",
        "lost",
        "snd_cwnd_clamp",
        "app_limited",
        "packets_out",
        "sacked_out",
        "lost_out",
        "retrans_out",
        "srtt_us",
        "mss_cache",
        "snd_ssthresh",
        "delivered_mstamp",
        "tcp_mstamp",
        "tcp_clock_cache",
        "tcp_wstamp_ns",
        "prior_cwnd",
        "rcv_nxt",
        "is_cwnd_limited",
        "max_packets_out",
        "ecn_flags",
        "tlp_orig_data_app_limited",
    ]
} | {name: name for name in ("icsk_ca_state", "sk_pacing_shift", "sk_max_pacing_rate", "jiffies32")}
_SAMPLE_COLUMNS = {name: f"rs_{name}" for name in RATE_SAMPLE.names or () if name != "sample_bw"}
_SKB_COLUMNS = {name: f"skb_{name}" for name in SKB.names or ()}
_EXITS = ("exit_snd_cwnd", "exit_sk_pacing_rate", "exit_snd_ssthresh", "exit_app_limited")

EVENT_COLUMNS = (
    "seq",
    "ns",
    "kind",
    "line",
    "new_state",
    "event",
    "tp_snd_cwnd",
    "sk_pacing_rate",
    *_SOCKET_COLUMNS.values(),
    *_SAMPLE_COLUMNS.values(),
    *_SKB_COLUMNS.values(),
    *STATE_COLUMNS,
    "exit_ns",
    *_EXITS,
    "exit_jiffies32",
)

# Inputs without which main() of the version cannot be predicted.
_V1_INPUTS = [
    "rs_prior_delivered",
    "rs_delivered",
    "rs_interval_us",
    "rs_rtt_us",
    "rs_losses",
    "rs_acked_sacked",
    "rs_prior_in_flight",
    "rs_is_app_limited",
    "rs_is_ack_delayed",
    "tp_delivered",
    "tp_lost",
    "tp_snd_cwnd",
    "tp_snd_cwnd_clamp",
    "tp_packets_out",
    "tp_sacked_out",
    "tp_lost_out",
    "tp_retrans_out",
    "tp_srtt_us",
    "tp_mss_cache",
    "tp_delivered_mstamp",
    "tp_tcp_clock_cache",
    "tp_tcp_wstamp_ns",
    "sk_pacing_rate",
    "sk_max_pacing_rate",
    "sk_pacing_shift",
    "icsk_ca_state",
    "jiffies32",
]
_V2_INPUTS = [
    *_V1_INPUTS,
    *[
        "rs_tx_in_flight",
        "rs_lost",
        "rs_delivered_ce",
        "rs_is_ece",
        "tp_tcp_mstamp",
        "tp_delivered_ce",
    ],
    "tp_is_cwnd_limited",
]
REQUIRED = {
    "v1": tuple(_V1_INPUTS),
    "v2": tuple(_V2_INPUTS),
    "v3": (*_V2_INPUTS, "rs_is_acking_tlp_retrans_seq", "tp_ecn_flags"),
}


@dataclass
class FlowEvents:
    """The replayable part of one flow, n events from `first_seq` on.

    Attributes:
        states: int64 [n + 1, fields]: the recorded state before each event (init: after it).
        events: EVENT [n]: inputs and controls.
        columns: the recorded columns of these events, by store name.
        compared: int64 [fields]: -1 where the recording has the field, else 0.
        pre_init: events before init on a zeroed state, left out.
        tail: events from the moment on at which the probes began to detach: calls may be missing.
        missing: inputs or state fields that the recording lacks.
    """

    states: Array
    events: Array
    columns: dict[str, Array]
    compared: Array
    first_seq: int
    pre_init: int = 0
    tail: int = 0
    missing: list[str] = field(default_factory=list)


def _plain(column: Array) -> tuple[Array, bool]:
    """The values with NULL as 0, and whether there is any value at all."""
    if isinstance(column, np.ma.MaskedArray):
        return column.filled(0), bool((~np.ma.getmaskarray(column)).any())
    return np.asarray(column), True


def _detached(kind: Array, has_exit: Array, ns: Array, last_exit_ns: int) -> int:
    """Events since the probes began to detach, which starts with those on function exits."""
    without_exit = np.flatnonzero((kind == MAIN) & ~has_exit & (ns > last_exit_ns))
    return len(kind) - int(without_exit[0]) if last_exit_ns and len(without_exit) else 0


def prepare(
    columns: dict[str, Array], version: str, params: Array, last_exit_ns: int
) -> FlowEvents:
    """Build the arrays of one flow.

    Args:
        columns: EVENT_COLUMNS of the flow in `seq` order (masked where NULL); kind as integers.
        version: "v1", "v2" or "v3".
        params: the parameter record (analyze/bbr/params.py).
        last_exit_ns: last exit row of the run; 0 if the recording has none.
    """
    values: dict[str, Array] = {}
    present: dict[str, bool] = {}
    for name, column in columns.items():
        values[name], present[name] = _plain(column)
    exit_column = columns["exit_ns"]
    has_exit = ~np.ma.getmaskarray(exit_column)
    inits = np.flatnonzero(values["kind"] == INIT)
    start = int(inits[0]) if len(inits) else 0
    part = {name: column[start:] for name, column in values.items()}
    has_exit = has_exit[start:]
    n = len(part["kind"])

    states = _states(part)
    compared = np.array([-1 if present[name] else 0 for name in STATE_COLUMNS], np.int64)
    events = np.zeros(n, EVENT)
    _fill_inputs(events, part)
    _fill_control(events, part, has_exit)
    _fill_hidden(events, part, has_exit, states, version, params)
    has_main = bool((part["kind"] == MAIN).any())
    missing = [name for name in REQUIRED[version] if has_main and not present.get(name)]
    missing += [name for name in _expected_state(version) if not present[name]]
    return FlowEvents(
        states,
        events,
        part,
        compared,
        first_seq=int(part["seq"][0]) if n else 0,
        pre_init=start,
        tail=_detached(part["kind"], has_exit, part["ns"], last_exit_ns),
        missing=missing,
    )


_ONLY_V1 = frozenset(
    [
        "rtt_cnt",
        "lt_is_sampling",
        "lt_rtt_cnt",
        "lt_use_bw",
        "lt_bw",
        "lt_last_delivered",
        "lt_last_stamp",
        "lt_last_lost",
        "bw_t",
        "bw_v",
    ]
)
_ONLY_V2 = frozenset(["debug_event", "debug_target_cwnd", "debug_rs_bw"])
_ONLY_V3 = frozenset(["full_bw_now", "plb_consec_cong_rounds", "plb_pause_until"])
_SHARED_WITH_V1 = frozenset(
    [
        "min_rtt_us",
        "min_rtt_stamp",
        "probe_rtt_done_stamp",
        "next_rtt_delivered",
        "cycle_mstamp",
        "mode",
        "prev_ca_state",
        "packet_conservation",
        "round_start",
        "idle_restart",
        "probe_rtt_round_done",
        "pacing_gain",
        "cwnd_gain",
        "full_bw_reached",
        "full_bw_cnt",
        "cycle_idx",
        "has_seen_rtt",
        "prior_cwnd",
        "full_bw",
        "ack_epoch_mstamp",
        "extra_acked",
        "ack_epoch_acked",
        "extra_acked_win_rtts",
        "extra_acked_win_idx",
    ]
)


def state_fields(version: str) -> frozenset[str]:
    """Names in the state record that struct bbr of `version` has."""
    everything = frozenset(STATE.names or ())
    if version == "v1":
        return _SHARED_WITH_V1 | _ONLY_V1
    if version == "v2":
        return everything - _ONLY_V1 - _ONLY_V3
    return everything - _ONLY_V1 - _ONLY_V2 - {"packet_conservation"}


def _expected_state(version: str) -> list[str]:
    """State columns a recording of `version` should have; PLB's matter only while PLB is on."""
    fields = state_fields(version) - {"plb_consec_cong_rounds", "plb_pause_until"}
    return [column for name in fields for column in _ARRAYS.get(name, (f"bbr_{name}",))]


def _states(part: dict[str, Array]) -> Array:
    n = len(part["kind"])
    states = np.zeros((n + 1, len(STATE_COLUMNS)), np.int64)
    for index, name in enumerate(STATE_COLUMNS):
        states[:n, index] = part[name].astype(np.int64)
    return states


def _fill_inputs(events: Array, part: dict[str, Array]) -> None:
    for group, mapping in (("tp", _SOCKET_COLUMNS), ("rs", _SAMPLE_COLUMNS), ("skb", _SKB_COLUMNS)):
        for name, column in mapping.items():
            events[group][name] = part[column]


def _fill_control(events: Array, part: dict[str, Array], has_exit: Array) -> None:
    """Which outputs are known, and where TCP itself changed cwnd or pacing before the event."""
    n = len(events)
    ctl = events["ctl"]
    kind = part["kind"].astype(np.int64)
    ctl["kind"] = kind
    ctl["arg"] = np.where(kind == SET_STATE, part["new_state"], part["event"])
    ctl["has_next"] = np.arange(n) < n - 1
    ctl["entry_snd_cwnd"] = part["tp_snd_cwnd"]
    ctl["entry_sk_pacing_rate"] = part["sk_pacing_rate"]
    if n == 0:
        return
    ctl["has_next"][kind == INIT] = 1  # its own row records the state after it
    ctl["resync"][0] = 1

    for name in _EXITS:
        ctl[name] = part[name]
    ctl["check"] = np.where(
        has_exit, CHECK_CWND | CHECK_PACING | CHECK_SSTHRESH | CHECK_APP_LIMITED, 0
    )

    # Callbacks without an exit row: the next event's entry shows what they left behind, unless
    # TCP collapsed cwnd on a timeout in between.
    following = np.append(np.arange(1, n), n - 1)
    has_following = np.arange(n) < n - 1
    collapse = (kind[following] == SET_STATE) & (ctl["arg"][following] == TCP_CA_LOSS)
    writes_cwnd = np.isin(kind, (SET_STATE, CWND_EVENT, UNDO_CWND))
    by_next = ~has_exit & has_following
    cwnd_known = by_next & writes_cwnd & ~collapse
    same_limit = part["sk_max_pacing_rate"][following] == part["sk_max_pacing_rate"]
    pacing_known = by_next & same_limit
    ctl["exit_snd_cwnd"][cwnd_known] = part["tp_snd_cwnd"][following][cwnd_known]
    ctl["exit_sk_pacing_rate"][pacing_known] = part["sk_pacing_rate"][following][pacing_known]
    ctl["check"] |= np.where(cwnd_known, CHECK_CWND, 0) | np.where(pacing_known, CHECK_PACING, 0)

    # What BBR left: known exits, else (a callback that does not write cwnd) the entry itself.
    left_cwnd = np.where(ctl["check"] & CHECK_CWND, ctl["exit_snd_cwnd"], part["tp_snd_cwnd"])
    ctl["take_cwnd"][1:] = left_cwnd[:-1] != part["tp_snd_cwnd"][1:]
    unknown_main = (kind == MAIN) & ~has_exit
    ctl["take_cwnd"][1:] |= unknown_main[:-1]
    left_rate = np.where(
        ctl["check"] & CHECK_PACING, ctl["exit_sk_pacing_rate"], part["sk_pacing_rate"]
    )
    ctl["take_pacing"][1:] = (left_rate[:-1] != part["sk_pacing_rate"][1:]) | unknown_main[:-1]


def _fill_hidden(
    events: Array, part: dict[str, Array], has_exit: Array, states: Array, version: str, p: Array
) -> None:
    """Clock ticks inside the callback and random draws, from what the recording shows after it."""
    n = len(events)
    tp, kind = events["tp"], events["ctl"]["kind"]
    entry = part["jiffies32"].astype(np.int64)
    known = has_exit & (part["exit_jiffies32"] != 0)
    late = np.where(known, part["exit_jiffies32"].astype(np.int64), (entry + 1) & 0xFFFFFFFF)
    tp["jiffies32_late"] = late
    reads_clock = np.isin(kind, (MAIN, CWND_EVENT, SET_STATE))
    ticked = np.where(known, late != entry, reads_clock)
    events["ctl"]["may_tick"] = np.where(ticked & reads_clock, _TICK_ATTEMPTS, 0)

    after = states[1:]
    index = {name: i for i, name in enumerate(STATE_COLUMNS)}
    if version == "v1":
        tp["rand_cycle"] = (8 - after[:, index["bbr_cycle_idx"]]) & 7
    else:
        tp["rand_rounds"] = after[:, index["bbr_rounds_since_probe"]]
        base = int(p["bw_probe_base_us"][0])
        tp["rand_wait_us"] = after[:, index["bbr_probe_wait_us"]] - base
        pause = int(p["plb_suspend_rto_sec"][0]) * int(p["HZ"][0])
        tp["rand_pause"] = (after[:, index["bbr_plb_pause_until"]] - entry - pause) & 0xFFFFFFFF
    if n:
        for name in ("rand_cycle", "rand_rounds", "rand_wait_us", "rand_pause"):
            tp[name][n - 1] = 0  # nothing recorded after the last event


def illegal_draws(events: Array, drew: Array, version: str, p: Array) -> Array:
    """Events that drew a number no kernel could have drawn: the replay drew where BBR did not."""
    tp = events["tp"]
    if version == "v1":
        illegal = tp["rand_cycle"] > 6
    else:
        rand_us = int(p["bw_probe_rand_us"][0])
        illegal = (tp["rand_rounds"] >= max(int(p["bw_probe_rand_rounds"][0]), 1)) | (
            (tp["rand_wait_us"] < 0) | (tp["rand_wait_us"] >= max(rand_us, 1))
        )
        if p["plb_enabled"][0]:
            illegal &= events["ctl"]["kind"] != SET_STATE
    return np.flatnonzero(drew & illegal)


KIND_NUMBERS = {name: number for number, name in enumerate(KINDS)}
