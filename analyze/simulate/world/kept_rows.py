"""What a world keeps for who asks afterwards: the recording, and samples of its queue and flows."""

from __future__ import annotations

from typing import Protocol

from ...bbr.records import record_of


class QueueRow(Protocol):
    """A sample of the queue."""

    at: int  # ns
    packets: int
    size: int
    sent: int
    dropped: int


class Reached(Protocol):
    """How far a flow has come at a full second."""

    rcv_nxt: int
    retrans_segs: int


class Out(Protocol):
    """A row of the recording, beyond the inputs and the state before the callback."""

    ns: int
    flow: int
    prior_mstamp: int
    is_retrans: int
    snd_us: int
    rcv_us: int
    una: int
    nxt: int
    high: int
    prior_lost: int
    prior_ce: int
    seq: int
    wnd: int


SAMPLE, REACHED, OUT = map(record_of, (QueueRow, Reached, Out))
