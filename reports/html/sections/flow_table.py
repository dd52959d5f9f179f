"""The first table of the page: how each sender did, in a line, and how fair it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....analyze.compare.run_metrics import scoped
from ....analyze.story.facts import StoryFacts
from ....analyze.views.runs.sender_views import SAME_SENDER
from ....collect.store.query import Row, rows
from ...text.quantities import quantity, share
from ...text.stories.instant_text import limit_words
from ..data.select import Run
from ..data.sender_name import sender_name

if TYPE_CHECKING:
    import duckdb

UNKNOWN = "\u2013"
# More connections without events than this are counted, not listed.
MOST_CONNECTIONS = 10
_RANKS = ("p50", "p95", "p99")
# A sender's metrics, and its goodput in the seconds in which all senders of its way were active,
# whose parts are the shares: what Jain's index is worked out from.
_SENDERS = f"""
SELECT m.*, s.goodput_mbps / nullif(sum(s.goodput_mbps) OVER (PARTITION BY c.way), 0) AS share
FROM metrics_by_flow m JOIN senders c ON {SAME_SENDER}
LEFT JOIN rtt_fairness s ON s.run_id = m.run_id AND s.flow IS NOT DISTINCT FROM m.flow
  AND s.stream IS NOT DISTINCT FROM m.stream
WHERE m.flow IS NOT NULL OR c.counts
ORDER BY m.flow NULLS LAST, m.pkt_acked_bytes DESC
"""


@dataclass(frozen=True)
class FlowLine:
    """How a flow did; cells are text with the unit of their heading, or their own.

    Attributes:
        flow: number of its section on the page; None: only packets tell of this connection.
        name: what the line is called, below the heading Flow.
    """

    flow: int | None
    name: str
    goodput: str
    part: str
    resent: str
    lost: str
    rtts: tuple[str, str, str]
    queue: str
    limit: str


@dataclass(frozen=True)
class FlowTable:
    """A line per drawn flow and per other sender that counts, and how fair it was.

    Attributes:
        jain: Jain's index of their goodput; empty: one sender, or not known.
        more: connections without events that are not listed.
    """

    lines: list[FlowLine]
    jain: str
    more: int

    @property
    def counts_resent(self) -> bool:
        """Tell whether what was sent again is known of any flow: packets tell it."""
        return any(line.resent != UNKNOWN for line in self.lines)


def flow_table(
    con: duckdb.DuckDBPyConnection, run: Run, facts: Mapping[int, StoryFacts]
) -> FlowTable:
    """Return the table of the drawn flows and the senders beside them; `facts` by their number."""
    run_id = run.row["run_id"]
    records = rows(con, scoped(con, _SENDERS, [run_id]))
    connections = [row for row in records if row["flow"] is None]
    shown = [row for row in records if row["flow"] in facts] + connections[:MOST_CONNECTIONS]
    lines = [_line(row, facts.get(row["flow"])) for row in shown]
    jain = _jain(con, run_id) if len(lines) > 1 else ""
    return FlowTable(lines, jain, len(connections[MOST_CONNECTIONS:]))


def _goodput(row: Row) -> float | None:
    """Payload acknowledged in order [Mbit/s], from packets where events did not tell it."""
    value = row["goodput_mbps"] if row["goodput_mbps"] is not None else row["pkt_goodput_mbps"]
    return None if value is None else float(value)


def _line(row: Row, facts: StoryFacts | None) -> FlowLine:
    goodput = _goodput(row)
    # The kernel's RTTs include the sender's own queues; packets tell what lies behind the capture.
    source = "" if row["rtt_p50_us"] is not None else "pkt_"
    p50, p95, p99 = (_milliseconds(row[f"{source}rtt_{rank}_us"]) for rank in _RANKS)
    return FlowLine(
        row["flow"],
        sender_name(None, row["stream"]) if row["flow"] is None else str(row["flow"]),
        UNKNOWN if goodput is None else quantity(goodput * 1e6, "bit/s"),
        UNKNOWN if row["share"] is None else share(row["share"]),
        _share(row["pkt_retransmission_rate"]),
        _share(row["loss_rate"]),
        (p50, p95, p99),
        _milliseconds(_queue_us(row)),
        _limit(facts),
    )


def _queue_us(row: Row) -> float | None:
    """The mean RTT above the path's own; of packets alone above the smallest that they show."""
    if row["queue_delay_us"] is not None or row["pkt_rtt_mean_us"] is None:
        return None if row["queue_delay_us"] is None else float(row["queue_delay_us"])
    return float(row["pkt_rtt_mean_us"] - row["pkt_rtt_min_us"])


def _milliseconds(us: float | None) -> str:
    return UNKNOWN if us is None else f"{us / 1e3:.1f}"


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else share(value)


def _limit(facts: StoryFacts | None) -> str:
    """What limited sending for most of the time; only events tell it."""
    if facts is None or not facts.limits:
        return UNKNOWN
    most = facts.limits[0]
    return f"{limit_words(most.binding).short} ({share(most.time_share)} of the time)"


def _jain(con: duckdb.DuckDBPyConnection, run_id: int) -> str:
    records: Sequence[Row] = rows(con, scoped(con, "FROM sharing WHERE t_s IS NULL", [run_id]))
    known = [row["jain"] for row in records if row["jain"] is not None]
    return f"{known[0]:.3f}" if known else ""
