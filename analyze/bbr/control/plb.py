"""Protective load balancing (net/ipv4/tcp_plb.c): another path after congested rounds (v3)."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import before, u32
from ..log import note
from ..params import Params
from ..records import Bbr, Log, Socket
from ..tcp import tcp_jiffies32


# v3 bbr_plb(); plb tcp_plb_update_state()
@jit
def tcp_plb_update_state(bbr: Bbr, ce_ratio: int, p: Params, log: Log) -> None:
    """Count rounds in a row whose CE ratio [1/256, -1: unknown] says congestion."""
    if not p.plb_enabled or ce_ratio < 0:
        return
    if ce_ratio < p.plb_cong_thresh:
        if bbr.plb_consec_cong_rounds:
            note(log, codes.PLB_CLEAR, ce_ratio)
        bbr.plb_consec_cong_rounds = 0
    elif bbr.plb_consec_cong_rounds < p.plb_rehash_rounds:
        rounds = (bbr.plb_consec_cong_rounds + 1) & 0x1F
        bbr.plb_consec_cong_rounds = rounds
        note(log, codes.PLB_CONGESTED_ROUND, rounds, ce_ratio)


# v3 bbr_plb(); plb tcp_plb_check_rehash()
@jit
def tcp_plb_check_rehash(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """Ask for another path (a new flow hash) after enough congested rounds; fewer if idle."""
    if not p.plb_enabled:
        return
    rounds = bbr.plb_consec_cong_rounds
    forced = rounds >= p.plb_rehash_rounds
    idle = (
        p.plb_idle_rehash_rounds != 0 and tp.packets_out == 0 and rounds >= p.plb_idle_rehash_rounds
    )
    if not forced and not idle:
        return
    # A pause that lies too far ahead is a wrapped clock, not a pause.
    max_suspend = 2 * p.plb_suspend_rto_sec * p.HZ
    if bbr.plb_pause_until and (
        not before(tcp_jiffies32(tp), bbr.plb_pause_until)
        or before(u32(tcp_jiffies32(tp) + max_suspend), bbr.plb_pause_until)
    ):
        bbr.plb_pause_until = 0
    if bbr.plb_pause_until:
        pause_until = bbr.plb_pause_until
        note(log, codes.PLB_PAUSED, rounds, pause_until)
        return
    bbr.plb_consec_cong_rounds = 0
    note(log, codes.PLB_REHASH, rounds)


# plb tcp_plb_update_state_upon_rto()
@jit
def tcp_plb_update_state_upon_rto(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """After an RTO, pause for one to two times suspend_rto_sec; the random part is recorded."""
    if not p.plb_enabled:
        return
    pause = u32(p.plb_suspend_rto_sec * p.HZ)
    tp.draws += 1
    pause_until = u32(tcp_jiffies32(tp) + pause + tp.rand_pause)
    bbr.plb_pause_until = pause_until
    bbr.plb_consec_cong_rounds = 0
    note(log, codes.PLB_PAUSE_RTO, pause_until)
