"""The call of main() that a connection had before its init, where its numbers go on from another's.

The kernel may skip the probe that tells of a socket's end. The next connection at that address is
then known by its init alone, and main(), which had run for the SYN's ACK before (tcp_input.c
tcp_rcv_synsent_state_process(), tcp_ack()), stands behind the events of the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .loop.column_plan import I64, TARGETS
from .loop.loop_memory import (
    B_FLOW,
    B_KIND,
    B_SEEN,
    F_BEFORE,
    F_PRE_INIT,
    INIT,
    MAIN,
    Batch,
)


def begun_by_numbers(batch: Batch, count: int, flows: I64) -> list[tuple[int, int]]:
    """Return slot and flow of each init among `count` slots whose numbers go on from another's."""
    inits = np.flatnonzero(batch.slots[:count, B_KIND] == INIT)
    its = batch.slots[inits, B_FLOW]
    late = flows[its, F_BEFORE] > 0
    return list(zip(inits[late].tolist(), its[late].tolist(), strict=True))


def give_beginning(
    batch: Batch, slot: int, flow: int, whole: int, offsets: Mapping[str, int], flows: I64
) -> None:
    """Give the flow that the init in `slot` begins the call of main() before it, if it is its own.

    Args:
        whole: bits of the parts of a whole call of main().
        offsets: byte offset of each stored column that such a call has.

    That call ran on a zeroed struct bbr, which no flow has after its init.
    """
    slots = batch.slots
    before = slots[:slot, B_FLOW] == flows[flow, F_BEFORE] - 1
    earlier = np.flatnonzero(before & (slots[:slot, B_KIND] >= 0))
    if not len(earlier):
        return
    last = int(earlier[-1])
    if slots[last, B_KIND] != MAIN or slots[last, B_SEEN] != whole:
        return
    for name, offset in offsets.items():
        at = offset + TARGETS[name] * last
        if name.startswith("bbr_") and batch.u1[at : at + TARGETS[name]].any():
            return
    slots[last, B_FLOW] = flow
    flows[flow, F_PRE_INIT] += 1
