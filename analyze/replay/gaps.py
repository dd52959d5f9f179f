"""Finding what a recording lacks, from the data itself.

A gap needs two signs: a counter that says that a call is missing, and a state that does not follow
from the one before. Counters alone may jump for other reasons (repacketization after an MTU change
moves tp.delivered); a broken state alone is a divergence, not a gap, unless the recording itself
reports that rows were lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..bbr import loops
from ..bbr.records import CWND_EVENT, INIT, MAIN, SET_STATE, SKB_MARKED_LOST, STATE_COLUMNS
from .passes import Array, Pass
from .prepare import FlowEvents

_U32 = 0xFFFFFFFF
_ECN_FIELDS = ("bbr_ce_state", "bbr_prior_rcv_nxt")


@dataclass(frozen=True)
class Gap:
    """Something is missing between event `index` and the next one.

    Attributes:
        kind: missing_main, missing_set_state, missing_loss, missing_cwnd_event, lost_rows,
            disconnected or detaching.
        detail: what gives it away, in words.
    """

    index: int
    kind: str
    detail: str


def suspects(flow: FlowEvents, version: str) -> dict[int, Gap]:
    """Gaps that a counter points to, by the index of the event before each; see `classify`."""
    gaps: dict[int, Gap] = {}
    for gap in (
        *_disconnected(flow),
        *_missing_main(flow),
        *_missing_set_state(flow),
        *(_missing_loss(flow) if version != "v1" else ()),
        *_missing_ecn(flow),
        *_detached(flow),
    ):
        gaps.setdefault(gap.index, gap)
    return gaps


def _disconnected(flow: FlowEvents) -> list[Gap]:
    """tcp_disconnect() (net/ipv4/tcp.c) clears struct bbr, which no callback sees.

    A program asks for it by connect() with AF_UNSPEC; MPTCP does it with its subflows.
    """
    empty = ~np.any(flow.states[: len(flow.columns["kind"])], axis=1)
    cleared = ~empty[:-1] & empty[1:] & (flow.columns["tp_delivered"][1:] == 0)
    detail = "tcp_disconnect() cleared struct bbr and tp.delivered"
    return [Gap(int(i), "disconnected", detail) for i in np.flatnonzero(cleared)]


def _missing_main(flow: FlowEvents) -> list[Gap]:
    """tp.delivered grows by rs.acked_sacked from one main() to the next."""
    columns = flow.columns
    mains = np.flatnonzero(columns["kind"] == MAIN)
    delivered = columns["tp_delivered"][mains].astype(np.int64)
    acked = columns["rs_acked_sacked"][mains].astype(np.int64)
    grown = np.diff(delivered) & _U32
    jumps = np.flatnonzero(grown != acked[1:])
    gaps = []
    for jump in jumps:
        first, last = int(mains[jump]), int(mains[jump + 1])
        detail = (
            f"tp.delivered grew by {grown[jump]} between two main() calls, "
            f"rs.acked_sacked says {acked[jump + 1]}"
        )
        gaps += [Gap(link, "missing_main", detail) for link in range(first, last)]
    return gaps


def _missing_set_state(flow: FlowEvents) -> list[Gap]:
    """icsk_ca_state changes through set_state only."""
    columns = flow.columns
    state = columns["icsk_ca_state"].astype(np.int64)
    after = np.where(columns["kind"] == SET_STATE, columns["new_state"].astype(np.int64), state)
    return [
        Gap(
            int(i),
            "missing_set_state",
            f"icsk_ca_state went from {after[i]} to {state[i + 1]} without set_state",
        )
        for i in np.flatnonzero(after[:-1] != state[1:])
    ]


def _missing_loss(flow: FlowEvents) -> list[Gap]:
    """tp.lost grows with each skb_marked_lost (which sees it grown already), and only then."""
    columns = flow.columns
    lost = columns["tp_lost"].astype(np.int64)
    grown = np.diff(lost) & _U32
    segments = columns["skb_gso_segs"].astype(np.int64)
    expected = np.where(columns["kind"] == SKB_MARKED_LOST, segments, 0)[1:]
    return [
        Gap(
            int(i),
            "missing_loss",
            f"tp.lost grew by {grown[i]}, the recorded losses explain {expected[i]}",
        )
        for i in np.flatnonzero(grown != expected)
    ]


def _missing_ecn(flow: FlowEvents) -> list[Gap]:
    """The receiver's CE state changes through cwnd_event only, and nothing else changed."""
    columns = flow.columns
    kind = columns["kind"]
    states = flow.states[: len(kind)]
    changed = states[1:] != states[:-1]
    ecn = np.array([name in _ECN_FIELDS for name in STATE_COLUMNS])
    odd = changed[:, ecn].any(axis=1) & (kind[:-1] != CWND_EVENT) & (kind[:-1] != INIT)
    return [
        Gap(int(i), "missing_cwnd_event", "the receiver's CE state changed without cwnd_event")
        for i in np.flatnonzero(odd)
    ]


def _detached(flow: FlowEvents) -> list[Gap]:
    """At the end of a recording probes go one by one: what follows may lack calls."""
    n = len(flow.events)
    detail = "the probes were being detached"
    return [Gap(link, "detaching", detail) for link in range(n - flow.tail, n)]


def classify(flow: FlowEvents, step: Pass, suspected: dict[int, Gap], rows_lost: int) -> list[Gap]:
    """The gaps that explain differences of a step replay, which are not the estimator's then.

    `rows_lost` is how many rows or events the recording itself reports as lost.
    """
    gaps = []
    for index in np.flatnonzero(step.outcome == loops.DIFFERENT):
        gap = suspected.get(int(index))
        if gap is None and rows_lost:
            detail = f"state does not follow; the recording reports {rows_lost} rows or events lost"
            gap = Gap(int(index), "lost_rows", detail)
        if gap is not None:
            gaps.append(gap)
    return gaps


def cut(flow: FlowEvents, gaps: list[Gap], outputs_too: Array) -> None:
    """Make the replay re-synchronise after each gap.

    `outputs_too` marks events whose own outputs do not fit either: rows of two events were joined.
    """
    ctl = flow.events["ctl"]
    n = len(flow.events)
    for gap in gaps:
        ctl["has_next"][gap.index] = 0
        if outputs_too[gap.index]:
            ctl["check"][gap.index] = 0
        if gap.index + 1 < n:
            ctl["resync"][gap.index + 1] = 1
