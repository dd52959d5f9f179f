"""Finding what a recording lacks, from the data itself.

A gap needs two signs: a counter that says that a call is missing (missing_calls.py), and a state
that does not follow from the one before, in fields which that call may write and in no other.
Counters alone may jump for other reasons (repacketization after an MTU change moves tp.delivered);
a broken state alone is a divergence, not a gap, unless the recording itself reports that rows were
lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..bbr import loops
from ..views.result_tables import CLEARED
from .chunks import Chunk
from .elsewhere import Elsewhere
from .missing_calls import Sign, missing_calls
from .passes import Array, Pass
from .prepare import FlowEvents
from .written_fields import EVERYTHING


@dataclass(frozen=True)
class Gap:
    """Something is missing between event `index` and the next one.

    Attributes:
        kind: missing_main, missing_set_state, missing_ssthresh, missing_undo_cwnd, missing_loss,
            missing_cwnd_event, lost_rows, disconnected or detaching.
        detail: what gives it away, in words.
    """

    index: int
    kind: str
    detail: str


@dataclass(frozen=True)
class GapPlace:
    """The same where it is in the recording: a row of table gaps.

    Attributes:
        seq, ns, line: the event's.
        next_ns: when the next one came; of a flow's last event its own time.
    """

    seq: int
    ns: int
    next_ns: int
    line: int
    kind: str
    detail: str


def placed(chunk: Chunk, gap: Gap) -> GapPlace:
    """Say where a gap is that follows an event of a chunk."""
    columns, index = chunk.around.columns, chunk.back + gap.index
    following = min(index + 1, len(columns["ns"]) - 1)
    seq, line = int(columns["seq"][index]), int(columns["line"][index])
    ns, next_ns = (int(columns["ns"][place]) for place in (index, following))
    return GapPlace(seq, ns, next_ns, line, gap.kind, gap.detail)


def suspects(chunk: Chunk, version: str, elsewhere: Elsewhere) -> dict[int, list[Sign]]:
    """Calls that seem to be missing, by the index of the event before each; see `classify`."""
    signs: dict[int, list[Sign]] = {}
    around = chunk.around
    for sign in (
        *_disconnected(around),
        *missing_calls(around, version, elsewhere),
        *_detached(around),
    ):
        if chunk.has(sign.index):
            signs.setdefault(sign.index - chunk.back, []).append(sign)
    return signs


def _disconnected(flow: FlowEvents) -> list[Sign]:
    """tcp_disconnect() (net/ipv4/tcp.c) clears struct bbr, which no callback sees.

    A program asks for it by connect() with AF_UNSPEC; MPTCP does it with its subflows.
    """
    empty = ~np.any(flow.states[: len(flow.columns["kind"])], axis=1)
    cleared = ~empty[:-1] & empty[1:] & (flow.columns["tp_delivered"][1:] == 0)
    detail = "tcp_disconnect() cleared struct bbr and tp.delivered"
    return [Sign(int(i), CLEARED, detail, EVERYTHING) for i in np.flatnonzero(cleared)]


def _detached(flow: FlowEvents) -> list[Sign]:
    """At the end of a recording probes go one by one: what follows may lack calls."""
    begins = max(0, flow.facts.count - flow.facts.tail - flow.first)
    detail = "the probes were being detached"
    return [Sign(link, "detaching", detail, EVERYTHING) for link in range(begins, len(flow.events))]


def classify(step: Pass, suspected: dict[int, list[Sign]], rows_lost: int) -> list[Gap]:
    """The gaps that explain differences of a step replay, which are not the estimator's then.

    `rows_lost` is how many rows or events the recording itself reports as lost.
    """
    gaps = []
    for index in map(int, np.flatnonzero(step.outcome == loops.DIFFERENT)):
        sign = _explanation(suspected.get(index, []), step.fields_of(index))
        if sign is None and rows_lost:
            detail = (
                f"state does not follow; the recording reports rows or events lost: {rows_lost}"
            )
            sign = Sign(index, "lost_rows", detail, EVERYTHING)
        if sign is not None:
            gaps.append(Gap(index, sign.kind, sign.detail))
    return gaps


def _explanation(signs: list[Sign], differing: frozenset[str]) -> Sign | None:
    """The missing call that explains all that differs; of several that do so together, the first.

    What none of them may write is left to explain: then they explain nothing.
    """
    for sign in signs:
        if differing <= sign.explains:
            return sign
    together = frozenset[str]().union(*(sign.explains for sign in signs))
    if differing <= together:
        return next((sign for sign in signs if differing & sign.explains), None)
    return None


def cut(flow: FlowEvents, gaps: list[Gap], outputs_too: Array) -> None:
    """Make the replay re-synchronise after each gap, as far as these events go.

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
