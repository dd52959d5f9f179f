"""The path: random loss on a hop, one bottleneck with a queue, and a delay for ACKs.

The bottleneck is that of tbf (net/sched/sch_tbf.c): packets leave when the token bucket covers
their bytes on the wire. Its queue is a FIFO of so many packets or bytes, or none (a policer). ACKs
are delayed and never lost.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .coming import draw, draw_exponential, free_packet, schedule, take_packet
from .places import Sim, change_of, flow_of, packet_of, seg_of, world_of
from .world_records import (
    CHANGE_ACKS,
    CHANGE_DOWN,
    CHANGE_LOSS,
    CHANGE_OUTAGE,
    CHANGE_RATE,
    COOKIE,
    EV_ARRIVE,
    EV_CHANGE,
    EV_ENTER,
    EV_LINK,
    NS,
    SYN_OPTIONS,
    SYN_SEQ,
)

_PPB = 1_000_000_000
# How much later than the earliest an ACK comes [ns]: on average, in the recorded guests of kernels
# 6.1 and 6.12 (ack_ns); elsewhere at most.
_LATER_6_1, _LATER_6_12, _LATER_AT_MOST = 17_000, 2_500, 10_000
# What a hop does with a packet.
_LOST, _LATE, _AT_ONCE = 0, 1, 2


@jit
def enter_path(
    s: Sim, i: int, first: int, segments: int, ect: int, cwr: int, stamp: int, echo: int
) -> None:
    """Put the packets of one skb on the path; a hop loses or delays each, or the skb whole.

    `ect` is 1 where they may be marked; the first has the CWR flag if `cwr` is 1. `stamp` and
    `echo` are the timestamp option's, see Packet.
    """
    w, f = world_of(s), flow_of(s, i)
    f.sent_segs += segments
    mask = (1 << w.bits) - 1
    base = i << w.bits
    # tbf_enqueue(): what is larger than the bucket is segmented there.
    whole = w.whole_skbs and segments * (w.headers + w.mss) <= w.burst_bytes
    each, pieces = (segments, 1) if whole else (1, segments)
    fate = _fate(s)
    for piece in range(pieces):
        seq = first + piece
        if piece > 0 and not w.in_skbs:
            fate = _fate(s)
        if fate == _LOST:
            f.dropped += each
            continue
        k = take_packet(s)
        packet = packet_of(s, k)
        packet.flow = i
        packet.seq = seq
        packet.segments = each
        packet.size = each * (w.headers + w.mss) if seq else w.headers + COOKIE
        packet.stamp = stamp
        packet.echo = echo
        packet.ect = ect
        packet.ce = 0
        packet.cwr = cwr if seq == first else 0
        packet.push = seg_of(s, base + ((seq + each - 1) & mask)).push
        if fate == _LATE:
            schedule(s, w.now + w.reorder_ns, EV_ENTER, k)
        else:
            enter_queue(s, k)


@jit
def _fate(s: Sim) -> int:
    """Draw whether what comes to netem's hop is lost, waits for others, or goes on at once."""
    w = world_of(s)
    if w.loss_ppb and draw(s, _PPB) < w.loss_ppb:
        return _LOST
    if w.outage_until > w.now:
        return _LOST
    if w.reorder_ppb:
        share = w.reorder_again_ppb if w.overtook else w.reorder_ppb
        w.overtook = 1 if draw(s, _PPB) < share else 0
        return _AT_ONCE if w.overtook else _LATE
    return _AT_ONCE


@jit
def send_syn(s: Sim, i: int, stamp: int) -> None:
    """Put a SYN on the path, which was sent at `stamp` [ns]. It queues there as data do."""
    w = world_of(s)
    if w.outage_until > w.now or (w.loss_ppb and draw(s, _PPB) < w.loss_ppb):
        return
    k = take_packet(s)
    packet = packet_of(s, k)
    packet.flow = i
    packet.seq = SYN_SEQ
    packet.segments = 1
    packet.size = w.headers + SYN_OPTIONS
    packet.stamp = stamp
    packet.ect = packet.ce = packet.cwr = 0
    if w.reorder_ppb:
        schedule(s, w.now + w.reorder_ns, EV_ENTER, k)
    else:
        enter_queue(s, k)


@jit
def enter_queue(s: Sim, k: int) -> None:
    """A packet reaches the bottleneck: it is queued, or dropped."""
    w, packet = world_of(s), packet_of(s, k)
    if (w.down_until or w.resolved_at) and (is_cut_off(s, k) or _is_unresolved(s, k)):
        return
    full = w.limit_packets and w.queue_packets + packet.segments > w.limit_packets
    full = full or (w.limit_bytes and w.queue_bytes + packet.size > w.limit_bytes)
    if w.policer:
        full = w.queue_packets > 0 or _missing_tokens(s, packet.size) > 0
    if full:
        f = flow_of(s, packet.flow)
        f.dropped += packet.segments
        w.dropped_packets += packet.segments
        free_packet(s, k)
        return
    packet.entered = w.now
    packet.next = -1
    if w.queue_tail >= 0:
        last = packet_of(s, w.queue_tail)
        last.next = k
    else:
        w.queue_head = k
    w.queue_tail = k
    w.queue_packets += packet.segments
    w.queue_bytes += packet.size
    if not w.link_waits:
        send_from_queue(s)


