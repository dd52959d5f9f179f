"""Steps that v2 and v3 (and partly v1) take alike: rounds, samples, DRAIN, gains, the cycle."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .inflight import (
    bbr_inflight,
    bbr_packets_in_net_at_edt,
)
from .ints import (
    BBR_UNIT,
    BW_UNIT,
    before,
    i64,
    u32,
    u64,
)
from .log import note
from .lower_bounds import bbr_reset_congestion_signals
from .model import bbr_bw, bbr_max_bw, tcp_packets_in_flight
from .pacing import bbr_set_pacing_rate
from .params import Params
from .phases import (
    bbr_start_bw_probe_down,
)
from .probe_rtt import bbr_check_probe_rtt_done
from .records import (
    BBR_BW_PROBE_UP,
    BBR_DRAIN,
    BBR_PROBE_BW,
    BBR_PROBE_RTT,
    BBR_STARTUP,
    Bbr,
    Log,
    RateSample,
    Socket,
)
from .v1_cycle import bbr_reset_probe_bw_mode


# tcp_bbr2.c bbr_update_round_start(); v1 does this in bbr_update_bw()
@jit
def bbr_update_round_start(bbr: Bbr, tp: Socket, rs: RateSample) -> None:
    bbr.round_start = 0
    if rs.interval_us > 0 and not before(rs.prior_delivered, bbr.next_rtt_delivered):
        bbr.next_rtt_delivered = tp.delivered
        bbr.round_start = 1


@jit
def count_rounds_since_probe(bbr: Bbr) -> None:
    bbr.rounds_since_probe = min(bbr.rounds_since_probe + 1, 0xFF)


# tcp_bbr2.c bbr_calculate_bw_sample(): rounded up, so that low rates can grow
@jit
def bbr_calculate_bw_sample(bbr: Bbr, rs: RateSample) -> None:
    rs.sample_bw = 0
    if rs.interval_us > 0 and rs.delivered < 0:  # the kernel warns and gives up
        return
    if rs.interval_us > 0:
        scaled = u64(u64(rs.delivered) * u64(BW_UNIT))
        scaled = u64(scaled + u64(rs.interval_us - 1))
        rs.sample_bw = u32(i64(scaled // u64(u32(rs.interval_us))))  # do_div: u32 divisor
    bbr.debug_rs_bw = rs.sample_bw


# tcp_bbr2.c bbr2_take_bw_hi_sample(), with the condition of its caller
@jit
def bbr_take_max_bw_sample(bbr: Bbr, rs: RateSample, p: Params, log: Log) -> None:
    max_bw = bbr_max_bw(bbr, p)
    if rs.is_app_limited and rs.sample_bw < max_bw:
        note(log, codes.BWHI_SKIP_APPLIMITED, rs.sample_bw, max_bw)
        return
    if rs.sample_bw > bbr.bw_hi[1]:
        bbr.bw_hi[1] = rs.sample_bw
        note(log, codes.BWHI_SAMPLE, rs.sample_bw, max_bw)


# tcp_bbr.c bbr_check_drain()
@jit
def bbr_check_drain(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    if bbr.mode == BBR_STARTUP and bbr.full_bw_reached:
        bbr.mode = BBR_DRAIN
        max_bw = bbr_max_bw(bbr, p)
        tp.snd_ssthresh = bbr_inflight(bbr, tp, max_bw, BBR_UNIT, p)
        note(log, codes.DRAIN_ENTER, tp.snd_ssthresh, max_bw)
        if p.version != 1:
            bbr_reset_congestion_signals(bbr, log)
    if bbr.mode != BBR_DRAIN:
        return
    in_net = bbr_packets_in_net_at_edt(bbr, tp, tcp_packets_in_flight(tp), p)
    target = bbr_inflight(bbr, tp, bbr_max_bw(bbr, p), BBR_UNIT, p)
    if in_net > target:
        note(log, codes.DRAIN_STAY, in_net, target)
        return
    note(log, codes.DRAIN_EXIT_DRAINED, in_net, target)
    if p.version == 1:
        bbr_reset_probe_bw_mode(bbr, tp, p, log)
    else:
        bbr.mode = BBR_PROBE_BW
        bbr_start_bw_probe_down(bbr, tp, p, log)
        note(log, codes.PBW_ENTER_DOWN, bbr.probe_wait_us, bbr.rounds_since_probe)


# tcp_bbr.c bbr_update_gains()
@jit
def bbr_update_gains(bbr: Bbr, p: Params) -> None:
    if bbr.mode == BBR_STARTUP:
        bbr.pacing_gain = p.high_gain
        bbr.cwnd_gain = p.startup_cwnd_gain
    elif bbr.mode == BBR_DRAIN:
        bbr.pacing_gain = p.drain_gain
        bbr.cwnd_gain = p.startup_cwnd_gain  # keep cwnd
    elif bbr.mode == BBR_PROBE_BW:
        bbr.pacing_gain = BBR_UNIT if bbr.lt_use_bw else p.pacing_gain[bbr.cycle_idx]
        bbr.cwnd_gain = p.cwnd_gain
        if p.bw_probe_cwnd_gain and bbr.cycle_idx == BBR_BW_PROBE_UP:  # v3
            bbr.cwnd_gain += BBR_UNIT * p.bw_probe_cwnd_gain // 4
    elif bbr.mode == BBR_PROBE_RTT:
        bbr.pacing_gain = BBR_UNIT
        bbr.cwnd_gain = BBR_UNIT


# tcp_bbr.c bbr_cwnd_event(): CA_EVENT_TX_START
@jit
def bbr_restart_from_idle(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    if not tp.app_limited:
        return
    bbr.idle_restart = 1
    bbr.ack_epoch_mstamp = tp.tcp_mstamp
    bbr.ack_epoch_acked = 0
    bw = bbr_bw(bbr, p)
    note(log, codes.IDLE_RESTART, bw)
    if bbr.mode == BBR_PROBE_BW:
        bbr_set_pacing_rate(bbr, tp, bw, BBR_UNIT, p, log)
    elif bbr.mode == BBR_PROBE_RTT:
        done_stamp = bbr.probe_rtt_done_stamp
        if bbr_check_probe_rtt_done(bbr, tp, p, log):
            note(log, codes.PRTT_EXIT_ON_TX_START, done_stamp)
