"""How the flows of a run shared the link: goodput of each over time, and Jain's index per second.

Counted as the view `sharing` does: where packets were captured by what ACKs acknowledged, which
sees every connection, else by the growth of tp.snd_una.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....analyze.views.runs.sender_views import LEAST_SHARE
from ....collect.store.query import Row, rows
from ..panels.signals import Panel, Signal
from ..panels.sources import AGAIN
from .select import MOST_BINS, UNSET, Run, bin_ns
from .sender_name import sender_name
from .thin import Points, thin

if TYPE_CHECKING:
    import duckdb

Array = np.ndarray[Any, Any]

SECOND_NS = 1_000_000_000
# A flow that is active in all but so much of a second counts as active all the time.
SLACK_NS = 1_000_000
# As many colours as palette.py has for flows; more flows differ in dash.
COLOURS = 6
DASHES: tuple[tuple[int, ...], ...] = ((), (5, 3), (2, 2))
MOST = COLOURS * len(DASHES)

# Growth of a counter of 32 bits that may wrap, as a difference with a sign.
_GREW = "((({0}::BIGINT - lag({0}) OVER w + 6442450944) % 4294967296) - 2147483648)"
# Of packets: bytes by what ACKs acknowledged, for Jain's index; good by segments as they pass, of
# those sent again the last copy, for the lines: ACKs advance in leaps while holes are filled.
_BY_PACKETS = f"""
WITH connections AS (
  SELECT s.flow, s.stream, s.direction, least(s.first_ns, f.first_ns) AS first_ns,
    greatest(s.last_ns, f.last_ns) AS last_ns
  FROM streams s LEFT JOIN flows f ON f.run_id = s.run_id AND f.flow = s.flow
  WHERE s.run_id = $run_id AND (s.flow IS NOT NULL OR s.direction = 'data')
), acked AS (
  SELECT s.*, a.ns, {_GREW.format("a.ack")} AS bytes, 0 AS good
  FROM connections s JOIN packets a ON a.run_id = $run_id AND a.stream = s.stream
    AND a.direction <> s.direction
  WHERE a.ack IS NOT NULL AND a.ns IS NOT NULL
  WINDOW w AS (PARTITION BY s.stream, s.direction ORDER BY a.packet)
), passed AS (
  SELECT s.*, a.ns, 0 AS bytes, CASE WHEN lead({AGAIN}) OVER copies THEN 0 ELSE a.len END AS good
  FROM connections s JOIN packets a ON a.run_id = $run_id AND a.stream = s.stream
    AND a.direction = s.direction
  WHERE a.len > 0 AND a.ns IS NOT NULL
  WINDOW copies AS (PARTITION BY s.stream, s.direction, a.seq_raw ORDER BY a.packet)
)
SELECT flow, stream, (ns::BIGINT - $zero) // $bin_ns AS bin,
  coalesce(sum(bytes), 0)::BIGINT AS bytes, sum(good)::BIGINT AS good,
  min(first_ns)::BIGINT AS first_ns, max(last_ns)::BIGINT AS last_ns
FROM (FROM acked UNION ALL FROM passed) GROUP BY ALL
"""
# Of events: tp.delivered counts what SACKs acknowledged as well.
_BY_EVENTS = f"""
WITH acked AS (
  SELECT e.flow, e.ns, f.first_ns, f.last_ns, {_GREW.format("e.tp_snd_una")} AS grew,
    {_GREW.format("e.tp_delivered")} * e.tp_mss_cache::BIGINT AS good
  FROM events e JOIN flows f USING (run_id, flow)
  WHERE e.run_id = $run_id AND e.seq >= f.pre_init WINDOW w AS (PARTITION BY e.flow ORDER BY e.seq)
)
SELECT flow, NULL AS stream, (ns::BIGINT - $zero) // $bin_ns AS bin,
  coalesce(sum(greatest(grew, 0)), 0)::BIGINT AS bytes,
  coalesce(sum(greatest(good, 0)), 0)::BIGINT AS good, min(first_ns)::BIGINT AS first_ns,
  max(last_ns)::BIGINT AS last_ns
