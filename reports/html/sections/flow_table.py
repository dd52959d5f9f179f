"""The first table of the page: how each flow did, in a line, and how fair it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....analyze.compare.run_metrics import scoped_kept
from ....analyze.story.facts import StoryFacts
from ....collect.store.query import Row, rows
from ...text.quantities import fine_share, quantity, share
from ...text.stories.instant_text import BINDING_WORDS
from ..data.select import Run

if TYPE_CHECKING:
    import duckdb

UNKNOWN = "\u2013"
_RANKS = ("p50", "p95", "p99")


@dataclass(frozen=True)
class FlowLine:
    """How a flow did; cells are text with the unit of their heading, or their own."""

    flow: int
    goodput: str
    part: str
    resent: str
    lost: str
    rtts: tuple[str, str, str]
    queue: str
    limit: str


@dataclass(frozen=True)
class FlowTable:
    """A line per drawn flow, and Jain's index of their goodput; empty: one flow, or not known."""

    lines: list[FlowLine]
    jain: str

    @property
    def counts_resent(self) -> bool:
        """Tell whether what was sent again is known of any flow: packets tell it."""
        return any(line.resent != UNKNOWN for line in self.lines)


def flow_table(
    con: duckdb.DuckDBPyConnection, run: Run, facts: Mapping[int, StoryFacts]
) -> FlowTable:
    """Return the table of the drawn flows; `facts` by their number."""
    run_id = run.row["run_id"]
    records = rows(con, scoped_kept(con, "FROM metrics_by_flow WHERE flow IS NOT NULL", [run_id]))
    by_flow = {row["flow"]: row for row in records if row["flow"] in facts}
    whole = sum(_goodput(row) or 0 for row in by_flow.values())
    lines = [_line(row, whole, facts[flow]) for flow, row in sorted(by_flow.items())]
    return FlowTable(lines, _jain(con, run_id) if len(lines) > 1 else "")


def _goodput(row: Row) -> float | None:
    """Payload acknowledged in order [Mbit/s], from packets where events did not tell it."""
    value = row["goodput_mbps"] if row["goodput_mbps"] is not None else row["pkt_goodput_mbps"]
    return None if value is None else float(value)


def _line(row: Row, whole: float, facts: StoryFacts) -> FlowLine:
    goodput = _goodput(row)
    # The kernel's RTTs include the sender's own queues; packets tell what lies behind the capture.
    source = "" if row["rtt_p50_us"] is not None else "pkt_"
    p50, p95, p99 = (_milliseconds(row[f"{source}rtt_{rank}_us"]) for rank in _RANKS)
    return FlowLine(
        row["flow"],
        UNKNOWN if goodput is None else quantity(goodput * 1e6, "bit/s"),
        share(goodput / whole) if goodput is not None and whole else UNKNOWN,
        _share(row["pkt_retransmission_rate"]),
        _share(row["loss_rate"]),
        (p50, p95, p99),
        _milliseconds(row["queue_delay_us"]),
        _limit(facts),
    )


def _milliseconds(us: float | None) -> str:
    return UNKNOWN if us is None else f"{us / 1e3:.1f}"


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else fine_share(value)


def _limit(facts: StoryFacts) -> str:
    """What limited sending for most of the time."""
    if not facts.limits:
        return UNKNOWN
    most = facts.limits[0]
    words = BINDING_WORDS.get(most.binding, most.binding).partition(":")[0]
    return f"{words} ({share(most.time_share)} of the time)"


def _jain(con: duckdb.DuckDBPyConnection, run_id: int) -> str:
    records: Sequence[Row] = rows(con, scoped_kept(con, "FROM sharing WHERE t_s IS NULL", [run_id]))
    known = [row["jain"] for row in records if row["jain"] is not None]
    return f"{known[0]:.3f}" if known else ""
