"""Vegas beside BBR: tcp_vegas.c. What it keeps stands in the fields that CUBIC uses for HyStart.

`ca_delay_min` is baseRTT and `ca_curr_rtt` minRTT, both plus a microsecond; `ca_samples` is cntRTT,
`ca_end_seq` beg_snd_nxt, and `ca_found` doing_vegas_now.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from ...bbr.records import TCP_CA_OPEN
from ..world.places import Sim, event_of, flow_of

_ALPHA, _BETA, _GAMMA = 2, 4, 1
_FEW_SAMPLES = 2
_INFINITE = 0x7FFFFFFF


@jit
def vegas_init(s: Sim, i: int) -> None:
    """tcp_vegas_init(): after a pause nothing is known of the path."""
    f = flow_of(s, i)
    f.ca_delay_min = 0
    f.ca_found = 1
    f.ca_end_seq = f.nxt
    f.ca_samples = 0


@jit
def vegas_sample(s: Sim, i: int, rtt_us: int) -> None:
    """tcp_vegas_pkts_acked()."""
    f = flow_of(s, i)
    rtt = rtt_us + 1
    if f.ca_delay_min == 0 or rtt < f.ca_delay_min:
        f.ca_delay_min = rtt
    f.ca_curr_rtt = min(f.ca_curr_rtt, rtt) if f.ca_samples else rtt
    f.ca_samples += 1


@jit
def vegas_state(s: Sim, i: int) -> bool:
    """tcp_vegas_state(): does Vegas decide? It begins anew when the connection is Open again."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if tp.icsk_ca_state != TCP_CA_OPEN:
        f.ca_found = 0
        return False
    if not f.ca_found:
        f.ca_found = 1
        f.ca_end_seq = f.nxt
        f.ca_samples = 0
    return True


@jit
def vegas_is_round_over(s: Sim, i: int) -> bool:
    """The first ACK of what was sent after the last decision; a new round begins with it."""
    f = flow_of(s, i)
    if f.una <= f.ca_end_seq:
        return False
    f.ca_end_seq = f.nxt
    return True


@jit
def vegas_has_samples(s: Sim, i: int) -> bool:
    """With fewer, delayed ACKs may have hidden the queue: Reno decides for this round."""
    return flow_of(s, i).ca_samples > _FEW_SAMPLES


@jit
def vegas_is_above_gamma(s: Sim, i: int) -> bool:
    """In slow start: does more than gamma wait in the queue? Then leave it at the actual rate."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    base, rtt = f.ca_delay_min, f.ca_curr_rtt
    if tp.snd_cwnd * (rtt - base) // base <= _GAMMA:
        return False
    tp.snd_cwnd = max(min(tp.snd_cwnd, tp.snd_cwnd * base // rtt + 1), 2)
    tp.snd_ssthresh = min(tp.snd_ssthresh, tp.snd_cwnd)
    return True


@jit
def vegas_step(s: Sim, i: int) -> None:
    """tcp_vegas_cong_avoid() beyond slow start: keep alpha to beta packets in the queue."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    base, rtt = f.ca_delay_min, f.ca_curr_rtt
    waiting = tp.snd_cwnd * (rtt - base) // base
    if waiting > _BETA:
        tp.snd_cwnd = max(tp.snd_cwnd - 1, 2)
        tp.snd_ssthresh = min(tp.snd_ssthresh, tp.snd_cwnd)
    elif waiting < _ALPHA:
        tp.snd_cwnd += 1


@jit
def vegas_round_done(s: Sim, i: int) -> None:
    """Forget the round's samples; tcp_current_ssthresh() keeps ssthresh near cwnd."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    tp.snd_ssthresh = max(tp.snd_ssthresh, (tp.snd_cwnd >> 1) + (tp.snd_cwnd >> 2))
    f.ca_samples = 0
