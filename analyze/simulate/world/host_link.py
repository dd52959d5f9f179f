"""The sender's own link, where the path has one: a tbf on its device, before the first hop.

As the lab builds it, from whose senders what the bucket has room for goes in one piece; a larger
skb is segmented (tbf_segment()). The flows of a host, which are those of one extra round trip,
share it. Its queue has no limit: it is TCP that keeps it short (sender/small_queue.py).
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .coming import schedule, take_packet
from .places import Sim, flow_of, packet_of, world_of
from .world_records import COOKIE, EV_LEAVE, NS, SYN_OPTIONS, SYN_SEQ


@jit
def fits_link(s: Sim, segments: int) -> bool:
    """Does the bucket have room for an skb of so many full segments?"""
    w = world_of(s)
    return segments * (w.headers + w.mss) <= w.host_burst_bytes


@jit
def wait_for_link(s: Sim, k: int) -> None:
    """Put a packet at the end of the link's queue: EV_LEAVE comes when tokens cover it.

    Tokens come at one rate and are kept up to a bucket, so that this time is known at once.
    """
    w, packet = world_of(s), packet_of(s, k)
    host = flow_of(s, flow_of(s, packet.flow).host)
    first_at = max(w.now, host.link_clock)
    tokens = min(w.host_burst_ns, host.link_tokens_ns + first_at - host.link_clock)
    takes = packet.size * 8 * NS // w.host_bps
    wait = max(takes - tokens, 0)
    host.link_tokens_ns = tokens + wait - takes
    host.link_clock = first_at + wait
    schedule(s, host.link_clock, EV_LEAVE, k)


@jit
def link_packet(s: Sim, i: int, seq: int, segments: int) -> int:
    """A packet, or an skb in one piece, for the link's queue; returns its index."""
    w, k = world_of(s), take_packet(s)
    packet = packet_of(s, k)
    packet.flow = i
    packet.seq = seq
    packet.segments = segments
    packet.size = segments * (w.headers + w.mss)
    if seq == 0:
        packet.size = w.headers + COOKIE
    elif seq == SYN_SEQ:
        packet.size = w.headers + SYN_OPTIONS
    packet.stamp = w.now
    packet.echo = flow_of(s, i).acked_stamp
    packet.ect = 0
    packet.cwr = 0
    packet.skb = 0
    return k
