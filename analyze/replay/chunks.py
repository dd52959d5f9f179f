"""A flow's events, some at a time, each time with the ones around them by which they are judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..bbr.records import Array
from ..bbr.variants.own_variant import is_variant, own_variant
from .flow_facts import FlowFacts
from .flow_rows import Columns, FlowRows, joined, length_of, part_of
from .prepare import FlowEvents, prepare_rows

# What an event's inputs and controls depend on: what the one before left, what the one after found.
BACK = 1
# The state that is found after a chunk is the second one's after an init whose exit is missing; of
# a tail loss probe that nothing announces, the fourth event tells (missing_calls.py).
AHEAD = 3


@dataclass(frozen=True)
class Chunk:
    """Successive events of a flow.

    Attributes:
        number: how many chunks come before.
        own: its events. The memory is that of `around`.
        around: the same with up to `BACK` events before and `AHEAD` after them.
        back: how many come before.
    """

    number: int
    own: FlowEvents
    around: FlowEvents
    back: int

    @property
    def is_last(self) -> bool:
        """The flow ends with it."""
        return self.own.first + len(self.own.events) >= self.own.facts.count

    def has(self, index: int) -> bool:
        """Whether event `index` of `around` is one of its own."""
        return 0 <= index - self.back < len(self.own.events)


def chunk_of(flow: FlowEvents) -> Chunk:
    """A whole flow as its only chunk."""
    return Chunk(0, flow, flow, 0)


def chunks_of(rows: FlowRows, facts: FlowFacts, rules: str, params: Array) -> Iterator[Chunk]:
    """Yield the events of a flow, about as many at a time as its rows come in.

    A variant that settles its random draws by itself looks any number of events ahead: a flow is
    one chunk then.

    Args:
        rules: "v1", "v2" or "v3", or a variant.
        params: the parameter record (analyze/bbr/params.py).
    """
    undivided = is_variant(rules) and own_variant(rules).fill_draws is not None
    waiting: list[Columns] = []
    number = first = back = 0
    to_skip = facts.pre_init
    for place, read in enumerate(rows.blocks, 1):
        columns = read()
        skipped = min(to_skip, length_of(columns))
        to_skip -= skipped
        waiting.append(part_of(columns, slice(skipped, None)) if skipped else columns)
        is_last = place == len(rows.blocks)
        count = sum(map(length_of, waiting)) - back - (0 if is_last else AHEAD)
        if not is_last and (undivided or count <= 0):
            continue
        held = joined(waiting)
        around = prepare_rows(held, facts, first - back, rules, params)
        if not is_last:
            rest = part_of(held, slice(max(0, back + count - BACK), None))
            waiting = [{name: column.copy() for name, column in rest.items()}]
            del rest
        ready = [Chunk(number, around.part(back, back + count), around, back)]
        number, first, back = number + 1, first + count, BACK
        del columns, held, around  # whoever takes the chunk decides how long it is held
        yield ready.pop()
