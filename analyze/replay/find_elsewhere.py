"""What the signs in each chunk of a flow depend on of the flow's other chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from ..bbr.records import CA_EVENT_TX_START, MAIN, Array
from .chunks import BACK, Chunk
from .elsewhere import DELIVERY_COLUMNS, Delivery, Elsewhere
from .missing_calls import (
    Sign,
    call_places,
    growth,
    is_event,
    missing_events,
    missing_saves,
    reductions,
)
from .prepare import FlowEvents


@dataclass
class _Seen:
    """What a chunk shows of itself and of those before it.

    Attributes:
        before, reduced: see `Elsewhere`.
        delivered: by how much tp.delivered grew from each of its events to the next.
        first_call, finds_unannounced: of its events which the chunk before did not look ahead at,
            the first call of main() or init(), and what `Elsewhere.unannounced` is because of them;
            None: they do not tell.
        saves_missing: see `Elsewhere`.
        events_missing: the same if `unannounced` is False, and if it is True.
    """

    before: Delivery | None
    reduced: bool
    delivered: int
    first_call: Delivery | None
    finds_unannounced: bool | None
    saves_missing: bool
    events_missing: tuple[bool, bool]


def find_elsewhere(chunks: Iterable[Chunk], version: str) -> list[Elsewhere]:
    """Look through the chunks of a flow; return for each what it needs of the others."""
    seen = list(_each(chunks, version))
    after: Delivery | None = None
    unannounced = False
    following: list[tuple[Delivery | None, bool]] = []
    for one in reversed(seen):
        following.append((after, unannounced))
        after = one.first_call or after
        if one.finds_unannounced is not None:
            unannounced = one.finds_unannounced
    following.reverse()
    pairs = list(zip(seen, following, strict=True))
    delivered = sum(one.delivered for one in seen)
    saves_missing = any(one.saves_missing for one in seen)
    events_missing = any(one.events_missing[later] for one, (_, later) in pairs)
    return [
        Elsewhere(one.before, call, one.reduced, later, delivered, saves_missing, events_missing)
        for one, (call, later) in pairs
    ]


def _each(chunks: Iterable[Chunk], version: str) -> Iterator[_Seen]:
    """Yield what each chunk shows."""
    before: Delivery | None = None
    reduced = False
    known = 0  # events that a chunk had, or looked ahead at
    for chunk in chunks:
        around, own = chunk.around, chunk.own
        fresh = max(0, known - around.first)
        known = around.first + len(around.events)
        calls = call_places(around)
        both = (missing_events(around, version, later) for later in (False, True))
        none, other = (_any(chunk, signs) for signs in both)
        yield _Seen(
            before,
            reduced,
            _delivered(chunk),
            _call(around, calls[calls >= fresh][:1]),
            _finds_unannounced(around, fresh),
            _any(chunk, missing_saves(around, version)),
            (none, other),
        )
        # What comes before the events around the next chunk.
        passed = max(0, own.first + len(own.events) - BACK - around.first)
        before = _call(around, calls[calls < passed][-1:]) or before
        reduced = reduced or bool(reductions(around)[:passed].any())


def _call(flow: FlowEvents, places: Array) -> Delivery | None:
    """The call at this place, if there is one."""
    for place in places.tolist():
        return Delivery(*(int(flow.columns[name][place]) for name in DELIVERY_COLUMNS))
    return None


def _any(chunk: Chunk, signs: Iterable[Sign]) -> bool:
    return any(chunk.has(sign.index) for sign in signs)


def _delivered(chunk: Chunk) -> int:
    """By how much tp.delivered grew, for a flow without main(): there nothing else tells of it."""
    if chunk.own.facts.has_main:
        return 0
    grown = growth(chunk.around, "tp_delivered")
    return int(grown[chunk.back : chunk.back + len(chunk.own.events)].sum())


def _finds_unannounced(flow: FlowEvents, start: int) -> bool | None:
    """Whether the first event from `start` on that tells of it finds flight unannounced."""
    is_main = flow.columns["kind"] == MAIN
    tells = np.flatnonzero((is_main | is_event(flow, CA_EVENT_TX_START))[start:])
    if not len(tells):
        return None
    first = start + int(tells[0])
    return bool(is_main[first] and flow.columns["rs_prior_in_flight"][first] > 0)
