"""The runs of a scenario as relations that claims and figures ask.

All are temporary tables, so that they are worked out once and hold nothing but these runs:

points          rows of lab_runs, and what all flows of the run reached together
point_flows     rows of lab_flows, with the kernel's metrics of the flow
point_seconds   rows of lab_intervals
point_links     the bottleneck's rate over time
single_flows    the flow of each point that has one flow, with the point's path
firsts          the first repetition of each point, and its facet: the name that figures show

`over_time` has more, for figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...probes.base.errors import BbrscopeError
from ..models import ware
from ..models.cliff import cliff
from . import found_views, over_time, tree

if TYPE_CHECKING:
    from ...collect.store.store import Store

# Payload of a full-sized packet, and the same packet as tbf counts it: IPv4, timestamps, Ethernet.
PAYLOAD, FRAME = 1448, 1514

_FLOWS = """
CREATE OR REPLACE TEMP TABLE point_flows AS
WITH spans AS (
  SELECT run_id, max(start_s) AS begin_s, min(stop_s) AS end_s, count(*) AS flows
  FROM lab_flows WHERE bytes IS NOT NULL GROUP BY run_id
), together AS (
  SELECT i.run_id, i.flow_no, sum(i.goodput_bps * i.seconds) AS bits
  FROM lab_intervals i JOIN spans s USING (run_id)
  WHERE i.t_s >= s.begin_s AND i.t_s + i.seconds <= s.end_s + 0.01
  GROUP BY i.run_id, i.flow_no
)
SELECT f.*,
  coalesce(f.bbr_version, CASE f.cc WHEN 'bbr2' THEN 'v2' WHEN 'bbr3' THEN 'v3' ELSE f.cc END)
    AS algo,
  f.cc LIKE '%bbr%' AS bbr, NULL::VARCHAR AS label, f.goodput_bps / 1e6 AS goodput_mbps,
  t.bits / nullif(sum(t.bits) OVER (PARTITION BY f.run_id), 0) AS share,
  f.retransmits / nullif(f.bytes / {payload} + f.retransmits, 0) AS loss_rate,
  m.cwnd_packets, m.inflight_packets, m.rtt_mean_us / 1e3 AS rtt_mean_ms,
  m.rtt_min_us / 1e3 AS rtt_min_ms, m.queue_delay_us / 1e3 AS queue_delay_ms, m.loss_rate AS
  marked_lost_rate
FROM lab_flows f LEFT JOIN together t USING (run_id, flow_no)
LEFT JOIN flow_metrics m USING (run_id, flow)
WHERE f.run_id IN (SELECT run_id FROM chosen)
"""

# A flow is called by its congestion control: with a number if the run has a few of the same, and
# with the others of its run if there are any.
_LABELS = """
UPDATE point_flows SET label = l.label FROM (
  SELECT f.run_id, f.flow_no, f.algo
    || CASE WHEN count(*) OVER same BETWEEN 2 AND 5
      THEN ' flow ' || row_number() OVER (same ORDER BY f.flow_no) ELSE '' END
    || coalesce(' beside ' || (SELECT string_agg(DISTINCT o.algo, '+' ORDER BY o.algo)
        FROM point_flows o WHERE o.run_id = f.run_id AND o.algo <> f.algo), '') AS label
  FROM point_flows f WINDOW same AS (PARTITION BY f.run_id, f.algo)
) l WHERE l.run_id = point_flows.run_id AND l.flow_no = point_flows.flow_no
"""

_POINTS = """
CREATE OR REPLACE TEMP TABLE points AS
WITH counted AS (
  SELECT run_id, string_agg(CASE WHEN n > 1 THEN n || 'x ' ELSE '' END || algo, ' + '
    ORDER BY bbr DESC, algo) AS algos
  FROM (SELECT run_id, algo, bbr, count(*) AS n FROM point_flows GROUP BY ALL) GROUP BY run_id
)
SELECT l.*, r.run, l.rate_bps / 1e6 AS rate_mbps, l.rtt_us / 1e3 AS rtt_ms,
  format('{{:.5g}} Mbit/s, {{:.4g}} ms', l.rate_bps / 1e6, l.rtt_us / 1e3) AS path,
  l.buffer_bytes / nullif(l.bdp_bytes, 0) AS buffer_bdp, f.algos, f.goodput_mbps, f.retransmits,
  f.goodput_mbps * {frame} / {payload} / k.mean_mbps AS utilisation, f.jain, f.bbr_share,
  f.bbr_flows
