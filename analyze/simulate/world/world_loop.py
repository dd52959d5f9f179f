"""The loop: take the next event, do it, until the run is over or the recording is full."""

from __future__ import annotations

from ....probes.base.jit import jit
from ..sender.ack import tcp_ack
from ..sender.application import application, open_flow, start_flow
from ..sender.fast_recovery import retransmit_timer, tcp_enter_recovery
from ..sender.output import (
    leave_host,
    pacing_timer,
    refresh_clock,
    tcp_send_loss_probe,
    tcp_xmit_retransmit_queue,
)
from ..sender.rack import tcp_rack_detect_loss
from ..sender.timers import tcp_rearm_rto
from .coming import draw, draw_exponential, drop_first, schedule
from .path import change_path, enter_queue, is_cut_off, send_from_queue
from .places import Sim, coming_of, event_of, flow_of, reached_of, sample_of, world_of
from .processor import waits, work_on
from .receiver import data_arrives, delayed_ack
from .world_records import (
    EV_ACK,
    EV_APP,
    EV_ARRIVE,
    EV_BUSY,
    EV_CHANGE,
    EV_DELACK,
    EV_ENTER,
    EV_LEAVE,
    EV_LINK,
    EV_OPEN,
    EV_PACE,
    EV_SAMPLE,
    EV_START,
    EV_STOP,
    EV_TIMER,
    TIMER_NONE,
    TIMER_REO,
    TIMER_RTO,
    TIMER_TLP,
)

SAMPLE_NS = 100_000_000
# What waits while hosts are busy.
_OF_HOSTS = (EV_PACE, EV_ACK, EV_ARRIVE, EV_LINK, EV_LEAVE)
# Where no recording says how busy hosts are: at most so long, on average so often.
_BUSY_NS, _BUSY_EVERY_NS = 800_000, 60_000_000
_FINE = 1000
_SAMPLES_PER_SECOND = 10
# Rows of the recording that one event can fill: a recovery of a whole window.
SPARE_ROWS = 4096


@jit
def _timer(s: Sim, i: int, due: int) -> None:
    """The flow's timer, if it is due; else it was put off, and is waited for again."""
    f, w = flow_of(s, i), world_of(s)
    if due != f.timer_event_ns:
        return  # another event, for an earlier time, took its place
    f.timer_event_ns = -1
    if f.timer == TIMER_NONE or (f.state == 3 and event_of(s, i).tp.packets_out == 0):
        return
    if f.timer_ns > w.now:
        f.timer_event_ns = f.timer_ns
        schedule(s, f.timer_ns, EV_TIMER, i)
        return
    kind = f.timer
    f.timer = TIMER_NONE
    if kind == TIMER_RTO:
        retransmit_timer(s, i)
    elif kind == TIMER_TLP:
        f.timer = TIMER_TLP
        tcp_send_loss_probe(s, i)
    elif kind == TIMER_REO:
        _reorder_timeout(s, i)


@jit
def _reorder_timeout(s: Sim, i: int) -> None:
    """tcp_rack_reo_timeout()."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    refresh_clock(s, i)
    tcp_rack_detect_loss(s, i)
    if tp.lost_out > tp.retrans_out:
        if tp.icsk_ca_state != 3:
            tcp_enter_recovery(s, i, False)
        tcp_xmit_retransmit_queue(s, i)
    f.timer = TIMER_REO
    tcp_rearm_rto(s, i)


@jit
def _sample(s: Sim) -> None:
    """Note the queue's length, and at full seconds how far each flow has come."""
    w = world_of(s)
    if w.sampled < w.n_samples:
        sample = sample_of(s, w.sampled)
        sample.at = w.now
        sample.packets = w.queue_packets
        sample.size = w.queue_bytes
        sample.sent = w.sent_packets
        sample.dropped = w.dropped_packets
        w.sampled += 1
        if w.sampled % _SAMPLES_PER_SECOND == 0:
            _note_reached(s, (w.sampled // _SAMPLES_PER_SECOND - 1) * w.n_flows)
    schedule(s, w.now + SAMPLE_NS, EV_SAMPLE, 0)


@jit
def _note_reached(s: Sim, first: int) -> None:
    w = world_of(s)
    for i in range(w.n_flows):
        f, row = flow_of(s, i), reached_of(s, first + i)
        row.rcv_nxt = f.rcv_nxt
        row.retrans_segs = f.retrans_segs


@jit
def _busy(s: Sim) -> None:
    """The machine does something else for a while; what is due then waits for its end.

    When the run begins, hosts are idle.
    """
    w = world_of(s)
    begun = w.now > 0
    if w.busy_every_ns:
        if begun:
            w.busy_until = max(w.busy_until, w.now + draw_exponential(s, w.busy_ns))
        schedule(s, w.now + draw_exponential(s, w.busy_every_ns), EV_BUSY, 0)
        return
    if begun:
        w.busy_until = w.now + draw(s, _BUSY_NS) * draw(s, _FINE) // _FINE
    schedule(s, w.now + draw(s, 2 * _BUSY_EVERY_NS), EV_BUSY, 0)


@jit
def run(s: Sim) -> int:
    """Run to the end: 0; or until the recording must be emptied: 1; or an array is too small: 2."""
    w = world_of(s)
    room = w.n_out - SPARE_ROWS
    while w.heap_size > 0:
        if w.record and w.recorded >= room:
            return 1
        first = coming_of(s, 0)
        at, kind, argument = first.at, first.kind, first.argument
        if at >= w.end_ns:
            w.now = w.end_ns
            return 0
        drop_first(s)
        # What came while work_before_sending() went on is due already.
        due, at = at, max(at, w.now)
        w.now = at
        if at < w.busy_until and kind in _OF_HOSTS:
            schedule(s, w.busy_until, kind, argument)
            continue
        if w.down_until and kind in (EV_ACK, EV_ARRIVE) and is_cut_off(s, argument):
            continue
        if w.ack_ns:
            if waits(s, kind, argument):
                continue
            work_on(s, kind)
        _do(s, kind, argument, due)
        if w.overflow:
            return 2
    return 0


@jit
def _do(s: Sim, kind: int, argument: int, due: int) -> None:
    if kind == EV_ACK:
        tcp_ack(s, argument)
    elif kind == EV_ARRIVE:
        data_arrives(s, argument)
    elif kind == EV_LINK:
        send_from_queue(s)
    elif kind == EV_PACE:
        pacing_timer(s, argument)
    elif kind == EV_TIMER:
        _timer(s, argument, due)
    elif kind == EV_DELACK:
        delayed_ack(s, argument)
    elif kind == EV_ENTER:
        enter_queue(s, argument)
    elif kind in (EV_APP, EV_STOP):
        application(s, argument, kind)
    elif kind == EV_START:
        start_flow(s, argument)
    elif kind == EV_OPEN:
        open_flow(s, argument)
    elif kind == EV_SAMPLE:
        _sample(s)
    elif kind == EV_CHANGE:
        change_path(s)
    elif kind == EV_BUSY:
        _busy(s)
    elif kind == EV_LEAVE:
        leave_host(s, argument)
