"""What the application has written and TCP has not sent yet: skbs, and the memory they take.

tcp_sendmsg() of net/ipv4/tcp.c, as iperf3 calls it: it writes until the send buffer is full, and
goes on when a third of it is free.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from ..world.places import Sim, event_of, flow_of, seg_of, world_of
from ..world.world_records import APP_BULK, CC_BBR

# So many bytes fit beside the largest header.
_SIZE_GOAL = 65_215
# tcp_sndbuf_expand(): headers and struct skb_shared_info, and struct sk_buff, of each segment;
# net.ipv4.tcp_wmem's third value; memory of an skb beside its data; TCP_INIT_CWND.
_MSS_OVERHEAD, _SK_BUFF, _WMEM, _SKB_OVERHEAD, _INIT_CWND = 640, 256, 4 << 20, 1280, 10
_PAIR = 2  # segments of an skb in flight, at the rates at which its memory matters


@jit
def _full_skb(s: Sim) -> int:
    """tcp_xmit_size_goal(): segments of a full skb."""
    return max(_SIZE_GOAL // world_of(s).mss, 1)


@jit
def _size_goal(s: Sim, i: int) -> int:
    """Segments of an skb written now: tcp_bound_to_half_wnd() of the largest window so far."""
    half = flow_of(s, i).max_window >> 1
    return max(min(_full_skb(s), half // world_of(s).mss), 1)


@jit
def _sndbuf(s: Sim, segments: int) -> int:
    """tcp_sndbuf_expand(): memory for so many segments, each a power of two and its struct."""
    memory = 1
    while memory < world_of(s).mss + _MSS_OVERHEAD:
        memory *= 2
    return min(segments * (memory + _SK_BUFF), _WMEM)


@jit
def _used(s: Sim, i: int) -> int:
    """sk_wmem_queued: what is in flight, and what is not sent."""
    f, mss = flow_of(s, i), world_of(s).mss
    in_flight, unsent = f.nxt - f.una, f.filled - f.nxt
    skbs = (in_flight + _PAIR - 1) // _PAIR + (unsent + f.goal - 1) // f.goal
    return (in_flight + unsent) * mss + skbs * _SKB_OVERHEAD


@jit
def _fill(s: Sim, i: int) -> None:
    """Write skbs until the buffer is full; the end of the last has PSH (tcp_push())."""
    f = flow_of(s, i)
    goal = _size_goal(s, i)
    if goal != f.goal:
        # What was written before keeps its size; between two sizes that wait, the later holds.
        f.next_goal = goal
        f.goal_until = f.filled if f.goal_until < f.nxt else f.goal_until
    while _used(s, i) < f.sndbuf:
        f.filled += goal


@jit
def begin_writing(s: Sim, i: int) -> None:
    """tcp_sendmsg() at first: cwnd has let some go, and what is sent while it is filled fills up.

    The buffer is that of a socket as it is connected, before iperf3 asks for BBR.
    """
    f = flow_of(s, i)
    f.goal = _size_goal(s, i)
    f.skb_end = f.nxt + f.goal
    f.filled = f.skb_end
    f.sndbuf = _sndbuf(s, 2 * _INIT_CWND)
    _fill(s, i)
    f.push_at = f.filled
    f.pushed_seq = 1


@jit
def write_more(s: Sim, i: int) -> None:
    """sk_stream_write_space(): the application goes on if a third of the buffer is free."""
    f = flow_of(s, i)
    if f.app != APP_BULK or f.goal == 0:
        return
    window = max(event_of(s, i).tp.snd_cwnd, _INIT_CWND)
    f.sndbuf = max(f.sndbuf, _sndbuf(s, (3 if f.cc == CC_BBR else 2) * window))
    if 3 * _used(s, i) <= 2 * f.sndbuf:
        _fill(s, i)


@jit
def in_head_skb(s: Sim, i: int) -> int:
    """tcp_send_head(): how many segments of it are left."""
    f = flow_of(s, i)
    if f.app != APP_BULK or f.goal == 0:
        full = _full_skb(s)
        return full - (f.nxt - 1) % full
    if f.nxt >= f.skb_end:
        if f.next_goal and f.nxt >= f.goal_until:
            f.goal, f.next_goal = f.next_goal, 0
        f.skb_end = f.nxt + f.goal
    return f.skb_end - f.nxt


@jit
def mark_push(s: Sim, i: int, end: int) -> None:
    """tcp_mark_push(): of what a write ends with, or fills the buffer with, or forced_push()."""
    f, mss = flow_of(s, i), world_of(s).mss
    if f.app == APP_BULK:
        if end != f.skb_end:
            return
        forced = (end - f.pushed_seq) * mss > f.max_window >> 1
        if end < f.push_at and not forced:
            return
        if end >= f.push_at:
            third = (f.sndbuf // 3 + f.goal * mss - 1) // (f.goal * mss)
            f.push_at = end + third * f.goal
        f.pushed_seq = end
    elif end < f.written:
        return
    bits = world_of(s).bits
    seg = seg_of(s, (i << bits) + ((end - 1) & ((1 << bits) - 1)))
    seg.push = 1
