"""Calls that a recording lacks: what else it recorded shows that the kernel made them.

Each sign names the call, and the fields which that call may write (written_fields.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..bbr.records import (
    BBR_PROBE_RTT,
    CA_EVENT_ECN_IS_CE,
    CA_EVENT_ECN_NO_CE,
    CA_EVENT_LOSS,
    CA_EVENT_TLP_RECOVERY,
    CA_EVENT_TX_START,
    CA_STATES,
    CHECK_CWND,
    CWND_EVENT,
    INIT,
    MAIN,
    SET_STATE,
    SKB_MARKED_LOST,
    SSTHRESH,
    STATE_COLUMNS,
    TCP_CA_CWR,
    TCP_CA_LOSS,
)
from . import written_fields as writes
from .elsewhere import DELIVERY_COLUMNS, Delivery, Elsewhere
from .passes import Array
from .prepare import FlowEvents

_U32 = 0xFFFFFFFF


@dataclass(frozen=True)
class Sign:
    """A call seems to be missing between event `index` and the next one.

    Attributes:
        kind, detail: see `gaps.Gap`.
        explains: columns of struct bbr and outputs that the call may have written.
    """

    index: int
    kind: str
    detail: str
    explains: frozenset[str]


def missing_calls(flow: FlowEvents, version: str, elsewhere: Elsewhere) -> Iterator[Sign]:
    """Yield every sign that a call is missing; a link between two events may have several.

    Where others of the flow follow, those of the last three links are not found.
    """
    if not len(flow.events):
        return
    yield from _main(flow, version, elsewhere)
    yield from _set_state(flow, version)
    yield from _timeout(flow, version)
    if version != "v1":
        yield from _skb_marked_lost(flow, version)
    yield from missing_saves(flow, version)
    yield from missing_events(flow, version, elsewhere.unannounced)
    # Inside one ACK, states may come and go: no counter shows it, what ssthresh() saved does.
    if elsewhere.saves_missing:
        yield from _saved(flow, version, elsewhere.events_missing)
    yield from _undo_cwnd(flow, version, elsewhere.reduced)


def missing_events(flow: FlowEvents, version: str, unannounced: bool) -> Iterator[Sign]:
    """Yield the signs of a missing cwnd_event(); `unannounced`: see `Elsewhere`."""
    yield from _ecn_event(flow, version)
    yield from _tx_start(flow, version, unannounced)
    yield from _tlp_recovery(flow, version)


def call_places(flow: FlowEvents) -> Array:
    """Indices of the calls of main() and init()."""
    kind = flow.columns["kind"]
    return np.flatnonzero((kind == MAIN) | (kind == INIT))


def _main(flow: FlowEvents, version: str, elsewhere: Elsewhere) -> Iterator[Sign]:
    """tp.delivered grows by rs.acked_sacked from one main() to the next, and from init() on.

    Whatever else the ACK called before main() may be missing with it.
    """
    explains = writes.written_by_callbacks(version)
    if elsewhere.delivered:
        detail = f"tp.delivered grew by {elsewhere.delivered}, and no main() was recorded"
        for link in range(len(flow.events) - 1):
            yield Sign(link, "missing_main", detail, explains)
    places = call_places(flow)
    found = [flow.columns[name][places].astype(np.int64) for name in DELIVERY_COLUMNS]
    before, after = _table(elsewhere.before), _table(elsewhere.after)
    kinds, delivered, acked = np.concatenate([before, np.stack(found, 1), after]).T
    ends = [*[0] * len(before), *places.tolist(), *[len(flow.events)] * len(after)]
    grown = np.diff(delivered) & _U32
    for jump in np.flatnonzero((grown != acked[1:]) & (kinds[1:] == MAIN)).tolist():
        since = "init() and main()" if kinds[jump] == INIT else "two main() calls"
        detail = (
            f"tp.delivered grew by {grown[jump]} between {since}, "
            f"rs.acked_sacked says {acked[jump + 1]}"
        )
        for link in range(ends[jump], ends[jump + 1]):
            yield Sign(link, "missing_main", detail, explains)


def _table(call: Delivery | None) -> Array:
    """A call that may be there as rows of its numbers."""
    return np.array([call] if call else [], np.int64).reshape(-1, len(DELIVERY_COLUMNS))


def _set_state(flow: FlowEvents, version: str) -> Iterator[Sign]:
    """icsk_ca_state changes through set_state only; tcp_enter_loss() calls it after its event.

    Before it, tcp_enter_loss() collapses snd_cwnd.
    """
    before, after = _ca_states(flow)
    explains = writes.written_by(version, writes.SET_STATE) | {"snd_cwnd"}
    for i in np.flatnonzero(after[:-1] != before[1:]):
        detail = f"icsk_ca_state went from {after[i]} to {before[i + 1]} without set_state"
        yield Sign(int(i), "missing_set_state", detail, explains)
    is_loss = is_event(flow, CA_EVENT_LOSS)[:-1]
    for i in np.flatnonzero(is_loss & (flow.columns["kind"][1:] != SET_STATE)):
        detail = "no set_state(Loss) after cwnd_event(LOSS)"
        yield Sign(int(i), "missing_set_state", detail, explains)


def _timeout(flow: FlowEvents, version: str) -> Iterator[Sign]:
    """tcp_enter_loss() calls ssthresh() and set_state(Loss), in that state already, too.

    It shows in snd_cwnd, which becomes one more than what is in flight, or in prev_ca_state, which
    nothing else makes Loss while no ACK came in that state.
    """
    columns = flow.columns
    before, after = _ca_states(flow)
    remembered = _state(flow, "bbr_prev_ca_state")
    unseen = (remembered[1:] == TCP_CA_LOSS) & (remembered[:-1] != TCP_CA_LOSS)
    unseen &= (before[:-1] != TCP_CA_LOSS) & (after[:-1] != TCP_CA_LOSS)
    cwnd, flight = columns["tp_snd_cwnd"].astype(np.int64), _in_flight(flow)
    collapsed = (cwnd == flight + 1) & (columns["tp_packets_out"] > 0) & (before == TCP_CA_LOSS)
    # Sending begins after set_state(Loss), and ends up lost before the next.
    again = collapsed[1:] & is_event(flow, CA_EVENT_TX_START)[1:]
    known = (columns["kind"] == SET_STATE) & (after == TCP_CA_LOSS)
    again &= ~known[:-1] | (growth(flow, "tp_lost") > 0)
    explains = writes.written_by(version, writes.SET_STATE) | {"snd_cwnd"}
    explains |= writes.written_by(version, writes.SSTHRESH[version])
    for i in np.flatnonzero(unseen | again):
        detail = "a retransmission timeout without set_state(Loss)"
        yield Sign(int(i), "missing_set_state", detail, explains)


def _skb_marked_lost(flow: FlowEvents, version: str) -> Iterator[Sign]:
    """tp.lost grows with each skb_marked_lost (which sees it grown already), and only then."""
    columns = flow.columns
    grown = growth(flow, "tp_lost")
    segments = columns["skb_gso_segs"].astype(np.int64)
    expected = np.where(columns["kind"] == SKB_MARKED_LOST, segments, 0)[1:]
    explains = writes.written_by(version, writes.SKB_MARKED_LOST)
    for i in np.flatnonzero(grown != expected):
        detail = f"tp.lost grew by {grown[i]}, the recorded losses explain {expected[i]}"
        yield Sign(int(i), "missing_loss", detail, explains)


def missing_saves(flow: FlowEvents, version: str) -> Iterator[Sign]:
    """Yield the signs of a missing ssthresh(): states from CWR on are entered through it only.

    tcp_init_cwnd_reduction() calls it right before set_state, tcp_enter_loss() before its event.
    """
    kind = flow.columns["kind"]
    before, after = _ca_states(flow)
    is_loss = is_event(flow, CA_EVENT_LOSS)
    # The event before which ssthresh() was called, and what was called next.
    rises = (before[1:] < TCP_CA_CWR) & (np.maximum(before, after)[1:] >= TCP_CA_CWR)
    rises |= (after[:-1] < TCP_CA_CWR) & (before[1:] >= TCP_CA_CWR)
    reached = np.flatnonzero((rises & ~is_loss[:-1]) | is_loss[1:])
    explains = writes.written_by(version, writes.SSTHRESH[version])
    for i in reached[kind[reached] != SSTHRESH]:
        state = max(int(before[i + 1]), int(after[i + 1]))
        name = CA_STATES[state] if state < len(CA_STATES) else str(state)
        what = "cwnd_event(LOSS)" if is_loss[i + 1] else f"state {name}"
        yield Sign(int(i), "missing_ssthresh", f"no ssthresh() before {what}", explains)


def _ecn_event(flow: FlowEvents, version: str) -> Iterator[Sign]:
    """The receiver's CE state changes through cwnd_event only, which keeps tp.rcv_nxt of its time.

    That lies between those of the events before and after it.
    """
    columns = flow.columns
    received = columns["tp_rcv_nxt"].astype(np.int64)
    remembered, state = _state(flow, "bbr_prior_rcv_nxt"), _state(flow, "bbr_ce_state")
    between = (remembered[1:] - received[:-1]) & _U32 <= growth(flow, "tp_rcv_nxt")
    is_ecn = is_event(flow, CA_EVENT_ECN_IS_CE) | is_event(flow, CA_EVENT_ECN_NO_CE)
    left = np.where(is_ecn, received, remembered)
    left_state = np.where(is_ecn, columns["event"] == CA_EVENT_ECN_IS_CE, state)
    changed = (remembered[1:] != left[:-1]) | (state[1:] != left_state[:-1])
    explains = writes.written_by(version, writes.ECN_EVENT)
    for i in np.flatnonzero(changed & between):
        detail = "the receiver's CE state changed without cwnd_event"
        yield Sign(int(i), "missing_cwnd_event", detail, explains)


def _tx_start(flow: FlowEvents, version: str, unannounced: bool) -> Iterator[Sign]:
    """What is sent while nothing is in flight is announced by cwnd_event(TX_START).

    It was in flight at the event after, or when the next ACK came, or was marked lost.
    """
    columns, flight = flow.columns, _in_flight(flow)
    kind, told = columns["kind"], is_event(flow, CA_EVENT_TX_START)
    lost = growth(flow, "tp_lost")
    in_flight = (flight[1:] > 0) | _acked_unannounced(flow, told, unannounced)[1:]
    sent = (flight[:-1] == 0) & (in_flight | (kind[1:] == SKB_MARKED_LOST))
    sent |= (lost > 0) & (flight[:-1] <= lost) & in_flight
    idle = writes.written_by(version, writes.RESTART)
    probing = writes.written_by(version, writes.TX_START[version])
    in_probe_rtt = _state(flow, "bbr_mode") == BBR_PROBE_RTT
    detail = "nothing was in flight, then something was, without cwnd_event(TX_START)"
    for i in np.flatnonzero(sent & ~told[:-1]):
        # It may end PROBE_RTT, which main() may have entered just before.
        explains = probing if in_probe_rtt[i] or kind[i] == MAIN else idle
        yield Sign(int(i), "missing_cwnd_event", detail, explains)


def _acked_unannounced(flow: FlowEvents, told: Array, later: bool) -> Array:
    """Events from which on an ACK found something in flight before anything was announced.

    `later`: one after all of them does.
    """
    mains = np.flatnonzero(flow.columns["kind"] == MAIN)
    events = np.arange(len(flow.events))
    place = np.searchsorted(mains, events)
    following = np.append(mains, len(events))[place]
    at_start = np.append(flow.columns["rs_prior_in_flight"][mains] > 0, later)[place]
    announced = np.append(0, np.cumsum(told))
    unannounced: Array = at_start & (announced[following] == announced[events])
    return unannounced


def _tlp_recovery(flow: FlowEvents, version: str) -> Iterator[Sign]:
    """v3 is told that a tail loss probe repaired a loss, and of no other fall from CWR at once.

    tcp_process_tlp_ack() calls cwnd_event(TLP_RECOVERY), ssthresh(), set_state(CWR), and then
    set_state again; ssthresh() at any other place is followed by a state from CWR on.
    """
    if version != "v3":
        return
    kind = flow.columns["kind"]
    before, after = _ca_states(flow)
    falls = (kind[:-1] == SET_STATE) & (kind[1:] == SET_STATE)
    falls &= (after[:-1] == TCP_CA_CWR) & (after[1:] < TCP_CA_CWR)
    # Where ssthresh() was called, or set_state(CWR) if ssthresh() is missing, too.
    begins = np.flatnonzero(falls)
    begins = np.where(kind[begins - 1] == SSTHRESH, begins - 1, begins)
    stays = (
        (before[1:] < TCP_CA_CWR) & (after[1:] < TCP_CA_CWR) & ~is_event(flow, CA_EVENT_LOSS)[1:]
    )
    begins = np.union1d(begins, np.flatnonzero((kind[:-1] == SSTHRESH) & stays))
    told = is_event(flow, CA_EVENT_TLP_RECOVERY)
    detail = "a tail loss probe repaired a loss, without cwnd_event(TLP_RECOVERY)"
    explains = writes.written_by(version, writes.TLP_RECOVERY)
    for i in begins[begins > 0]:
        if not told[i - 1]:
            yield Sign(int(i) - 1, "missing_cwnd_event", detail, explains)


def _saved(flow: FlowEvents, version: str, events_missing: bool) -> Iterator[Sign]:
    """What ssthresh() saves is there, in a flow that lacks calls of it.

    Where a tail loss probe repaired a loss, v3's event comes before it.
    """
    cwnd, ctl = flow.columns["tp_snd_cwnd"].astype(np.int64), flow.events["ctl"]
    prior = _state(flow, "bbr_prior_cwnd")
    left = np.where(ctl["check"] & CHECK_CWND, ctl["exit_snd_cwnd"], cwnd)
    found = (prior[1:] == cwnd[1:]) | (prior[1:] == left[:-1])
    if version != "v1":
        found |= prior[1:] >= cwnd[1:]
        for bound in ("bw_lo", "inflight_hi"):
            found &= (_state(flow, f"bbr_undo_{bound}") == _state(flow, f"bbr_{bound}"))[1:]
    found &= flow.columns["kind"][:-1] != SSTHRESH
    explains = writes.written_by(version, writes.SSTHRESH[version])
    before = writes.written_by(version, writes.TLP_RECOVERY)
    told = is_event(flow, CA_EVENT_TLP_RECOVERY)
    for i in map(int, np.flatnonzero(found)):
        yield Sign(i, "missing_ssthresh", "what ssthresh() saves was saved without it", explains)
        if before and events_missing and not told[i]:
            detail = "ssthresh() is missing where a tail loss probe may have repaired a loss"
            yield Sign(i, "missing_cwnd_event", detail, before)


def _undo_cwnd(flow: FlowEvents, version: str, was_reduced: bool) -> Iterator[Sign]:
    """The state is what undo_cwnd() leaves, after a reduction that it may have taken back."""
    reduced = np.maximum.accumulate(reductions(flow)) | was_reduced
    found = reduced[1:] & (_undone_v1(flow) if version == "v1" else _undone(flow))[1:]
    explains = writes.written_by(version, writes.UNDO_CWND)
    for i in np.flatnonzero(found):
        detail = "the state became what undo_cwnd() leaves, without undo_cwnd"
        yield Sign(int(i), "missing_undo_cwnd", detail, explains)


def reductions(flow: FlowEvents) -> Array:
    """Events at which icsk_ca_state is CWR or more, or was before, as BBR remembers."""
    before, after = _ca_states(flow)
    reached = np.maximum.reduce([before, after, _state(flow, "bbr_prev_ca_state")])
    found: Array = reached >= TCP_CA_CWR
    return found


def _undone_v1(flow: FlowEvents) -> Array:
    """bbr_undo_cwnd() of v1 forgets the plateau of bandwidth and what was sampled of a policer."""
    columns = flow.columns
    left = {
        "bbr_lt_last_delivered": columns["tp_delivered"],
        "bbr_lt_last_lost": columns["tp_lost"],
    }
    forgot = ("full_bw", "full_bw_cnt", "lt_bw", "lt_use_bw", "lt_is_sampling", "lt_rtt_cnt")
    same = [_state(flow, f"bbr_{name}") == 0 for name in forgot]
    same += [_state(flow, name) == value.astype(np.int64) for name, value in left.items()]
    # tcp_rate_gen() moves delivered_mstamp after undo_cwnd() and before main().
    stamp = ((columns["tp_delivered_mstamp"] // 1000) & _U32).astype(np.int64)
    began = _state(flow, "bbr_lt_last_stamp")
    same.append((began == stamp) | (began == np.append(stamp[:1], stamp[:-1])))
    undone: Array = np.logical_and.reduce(same)
    return undone


def _undone(flow: FlowEvents) -> Array:
    """bbr_undo_cwnd() of v2 and v3 forgets the plateau and gives back cwnd and bounds."""
    same = [_state(flow, f"bbr_{name}") == 0 for name in ("full_bw", "full_bw_cnt")]
    same += [
        _state(flow, f"bbr_{bound}") >= _state(flow, f"bbr_undo_{bound}")
        for bound in ("bw_lo", "inflight_lo", "inflight_hi")
    ]
    same.append(flow.columns["tp_snd_cwnd"] == _state(flow, "bbr_prior_cwnd"))
    undone: Array = np.logical_and.reduce(same)
    return undone


def _in_flight(flow: FlowEvents) -> Array:
    """tcp_packets_in_flight() before each event [packets]."""
    out, back, sacked, lost = (
        flow.columns[f"tp_{name}_out"].astype(np.int64)
        for name in ("packets", "retrans", "sacked", "lost")
    )
    flight: Array = out + back - sacked - lost
    return flight


def _state(flow: FlowEvents, column: str) -> Array:
    """A field of struct bbr before each event."""
    values: Array = flow.states[: len(flow.events), STATE_COLUMNS.index(column)]
    return values


def _ca_states(flow: FlowEvents) -> tuple[Array, Array]:
    """icsk_ca_state before and after each event."""
    columns = flow.columns
    before = columns["icsk_ca_state"].astype(np.int64)
    is_set = columns["kind"] == SET_STATE
    return before, np.where(is_set, columns["new_state"].astype(np.int64), before)


def is_event(flow: FlowEvents, event: int) -> Array:
    """Calls of cwnd_event() with this event."""
    found: Array = (flow.columns["kind"] == CWND_EVENT) & (flow.columns["event"] == event)
    return found


def growth(flow: FlowEvents, column: str) -> Array:
    """How much a counter of 32 bits grew from each event to the next."""
    counter = flow.columns[column].astype(np.int64)
    grown: Array = (counter[1:] - counter[:-1]) & _U32
    return grown
