"""One CPU for all hosts, as in the guests that were recorded: what comes waits for its work.

Measured in the captures of 6.1 and 6.12: where an ACK waited for the one before it, cong_control()
is called 51 to 53 us after the call for that one. It is 77 us where the earlier ACK let one segment
go, 100 us where it let two go: the CPU brings these to the receiver first, 9 us apart. Most of an
ACK's time goes to the recorder, before TCP sends: the time that TCP sends by (tcp_mstamp_refresh())
is 36 us after the ACK came, 27 us under v1, whose struct is smaller. All these times grow with that
of an ACK (ack_ns); where it is 0, so are they.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .coming import schedule
from .places import Sim, world_of
from .world_records import EV_ACK, EV_ARRIVE, EV_PACE

# In thousandths of an ACK's time (51 us): until TCP sends; work on a segment that arrives, and
# until the next one may arrive; how long tcp_sendmsg() copies after the first skb, which goes at
# once, until the rest goes (88 us, 164 under v1).
_SENDS, _SENDS_V1, _SEGMENT, _APART, _WRITES, _WRITES_V1 = 706, 530, 460, 176, 1725, 3215


@jit
def waits(s: Sim, kind: int, argument: int) -> bool:
    """Put off what comes while the CPU works, and say whether that was so.

    A segment waits for the segment before it only.
    """
    w = world_of(s)
    if kind == EV_ARRIVE and w.now < w.arrives_at:
        schedule(s, w.arrives_at, kind, argument)
        return True
    if kind in (EV_PACE, EV_ACK) and w.now < w.cpu_until:
        schedule(s, w.cpu_until, kind, argument)
        return True
    return False


@jit
def work_on(s: Sim, kind: int) -> None:
    """Let the CPU begin to work on an ACK or a segment."""
    w = world_of(s)
    if kind == EV_ACK:
        w.cpu_until = w.now + w.ack_ns
    elif kind == EV_ARRIVE:
        w.cpu_until = max(w.cpu_until, w.now) + w.ack_ns * _SEGMENT // 1000
        w.arrives_at = w.now + w.ack_ns * _APART // 1000


@jit
def work_before_sending(s: Sim, version: int) -> None:
    """Let the time pass that lies between cong_control() and what TCP sends then."""
    w = world_of(s)
    w.now += w.ack_ns * (_SENDS_V1 if version == 1 else _SENDS) // 1000


@jit
def writing_ns(s: Sim, version: int) -> int:
    """Return how long the application copies what follows the first skb."""
    return world_of(s).ack_ns * (_WRITES_V1 if version == 1 else _WRITES) // 1000
