"""Parts of the replay loop: load an event, compare its outcome, try it again with another clock."""

from __future__ import annotations

from typing import Any

from ...probes.base.jit import inline, jit
from . import codes
from .ints import i64, u32, u64
from .log import note
from .records import (
    CHECK_APP_LIMITED,
    CHECK_CWND,
    CHECK_PACING,
    CHECK_SSTHRESH,
    SET_STATE,
    TCP_CA_LOSS,
    UNDO_CWND,
    Bbr,
    Event,
    Log,
)
from .tcp import tcp_packets_in_flight

STEP, FREE_RUN = range(2)

# Outcome of one event.
NOT_COMPARED, EXACT, DIFFERENT = range(3)

# Outputs compared besides struct bbr, in the order of their counters after the state's.
OUTPUTS = ("snd_cwnd", "sk_pacing_rate", "snd_ssthresh", "app_limited")

# Fields and outputs that differ are kept as bits, so many in a word.
BITS = 60

# Reads of the clock in one callback; ticks can fall before any of them.
MOST_CLOCK_READS = 7
_NO_TICK = 1 << 30


@inline
def load_state(states: Any, row: int, known: Any, vec: Any) -> None:
    """Take the recorded state; fields that the recording lacks keep the replay's own value.

    Rows are addressed by index, here and below: slicing one out costs an atomic reference count.
    """
    for i in range(len(vec)):
        vec[i] = (states[row, i] & known[i]) | (vec[i] & ~known[i])


@inline
def copy_state(source: Any, target: Any) -> None:
    """Copy the state, one int64 per field."""
    for i in range(len(target)):
        target[i] = source[i]


@inline
def load_event(ev: Event, mode: int, snd_cwnd: int, sk_pacing_rate: int, log: Log) -> None:
    """Set what may differ from the recording's own values: cwnd and pacing rate in free run."""
    tp, ctl = ev.tp, ev.ctl
    tp.snd_cwnd = ctl.entry_snd_cwnd
    tp.sk_pacing_rate = ctl.entry_sk_pacing_rate
    tp.jiffies_reads = 0
    tp.jiffies_split = _NO_TICK
    tp.draws = 0
    if ctl.resync:
        return
    if log is not None:
        _note_core_writes(ev, snd_cwnd, sk_pacing_rate, log)
    if mode == FREE_RUN:
        if not ctl.take_cwnd:
            tp.snd_cwnd = snd_cwnd
        if not ctl.take_pacing:
            tp.sk_pacing_rate = sk_pacing_rate


@jit
def _note_core_writes(ev: Event, snd_cwnd: int, sk_pacing_rate: int, log: Log) -> None:
    """TCP or the application changed cwnd or pacing since BBR's last callback."""
    ctl = ev.ctl
    old, new = snd_cwnd, ctl.entry_snd_cwnd
    if ctl.take_cwnd and new != old:
        timeout = ctl.kind == SET_STATE and ctl.arg == TCP_CA_LOSS
        if timeout and new == u32(tcp_packets_in_flight(ev.tp) + 1):
            note(log, codes.CORE_RTO_COLLAPSE, old, new)
        elif abs(new - old) == 1:
            note(log, codes.CORE_MTU_PROBE, old, new)
        else:
            note(log, codes.CORE_OTHER, old, new)
    old_rate, new_rate = u64(sk_pacing_rate), u64(ctl.entry_sk_pacing_rate)
    if ctl.take_pacing and new_rate != old_rate:
        note(log, codes.CORE_PACING, i64(old_rate), i64(new_rate))


@inline
def note_undo(ev: Event, log: Log) -> None:
    """Note how tcp_undo_cwnd_reduction() changed snd_cwnd, if the event is an undo_cwnd()."""
    if log is not None and ev.ctl.kind == UNDO_CWND:
        old, new = ev.ctl.entry_snd_cwnd, ev.tp.snd_cwnd
        note(log, codes.CORE_UNDO, old, new)


@inline
def matches(vec: Any, states: Any, row: int, compared: Any, ev: Event) -> bool:
    """Is every compared field of struct bbr, and every known output, what the kernel had?"""
    ctl, tp = ev.ctl, ev.tp
    if ctl.has_next:
        difference = 0
        for i in range(len(compared)):
            difference |= (vec[i] ^ states[row, i]) & compared[i]
        if difference != 0:
            return False
    check = ctl.check
    if check & CHECK_CWND and tp.snd_cwnd != ctl.exit_snd_cwnd:
        return False
    if check & CHECK_PACING and u64(tp.sk_pacing_rate) != u64(ctl.exit_sk_pacing_rate):
        return False
    if check & CHECK_SSTHRESH and tp.snd_ssthresh != ctl.exit_snd_ssthresh:
        return False
    return not (check & CHECK_APP_LIMITED and tp.app_limited != ctl.exit_app_limited)