FROM chosen l JOIN runs r USING (run_id) LEFT JOIN (
  SELECT run_id, sum(rate_mbps * (end_s - start_s)) / sum(end_s - start_s) AS mean_mbps
  FROM point_links GROUP BY run_id
) k USING (run_id) LEFT JOIN (
  SELECT run_id, any_value(algos) AS algos,
    sum(bytes) * 8 / 1e6 / nullif(max(stop_s) - min(start_s), 0) AS goodput_mbps,
    sum(retransmits)::BIGINT AS retransmits,
    CASE WHEN count(*) > 1 THEN sum(share) ** 2 / nullif(count(share) * sum(share ** 2), 0) END
      AS jain,
    sum(share) FILTER (bbr) AS bbr_share, count_if(bbr) AS bbr_flows
  FROM point_flows JOIN counted USING (run_id) GROUP BY run_id
) f USING (run_id)
"""

_SECONDS = """
CREATE OR REPLACE TEMP TABLE point_seconds AS
SELECT i.run_id, i.flow_no, f.algo, f.bbr, i.t_s, i.seconds, i.goodput_bps / 1e6 AS goodput_mbps
FROM lab_intervals i JOIN point_flows f USING (run_id, flow_no)
"""

# at_s of a change is when it was done, from the start of the traffic.
_LINKS = """
CREATE OR REPLACE TEMP TABLE point_links AS
WITH steps AS (
  SELECT run_id, duration_s, 0.0 AS start_s, rate_bps / 1e6 AS rate_mbps FROM chosen
  UNION ALL
  SELECT run_id, duration_s, TRY_CAST(c->>'at_s' AS DOUBLE), TRY_CAST(c->>'value' AS DOUBLE) / 1e6
  FROM (SELECT run_id, duration_s, unnest(from_json(changes, '["json"]')) AS c FROM chosen)
  WHERE c->>'what' = 'rate'
)
SELECT run_id, start_s, coalesce(lead(start_s) OVER w, greatest(duration_s, start_s)) AS end_s,
  rate_mbps, lag(rate_mbps) OVER w AS before_mbps
FROM steps WHERE start_s IS NOT NULL AND rate_mbps IS NOT NULL
WINDOW w AS (PARTITION BY run_id ORDER BY start_s)
"""

_SINGLE_FLOWS = """
CREATE OR REPLACE TEMP TABLE single_flows AS
SELECT p.run_id, p.rate_mbps, p.rtt_ms, p.buffer_bytes, p.buffer_bdp, p.loss,
  f.* EXCLUDE (run_id)
FROM points p JOIN point_flows f USING (run_id) WHERE p.flows = 1
"""

_FIRSTS = """
CREATE OR REPLACE TEMP TABLE firsts AS
SELECT arg_min(run_id, (rep, run_id)) AS run_id,
  format('{}: {:.5g} Mbit/s, {:.4g} ms, buffer {:.3g} BDP', algos, rate_mbps, rtt_ms, buffer_bdp)
    || CASE WHEN loss > 0 THEN format(', loss {:.3g} %', 100 * loss) ELSE '' END AS facet
