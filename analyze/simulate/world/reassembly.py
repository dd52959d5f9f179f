"""What a receiver has beyond a hole, and the SACK blocks that tell of it.

tcp_data_queue_ofo(), tcp_ofo_queue() and the list of SACK blocks, of net/ipv4/tcp_input.c.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .places import Sim, block_of, flow_of, got_of, world_of

_MOST_BLOCKS = 4


@jit
def _set_block(s: Sim, i: int, k: int, start: int, end: int) -> None:
    block = block_of(s, i, k)
    block.start = start
    block.end = end


@jit
def add_block(s: Sim, i: int, start: int, end: int) -> None:
    """tcp_sack_new_ofo_skb(): grow a block, or begin one, and put it first."""
    f = flow_of(s, i)
    kept = 0
    for k in range(f.ooo):  # take out what touches it
        block = block_of(s, i, k)
        b, e = block.start, block.end
        if b <= end and start <= e:
            start, end = min(start, b), max(end, e)
        else:
            _set_block(s, i, kept, b, e)
            kept += 1
    kept = min(kept, _MOST_BLOCKS - 1)
    for k in range(kept, 0, -1):
        block = block_of(s, i, k - 1)
        _set_block(s, i, k, block.start, block.end)
    _set_block(s, i, 0, start, end)
    f.ooo = kept + 1


@jit
def remove_blocks(s: Sim, i: int) -> None:
    """tcp_sack_remove(): blocks that rcv_nxt has passed."""
    f = flow_of(s, i)
    kept = 0
    for k in range(f.ooo):
        block = block_of(s, i, k)
        if block.end > f.rcv_nxt:
            _set_block(s, i, kept, block.start, block.end)
            kept += 1
    f.ooo = kept


@jit
def take_in(s: Sim, i: int, end: int) -> None:
    """tcp_queue_rcv() up to `end`, and tcp_ofo_queue(): what waited for it follows."""
    f, w = flow_of(s, i), world_of(s)
    if f.rcv_held == 0:
        f.rcv_nxt = end
        return
    base, mask = i << w.bits, (1 << w.bits) - 1
    while f.rcv_nxt < end or f.rcv_nxt <= f.rcv_high:
        got = got_of(s, base + (f.rcv_nxt & mask))
        if got.here:
            got.here = 0
            f.rcv_held -= 1
        elif f.rcv_nxt >= end:
            return
        f.rcv_nxt += 1


@jit
def hold(s: Sim, i: int, start: int, end: int) -> bool:
    """tcp_data_queue_ofo(): keep what is beyond a hole; False: all of it is known."""
    f, w = flow_of(s, i), world_of(s)
    base, mask = i << w.bits, (1 << w.bits) - 1
    held = f.rcv_held
    for seq in range(start, end):
        got = got_of(s, base + (seq & mask))
        if not got.here:
            got.here = 1
            f.rcv_held += 1
    return f.rcv_held > held
