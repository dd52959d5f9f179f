"""Times in which a flow had nothing in flight and sent nothing, though pacing let it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from ...collect.store.query import rows
from ..bbr.records import CA_EVENT_TX_START
from ..views.events.binding_views import PACED
from .event_flows import EventFlow
from .facts import Pauses, Span

if TYPE_CHECKING:
    import duckdb

# tcp_event_data_sent() announces CA_EVENT_TX_START where nothing is in flight; with packets out,
# all of them are marked lost, and the timer sends. One packet is delivered by the handshake. Where
# a burst and its ACKs take less time than pacing leaves between two, nothing is in flight either.
_RESTARTS = f"""
WITH e AS (
  SELECT seq, events.ns, kind, event, tp_packets_out, tp_delivered,
    lag(seq) OVER w AS before_seq, lag(events.ns) OVER w AS before_ns,
    lag(binding) OVER w AS held_by
  FROM events JOIN binding USING (run_id, flow, seq)
  WHERE run_id = $run_id AND flow = $flow AND seq >= $pre_init
  WINDOW w AS (ORDER BY seq)
)
SELECT before_seq, seq, before_ns, ns FROM e
WHERE kind = 'cwnd_event' AND event = {CA_EVENT_TX_START} AND tp_packets_out = 0
  AND tp_delivered > 1 AND before_ns IS NOT NULL AND held_by NOT IN {PACED}
ORDER BY seq
"""


def pauses_of(con: duckdb.DuckDBPyConnection, flow: EventFlow) -> Pauses | None:
    """Return the pauses between the ACK of all that was sent and the next data; None: none.

    Time in which pacing held that data (view `binding`) is no pause.
    """
    gaps = {gap.seq for gap in flow.gaps}
    records = rows(
        con, _RESTARTS, run_id=flow.run_id, flow=flow.flow, pre_init=flow.summary["pre_init"]
    )
    spans = [
        Span(int(row["before_ns"]), int(row["ns"]))
        for row in records
        if not any(row["before_seq"] <= seq < row["seq"] for seq in gaps)
    ]
    if not spans:
        return None
    lengths = [span.duration_ns for span in spans]
    longest = max(spans, key=lambda span: span.duration_ns)
    return Pauses(len(spans), sum(lengths), round(median(lengths)), longest)
