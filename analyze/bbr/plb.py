"""Protective load balancing (net/ipv4/tcp_plb.c): another path after congested rounds (v3)."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .ints import before, u32
from .log import note
from .model import tcp_jiffies32
from .params import Params
from .records import Bbr, Log, Socket


# tcp_plb.c tcp_plb_update_state()
@jit
def tcp_plb_update_state(bbr: Bbr, cong_ratio: int, p: Params, log: Log) -> None:
    if not p.plb_enabled or cong_ratio < 0:
        return
    if cong_ratio < p.plb_cong_thresh:
        if bbr.plb_consec_cong_rounds:
            note(log, codes.PLB_CLEAR, cong_ratio)
        bbr.plb_consec_cong_rounds = 0
    elif bbr.plb_consec_cong_rounds < p.plb_rehash_rounds:
        bbr.plb_consec_cong_rounds = (bbr.plb_consec_cong_rounds + 1) & 0x1F
        note(log, codes.PLB_CONGESTED_ROUND, bbr.plb_consec_cong_rounds, cong_ratio)


# tcp_plb.c tcp_plb_check_rehash()
@jit
def tcp_plb_check_rehash(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
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
        note(log, codes.PLB_PAUSED, rounds, bbr.plb_pause_until)
        return
    bbr.plb_consec_cong_rounds = 0
    note(log, codes.PLB_REHASH, rounds)


# tcp_plb.c tcp_plb_update_state_upon_rto(); the random part comes from the recording
@jit
def tcp_plb_update_state_upon_rto(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    if not p.plb_enabled:
        return
    pause = u32(p.plb_suspend_rto_sec * p.HZ)
    tp.draws += 1
    bbr.plb_pause_until = u32(tcp_jiffies32(tp) + pause + tp.rand_pause)
    bbr.plb_consec_cong_rounds = 0
    note(log, codes.PLB_PAUSE_RTO, bbr.plb_pause_until)
