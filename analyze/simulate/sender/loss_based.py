"""CUBIC, Reno, Vegas and DCTCP beside BBR: tcp_cubic.c, tcp_cong.c, proportional rate reduction."""

from __future__ import annotations

from ....probes.base.jit import jit
from ...bbr.records import TCP_CA_CWR, TCP_CA_RECOVERY
from ...bbr.tcp import tcp_packets_in_flight
from ..world.places import Sim, event_of, flow_of
from ..world.world_records import (
    CC_BBR,
    CC_CUBIC,
    CC_DCTCP,
    CC_VEGAS,
    F_ACKED,
    F_SACKED,
    F_UNA,
    US,
)
from .dctcp import (
    dctcp_cwnd_undo,
    dctcp_init,
    dctcp_react_to_loss,
    dctcp_ssthresh,
    dctcp_update_alpha,
)
from .vegas import (
    vegas_has_samples,
    vegas_init,
    vegas_is_above_gamma,
    vegas_is_round_over,
    vegas_round_done,
    vegas_sample,
    vegas_state,
    vegas_step,
)

_BETA = 717  # of 1024
_BETA_SCALE = 15  # 8 * (1024 + 717) / 3 / (1024 - 717)
_RTT_SCALE = 410  # bic_scale * 10
_CUBE_FACTOR = (1 << 40) // _RTT_SCALE
_INFINITE = 0x7FFFFFFF
_HYSTART_LOW, _HYSTART_SAMPLES = 16, 8
_FRESH_MS = 1000


@jit
def cube_root(a: int) -> int:
    """cubic_root(), without its error (0.195 % on average)."""
    low, high = 0, 1 << 21
    while low < high:
        middle = (low + high + 1) >> 1
        if middle * middle * middle <= a:
            low = middle
        else:
            high = middle - 1
    return low


@jit
def loss_based_init(s: Sim, i: int) -> None:
    """tcp_init_congestion_control(): those but DCTCP begin with zeros, as the flow does."""
    if flow_of(s, i).cc == CC_DCTCP:
        dctcp_init(s, i)


@jit
def loss_based_in_ack_event(s: Sim, i: int, delivered_ce: int) -> None:
    """tcp_in_ack_event(), which DCTCP alone has; `delivered_ce` as it is at that moment."""
    if flow_of(s, i).cc == CC_DCTCP:
        dctcp_update_alpha(s, i, delivered_ce)


@jit
def loss_based_ssthresh(s: Sim, i: int) -> None:
    """cubictcp_recalc_ssthresh(), tcp_reno_ssthresh(), dctcp_ssthresh()."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    cwnd = tp.snd_cwnd
    if f.cc == CC_CUBIC:
        f.ca_epoch = 0
        f.ca_w_max = cwnd * (1024 + _BETA) // 2048 if cwnd < f.ca_w_max else cwnd
        tp.snd_ssthresh = max(cwnd * _BETA // 1024, 2)
    elif f.cc == CC_DCTCP:
        tp.snd_ssthresh = dctcp_ssthresh(s, i)
    else:
        tp.snd_ssthresh = max(cwnd >> 1, 2)


@jit
def loss_based_undo(s: Sim, i: int) -> None:
    """tcp_reno_undo_cwnd(), dctcp_cwnd_undo()."""
    tp = event_of(s, i).tp
    if flow_of(s, i).cc == CC_DCTCP:
        tp.snd_cwnd = dctcp_cwnd_undo(s, i)
    else:
        tp.snd_cwnd = max(tp.snd_cwnd, tp.prior_cwnd)


@jit
def loss_based_loss(s: Sim, i: int) -> None:
    """tcp_set_ca_state() of Recovery, CA_EVENT_LOSS: DCTCP takes it for more than a mark."""
    if flow_of(s, i).cc == CC_DCTCP:
        dctcp_react_to_loss(s, i)


@jit
def loss_based_timeout(s: Sim, i: int) -> None:
    """cubictcp_state() of Loss, bictcp_reset(): CUBIC begins anew, HyStart too."""
    f = flow_of(s, i)
    if f.cc != CC_CUBIC:
        return
    f.ca_cnt = 0
    f.ca_w_max = 0
    f.ca_last_cwnd = 0
    f.ca_last_time = 0
    f.ca_origin = 0
    f.ca_k = 0
    f.ca_delay_min = 0
    f.ca_epoch = 0
    f.ca_ack_cnt = 0
    f.ca_tcp_cwnd = 0
    f.ca_found = 0
    f.ca_round_start = f.ca_last_ack = f.mstamp_ns // US
    f.ca_end_seq = f.nxt
    f.ca_curr_rtt = _INFINITE
    f.ca_samples = 0


@jit
def loss_based_tx_start(s: Sim, i: int) -> None:
    """TX_START: cubictcp_cwnd_event() takes the pause out of the curve; Vegas begins anew."""
    f = flow_of(s, i)
    if f.cc == CC_CUBIC and f.ca_epoch:
        pause_ms = (f.mstamp_ns - f.last_sent_ns) // 1_000_000
        f.ca_epoch = min(f.ca_epoch + pause_ms, f.mstamp_ns // 1_000_000 + 1)
    elif f.cc == CC_VEGAS:
        vegas_init(s, i)


@jit
def tcp_end_cwnd_reduction(s: Sim, i: int) -> None:
    """The reduction has reached ssthresh; BBR has its own."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if f.cc == CC_BBR or tp.snd_ssthresh >= _INFINITE:
        return
    if tp.icsk_ca_state == TCP_CA_CWR or f.undo_marker >= 0:
        tp.snd_cwnd = tp.snd_ssthresh


