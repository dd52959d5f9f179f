"""Round trips counted in packets: the round, the loss round, and rounds since the last probe."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import before
from ..log import note
from ..records import Bbr, Log, RateSample, Socket


# v2 bbr_update_round_start(); v3 bbr_update_round_start()
@jit
def bbr_update_round_start(bbr: Bbr, tp: Socket, rs: RateSample) -> None:
    """Set round_start if this ACK is the first of a packet sent after the last round began."""
    bbr.round_start = 0
    if rs.interval_us > 0 and not before(rs.prior_delivered, bbr.next_rtt_delivered):
        bbr.next_rtt_delivered = tp.delivered
        bbr.round_start = 1


@jit
def count_rounds_since_probe(bbr: Bbr) -> None:
    """One round more, in 8 bits that stay at their maximum (v2: bbr2_main(), v3: bbr_main())."""
    bbr.rounds_since_probe = min(bbr.rounds_since_probe + 1, 0xFF)


@jit
def start_loss_round(bbr: Bbr, tp: Socket, rs: RateSample, log: Log) -> None:
    """The loss round is over, and the next one begins: what this ACK tells of losses is of it."""
    bbr.loss_round_delivered = tp.delivered
    bbr.loss_round_start = 1
    loss_in_round = 1 if bbr.loss_in_round or rs.losses > 0 else 0
    note(log, codes.LOSSROUND_START, tp.delivered, loss_in_round)


# v2 bbr2_skb_marked_lost(); v3 bbr_note_loss()
@jit
def bbr_note_loss(bbr: Bbr, tp: Socket, log: Log) -> None:
    """Mark this round, and this cycle, as one with loss."""
    if not bbr.loss_in_round:
        bbr.loss_round_delivered = tp.delivered
        note(log, codes.LOSSROUND_MARK, tp.delivered)
    bbr.loss_in_round = 1
    bbr.loss_in_cycle = 1
