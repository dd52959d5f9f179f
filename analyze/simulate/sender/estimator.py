"""Where the engine calls the estimator: one function per callback of struct tcp_congestion_ops.

Before each call the inputs and the state are kept, if the run is recorded; after it the outputs.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from ...bbr.records import (
    CWND_EVENT,
    INIT,
    MAIN,
    SET_STATE,
    SKB_MARKED_LOST,
    SSTHRESH,
    UNDO_CWND,
)
from ..world.coming import draw
from ..world.places import (
    Sim,
    event_of,
    flow_of,
    keep_event,
    keep_state,
    out_event_of,
    out_of,
    params_of,
    run_callback,
    seg_of,
    world_of,
)
from ..world.world_records import CC_BBR, NS, US

# The world's clock begins where a machine has been up for a while.
EPOCH_NS = 100 * NS
# INITIAL_JIFFIES: 300 s before jiffies wrap.
_JIFFIES_BACK = 300


@jit
def clock_ticks(now: int, hz: int) -> int:
    """jiffies at a time of the world, as a number that does not wrap."""
    return (EPOCH_NS + now) // (NS // hz) - _JIFFIES_BACK * hz


@jit
def jiffies32(now: int, hz: int) -> int:
    """The low 32 bits of jiffies."""
    return clock_ticks(now, hz) & 0xFFFFFFFF


@jit
def _call(s: Sim, i: int, kind: int, argument: int, seq: int) -> None:
    f, ev, w = flow_of(s, i), event_of(s, i), world_of(s)
    tp = ev.tp
    ev.ctl.kind = kind
    ev.ctl.arg = argument
    tp.jiffies32 = jiffies32(f.mstamp_ns if f.mstamp_ns > w.now else w.now, f.hz)
    tp.jiffies32_late = tp.jiffies32
    tp.tcp_clock_cache = EPOCH_NS + f.mstamp_ns
    tp.tcp_mstamp = tp.tcp_clock_cache // US
    tp.rand_cycle = draw(s, 7)
    p = params_of(s, i)
    tp.rand_rounds = draw(s, p.bw_probe_rand_rounds)
    tp.rand_wait_us = draw(s, p.bw_probe_rand_us)
    tp.rand_pause = 0
    if f.state == 0:
        return  # iperf3 sets BBR after its cookie: TX_START was for the host's own control
    row = w.recorded
    if w.record:
        if row + 1 >= w.n_out:
            w.overflow = 1
            return
        _keep_inputs(s, i, row, seq)
    if kind == MAIN:
        run_callback(s, i, f.slot)
    else:
        _call_without_sample(s, i)
    if w.record:
        out = out_event_of(s, row)
        out.ctl.exit_snd_cwnd = tp.snd_cwnd
        out.ctl.exit_sk_pacing_rate = tp.sk_pacing_rate
        out.ctl.exit_snd_ssthresh = tp.snd_ssthresh
        out.ctl.exit_app_limited = tp.app_limited
        if kind == INIT:
            keep_state(s, i, row)
        w.recorded = row + 1


@jit
def _call_without_sample(s: Sim, i: int) -> None:
    """A callback that gets no rate sample: one that it builds on its stack begins with zeros.

    The estimator builds it in the event, where the sample of the ACK that is under way stays.
    """
    rs = event_of(s, i).rs
    losses, lost = rs.losses, rs.lost
    tx_in_flight, is_app_limited = rs.tx_in_flight, rs.is_app_limited
    rs.losses = 0
    rs.lost = 0
    rs.tx_in_flight = 0
    rs.is_app_limited = 0
    run_callback(s, i, flow_of(s, i).slot)
    rs.losses = losses
    rs.lost = lost
    rs.tx_in_flight = tx_in_flight
    rs.is_app_limited = is_app_limited


@jit
def _keep_inputs(s: Sim, i: int, row: int, seq: int) -> None:
    f, w, out = flow_of(s, i), world_of(s), out_of(s, row)
    keep_event(s, i, row)
    keep_state(s, i, row)
    out.ns = EPOCH_NS + w.now
    out.flow = i
    out.prior_mstamp = f.rs_prior_mstamp
    out.is_retrans = f.rs_is_retrans
    out.snd_us = f.rs_snd_us
    out.rcv_us = f.rs_rcv_us
    out.una = f.una
    out.nxt = f.nxt
    out.high = f.high_seq
    out.prior_lost = f.rs_prior_lost
    out.prior_ce = f.rs_prior_ce
    out.seq = seq
    out.wnd = f.wnd_end - f.una


@jit
def call_init(s: Sim, i: int) -> None:
    """init(), with tcp_min_rtt()."""
    f = flow_of(s, i)
    if f.cc == CC_BBR:
        _call(s, i, INIT, f.min_rtt, 0)


@jit
def call_main(s: Sim, i: int) -> None:
    """cong_control()."""
    _call(s, i, MAIN, 0, 0)


@jit
def call_set_state(s: Sim, i: int, state: int) -> None:
    """tcp_set_ca_state(): the callback first, then the state."""
    ev = event_of(s, i)
    if flow_of(s, i).cc == CC_BBR:
        _call(s, i, SET_STATE, state, 0)
    ev.tp.icsk_ca_state = state


@jit
def call_cwnd_event(s: Sim, i: int, event: int) -> None:
    """tcp_ca_event()."""
    if flow_of(s, i).cc == CC_BBR:
        _call(s, i, CWND_EVENT, event, 0)


@jit
def call_ssthresh(s: Sim, i: int) -> None:
    """BBR's ssthresh(), which leaves snd_ssthresh as it is."""
    _call(s, i, SSTHRESH, 0, 0)


@jit
def call_undo_cwnd(s: Sim, i: int) -> None:
    """BBR's undo_cwnd(); the estimator stores what it returns."""
    _call(s, i, UNDO_CWND, 0, 0)


@jit
def call_marked_lost(s: Sim, i: int, seq: int, segments: int) -> None:
    """skb_marked_lost() of v2 and v3, with the tx fields of the skb that begins at `seq`."""
    f = flow_of(s, i)
    if f.cc != CC_BBR or f.version == 1:
        return
    ev = event_of(s, i)
    bits = world_of(s).bits
    seg = seg_of(s, (i << bits) + (seq & ((1 << bits) - 1)))
    skb = ev.skb
    skb.in_flight = seg.tx_in_flight & 0xFFFFF
    skb.lost = seg.tx_lost
    skb.is_app_limited = seg.tx_app
    skb.delivered_mstamp = seg.tx_mstamp & 0xFFFFFFFF
    skb.gso_segs = segments
    _call(s, i, SKB_MARKED_LOST, 0, seq)
