"""What the estimator works on: struct bbr, the socket and rate sample of one event, parameters.

One superset record serves all three kernels, so that the code they share is compiled once and the
versions differ in which fields they use. Field names are the kernel's.

The recorded fields of the records come from the table of fields (probes/fields.csv). The protocols
below name them once more for mypy; a test holds them to the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from ...probes.fields import Field, with_role

Array = np.ndarray[Any, Any]

# Field types of the records below, by annotation; Pair and Triple are subarrays.
U64 = int
Pair = list[int]
Triple = list[int]
_STORAGE: dict[str, tuple[Any, ...]] = {
    "int": ("i8",),
    "U64": ("u8",),
    "Pair": ("i8", (2,)),
    "Triple": ("i8", (3,)),
    "Four": ("i8", (4,)),
    "Eight": ("i8", (8,)),
}
Four = list[int]
Eight = list[int]


def record_of(protocol: type) -> np.dtype[Any]:
    """The numpy record whose fields are the protocol's annotations."""
    return np.dtype([(name, *_STORAGE[kind]) for name, kind in protocol.__annotations__.items()])


def _storage(field: Field) -> str:
    """int64 holds every value of the kernel's but a 64-bit "none" of all ones."""
    return "u8" if field.bits == 64 and field.all_ones else "i8"


def recorded_record(fields: Iterable[Field], unrecorded: type | None = None) -> np.dtype[Any]:
    """The numpy record of fields of the table, then those of a protocol that has the others.

    Fields with an index are elements of one subarray.
    """
    elements: dict[str, list[str]] = {}
    for field in fields:
        name, index = field.record_place
        elements.setdefault(name, []).append(_storage(field))
        assert index in (-1, len(elements[name]) - 1), field.name
    parts: list[Any] = [
        (name, kinds[0], (len(kinds),)) if len(kinds) > 1 else (name, kinds[0])
        for name, kinds in elements.items()
    ]
    return np.dtype([*parts, *(record_of(unrecorded).descr if unrecorded else ())])


class VariantState(Protocol):
    """State of a variant of one's own: no kernel has it, and no recording tells it.

    The numbers are 0 when a replay begins, and the variant's own from then on.
    """

    variant: Eight


class Bbr(VariantState, Protocol):
    """struct bbr of tcp_bbr.c (v1), tcp_bbr2.c (v2alpha) and tcp_bbr.c (v3)."""

    min_rtt_us: int  # us
    min_rtt_stamp: int  # jiffies
    probe_rtt_done_stamp: int
    probe_rtt_min_us: int
    probe_rtt_min_stamp: int
    rtt_cnt: int
    next_rtt_delivered: int
    prior_rcv_nxt: int
    cycle_mstamp: int  # us
    mode: int  # enum bbr_mode
    prev_ca_state: int
    packet_conservation: int
    round_start: int
    ce_state: int
    bw_probe_up_rounds: int
    try_fast_path: int
    idle_restart: int
    probe_rtt_round_done: int
    init_cwnd: int
    lt_is_sampling: int
    lt_rtt_cnt: int
    lt_use_bw: int
    lt_bw: int
    lt_last_delivered: int
    lt_last_stamp: int
    lt_last_lost: int
    pacing_gain: int  # 1/256
    cwnd_gain: int
    full_bw_reached: int
    full_bw_cnt: int
    cycle_idx: int
    has_seen_rtt: int
    prior_cwnd: int
    full_bw: int
    ack_epoch_mstamp: int
    extra_acked: Pair
    ack_epoch_acked: int
    extra_acked_win_rtts: int
    extra_acked_win_idx: int
    full_bw_now: int
    startup_ecn_rounds: int
    loss_in_cycle: int
    ecn_in_cycle: int
    loss_round_delivered: int
    undo_bw_lo: int
    undo_inflight_lo: int
    undo_inflight_hi: int
    bw_latest: int
    bw_lo: int  # pkts/us << 24, as are all bw
    bw_hi: Pair
    inflight_latest: int
    inflight_lo: int  # packets, as are all volumes
    inflight_hi: int
    bw_probe_up_cnt: int
    bw_probe_up_acks: int
    probe_wait_us: int
    ecn_eligible: int
    ecn_alpha: int
    bw_probe_samples: int
    prev_probe_too_high: int
    stopped_risky_probe: int
    rounds_since_probe: int
    loss_round_start: int
    loss_in_round: int
    ecn_in_round: int
    ack_phase: int
    loss_events_in_round: int
    initialized: int
    alpha_last_delivered: int
    alpha_last_delivered_ce: int
    bw_t: Triple  # v1: bw.s[].t, round of each of the three best samples
    bw_v: Triple  # v1: bw.s[].v
    debug_event: int  # v2: debug.*
    debug_target_cwnd: int
    debug_rs_bw: int
    plb_consec_cong_rounds: int  # v3: plb.*
    plb_pause_until: int


