"""One CPU for all hosts, as in the guests that were recorded: what comes waits for its work.

Measured in the captures of 6.1 and 6.12: cong_control() is called 51 to 53 us after the call before
if the ACK waited for it, 77 and 100 us if that one let one segment and two segments go: these pass
the link and reach the receiver first, 9 us apart. Most of an ACK's time is the recorder's, before
TCP sends: the clock that it sends by (tcp_mstamp_refresh()) is 36 us later, 27 us under v1, whose
struct is smaller. All of it is in proportion to the time of an ACK, and none where that is 0.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .coming import schedule
from .places import Sim, world_of
from .world_records import EV_ACK, EV_ARRIVE, EV_PACE

# In thousandths of an ACK's time (51 us): until TCP sends; a segment that arrives, and when the
# next may; what tcp_sendmsg() copies between the first skb, which goes at once, and the rest
# (88 us, 164 under v1).
_SENDS, _SENDS_V1, _SEGMENT, _APART, _WRITES, _WRITES_V1 = 706, 530, 460, 176, 1725, 3215


@jit
def waits(s: Sim, kind: int, argument: int) -> bool:
    """Does an event of this kind wait? Then it is put off; segments wait for segments only."""
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
    """The CPU begins with an ACK, or a segment."""
    w = world_of(s)
    if kind == EV_ACK:
        w.cpu_until = w.now + w.ack_ns
    elif kind == EV_ARRIVE:
        w.cpu_until = max(w.cpu_until, w.now) + w.ack_ns * _SEGMENT // 1000
        w.arrives_at = w.now + w.ack_ns * _APART // 1000


@jit
def work_before_sending(s: Sim, version: int) -> None:
    """Between cong_control() and what it lets go, time passes."""
    w = world_of(s)
    w.now += w.ack_ns * (_SENDS_V1 if version == 1 else _SENDS) // 1000


@jit
def writing_ns(s: Sim, version: int) -> int:
    """How long the application copies what follows the first skb."""
    return world_of(s).ack_ns * (_WRITES_V1 if version == 1 else _WRITES) // 1000
