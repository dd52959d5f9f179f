"""What hands data to a sender: iperf3's cookie first, and then what its options say."""

from __future__ import annotations

from ....probes.base.jit import jit
from ..world.coming import schedule
from ..world.host_link import link_packet, wait_for_link
from ..world.path import send_syn
from ..world.places import Sim, event_of, flow_of, world_of
from ..world.processor import writing_ns
from ..world.world_records import (
    APP_BULK,
    APP_ON_OFF,
    APP_RATE,
    APP_SIZE,
    EV_APP,
    EV_START,
    EV_STOP,
    NS,
    SYN_SEQ,
    US,
)
from .estimator import EPOCH_NS, call_init
from .idle_restart import tcp_slow_start_after_idle_check
from .loss_based import loss_based_init
from .output import refresh_clock, tcp_write_xmit
from .rate_sample import at_us, tcp_rate_check_app_limited
from .timers import tcp_rtt_estimator
from .write_queue import begin_writing

BLOCK = 131_072  # bytes of one write
_ENDLESS = 1 << 60
_SYN_RETRIES = 6  # net.ipv4.tcp_syn_retries


@jit
def start_flow(s: Sim, i: int) -> None:
    """tcp_v4_connect(): the SYN goes, and after a second without an answer once more."""
    f, w = flow_of(s, i), world_of(s)
    if f.state:
        return
    if f.syns == 0 and f.stop_ns < w.end_ns:
        schedule(s, f.stop_ns, EV_STOP, i)
    schedule(s, w.now + (NS << min(f.syns, _SYN_RETRIES)), EV_START, i)
    f.syns += 1
    if w.host_bps:
        wait_for_link(s, link_packet(s, i, SYN_SEQ, 1))
    else:
        send_syn(s, i, w.now)


@jit
def open_flow(s: Sim, i: int) -> None:
    """The SYN is answered: the cookie goes, BBR begins, and data follow.

    The other end reads the cookie and says on the control connection that the test begins: that
    takes another round trip, and about half of one for the hosts, where it is not known.
    """
    f, w, tp = flow_of(s, i), world_of(s), event_of(s, i).tp
    if f.state:
        return  # an answer to a SYN sent again
    refresh_clock(s, i)
    rtt_us = (w.now - f.syn_stamp) // US
    f.min_rtt = rtt_us
    tcp_rtt_estimator(s, i, rtt_us)
    tp.delivered = 1  # the SYN
    f.first_tx = at_us(w.now)
    tp.delivered_mstamp = f.first_tx
    tp.tcp_wstamp_ns = EPOCH_NS + w.now
    f.acked_stamp = w.now - w.rtt_ns // 2
    f.rcv_space_time = w.now
    if f.cookie:
        f.written = 1
        tcp_write_xmit(s, i, 0)
    else:
        _leave_out_cookie(s, i)
    f.state = 1
    call_init(s, i)
    loss_based_init(s, i)
    usual_ns = rtt_us * US + (w.rtt_ns + f.extra_ns) // 2
    schedule(s, w.now + (f.begins_ns if f.begins_ns else usual_ns), EV_APP, i)


@jit
def _leave_out_cookie(s: Sim, i: int) -> None:
    """The sequence begins with the first full segment, on both sides."""
    f = flow_of(s, i)
    f.una = f.nxt = f.written = f.high_seq = 1
    f.rcv_nxt = f.rcv_wup = f.rcv_copied = 1
    f.wnd_end += 1
    f.rcv_right += 1


@jit
def application(s: Sim, i: int, kind: int) -> None:
    """Write what is due, and come back for more."""
    f, w = flow_of(s, i), world_of(s)
    refresh_clock(s, i)
    if kind == EV_STOP or w.now >= f.stop_ns:
        f.state = 3
        f.written = f.nxt
        return
    f.state = 2
    tcp_slow_start_after_idle_check(s, i)
    tcp_rate_check_app_limited(s, i)
    is_first = f.app == APP_BULK and f.written < _ENDLESS
    if f.app == APP_BULK:
        f.written = _ENDLESS
    elif f.app == APP_SIZE:
        f.written = f.app_segments
    elif f.app == APP_RATE:
        f.app_credit += BLOCK
        f.written += f.app_credit // w.mss
        f.app_credit %= w.mss
        schedule(s, w.now + f.app_bytes_ns, EV_APP, i)
    elif f.app == APP_ON_OFF:
        f.is_on = 1 - f.is_on
        f.written = _ENDLESS if f.is_on else f.nxt
        schedule(s, w.now + (f.on_ns if f.is_on else f.off_ns), EV_APP, i)
    if is_first and w.ack_ns:
        # tcp_push_one(): two segments go as soon as an skb is full, the rest once the buffer is.
        tcp_write_xmit(s, i, 1)
        schedule(s, w.now + writing_ns(s, f.version), EV_APP, i)
        return
    tcp_write_xmit(s, i, 0)
    if f.app == APP_BULK:
        begin_writing(s, i)