FROM points WHERE algos IS NOT NULL GROUP BY facet
"""


@dataclass(frozen=True)
class Chosen:
    """Which runs a study is about.

    Attributes:
        run_ids: the valid ones of the form that is looked at.
        quick: that form: quick or full.
        invalid: runs that were left out as not valid, with the reason.
        other_form: how many valid runs of the other form were left out.
    """

    run_ids: tuple[int, ...]
    quick: bool
    invalid: tuple[tuple[str, str], ...]
    other_form: int


def choose(
    store: Store, scenario: str, runs: Sequence[str] = (), quick: bool | None = None
) -> Chosen:
    """Return the runs of a scenario, of all or of those named; the full form if there is any.

    Raises:
        BbrscopeError: no such run, or none of this scenario.
    """
    named = [store.run_id(name) for name in runs]
    rows = store.con.execute(
        "SELECT run_id, run, quick, valid, why_invalid FROM lab_runs JOIN runs USING (run_id)"
        " WHERE lab_runs.scenario = ? AND (? OR list_contains(?, run_id)) ORDER BY run_id",
        [scenario, not named, named],
    ).fetchall()
    if len(rows) < len(named):
        present = {row[0] for row in rows}
        lost = next(name for name, i in zip(runs, named, strict=True) if i not in present)
        raise BbrscopeError(f"{lost} is no run of {scenario}", "see `bbrscope runs`")
    valid = [row for row in rows if row[3]]
    if quick is None:
        quick = all(row[2] for row in valid)
    run_ids = tuple(row[0] for row in valid if row[2] == quick)
    invalid = tuple((row[1], row[4] or "not said") for row in rows if not row[3])
    return Chosen(run_ids, quick, invalid, len(valid) - len(run_ids))


def make(store: Store, chosen: Chosen) -> None:
    """Make the relations of the module's docstring, and the models' functions for SQL.

    ware_share(rate_bps, rtt_us, buffer_bytes, flows, gain, duration_s) is Ware19's equation 10,
    ware_rtt_alone_ms(rate_bps, rtt_us, flows) its 6, ware_probe_share(rate_bps, rtt_us,
    buffer_bytes) its 11 over the duration, loss_cliff(gain) Cao19's. tree_accuracies(rates_mbps,
    rtts_ms, buffers_bytes, bbr, cubic), of lists with an item for each path, are those of the
    decision tree on its folds; an empty list: too few paths, or no scikit-learn.
    """
    import duckdb

    con = store.con
    con.execute(
        "CREATE OR REPLACE TEMP TABLE chosen AS FROM lab_runs WHERE list_contains(?, run_id)",
        [list(chosen.run_ids)],
    )
    found_views.find_flow_metrics(con, chosen.run_ids)
    con.execute(_FLOWS.format(payload=PAYLOAD))
    con.execute(_LABELS)
    con.execute(_LINKS)
    con.execute(_POINTS.format(payload=PAYLOAD, frame=FRAME))
    for statement in (_SECONDS, _SINGLE_FLOWS, _FIRSTS):
        con.execute(statement)
    for name, query in over_time.VIEWS.items():
        con.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")
    for function in (
        _ware_share,
        _ware_rtt_alone_ms,
        _ware_probe_share,
        _loss_cliff,
        _tree_accuracies,
    ):
        name = function.__name__.removeprefix("_")
        # A store stays open for one study after another.
        with suppress(duckdb.InvalidInputException):
            con.remove_function(name)
        con.create_function(name, function)


def _ware_share(
    rate_bps: float, rtt_us: float, buffer_bytes: float, flows: int, gain: float, duration_s: float
) -> float:
    link = _link(rate_bps, rtt_us, buffer_bytes)
    return ware.predict(link, flows, gain, duration_s).bbr_share


def _ware_rtt_alone_ms(rate_bps: float, rtt_us: float, flows: int) -> float:
    return 1e3 * ware.rtt_estimate_alone(_link(rate_bps, rtt_us, 1), flows)


def _ware_probe_share(rate_bps: float, rtt_us: float, buffer_bytes: float) -> float:
    return ware.probe_time(_link(rate_bps, rtt_us, buffer_bytes), duration_s=1)


def _link(rate_bps: float, rtt_us: float, buffer_bytes: float) -> ware.Link:
    return ware.Link(rate_bps / 8 / FRAME, rtt_us / 1e6, buffer_bytes / FRAME)


def _loss_cliff(gain: float) -> float:
    return cliff(gain)


def _tree_accuracies(
    rates_mbps: list[float],
    rtts_ms: list[float],
    buffers_bytes: list[float],
    bbr: list[float],
    cubic: list[float],
) -> list[float]:
    names = ("rate_mbps", "rtt_ms", "buffer_bytes", "bbr", "cubic")
    paths = zip(rates_mbps, rtts_ms, buffers_bytes, bbr, cubic, strict=True)
    try:
        return list(tree.grow([dict(zip(names, path, strict=True)) for path in paths]).accuracies)
    except BbrscopeError:
        return []