class HiddenInputs(Protocol):
    """What BBR also depends on and no probe can read; settled in analyze/replay.

    The clock tick may advance inside a callback: the first `jiffies_split` reads see jiffies32, the
    others jiffies32_late. The rand_* are the random draws, `draws` counts their use.
    """

    jiffies32_late: int
    jiffies_reads: int
    jiffies_split: int
    rand_rounds: int
    rand_wait_us: int
    rand_cycle: int
    rand_pause: int
    draws: int


class Socket(HiddenInputs, Protocol):
    """struct tcp_sock, sock and inet_connection_sock at entry, as far as BBR reads them."""

    delivered: int
    delivered_ce: int
    lost: int
    snd_cwnd: int
    snd_cwnd_clamp: int
    app_limited: int
    packets_out: int
    sacked_out: int
    lost_out: int
    retrans_out: int
    srtt_us: int
    mss_cache: int
    snd_ssthresh: int
    delivered_mstamp: int  # us
    tcp_mstamp: int
    tcp_clock_cache: int
    tcp_wstamp_ns: int
    prior_cwnd: int
    rcv_nxt: int
    is_cwnd_limited: int
    max_packets_out: int
    ecn_flags: int
    tlp_orig_data_app_limited: int
    icsk_ca_state: int
    sk_pacing_shift: int
    sk_pacing_rate: U64  # bytes/s
    sk_max_pacing_rate: U64
    jiffies32: int


class BbrContext(Protocol):
    """struct bbr_context: what bbr_main() hands down (v2, v3)."""

    sample_bw: int


class RateSample(BbrContext, Protocol):
    """struct rate_sample, and struct bbr_context beside it."""

    prior_delivered: int
    delivered: int
    interval_us: int
    rtt_us: int
    losses: int
    acked_sacked: int
    prior_in_flight: int
    is_app_limited: int
    is_ack_delayed: int
    tx_in_flight: int
    lost: int
    delivered_ce: int
    is_ece: int
    is_acking_tlp_retrans_seq: int


class Skb(Protocol):
    """The tx fields of struct tcp_skb_cb of the skb handed to skb_marked_lost."""

    in_flight: int  # 20 bits
    lost: int
    is_app_limited: int
    delivered_mstamp: int  # us
    gso_segs: int


class Control(Protocol):
    """How the replay treats one event; filled by known_outputs.py and hidden_inputs.py (replay)."""

    kind: int
    arg: int  # set_state's new_state, cwnd_event's event
    resync: int  # start from the recorded state
    has_next: int  # the state after it is recorded
    take_cwnd: int  # TCP itself changed cwnd since BBR's last callback
    take_pacing: int  # likewise the pacing rate
    check: int  # CHECK_*: outputs that are known
    may_tick: int  # by how much the clock may have grown inside the callback, in ticks
    entry_snd_cwnd: int
    exit_snd_cwnd: int
    exit_snd_ssthresh: int
    exit_app_limited: int
    entry_sk_pacing_rate: U64
    exit_sk_pacing_rate: U64