@inline
def agrees(vec: Any, states: Any, row: int, compared: Any, ev: Event, position: int) -> bool:
    """Is one field (position below their number) or one of OUTPUTS (from it on) the kernel's?"""
    ctl, tp = ev.ctl, ev.tp
    n = len(compared)
    if position < n:
        difference = (vec[position] ^ states[row, position]) & compared[position]
        return ctl.has_next == 0 or difference == 0
    if position == n:
        return not ctl.check & CHECK_CWND or tp.snd_cwnd == ctl.exit_snd_cwnd
    if position == n + 1:
        same = u64(tp.sk_pacing_rate) == u64(ctl.exit_sk_pacing_rate)
        return not ctl.check & CHECK_PACING or same
    if position == n + 2:
        return not ctl.check & CHECK_SSTHRESH or tp.snd_ssthresh == ctl.exit_snd_ssthresh
    return not ctl.check & CHECK_APP_LIMITED or tp.app_limited == ctl.exit_app_limited


@jit
def count_differences(
    vec: Any, states: Any, row: int, compared: Any, ev: Event, differences: Any
) -> None:
    """Count which fields and outputs differ; called only where matches() says that some do."""
    for position in range(len(compared) + len(OUTPUTS)):
        if not agrees(vec, states, row, compared, ev, position):
            differences[position] += 1


@jit
def mark_differing(
    vec: Any, states: Any, row: int, compared: Any, ev: Event, differing: Any, i: int
) -> None:
    """Take out of the bits of event i those that agree; called only where matches() is False."""
    for position in range(len(compared) + len(OUTPUTS)):
        if agrees(vec, states, row, compared, ev, position):
            differing[i, position // BITS] &= ~(1 << (position % BITS))


@inline
def prepare_retry(ev: Event, entry: Any, attempt: int) -> None:
    """Undo the event and let the clock tick inside it, elsewhere or by less than before.

    A callback that was interrupted for longer reads what it read on the way: after the time at its
    exit, those before it are tried.
    """
    tp, rs, skb = ev.tp, ev.rs, ev.skb
    tp.snd_cwnd = entry[0]
    tp.snd_ssthresh = entry[1]
    tp.app_limited = entry[2]
    rs.losses = entry[3]
    rs.lost = entry[4]
    rs.tx_in_flight = entry[5]
    rs.is_app_limited = entry[6]
    skb.in_flight = entry[7]
    tp.jiffies_reads = 0
    tp.draws = 0
    ticks = attempt // MOST_CLOCK_READS
    tp.jiffies_split = attempt % MOST_CLOCK_READS if ticks < ev.ctl.may_tick else _NO_TICK
    if ticks > 0:
        tp.jiffies32_late = u32(tp.jiffies32 + ticks)


@inline
def save_entry(ev: Event, entry: Any) -> int:
    """Keep what a callback overwrites in its own inputs; returns the pacing rate (u64)."""
    tp, rs = ev.tp, ev.rs
    entry[0] = tp.snd_cwnd
    entry[1] = tp.snd_ssthresh
    entry[2] = tp.app_limited
    entry[3] = rs.losses
    entry[4] = rs.lost
    entry[5] = rs.tx_in_flight
    entry[6] = rs.is_app_limited
    entry[7] = ev.skb.in_flight
    return u64(tp.sk_pacing_rate)


@jit
def clear_for_init(bbr: Bbr, vec: Any) -> int:
    """Set to -1 what init must set, so that an omission shows; returns tcp_min_rtt() [us].

    That is init's one unrecorded input; it is read from min_rtt_us of the state after init.
    """
    min_rtt_us = bbr.min_rtt_us
    pacing_gain, cwnd_gain = bbr.pacing_gain, bbr.cwnd_gain
    debug_event, plb_rounds = bbr.debug_event, bbr.plb_consec_cong_rounds
    for i in range(len(vec)):
        vec[i] = -1
    bbr.pacing_gain, bbr.cwnd_gain = pacing_gain, cwnd_gain
    bbr.debug_event, bbr.plb_consec_cong_rounds = debug_event, plb_rounds
    bbr.lt_use_bw = 0  # fields that only another version has must stay harmless
    return min_rtt_us


@inline
def keep_history(vec: Any, watched: Any, history: Any, i: int) -> None:
    """Keep the watched fields (indices into the state) as they are after event i."""
    for k in range(len(watched)):
        history[i, k] = vec[watched[k]]
