"""What is saved when loss recovery begins, and given back when it was not needed."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..log import note
from ..records import BBR_PROBE_RTT, TCP_CA_RECOVERY, Bbr, Log, Socket


# v1 bbr_save_cwnd(), bbr_ssthresh(); v2 bbr_save_cwnd(); v3 bbr_save_cwnd()
@jit
def bbr_save_cwnd(bbr: Bbr, tp: Socket, log: Log) -> None:
    """Save the last good cwnd, to be restored after recovery or PROBE_RTT."""
    old = bbr.prior_cwnd
    if (bbr.prev_ca_state < TCP_CA_RECOVERY and bbr.mode != BBR_PROBE_RTT) or tp.snd_cwnd > old:
        new = tp.snd_cwnd
        bbr.prior_cwnd = new
        note(log, codes.PRIORCWND_SAVE, new, old)
    else:
        note(log, codes.PRIORCWND_MAX, tp.snd_cwnd, old)


# v2 bbr2_ssthresh(); v3 bbr_ssthresh()
@jit
def save_undo_state(bbr: Bbr) -> None:
    """Save the bounds that a spurious recovery would have to give back."""
    bbr.undo_bw_lo = bbr.bw_lo
    bbr.undo_inflight_lo = bbr.inflight_lo
    bbr.undo_inflight_hi = bbr.inflight_hi


# v2 bbr2_undo_cwnd(); v3 bbr_undo_cwnd()
@jit
def undo_bounds(bbr: Bbr, log: Log) -> None:
    """Take back what the spurious recovery did to the bounds."""
    old_bw, old, old_hi = bbr.bw_lo, bbr.inflight_lo, bbr.inflight_hi
    new_bw = max(old_bw, bbr.undo_bw_lo)
    new = max(old, bbr.undo_inflight_lo)
    new_hi = max(old_hi, bbr.undo_inflight_hi)
    bbr.bw_lo = new_bw
    bbr.inflight_lo = new
    bbr.inflight_hi = new_hi
    if new_bw != old_bw:
        note(log, codes.BWLO_UNDO, old_bw, new_bw)
    if new != old:
        note(log, codes.LO_UNDO, old_bw, new_bw, old, new)
    _note_undo_hi(bbr, old_hi, new_hi, log)


@jit
def _note_undo_hi(bbr: Bbr, old: int, new: int, log: Log) -> None:
    if new != old:
        note(log, codes.HI_UNDO, old, new)
    else:
        note(log, codes.HI_UNDO_NOOP, bbr.inflight_hi, bbr.undo_inflight_hi)


# v2 bbr2_set_state(); v3 bbr_exit_loss_recovery()
@jit
def exit_loss_recovery(bbr: Bbr, tp: Socket, log: Log) -> None:
    """Recovery from a timeout is over: restore cwnd, and let the model bound it."""
    old = tp.snd_cwnd
    new = max(old, bbr.prior_cwnd)
    tp.snd_cwnd = new
    note(log, codes.RECOVERY_RESTORE, old, new, bbr.prior_cwnd)
    bbr.try_fast_path = 0