FROM acked GROUP BY ALL
"""


def swatch(place: int) -> str:
    """Name of the colour of one of several that stand side by side."""
    return f"flow{place % COLOURS + 1}"


def one_of(place: int, key: str, label: str, about: str) -> Signal:
    """Return the signal of one of several that stand side by side, in colours of their own."""
    return Signal(
        key,
        label,
        about,
        "",
        1e-3,
        dash=DASHES[place // COLOURS % len(DASHES)],
        colour=swatch(place),
    )


@dataclass(frozen=True)
class FlowShare:
    """One competitor.

    Attributes:
        flow: its number; None: only the capture knows it.
        name: what it is called.
        bytes: acknowledged in order in each bin, as metrics count.
        good: delivered in each bin, whether in order or not: no leaps, for the chart.
    """

    flow: int | None
    name: str
    first_ns: int
    last_ns: int
    bytes: dict[int, int]
    good: dict[int, int]


@dataclass(frozen=True)
class Shares:
    """The competitors, the length of their bins, and where the first bin begins."""

    source: str
    zero_ns: int
    bin_ns: int
    flows: list[FlowShare]

    def signals(self) -> tuple[Signal, ...]:
        """One signal per competitor that has a colour and dash of its own, and the sum of all."""
        lines = [
            one_of(place, f"share{place + 1}", share.name, f"goodput as {self.source} tell it")
            for place, share in enumerate(self.flows[:MOST])
        ]
        whole = Signal("together", "all", "of all flows together", "", 1e-3, width=1.2)
        return (*lines, whole)

    def whole_bins(self, share: FlowShare, between: tuple[float, float]) -> Array:
        """Bytes that a flow delivered in each bin in which it was active all the time.

        Of the bins inside `between` [s on the run's clock]. Where the capture ended before the
        flows did, the rest is not known, nor is the bin in which it ended.
        """
        known = max(bin for one in self.flows for bin in one.bytes)
        first = max((share.first_ns - self.zero_ns) / self.bin_ns, between[0] * 1e9 / self.bin_ns)
        last = min((share.last_ns - self.zero_ns) / self.bin_ns, between[1] * 1e9 / self.bin_ns)
        inside = range(math.ceil(first), min(math.floor(last), known))
        return np.array([share.good.get(bin, 0) for bin in inside], np.int64)

    def jain(self) -> dict[int, float]:
        """Jain's index of each second in which two or more were active all the time."""
        got: dict[int, list[int]] = {}
        for share in self.flows:
            seconds: dict[int, int] = {}
            for bin, count in share.bytes.items():
                second = bin * self.bin_ns // SECOND_NS
                seconds[second] = seconds.get(second, 0) + count
            first = -(-(share.first_ns - self.zero_ns - SLACK_NS) // SECOND_NS)
            last = (share.last_ns - self.zero_ns + SLACK_NS) // SECOND_NS
            for second in range(first, last):
                got.setdefault(second, []).append(seconds.get(second, 0))
        return {
            second: sum(counts) ** 2 / (len(counts) * sum(count**2 for count in counts))
            for second, counts in sorted(got.items())
            if len(counts) > 1 and any(counts)
        }

    def points(self, run: Run) -> dict[str, Points]:
        """Goodput in kbit/s, and Jain's index in steps of 1e-4, over the page's time, by signal."""
        bins = [bin for share in self.flows for bin in share.bytes]
        every = np.arange(min(bins), max(bins) + 2)
        t = every * self.bin_ns // 1000
        rates = [
            np.array([share.good.get(int(bin), 0) for bin in every]) * 8_000_000 // self.bin_ns
            for share in self.flows
        ]
        rates = [*rates[:MOST], np.sum(rates, axis=0)]
        if (
            max(share.last_ns for share in self.flows)
            > self.zero_ns + (every[-1] + 1) * self.bin_ns
        ):
            # The capture ended before the flows did: what they carried then is not known, nor is
            # the whole of the bin in which it ended.
            for rate in rates:
                rate[-2:] = UNSET
        records = {
            signal.key: thin(t, rate, run.columns, None, keep=True)
            for signal, rate in zip(self.signals(), rates, strict=True)
        }
        jain = self.jain()
        if jain:
            seconds = np.arange(min(jain), max(jain) + 2)
            t = seconds * SECOND_NS // 1000
            values = [round(1e4 * jain[s]) if s in jain else UNSET for s in seconds.tolist()]
            records["jain"] = thin(t, np.array(values), run.columns, None, keep=True)
        return records


def load(
    con: duckdb.DuckDBPyConnection,
    run: Run,
    least: int = 2,
    most_bins: int = MOST_BINS,
    size_ns: int | None = None,
) -> Shares | None:
    """Return how the run's flows shared the link; None if fewer than `least` count.

    Bins are of `size_ns`; None: the shortest of which there are at most `most_bins`.
    """
    source = "packets"
    if least > 1 and not _may_compete(con, run):
        return None
    size = size_ns or min(bin_ns(int(run.row["duration_ns"] or 0), most_bins), SECOND_NS)
    query = _BY_PACKETS
    if not rows(con, "SELECT 1 FROM packets WHERE run_id = ? LIMIT 1", run.row["run_id"]):
        source, query = "kernel events", _BY_EVENTS
    zero = run.zero_ns
    by_flow: dict[tuple[int | None, int | None], list[Row]] = {}
    for row in rows(con, query, run_id=run.row["run_id"], zero=zero, bin_ns=size):
        by_flow.setdefault((row["flow"], row["stream"]), []).append(row)
    flows = [_share(key, records) for key, records in by_flow.items()]
    most = max((sum(flow.bytes.values()) for flow in flows), default=0)
    flows = [flow for flow in flows if sum(flow.bytes.values()) >= max(LEAST_SHARE * most, 1)]
    flows.sort(key=lambda flow: flow.first_ns)
    return Shares(source, zero, size, flows) if len(flows) >= least else None


def _may_compete(con: duckdb.DuckDBPyConnection, run: Run) -> bool:
    """Tell whether more than one sender may count, before anything is summed up."""
    sizes = [
        row["bytes"]
        for row in rows(
            con,
            "SELECT max(payload_bytes) AS bytes FROM streams WHERE run_id = ? GROUP BY stream",
            run.row["run_id"],
        )
    ]
    large = [size for size in sizes if size >= LEAST_SHARE * max(sizes) / 2]
    return len(run.main) > 1 or len(large) > 1


def _share(key: tuple[int | None, int | None], records: list[Row]) -> FlowShare:
    flow, stream = key
    name = sender_name(flow, stream)
    return FlowShare(
        flow,
        name,
        min(row["first_ns"] for row in records),
        max(row["last_ns"] for row in records),
        {row["bin"]: max(row["bytes"], 0) for row in records},
        {row["bin"]: max(row["good"], 0) for row in records},
    )


SHARES = Panel("shares", "Goodput of every flow", "Mbit/s", (), height=150)
JAIN = Panel(
    "jain",
    "Fairness",
    "Jain's index",
    (
        Signal(
            "jain",
            "Jain's index",
            "of the goodput in each second in which two or more flows were active all the time; 1: "
            "equal shares",
            "",
            1e-4,
            width=2.0,
        ),
    ),
    height=90,
)
