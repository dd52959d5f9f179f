"""The receiver: when it acknowledges, what it SACKs, and how its window grows.

__tcp_ack_snd_check(), tcp_event_data_recv(), tcp_grow_window() and tcp_rcv_space_adjust(), of
net/ipv4/tcp_input.c. The application reads at once, but for `late_readers`.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .coming import draw, draw_exponential, free_packet, schedule, take_packet
from .path import ack_delay
from .places import Sim, block_of, flow_of, packet_of, world_of
from .reassembly import add_block, hold, remove_blocks, take_in
from .timestamps import timestamp_ms
from .world_records import COOKIE, ECN_NONE, ECN_PRECISE, EV_ACK, EV_DELACK, EV_OPEN, SYN_SEQ, US
from .world_setup import HOST_US

_QUICKACKS, _FEW_QUICKACKS = 16, 2
_ATO_NS = 40_000_000
# net.ipv4.tcp_comp_sack_nr, _delay_ns and _slack_ns.
_COMP_ACKS, _COMP_NS, _SLACK_NS = 44, 1_000_000, 100_000
_DUP_THRESH = 3
# What hosts add to a round trip: in the recorded guests (ack_ns) to that of a full segment, and of
# a cookie; elsewhere to that of either; and to a SYN's.
_HOST_NS, _COOKIE_NS, _OTHER_HOST_NS, _SYN_HOST_NS = HOST_US * US, 36_000, 56_000, 40_000
_WIRE_BLOCKS = 3  # with timestamps
# How long it takes for the application to be woken up and to read.
_READ_NS = 20_000
# Beside a recorder a segment so close behind another finds the CPU at work: in the captures it is
# read 55 us later, and later still if the recorder goes first: more often up to 6.5 (CFS).
_BEHIND_NS, _READ_BEHIND_NS = 60_000, 55_000
_PER_MILLE, _CFS_WAITS, _EEVDF_WAITS = 1000, 520, 90
_CFS_WAIT_NS, _EEVDF_WAIT_NS = 360_000, 250_000
# SKB_TRUESIZE() beyond the payload: MAX_TCP_HEADER, struct sk_buff, struct skb_shared_info.
SEGMENT_MEMORY = 896
# tcp_measure_rcv_mss(): 256 times payload over truesize, as the windows of v3's captures have it.
SCALING_RATIO = 153


@jit
def win_from_space(space: int, version: int) -> int:
    """tcp_win_from_space(): half of it; since 6.6 the share that payload has of truesize."""
    return space * SCALING_RATIO >> 8 if version == 3 else space >> 1


@jit
def _read(s: Sim, i: int) -> None:
    """The application has read what came before, if that was a while ago: tcp_recvmsg().

    What comes in one burst is read together.
    """
    f, w = flow_of(s, i), world_of(s)
    if f.rcv_nxt > f.rcv_copied and w.now - f.last_data_ns > _READ_NS:
        _adjust_space(s, i, f.last_data_ns + _READ_NS)


@jit
def _adjust_space(s: Sim, i: int, now: int) -> None:
    """tcp_rcv_space_adjust(): twice what was read in an RTT, and more while that grows."""
    f, w = flow_of(s, i), world_of(s)
    if f.rcv_rtt == 0 or now - f.rcv_space_time < (f.rcv_rtt >> 3) * US:
        return
    copied = (f.rcv_nxt - f.rcv_copied) * w.mss
    if f.rcv_copied == 0:
        copied -= w.mss - COOKIE
    if copied > f.rcv_space:
        window = 2 * copied + 16 * w.mss
        window += window * (copied - f.rcv_space) // f.rcv_space * 2
        memory = min(_memory_for(s, window, f.version), f.rmem_max)
        # What has just come is not read yet: tcp_space().
        free = win_from_space(memory - w.mss - SEGMENT_MEMORY, f.version)
        f.rcv_clamp = max(f.rcv_clamp, free)
        f.rcv_space = copied
    f.rcv_copied = f.rcv_nxt
    f.rcv_space_time = now


@jit
def _memory_for(s: Sim, window: int, version: int) -> int:
    """sk_rcvbuf for a window: tcp_space_from_win(); up to 6.5 that of so many whole segments."""
    if version == 3:
        return (window << 8) // SCALING_RATIO
    mss = world_of(s).mss
    memory = mss + SEGMENT_MEMORY
    while win_from_space(memory, version) < mss:
        memory += 128
    return window // mss * memory


@jit
def _measure_rtt(s: Sim, i: int, echo: int, full: bool) -> None:
    """tcp_rcv_rtt_measure_ts(), in ms as timestamps count; what is no full segment gives none."""
    f, w = flow_of(s, i), world_of(s)
    if echo < 0 or echo == f.ts_recent:
        return
    f.ts_recent = echo
    if full:
        _update_rtt(s, i, max(timestamp_ms(s, w.now) - timestamp_ms(s, echo), 1) * 1000, False)


@jit
def _update_rtt(s: Sim, i: int, sample: int, of_window: bool) -> None:
    """tcp_rcv_rtt_update() since b879dcb1aeec (6.16, 6.12.y, 6.1.y): a shorter one counts at once.

    How long a window took is an RTT at least, and raises nothing.
    """
    f = flow_of(s, i)
    if f.rcv_rtt == 0 or sample << 3 < f.rcv_rtt:
        f.rcv_rtt = sample << 3
    elif not of_window:
        f.rcv_rtt += sample - (f.rcv_rtt >> 3)


@jit
def _time_window(s: Sim, i: int) -> None:
    """tcp_rcv_rtt_measure(): how long a window takes to arrive."""
    f, w = flow_of(s, i), world_of(s)
    if f.rcv_rtt_time:
        if f.rcv_nxt < f.rcv_rtt_seq:
            return
        _update_rtt(s, i, max((w.now - f.rcv_rtt_time) // US, 1), True)
    f.rcv_rtt_seq = f.rcv_nxt + f.rcv_right - f.rcv_wup
    f.rcv_rtt_time = w.now


@jit
def _data_recv(s: Sim, i: int, segments: int, full: bool) -> None:
    """tcp_event_data_recv(): the ACK timeout, quick ACKs, and growth of the window."""
    f, w = flow_of(s, i), world_of(s)
    _time_window(s, i)
    if f.ato_ns == 0:
        f.quick = _QUICKACKS
        f.ato_ns = _ATO_NS
    elif w.now - f.last_data_ns > 200_000_000:
        f.quick = _QUICKACKS
    f.last_data_ns = w.now
    if full:
        _grow_window(s, i, segments)


@jit
def _space(s: Sim, i: int) -> int:
    """tcp_space(): the window that fits into what is left of the receive buffer."""
    f = flow_of(s, i)
    memory = f.rcv_held * (world_of(s).mss + SEGMENT_MEMORY)
    return max(f.rcv_clamp - win_from_space(memory, f.version), 0)


@jit
def _grow_window(s: Sim, i: int, segments: int) -> None:
    """tcp_grow_window(): up to the free space, which what waits for a hole takes from."""
    f, w = flow_of(s, i), world_of(s)
    room = _space(s, i) - f.rcv_ssthresh
    if room > 0:
        f.rcv_ssthresh += min(room, 2 * segments * w.mss)
        f.quick |= 1


@jit
def _accept_cwr(s: Sim, i: int) -> None:
    """tcp_ecn_accept_cwr(): the sender has reduced, and may have little in flight."""
    f = flow_of(s, i)
    f.demand_cwr = 0
    f.ack_now = 1


@jit
def _check_ecn(s: Sim, i: int, ect: int, ce: int) -> None:
    """tcp_ecn_check_ce(): classic echo; before it dctcp_ece_ack_update() where BBR asks for it."""
    f = flow_of(s, i)
    if f.ecn == ECN_NONE:
        return
    if not ect:
        f.quick = max(f.quick, _FEW_QUICKACKS)  # a retransmission
        return
    if f.ecn == ECN_PRECISE:
        if ce != f.ce_state:
            if f.delack_ns >= 0:
                f.demand_cwr = f.ce_state
                send_ack(s, i)  # what came before is answered with the old state
            f.ack_now = 1
        f.ce_state = f.demand_cwr = ce
    elif ce and not f.demand_cwr:
        f.quick = max(f.quick, _FEW_QUICKACKS)
        f.demand_cwr = 1


@jit
def _answer_syn(s: Sim, k: int) -> None:
    """tcp_v4_send_synack()."""
    packet = packet_of(s, k)
    i = packet.flow
    f = flow_of(s, i)
    f.syn_stamp = packet.stamp
    free_packet(s, k)
    schedule(s, ack_delay(s, i, _SYN_HOST_NS), EV_OPEN, i)


@jit
def data_arrives(s: Sim, k: int) -> None:
    """tcp_data_queue(): an skb in order, out of order, or known already."""
    packet = packet_of(s, k)
    if packet.seq == SYN_SEQ:
        _answer_syn(s, k)
        return
    i, seq, ce, echo, stamp = packet.flow, packet.seq, packet.ce, packet.echo, packet.stamp
    end = seq + packet.segments
    push, ect, cwr = packet.push, packet.ect, packet.cwr
    free_packet(s, k)
    f, w = flow_of(s, i), world_of(s)
    _read(s, i)
    if cwr:
        _accept_cwr(s, i)
    _measure_rtt(s, i, echo, seq > 0)
    if seq <= f.rcv_nxt < end:
        _check_ecn(s, i, ect, ce)
        f.ack_stamp = stamp if f.rcv_nxt == f.rcv_wup else f.ack_stamp
        if seq < f.rcv_nxt:
            f.d_s, f.d_e = seq, f.rcv_nxt
        had_holes = f.ooo > 0
        take_in(s, i, end)
        if had_holes:
            remove_blocks(s, i)
        behind = w.now - f.last_data_ns < _BEHIND_NS
        _data_recv(s, i, end - seq, seq > 0)
        f.pushed |= push
        if had_holes and f.ooo == 0:
            send_ack(s, i)  # RFC 5681 4.2: a gap is filled
            return
        _ack_snd_check(s, i)
        _cleanup_rbuf(s, i, behind)
    elif seq > f.rcv_nxt and hold(s, i, seq, end):
        _check_ecn(s, i, ect, ce)
        f.rcv_high = max(f.rcv_high, end - 1)
        add_block(s, i, seq, end)
        _grow_window(s, i, end - seq)
        _ack_snd_check(s, i)
    else:
        f.d_s, f.d_e = seq, end
        f.quick = _QUICKACKS
        send_ack(s, i)


@jit
def _ack_snd_check(s: Sim, i: int) -> None:
    """__tcp_ack_snd_check(): now, soon (compressed), or later (delayed)."""
    f, w = flow_of(s, i), world_of(s)
    if f.rcv_nxt - f.rcv_wup >= 2 or f.quick or f.ack_now:
        send_ack(s, i)
        return
    if f.ooo == 0:
        if f.delack_ns < 0:
            f.delack_ns = w.now + f.ato_ns
            schedule(s, f.delack_ns, EV_DELACK, i)
        return
    if f.comp_nxt != f.rcv_nxt:
        f.comp_nxt = f.rcv_nxt
        f.dup_acks = 0
    if f.dup_acks < _DUP_THRESH:
        f.dup_acks += 1
        send_ack(s, i)
    elif f.comp_acks >= _COMP_ACKS:
        send_ack(s, i)
    else:
        f.comp_acks += 1
        if f.comp_ns < 0:
            rtt_us = f.rcv_rtt >> 3
            # hrtimer_start_range_ns(): it fires at the end of its range.
            f.comp_ns = w.now + min(_COMP_NS, rtt_us * US // 20) + _SLACK_NS
            schedule(s, f.comp_ns, EV_DELACK, i)


@jit
def _cleanup_rbuf(s: Sim, i: int, behind: bool) -> None:
    """tcp_cleanup_rbuf(): the application has read all, and the last segment had PSH."""
    f, w = flow_of(s, i), world_of(s)
    if f.rcv_nxt == f.rcv_wup or not f.pushed:
        return
    if not (behind and w.late_readers):
        send_ack(s, i)
        return
    f.delack_ns = w.now + _READ_BEHIND_NS
    if draw(s, _PER_MILLE) < (_EEVDF_WAITS if f.grows else _CFS_WAITS):
        f.delack_ns += draw_exponential(s, _EEVDF_WAIT_NS if f.grows else _CFS_WAIT_NS)
    schedule(s, f.delack_ns, EV_DELACK, i)


@jit
def delayed_ack(s: Sim, i: int) -> None:
    """tcp_delack_timer_handler() and tcp_compressed_ack_kick(), unless disarmed in between."""
    f, w = flow_of(s, i), world_of(s)
    if (f.comp_ns >= 0 and f.comp_ns <= w.now) or (f.delack_ns >= 0 and f.delack_ns <= w.now):
        send_ack(s, i)


@jit
def send_ack(s: Sim, i: int) -> None:
    """tcp_send_ack(), with the window, up to three SACK blocks, and the timestamp echoed."""
    f, w = flow_of(s, i), world_of(s)
    k = take_packet(s)
    packet = packet_of(s, k)
    space = _space(s, i)
    if space < f.rcv_clamp >> 1:
        f.quick = 0  # __tcp_select_window()
    window = min(f.rcv_ssthresh, space)
    f.rcv_right = max(f.rcv_right, f.rcv_nxt + window // w.mss)
    packet.flow = i
    packet.ack = f.rcv_nxt
    packet.right = f.rcv_right
    packet.stamp = w.now
    packet.echo = f.ack_stamp
    packet.ece = f.demand_cwr
    _fill_blocks(s, i, k)
    f.rcv_wup = f.rcv_nxt
    f.delack_ns = -1
    f.comp_ns = -1
    f.comp_acks = 0
    f.pushed = 0
    f.ack_now = 0
    if f.quick:
        f.quick -= 1
    if w.acks_until > w.now:
        free_packet(s, k)
    else:
        recorded = _COOKIE_NS if f.rcv_nxt == 1 else _HOST_NS
        host_ns = recorded if w.ack_ns else _OTHER_HOST_NS
        schedule(s, ack_delay(s, i, host_ns), EV_ACK, k)


@jit
def _fill_blocks(s: Sim, i: int, k: int) -> None:
    """tcp_established_options(): up to three blocks, a D-SACK first, then the last changed."""
    f, packet = flow_of(s, i), packet_of(s, k)
    a, b, c = block_of(s, i, 0), block_of(s, i, 1), block_of(s, i, 2)
    packet.dsack = 1 if f.d_s >= 0 else 0
    packet.blocks = min(f.ooo + packet.dsack, _WIRE_BLOCKS)
    packet.s0, packet.e0 = (a.start, a.end) if f.ooo > 0 else (-1, -1)
    packet.s1, packet.e1 = (b.start, b.end) if f.ooo > 1 else (-1, -1)
    packet.s2, packet.e2 = (c.start, c.end) if f.ooo > 2 else (-1, -1)
    if packet.dsack:
        packet.s2, packet.e2 = packet.s1, packet.e1
        packet.s1, packet.e1 = packet.s0, packet.e0
        packet.s0, packet.e0 = f.d_s, f.d_e
        f.d_s = -1
