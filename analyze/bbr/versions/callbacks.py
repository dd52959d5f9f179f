"""What init and a restart from idle do alike in all three versions."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..control.pacing import bbr_init_pacing_rate_from_rtt, bbr_set_pacing_rate
from ..ints import i64
from ..kernel_units import BBR_UNIT
from ..log import note
from ..model.bandwidth import bbr_bw
from ..modes.startup import enter_startup
from ..params import Params
from ..records import BBR_PROBE_BW, BBR_PROBE_RTT, TCP_CA_OPEN, Bbr, Log, Socket
from ..tcp import tcp_jiffies32

TCP_INFINITE_SSTHRESH = 0x7FFFFFFF


# v1 bbr_init(); v2 bbr_init(); v3 bbr_init()
@jit
def init_common(bbr: Bbr, tp: Socket, min_rtt_us: int) -> None:
    """The fields of struct bbr that all versions set; `min_rtt_us` is tcp_min_rtt()."""
    enter_startup(bbr)
    bbr.prev_ca_state = TCP_CA_OPEN
    tp.snd_ssthresh = TCP_INFINITE_SSTHRESH
    bbr.next_rtt_delivered = tp.delivered
    bbr.min_rtt_us = min_rtt_us
    bbr.min_rtt_stamp = tcp_jiffies32(tp)
    bbr.probe_rtt_done_stamp = 0
    bbr.probe_rtt_round_done = 0
    bbr.packet_conservation = 0
    bbr.round_start = 0
    bbr.idle_restart = 0
    bbr.full_bw_reached = 0
    bbr.full_bw = 0
    bbr.full_bw_cnt = 0
    bbr.cycle_mstamp = 0
    bbr.cycle_idx = 0
    bbr.ack_epoch_mstamp = tp.tcp_mstamp
    bbr.ack_epoch_acked = 0
    bbr.extra_acked_win_rtts = 0
    bbr.extra_acked_win_idx = 0
    bbr.extra_acked[0] = 0
    bbr.extra_acked[1] = 0
    bbr.has_seen_rtt = 0


# v1 bbr_init(); v2 bbr_init(); v3 bbr_init()
@jit
def init_pacing(bbr: Bbr, tp: Socket, min_rtt_us: int, p: Params, log: Log) -> None:
    """The first pacing rate, which ends init."""
    bbr_init_pacing_rate_from_rtt(bbr, tp, p, log)
    note(log, codes.INIT, tp.snd_cwnd, min_rtt_us, i64(tp.sk_pacing_rate))


# v1 bbr_cwnd_event(); v2 bbr_cwnd_event(); v3 bbr_cwnd_event()
@jit
def restart_from_idle(bbr: Bbr, tp: Socket, p: Params, log: Log) -> bool:
    """CA_EVENT_TX_START; True if the flow is in PROBE_RTT, whose time may be up by now."""
    if not tp.app_limited:
        return False
    bbr.idle_restart = 1
    bbr.ack_epoch_mstamp = tp.tcp_mstamp
    bbr.ack_epoch_acked = 0
    bw = bbr_bw(bbr, p)
    note(log, codes.IDLE_RESTART, bw)
    if bbr.mode == BBR_PROBE_BW:
        bbr_set_pacing_rate(bbr, tp, bw, BBR_UNIT, p, log)
    return bbr.mode == BBR_PROBE_RTT
