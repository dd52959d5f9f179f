"""What the signs of a missing call depend on besides the events at hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

# What the table of events has of a `Delivery`.
DELIVERY_COLUMNS = ("kind", "tp_delivered", "rs_acked_sacked")


class Delivery(NamedTuple):
    """What a call of main() or init() says of what was delivered."""

    kind: int
    delivered: int
    acked: int


@dataclass(frozen=True)
class Elsewhere:
    """What signs among some events of a flow depend on, of the flow's other events.

    Attributes:
        before, after: the last call of main() or init() before these events, the next one after.
        reduced: icsk_ca_state was CWR or more before them.
        unannounced: an ACK after them finds something in flight before anything is announced.
        delivered: by how much tp.delivered grew over the whole flow if it has no main(), else 0.
        saves_missing, events_missing: there are signs of a missing ssthresh() anywhere in the flow,
            or of a missing cwnd_event() (missing_calls.py).
    """

    before: Delivery | None
    after: Delivery | None
    reduced: bool
    unannounced: bool
    delivered: int
    saves_missing: bool
    events_missing: bool
