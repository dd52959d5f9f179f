"""What BBR reads of TCP itself: packets in flight, the clock tick, and how TCP stores an undo.

include/net/tcp.h; the undo: net/ipv4/tcp_input.c.
"""

from __future__ import annotations

from ...probes.base.jit import jit
from . import codes
from .ints import u32
from .log import note
from .records import Log, Socket


# tcp tcp_packets_in_flight()
@jit
def tcp_packets_in_flight(tp: Socket) -> int:
    """Packets sent, neither SACKed nor marked lost, plus retransmissions."""
    return u32(tp.packets_out - (tp.sacked_out + tp.lost_out) + tp.retrans_out)


# tcp tcp_jiffies32()
@jit
def tcp_jiffies32(tp: Socket) -> int:
    """The clock tick. It is volatile: a tick may fall between two reads of one call.

    Reads up to `jiffies_split` see the value at entry, later ones the value at exit.
    """
    tp.jiffies_reads += 1
    if tp.jiffies_reads <= tp.jiffies_split:
        return tp.jiffies32
    return tp.jiffies32_late


# input tcp_undo_cwnd_reduction()
@jit
def tcp_undo_cwnd_reduction(tp: Socket, new: int, log: Log) -> None:
    """Store in snd_cwnd what the callback undo_cwnd() returned."""
    old = tp.snd_cwnd
    if new != old:
        note(log, codes.CWND_UNDO, old, new)
    tp.snd_cwnd = new
