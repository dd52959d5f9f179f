"""What BBR believes of the path: max_bw, bw, extra_acked; and what TCP says of its flight."""

from __future__ import annotations

from ...collect.jit import inline
from .ints import u32
from .params import Params
from .records import Bbr, Socket


@inline
def tcp_packets_in_flight(tp: Socket) -> int:
    """Packets sent, neither SACKed nor marked lost, plus retransmissions (include/net/tcp.h)."""
    return u32(tp.packets_out - (tp.sacked_out + tp.lost_out) + tp.retrans_out)


@inline
def bbr_max_bw(bbr: Bbr, p: Params) -> int:
    """Windowed maximum of the bandwidth samples [pkts/us << 24]."""
    if p.version == 1:
        return bbr.bw_v[0]  # minmax_get()
    return max(bbr.bw_hi[0], bbr.bw_hi[1])


@inline
def bbr_bw(bbr: Bbr, p: Params) -> int:
    """The bandwidth to send at, before gains [pkts/us << 24]."""
    if p.version == 1:
        return bbr.lt_bw if bbr.lt_use_bw else bbr_max_bw(bbr, p)
    return min(bbr_max_bw(bbr, p), bbr.bw_lo)


@inline
def bbr_extra_acked(bbr: Bbr) -> int:
    """Largest excess of ACKed data over the last one to two windows [packets]."""
    return max(bbr.extra_acked[0], bbr.extra_acked[1])


@inline
def tcp_jiffies32(tp: Socket) -> int:
    """The clock tick. It is volatile: a tick may fall between two reads of one call.

    Reads up to `jiffies_split` see the value at entry, later ones the value at exit.
    """
    tp.jiffies_reads += 1
    if tp.jiffies_reads <= tp.jiffies_split:
        return tp.jiffies32
    return tp.jiffies32_late
