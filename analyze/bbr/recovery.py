"""What is saved when loss recovery begins, and given back when it was not needed."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .log import note
from .params import Params
from .records import BBR_PROBE_RTT, TCP_CA_RECOVERY, Bbr, Log, Socket


# tcp_bbr.c bbr_save_cwnd()
@jit
def bbr_save_cwnd(bbr: Bbr, tp: Socket, log: Log) -> None:
    old = bbr.prior_cwnd
    if bbr.prev_ca_state < TCP_CA_RECOVERY and bbr.mode != BBR_PROBE_RTT:
        bbr.prior_cwnd = tp.snd_cwnd  # this cwnd is good enough
        note(log, codes.PRIORCWND_SAVE, bbr.prior_cwnd, old)
    elif tp.snd_cwnd > old:
        bbr.prior_cwnd = tp.snd_cwnd
        note(log, codes.PRIORCWND_SAVE, bbr.prior_cwnd, old)
    else:
        note(log, codes.PRIORCWND_MAX, tp.snd_cwnd, old)


# tcp_bbr2.c bbr2_ssthresh(); v1's bbr_ssthresh() saves cwnd alone
@jit
def bbr_ssthresh(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    bbr_save_cwnd(bbr, tp, log)
    if p.version != 1:
        bbr.undo_bw_lo = bbr.bw_lo
        bbr.undo_inflight_lo = bbr.inflight_lo
        bbr.undo_inflight_hi = bbr.inflight_hi


# tcp_bbr2.c bbr2_undo_cwnd()
@jit
def bbr_undo_bounds(bbr: Bbr, log: Log) -> None:
    """Take back what the spurious recovery did to the bounds; v2 and v3."""
    bw_lo, inflight_lo, inflight_hi = bbr.bw_lo, bbr.inflight_lo, bbr.inflight_hi
    bbr.bw_lo = max(bw_lo, bbr.undo_bw_lo)
    bbr.inflight_lo = max(inflight_lo, bbr.undo_inflight_lo)
    bbr.inflight_hi = max(inflight_hi, bbr.undo_inflight_hi)
    if bbr.bw_lo != bw_lo:
        note(log, codes.BWLO_UNDO, bw_lo, bbr.bw_lo)
    if bbr.inflight_lo != inflight_lo:
        note(log, codes.LO_UNDO, bw_lo, bbr.bw_lo, inflight_lo, bbr.inflight_lo)
    if bbr.inflight_hi != inflight_hi:
        note(log, codes.HI_UNDO, inflight_hi, bbr.inflight_hi)
    else:
        note(log, codes.HI_UNDO_NOOP, inflight_hi, bbr.undo_inflight_hi)


@jit
def restore_cwnd(bbr: Bbr, tp: Socket, log: Log) -> None:
    """cwnd = max(cwnd, prior_cwnd) when recovery is over (v2 set_state; v3 exit_loss_recovery)."""
    old = tp.snd_cwnd
    tp.snd_cwnd = max(old, bbr.prior_cwnd)
    note(log, codes.RECOVERY_RESTORE, old, tp.snd_cwnd, bbr.prior_cwnd)


@jit
def tcp_undo_cwnd_reduction(tp: Socket, returned: int, log: Log) -> None:
    """tcp_input.c tcp_undo_cwnd_reduction() stores what ca_ops->undo_cwnd() returned."""
    if returned != tp.snd_cwnd:
        note(log, codes.CWND_UNDO, tp.snd_cwnd, returned)
    tp.snd_cwnd = returned
