"""What is delivered while nothing is in flight, and so without a call of main()."""

from __future__ import annotations


def grew_idle(
    in_flight: int, events: int, prior_delivered: int, delivered: int, acked: int
) -> bool:
    """Tell whether tp.delivered had grown before what a call of main() acknowledged was sent.

    An ACK that comes while nothing is in flight calls no main(), and its D-SACK counts as delivered
    what was sent twice (tcp_input.c tcp_dsack_seen(), and no_queue in tcp_ack()). Of an ACK that a
    newer one overtook, which calls no main() either, nothing counts since Linux 5.9 (old_ack).

    Args:
        in_flight: tp.packets_out [packets] when the call of main() before began.
        events: calls of cwnd_event() since. There is one each time that a flow begins to send with
            nothing in flight: after a second one, an ACK in between may have gone unseen.
        prior_delivered, delivered, acked: rs.prior_delivered, tp.delivered and rs.acked_sacked
            [packets] of the call.
    """
    sent_at = (delivered - acked) & 0xFFFFFFFF
    return in_flight == 0 and events <= 1 and prior_delivered == sent_at