@jit
def _prr(s: Sim, i: int, delivered: int, lost: int) -> None:
    """tcp_cwnd_reduction(): proportional rate reduction."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    in_flight = tcp_packets_in_flight(tp)
    delta = tp.snd_ssthresh - in_flight
    if delivered <= 0 or tp.prior_cwnd <= 0:
        return
    f.prr_delivered += delivered
    if delta < 0:
        dividend = tp.snd_ssthresh * f.prr_delivered + tp.prior_cwnd - 1
        send = dividend // tp.prior_cwnd - f.prr_out
    else:
        send = max(f.prr_delivered - f.prr_out, delivered)
        if f.flag & F_UNA and not lost:
            send += 1
        send = min(delta, send)
    tp.snd_cwnd = in_flight + max(send, 0 if f.prr_out else 1)


@jit
def _cubic_update(s: Sim, i: int, acked: int) -> int:
    """bictcp_update(): ACKs per step of cwnd."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    cwnd, ms = tp.snd_cwnd, f.mstamp_ns // 1_000_000 + 1
    f.ca_ack_cnt += acked
    if f.ca_last_cwnd == cwnd and ms - f.ca_last_time <= 31:
        return f.ca_cnt
    f.ca_last_cwnd, f.ca_last_time = cwnd, ms
    if f.ca_epoch == 0:
        f.ca_epoch = ms
        f.ca_ack_cnt = acked
        f.ca_tcp_cwnd = cwnd
        f.ca_k = cube_root(_CUBE_FACTOR * (f.ca_w_max - cwnd)) if f.ca_w_max > cwnd else 0
        f.ca_origin = max(f.ca_w_max, cwnd)
    t = ((ms - f.ca_epoch + max(f.ca_delay_min, 0) // 1000) << 10) // 1000
    off = abs(t - f.ca_k)
    delta = (_RTT_SCALE * off * off * off) >> 40
    target = f.ca_origin - delta if t < f.ca_k else f.ca_origin + delta
    cnt = cwnd // (target - cwnd) if target > cwnd else 100 * cwnd
    if f.ca_w_max == 0 and cnt > 20:
        cnt = 20
    step = max((cwnd * _BETA_SCALE) >> 3, 1)
    while f.ca_ack_cnt > step:
        f.ca_ack_cnt -= step
        f.ca_tcp_cwnd += 1
    if f.ca_tcp_cwnd > cwnd:
        cnt = min(cnt, cwnd // (f.ca_tcp_cwnd - cwnd))
    f.ca_cnt = max(cnt, 2)
    return f.ca_cnt


@jit
def _hystart(s: Sim, i: int, rtt_us: int) -> None:
    """hystart_update(): leave slow start before the queue is full."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    now = f.mstamp_ns // US
    if f.una > f.ca_end_seq:
        f.ca_round_start = f.ca_last_ack = now
        f.ca_end_seq = f.nxt
        f.ca_curr_rtt = _INFINITE
        f.ca_samples = 0
    if f.ca_found or tp.snd_cwnd < _HYSTART_LOW or tp.snd_cwnd >= tp.snd_ssthresh:
        return
    if now - f.ca_last_ack <= 2000:
        f.ca_last_ack = now
        # Without pacing, half an RTT's train of ACKs; the cushion is a millisecond at most.
        if now - f.ca_round_start > (f.ca_delay_min + 1000) >> 1:
            f.ca_found = 1
    f.ca_curr_rtt = min(f.ca_curr_rtt, rtt_us)
    if f.ca_samples < _HYSTART_SAMPLES:
        f.ca_samples += 1
    elif f.ca_curr_rtt > f.ca_delay_min + min(max(f.ca_delay_min >> 3, 4000), 16000):
        f.ca_found = 1
    if f.ca_found:
        tp.snd_ssthresh = tp.snd_cwnd


@jit
def _is_cwnd_limited(s: Sim, i: int) -> bool:
    """tcp_is_cwnd_limited()."""
    tp = event_of(s, i).tp
    if tp.snd_cwnd < tp.snd_ssthresh:
        return tp.snd_cwnd < 2 * tp.max_packets_out
    return tp.is_cwnd_limited != 0


@jit
def _slow_start(s: Sim, i: int, acked: int) -> int:
    """tcp_slow_start(): what is left of `acked` for additive steps."""
    tp = event_of(s, i).tp
    cwnd = min(tp.snd_cwnd + acked, tp.snd_ssthresh)
    left = acked - (cwnd - tp.snd_cwnd)
    tp.snd_cwnd = cwnd
    return left


@jit
def _grow(s: Sim, i: int, acked: int) -> None:
    """cubictcp_cong_avoid() and tcp_reno_cong_avoid(): slow start, then tcp_cong_avoid_ai()."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    slow = tp.snd_cwnd < tp.snd_ssthresh
    if not _is_cwnd_limited(s, i):
        return
    if slow:
        acked = _slow_start(s, i, acked)
        if acked == 0:
            return
    w = _cubic_update(s, i, acked) if f.cc == CC_CUBIC else tp.snd_cwnd
    if f.snd_cwnd_cnt >= w:
        f.snd_cwnd_cnt = 0
        tp.snd_cwnd += 1
    f.snd_cwnd_cnt += acked
    if f.snd_cwnd_cnt >= w:
        steps = f.snd_cwnd_cnt // w
        f.snd_cwnd_cnt -= steps * w
        tp.snd_cwnd += steps


@jit
def _vegas_grow(s: Sim, i: int, acked: int) -> None:
    """tcp_vegas_cong_avoid(): once a round by the queue, in slow start with each ACK, too."""
    tp = event_of(s, i).tp
    if not vegas_state(s, i):
        _grow(s, i, acked)
        return
    slow = tp.snd_cwnd < tp.snd_ssthresh
    if not vegas_is_round_over(s, i):
        if slow:
            _slow_start(s, i, acked)
        return
    if not vegas_has_samples(s, i):
        _grow(s, i, acked)
    elif not slow:
        vegas_step(s, i)
    elif not vegas_is_above_gamma(s, i):
        _slow_start(s, i, acked)
    vegas_round_done(s, i)


@jit
def _just_recovered(s: Sim, i: int) -> bool:
    """cubictcp_acked() takes no RTTs in the first second of an epoch."""
    f = flow_of(s, i)
    return f.ca_epoch > 0 and f.mstamp_ns // 1_000_000 + 1 - f.ca_epoch < _FRESH_MS


@jit
def loss_based_cong_control(s: Sim, i: int, delivered: int, lost: int) -> None:
    """tcp_cong_control() of what has no cong_control(): PRR in a reduction, else growth."""
    f, ev = flow_of(s, i), event_of(s, i)
    tp = ev.tp
    state = tp.icsk_ca_state
    if f.cc == CC_CUBIC and ev.rs.rtt_us > 0 and not _just_recovered(s, i):
        if f.ca_delay_min == 0 or f.ca_delay_min > ev.rs.rtt_us:
            f.ca_delay_min = ev.rs.rtt_us
        if tp.snd_cwnd < tp.snd_ssthresh:
            _hystart(s, i, ev.rs.rtt_us)
    if f.cc == CC_VEGAS and ev.rs.rtt_us > 0:
        vegas_sample(s, i, ev.rs.rtt_us)
    if state in (TCP_CA_CWR, TCP_CA_RECOVERY):
        _prr(s, i, delivered, lost)
    elif f.flag & F_ACKED or (f.reordering > 3 and f.flag & F_SACKED):
        if f.cc == CC_VEGAS:
            _vegas_grow(s, i, delivered)
        else:
            _grow(s, i, delivered)
    rate = tp.snd_cwnd * tp.mss_cache * (200 if tp.snd_cwnd < tp.snd_ssthresh // 2 else 120) // 100
    tp.sk_pacing_rate = rate * 8_000_000 // tp.srtt_us if tp.srtt_us else rate