class Event(Protocol):
    """One kernel event."""

    ctl: Control
    tp: Socket
    rs: RateSample
    skb: Skb


# Decisions are noted here (log.py); None compiles a variant without noting.
Log = Any

STATE_FIELDS = with_role("state")
SOCKET_FIELDS = tuple(f for f in with_role("input") if "entry" in f.recorded)
RATE_SAMPLE_FIELDS = tuple(f for f in with_role("input") if "main" in f.recorded)
SKB_FIELDS = tuple(f for f in with_role("input") if "skb" in f.recorded)

STATE = recorded_record(STATE_FIELDS, VariantState)
SOCKET = recorded_record(SOCKET_FIELDS, HiddenInputs)
RATE_SAMPLE = recorded_record(RATE_SAMPLE_FIELDS, BbrContext)
SKB = recorded_record(SKB_FIELDS)
CONTROL = record_of(Control)
EVENT = np.dtype([("ctl", CONTROL), ("tp", SOCKET), ("rs", RATE_SAMPLE), ("skb", SKB)])

# One column of events per int64 of the state record, in its order: elements of a subarray follow
# each other, wherever they are in the table.
_STATE_ORDER = {name: position for position, name in enumerate(STATE.names or ())}
STATE_COLUMNS = tuple(
    field.column for field in sorted(STATE_FIELDS, key=lambda f: _STATE_ORDER[f.record_place[0]])
)

KINDS = (
    "init",
    "main",
    "set_state",
    "cwnd_event",
    "ssthresh",
    "undo_cwnd",
    "skb_marked_lost",
)
INIT, MAIN, SET_STATE, CWND_EVENT, SSTHRESH, UNDO_CWND, SKB_MARKED_LOST = range(len(KINDS))

# Bits of ctl.check: which outputs of the event the recording lets us compare.
CHECK_CWND, CHECK_PACING, CHECK_SSTHRESH, CHECK_APP_LIMITED = 1, 2, 4, 8

# enum bbr_mode
BBR_STARTUP, BBR_DRAIN, BBR_PROBE_BW, BBR_PROBE_RTT = range(4)
MODES = ("STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT")
# enum bbr_pacing_gain_phase (v2, v3)
BBR_BW_PROBE_UP, BBR_BW_PROBE_DOWN, BBR_BW_PROBE_CRUISE, BBR_BW_PROBE_REFILL = range(4)
PHASES = ("UP", "DOWN", "CRUISE", "REFILL")
# enum bbr_ack_phase (v2, v3)
(
    BBR_ACKS_INIT,
    BBR_ACKS_REFILLING,
    BBR_ACKS_PROBE_STARTING,
    BBR_ACKS_PROBE_FEEDBACK,
    BBR_ACKS_PROBE_STOPPING,
) = range(5)
# enum tcp_ca_state
TCP_CA_OPEN, TCP_CA_DISORDER, TCP_CA_CWR, TCP_CA_RECOVERY, TCP_CA_LOSS = range(5)
CA_STATES = ("Open", "Disorder", "CWR", "Recovery", "Loss")
# enum tcp_ca_event; TLP_RECOVERY exists with the v3 patch only
CA_EVENT_TX_START, CA_EVENT_CWND_RESTART, CA_EVENT_COMPLETE_CWR, CA_EVENT_LOSS = range(4)
CA_EVENT_ECN_NO_CE, CA_EVENT_ECN_IS_CE, CA_EVENT_TLP_RECOVERY = 4, 5, 6
# include/net/tcp.h; ECN_LOW is the v3 patch's, and ECT_PERMANENT has v2's value, or v3's
TCP_ECN_OK, TCP_ECN_QUEUE_CWR, TCP_ECN_LOW = 1, 2, 16
TCP_ECN_ECT_PERMANENT = {"v2": 16, "v3": 32}
TCP_INIT_CWND = 10