@jit
def _missing_tokens(s: Sim, size: int) -> int:
    """Fill the bucket up to now; returns the ns until it covers `size` bytes, 0 if it does."""
    w = world_of(s)
    w.tokens_ns = min(w.burst_ns, w.tokens_ns + w.now - w.token_clock)
    w.token_clock = w.now
    return max(size * 8 * NS // w.rate_bps - w.tokens_ns, 0)


@jit
def _mark(s: Sim, k: int) -> None:
    """codel_dequeue(): mark what has queued for longer than ce_threshold.

    fq_codel within htb takes out what goes at once. Within tbf it takes out the next packet as soon
    as the one before has gone, since tbf_dequeue() peeks: qdisc_peek_dequeued() holds it.
    """
    w, packet = world_of(s), packet_of(s, k)
    if packet.entered < 0:
        return
    if w.ce_ns and packet.ect and w.now - packet.entered > w.ce_ns:
        packet.ce = 1
    packet.entered = -1


@jit
def send_from_queue(s: Sim) -> None:
    """Let go what the token bucket covers, and wait for the rest."""
    w = world_of(s)
    w.link_waits = 0
    while w.queue_head >= 0:
        k = w.queue_head
        packet = packet_of(s, k)
        if w.peeks:
            _mark(s, k)
        wait = _missing_tokens(s, packet.size)
        if wait > 0:
            w.link_waits = 1
            schedule(s, w.now + wait, EV_LINK, 0)
            return
        w.tokens_ns -= packet.size * 8 * NS // w.rate_bps
        w.queue_head = packet.next
        if w.queue_head < 0:
            w.queue_tail = -1
        w.queue_packets -= packet.segments
        w.queue_bytes -= packet.size
        w.sent_packets += packet.segments
        _mark(s, k)
        schedule(s, w.now, EV_ARRIVE, k)


@jit
def _empty_queue(s: Sim) -> None:
    """A link that goes down throws away what it has queued: dev_deactivate(), qdisc_reset()."""
    w = world_of(s)
    while w.queue_head >= 0:
        k = w.queue_head
        packet = packet_of(s, k)
        f = flow_of(s, packet.flow)
        f.dropped += packet.segments
        w.queue_head = packet.next
        free_packet(s, k)
    w.queue_tail = -1
    w.queue_packets = 0
    w.queue_bytes = 0


@jit
def _is_unresolved(s: Sim, k: int) -> bool:
    """Does the packet wait for ARP? Who was not asked for yet, or before the link was down, is."""
    w = world_of(s)
    if w.resolved_at < 0:
        w.resolved_at = w.now + w.rtt_ns
    if w.now >= w.resolved_at:
        return False
    schedule(s, w.resolved_at, EV_ENTER, k)
    return True


@jit
def is_cut_off(s: Sim, k: int) -> bool:
    """Is the link down for this packet, or was it while the packet was delayed? Then it is gone."""
    w, packet = world_of(s), packet_of(s, k)
    if packet.stamp >= w.down_until:
        return False
    free_packet(s, k)
    return True


@jit
def change_path(s: Sim) -> None:
    """Make the next change of the path, and schedule the one after it."""
    w = world_of(s)
    change = change_of(s, w.next_change)
    what, value = change.what, change.value
    if what == CHANGE_RATE:
        w.rate_bps = value
        w.burst_ns = w.burst_bytes * 8 * NS // value
        w.tokens_ns = min(w.tokens_ns, w.burst_ns)
    elif what == CHANGE_LOSS:
        w.loss_ppb = value
    elif what == CHANGE_OUTAGE:
        w.outage_until = w.now + value
    elif what == CHANGE_DOWN:
        w.down_until, w.resolved_at = w.now + value, -1
        _empty_queue(s)
    elif what == CHANGE_ACKS:
        w.acks_until = w.now + value
    else:
        w.rtt_ns = value
    w.next_change += 1
    if w.next_change < w.n_changes:
        schedule(s, change_of(s, w.next_change).at, EV_CHANGE, 0)


@jit
def ack_delay(s: Sim, i: int, host_ns: int) -> int:
    """When an ACK made now reaches the sender [ns]: never before one made earlier.

    `host_ns` is what hosts add.
    """
    w, f = world_of(s), flow_of(s, i)
    at = w.now + w.rtt_ns + f.extra_ns + host_ns
    if w.ack_ns:
        at += draw_exponential(s, _LATER_6_12 if f.grows else _LATER_6_1)
    else:
        at += draw(s, _LATER_AT_MOST)
    if w.jitter_ns:
        at += draw(s, 2 * w.jitter_ns) - w.jitter_ns
    if w.aggregate_ns:
        at = (at // w.aggregate_ns + 1) * w.aggregate_ns
    at = max(at, f.last_ack_out)
    f.last_ack_out = at
    return at
