"""TCP small queues: net/ipv4/tcp_output.c. How much of a flow may wait in its own host.

Only where the host's own link has a rate (world/host_link.py): else an skb leaves at once. Memory
is counted by truesize, as sk_wmem_alloc is, from when an skb is sent until it has left.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from ...bbr.ints import i64
from ..world.coming import free_packet
from ..world.host_link import fits_link, link_packet, wait_for_link
from ..world.path import enter_path, send_syn
from ..world.places import Sim, event_of, flow_of, packet_of, seg_of, world_of
from ..world.world_records import CC_BBR, COOKIE, SYN_SEQ

# SKB_TRUESIZE() of an skb's head, seen in kernels 6.1 and 6.12: kmalloc() makes 1024 of the 640
# bytes that MAX_TCP_HEADER and struct skb_shared_info need; skb_small_head_cache (6.3) has 704.
_HEAD_6_1, _HEAD_6_12 = 1280, 960
# net.ipv4.tcp_limit_output_bytes of both (4 MB since 6.16), which holds where nobody paces.
_LIMIT_OUTPUT = 1 << 20


@jit
def _truesize(s: Sim, i: int, first: int, segments: int) -> int:
    """tcp_stream_alloc_skb(), tcp_sendmsg(): memory of an skb, whose data are in pages."""
    f, mss = flow_of(s, i), world_of(s).mss
    data = segments * mss if first else (segments - 1) * mss + COOKIE
    return data + (_HEAD_6_12 if f.grows else _HEAD_6_1)


@jit
def _in_skb_of(s: Sim, i: int, seq: int) -> int:
    """tcp_rtx_queue: how many segments that are not acknowledged the skb of this one has."""
    f, bits = flow_of(s, i), world_of(s).bits
    base, mask = i << bits, (1 << bits) - 1
    skb, first, end = seg_of(s, base + (seq & mask)).skb, seq, seq + 1
    while first > f.una and seg_of(s, base + ((first - 1) & mask)).skb == skb:
        first -= 1
    while end < f.nxt and seg_of(s, base + (end & mask)).skb == skb:
        end += 1
    return end - first


@jit
def tcp_small_queue_check(s: Sim, i: int, first: int, segments: int, factor: int) -> bool:
    """True if too much waits in the host: tcp_wfree() then lets the sender go on.

    At most two skbs of this size or a millisecond at the pacing rate, twice (`factor` 1) for what
    is sent again. Without one, or with one skb that is not acknowledged it always goes.
    """
    f, tp = flow_of(s, i), event_of(s, i).tp
    limit = max(2 * _truesize(s, i, first, segments), i64(tp.sk_pacing_rate) >> tp.sk_pacing_shift)
    if f.cc != CC_BBR:  # SK_PACING_NONE
        limit = min(limit, _LIMIT_OUTPUT)
    # sk_wmem_alloc counts one more than there is.
    if f.wmem + 1 <= limit << factor:
        return False
    if tcp_rtx_queue_empty_or_single_skb(s, i):
        return False
    f.throttled = 1
    return True


@jit
def tcp_rtx_queue_empty_or_single_skb(s: Sim, i: int) -> bool:
    """Is one skb at most not acknowledged?"""
    f = flow_of(s, i)
    return f.una >= f.nxt or f.una + _in_skb_of(s, i, f.una) >= f.nxt


@jit
def skb_still_in_host_queue(s: Sim, i: int, seq: int) -> bool:
    """tcp_output.c: was the skb of this segment sent, and has not left? It is not sent again then.

    What tbf segments is no clone of it any more.
    """
    f, bits = flow_of(s, i), world_of(s).bits
    seg = seg_of(s, (i << bits) + (seq & ((1 << bits) - 1)))
    if seg.skb <= f.left_skb or not fits_link(s, _in_skb_of(s, i, seq)):
        return False
    f.throttled = 1
    return True


@jit
def queue_in_host(s: Sim, i: int, first: int, segments: int, ect: int, cwr: int) -> None:
    """The end of __tcp_transmit_skb(): the skb's memory counts, and it waits for the link."""
    f = flow_of(s, i)
    each, pieces = (segments, 1) if fits_link(s, segments) else (1, segments)
    for piece in range(pieces):
        seq = first + piece
        k = link_packet(s, i, seq, each)
        packet = packet_of(s, k)
        packet.ect = ect
        packet.cwr = cwr if piece == 0 else 0
        packet.skb = f.skb
        # tcp_gso_segment(): each of several has a head of its own.
        f.wmem += _truesize(s, i, seq, each)
        wait_for_link(s, k)


@jit
def tcp_wfree(s: Sim, k: int) -> bool:
    """What was first in the host's queue leaves. True if its flow waited for that.

    tcp_tsq_write() then follows at once: nothing delays the tasklet.
    """
    packet = packet_of(s, k)
    i, first, segments, skb = packet.flow, packet.seq, packet.segments, packet.skb
    ect, cwr, stamp, echo = packet.ect, packet.cwr, packet.stamp, packet.echo
    free_packet(s, k)
    if first == SYN_SEQ:
        send_syn(s, i, stamp)
        return False
    enter_path(s, i, first, segments, ect, cwr, stamp, echo)
    f = flow_of(s, i)
    f.wmem -= _truesize(s, i, first, segments)
    f.left_skb = skb
    waited = f.throttled == 1
    f.throttled = 0
    return waited
