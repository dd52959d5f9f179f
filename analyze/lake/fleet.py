"""What a fleet asks of its lake: what costs most, what changed, which flows are worst, and why v3.

Everything is computed from stored tables that have a row or some per flow: findings, flow_limits,
flows and the rows of metrics_by_flow, so that no events are read however many runs there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ...probes.base.plurals import plural
from ..compare.noise import ALPHA, holm, interval, least_p, p_value
from ..views.events.binding_views import PACED
from ..views.runs.sender_views import why_not
from .breakdowns import BREAKDOWNS

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# A path's class: limits of round-trip time [ms], rate [Mbit/s] and share of packets lost [%]. Each
# is about the factor within which BBR's own answers (min_rtt, rounds, 2 % loss) change little; that
# of rates is small because goodput on paths of one class is compared.
_RTT, _LOSS = (5, 20, 50, 100, 200), (0.1, 1, 2, 5)
_RATE = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
WEEK_DAYS = 7
# Of a week, so many runs are compared; more make the test no better and take memory.
MOST_RUNS = 250
# Of so many classes of paths, those on which v3 is slowest beside v1, all limits are told.
SLOWEST_PATHS = 3

_LIMITS = {
    "pacing": PACED,
    "cwnd": ("cwnd_target", "probe_rtt", "recovery"),
    "inflight_hi": ("inflight_hi", "inflight_hi_headroom"),
    "inflight_lo": ("inflight_lo",),
    "application": ("application",),
    "receive window": ("receive_window",),
}


def _class(column: str, limits: Sequence[float], unit: str) -> str:
    """Return SQL that names the range in which a number lies."""
    texts = [f"< {limits[0]}", *(f"{a} to {b}" for a, b in pairwise(limits))]
    cases = " ".join(
        f"WHEN {column} < {limit} THEN '{text} {unit}'"
        for limit, text in zip(limits, texts, strict=True)
    )
    return f"CASE WHEN {column} IS NULL THEN '? {unit}' {cases} ELSE '>= {limits[-1]} {unit}' END"


# Which of a run's flows count, as view senders judges it, by what was measured of them.
_SENT = f"""
CREATE OR REPLACE TEMP TABLE fleet_senders AS
SELECT run_id, flow, {why_not()} IS NULL AS counts
FROM (SELECT run_id, run, m.flow, coalesce(acked_bytes, pkt_acked_bytes, 0) AS bytes,
  CASE WHEN f.events > 0 THEN f.main + f.sample END AS acks
  FROM metrics_by_flow m LEFT JOIN flows f USING (run_id, flow))
"""
_FLOWS = f"""
CREATE OR REPLACE TEMP TABLE fleet_flows AS
SELECT m.run_id, m.run, m.flow, coalesce(r.version, '?') AS version,
  coalesce(r.kernel, '?') AS kernel, l.host, l.day, m.duration_s, m.goodput_mbps, m.loss_rate,
  m.rtt_min_us, m.delivery_rate_max_mbps, m.queue_delay_us, m.app_limited_share,
  m.rwnd_limited_share, m.sndbuf_limited_share,
  {_class("m.rtt_min_us / 1e3", _RTT, "ms")} || ', '
  || {_class("m.delivery_rate_max_mbps", _RATE, "Mbit/s")} || ', loss '
  || {_class("m.loss_rate * 100", _LOSS, "%")} AS path_class
FROM metrics_by_flow m JOIN runs r USING (run_id) JOIN lake_runs l USING (run_id)
JOIN fleet_senders s USING (run_id, flow) WHERE s.counts AND m.duration_s > 0
"""
_CASES = " ".join(
    f"WHEN binding IN ({', '.join(repr(name) for name in names)}) THEN '{group}'"
    for group, names in _LIMITS.items()
)
_COSTS = f"""
CREATE OR REPLACE TEMP TABLE fleet_limits AS
SELECT run_id, flow, CASE {_CASES} ELSE 'unknown' END AS limited_by, sum(held_s) AS held_s,
  sum(coalesce(short_bytes, 0)) AS short_bytes
FROM flow_limits GROUP BY ALL
"""


@dataclass(frozen=True)
class Answer:
    """A table that answers one question.

    Attributes:
        name: stable, for programs.
        title, about: the question, and how to read the answer.
        rows: none where there is nothing to say, or nothing to say it from.
        empty: what the answer is if there are no rows.
    """

    name: str
    title: str
    about: str
    rows: pa.Table
    empty: str = "nothing"


def answers(
    con: duckdb.DuckDBPyConnection, by: Sequence[str], most: int, cost: str = "cost_s"
) -> Iterator[Answer]:
    """Yield the answers to everything that a fleet asks.

    Args:
        con: an open lake's.
        by: some of `BREAKDOWNS`.
        most: rows of each table, the costliest first.
        cost: by which cost, cost_s or cost_bytes.
    """
    con.execute(_SENT)
    con.execute(_FLOWS)
    con.execute(_COSTS)
    yield _costs(con, most, cost)
    for each in by:
        yield _broken_down(con, each, most, cost)
    yield _changes(con, most)
    yield _worst(con, most, cost)
    beside = _versions(con, most)
    yield beside
    yield _slower(con, beside)
    yield _limits(con)
    yield _paths(con, most)


def _table(con: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    return con.sql(query).to_arrow_table()


def _sums(total: str) -> str:
    """Return SQL of what findings `f` cost, `total` being the seconds of all flows looked at."""
    return (
        "count(DISTINCT (f.run_id, f.flow)) AS flows, count(DISTINCT f.run_id) AS runs,"
        " sum(f.cost_s) AS cost_s, sum(f.cost_bytes) AS cost_bytes,"
        f" sum(f.cost_s) / nullif({total}, 0) AS share_of_time"
    )


def _costs(con: duckdb.DuckDBPyConnection, most: int, cost: str) -> Answer:
    total = "(SELECT sum(duration_s) FROM fleet_flows)"
    rows = _table(
        con,
        f"SELECT f.name AS finding, any_value(f.title) AS title, {_sums(total)} FROM findings f"
        f" GROUP BY f.name ORDER BY {cost} DESC NULLS LAST, flows DESC, f.name LIMIT {most}",
    )
    about = "seconds and bytes that findings cost over all flows; a flow may have several"
    return Answer("findings", "What costs most", about, rows)


def _broken_down(con: duckdb.DuckDBPyConnection, by: str, most: int, cost: str) -> Answer:
    column = BREAKDOWNS[by]
    rows = _table(
        con,
        f'SELECT x."{column}" AS "{by}", f.name AS finding, any_value(f.title) AS title,'
        f" {_sums('any_value(t.seconds)')}"
        f" FROM findings f JOIN fleet_flows x USING (run_id, flow)"
        f' JOIN (SELECT "{column}", sum(duration_s) AS seconds FROM fleet_flows GROUP BY ALL) t'
        f' ON t."{column}" = x."{column}" GROUP BY x."{column}", f.name'
        f' ORDER BY {cost} DESC NULLS LAST, flows DESC, "{by}", finding LIMIT {most}',
    )
    about = f"share of time: of all seconds in which flows of the same {by} sent"
    return Answer(f"by_{by}", f"What costs most, by {by}", about, rows)


def _changes(con: duckdb.DuckDBPyConnection, most: int) -> Answer:
    """Compare the lake's last week with the one before: the share of their time that runs lost."""
    import pyarrow as pa

    shares = con.execute(_SHARES).fetchall()
    weeks = {week: [row for row in shares if row[0] == week][:MOST_RUNS] for week in (0, 1)}
    names = sorted({name for row in shares for name in row[3]})
    titles = dict(
        con.execute("SELECT name, any_value(title) FROM findings GROUP BY name").fetchall()
    )
    compared = []
    for name in names:
        before, now = (
            [dict(zip(r[3], r[4], strict=True)).get(name, 0.0) for r in weeks[w]] for w in (1, 0)
        )
        if before and now:
            block = [(before, now)]
            compared.append((name, before, now, p_value(block), interval(block)))
    adjusted = holm([row[3] for row in compared])
    rows = [
        {
            "finding": name,
            "title": titles[name],
            "before": sum(before) / len(before),
            "now": sum(now) / len(now),
            "low": None if between is None else between[0],
            "high": None if between is None else between[1],
            "p": p,
            "verdict": _verdict(before, now, p, "better", "worse"),
        }
        for (name, before, now, _, between), p in zip(compared, adjusted, strict=True)
    ]
    rows.sort(key=lambda row: (row["p"], -abs(row["now"] - row["before"]), row["finding"]))
    fields = [
        ("finding", pa.string()),
        ("title", pa.string()),
        *((n, pa.float64()) for n in ("before", "now", "low", "high", "p")),
    ]
    table = pa.Table.from_pylist(rows[:most], pa.schema([*fields, ("verdict", pa.string())]))
    about = (
        f"share of its time that a run lost, mean of {plural(len(weeks[1]), 'run')} of the week"
        " before and"
        f" {len(weeks[0])} of the last one{_days(con)}; low to high holds the difference with 95 %;"
        " p by permutation, after Holm"
    )
    empty = (
        "no finding of either week cost time"
        if weeks[1]
        else "not known: the lake has no run of the week before"
    )
    return Answer("changes", "What changed since last week", about, table, empty)


_SHARES = f"""
WITH dated AS (
  SELECT run_id, try_cast(day AS DATE) AS date, sum(duration_s) AS seconds
  FROM fleet_flows GROUP BY ALL
), weeks AS (
  SELECT run_id, seconds, ((SELECT max(date) FROM dated) - date) // {WEEK_DAYS} AS week FROM dated
), lost AS (
  SELECT run_id, name, sum(cost_s) AS cost_s FROM findings WHERE cost_s > 0 GROUP BY ALL
)
SELECT week, hash(run_id) AS drawn, run_id,
  coalesce(list(name) FILTER (name IS NOT NULL), []) AS names,
  coalesce(list(cost_s / seconds) FILTER (name IS NOT NULL), []) AS shares
FROM weeks LEFT JOIN lost USING (run_id) WHERE week IN (0, 1)
GROUP BY ALL ORDER BY drawn
"""


def _days(con: duckdb.DuckDBPyConnection) -> str:
    """Say which days the last week has: its end is the lake's latest day, not today."""
    query = (
        f"SELECT (max(date) - {WEEK_DAYS - 1})::VARCHAR, max(date)::VARCHAR,"
        " count(*) FILTER (date IS NULL)"
        " FROM (SELECT DISTINCT run_id, try_cast(day AS DATE) AS date FROM fleet_flows)"
    )
    ((first, last, undated),) = con.execute(query).fetchall()
    days = f" ({first} to {last})" if last else ""
    return days + (f", without {plural(undated, 'run')} of unknown day" if undated else "")


def _verdict(before: Sequence[float], now: Sequence[float], p: float, less: str, more: str) -> str:
    """Say if the values now are less or more, or why that is not known."""
    if least_p([(len(before), len(now))]) >= ALPHA:
        return "too few to tell from noise"
    if p >= ALPHA:
        return "no more than noise"
    return more if sum(now) / len(now) > sum(before) / len(before) else less


def _worst(con: duckdb.DuckDBPyConnection, most: int, cost: str) -> Answer:
    rows = _table(
        con,
        "SELECT x.run, x.flow, x.version, x.host, x.day, x.path_class, f.cost_s, f.cost_bytes,"
        " f.cost_s / x.duration_s AS share_of_time, f.name AS finding, f.title"
        " FROM findings f JOIN fleet_flows x USING (run_id, flow)"
        " QUALIFY row_number() OVER (PARTITION BY f.run_id, f.flow"
        f" ORDER BY f.{cost} DESC NULLS LAST, f.rank) = 1"
        f" ORDER BY f.{cost} DESC NULLS LAST, x.run, x.flow LIMIT {most}",
    )
    about = "each with its costliest finding; bbrscope explain RUN --flow FLOW --store DIR tells it"
    return Answer("worst", "The worst flows", about, rows)


def _versions(con: duckdb.DuckDBPyConnection, most: int) -> Answer:
    """Compare v3 with v1 where both sent over paths of one class."""
    import pyarrow as pa

    fetched = con.execute(
        "SELECT path_class, list(goodput_mbps) FILTER (version = 'v1') AS v1,"
        " list(goodput_mbps) FILTER (version = 'v3') AS v3"
        " FROM (FROM fleet_flows ORDER BY hash(run_id)) WHERE goodput_mbps > 0"
        " GROUP BY path_class HAVING v1 IS NOT NULL AND v3 IS NOT NULL"
    ).fetchall()
    blocks = [(v1[:MOST_RUNS], v3[:MOST_RUNS]) for _, v1, v3 in fetched]
    adjusted = holm([p_value([block]) for block in blocks])
    rows = [
        {
            "path": path,
            "v1_flows": len(v1),
            "v3_flows": len(v3),
            "v1_mbps": sum(v1) / len(v1),
            "v3_mbps": sum(v3) / len(v3),
            "p": p,
            "verdict": _verdict(v1, v3, p, "v3 is slower", "v3 is faster"),
            "limit": _limit_that_grew(con, path),
        }
        for (path, v1, v3), p in zip(fetched, adjusted, strict=True)
    ]
    rows.sort(key=lambda row: (row["v3_mbps"] / (row["v1_mbps"] or 1), row["path"]))
    fields = [
        ("path", pa.string()),
        ("v1_flows", pa.int64()),
        ("v3_flows", pa.int64()),
        *((name, pa.float64()) for name in ("v1_mbps", "v3_mbps", "p")),
        ("verdict", pa.string()),
        ("limit", pa.string()),
    ]
    about = (
        "mean goodput of flows on paths of one class; p by permutation, after Holm; limit: what"
        " cost v3 more bytes per second than v1, most of all"
    )
    table = pa.Table.from_pylist(rows[:most], pa.schema(fields))
    return Answer("v3_and_v1", "v3 beside v1 on like paths", about, table)


# Bytes missing per second that such flows sent, in Mbit/s; flows without events have no limits.
_BESIDE = """
WITH sent AS (
  SELECT version, sum(duration_s) AS seconds
  FROM fleet_flows SEMI JOIN fleet_limits USING (run_id, flow)
  WHERE path_class = $path GROUP BY ALL
), lost AS (
  SELECT limited_by, version, held_s, short_bytes
  FROM fleet_limits JOIN fleet_flows USING (run_id, flow) WHERE path_class = $path
)
SELECT $path AS path, limited_by,
  coalesce(sum(held_s) FILTER (version = 'v1'), 0) AS v1_held_s,
  coalesce(sum(held_s) FILTER (version = 'v3'), 0) AS v3_held_s,
  coalesce(sum(short_bytes) FILTER (version = 'v1'), 0) AS v1_short_bytes,
  coalesce(sum(short_bytes) FILTER (version = 'v3'), 0) AS v3_short_bytes,
  (v3_short_bytes / (SELECT seconds FROM sent WHERE version = 'v3')
    - v1_short_bytes / (SELECT seconds FROM sent WHERE version = 'v1')) / 125e3 AS more_mbps
FROM lost GROUP BY limited_by HAVING v1_held_s > 0 OR v3_held_s > 0
ORDER BY more_mbps DESC NULLS LAST, limited_by
"""


def _beside(con: duckdb.DuckDBPyConnection, path: str) -> pa.Table:
    return con.sql(_BESIDE, params={"path": path}).to_arrow_table()


def _limit_that_grew(con: duckdb.DuckDBPyConnection, path: str) -> str | None:
    rows = _beside(con, path).to_pylist()
    if not rows or rows[0]["more_mbps"] is None or rows[0]["more_mbps"] <= 0:
        return None
    return f"{rows[0]['limited_by']} (+{rows[0]['more_mbps']:.3g} Mbit/s)"


def _slower(con: duckdb.DuckDBPyConnection, beside: Answer) -> Answer:
    """Say what each limit cost v1 and v3 where v3 is slower, the slowest first as in `beside`."""
    import pyarrow as pa

    slower = [row["path"] for row in beside.rows.to_pylist() if row["v3_mbps"] < row["v1_mbps"]]
    tables = [_beside(con, path) for path in slower[:SLOWEST_PATHS] or [""]]
    about = (
        "how long each limit held, and what was missing to the full rate meanwhile, on the paths"
        " above on which v3 is slower; more: what was missing in each second that v3 sent, less the"
        " same of v1"
    )
    rows = pa.concat_tables(tables)
    return Answer("v3_limits", "What limited v3 where it is slower", about, rows)


def _limits(con: duckdb.DuckDBPyConnection) -> Answer:
    rows = _table(
        con,
        "SELECT version, limited_by, sum(held_s) AS held_s, sum(short_bytes) AS short_bytes,"
        " sum(held_s) / any_value(t.seconds) AS share_of_time"
        " FROM fleet_limits JOIN fleet_flows USING (run_id, flow) JOIN (SELECT version,"
        " sum(duration_s) AS seconds FROM fleet_flows SEMI JOIN fleet_limits USING (run_id, flow)"
        " GROUP BY ALL) t USING (version)"
        " GROUP BY ALL ORDER BY version, short_bytes DESC",
    )
    about = "how long each limit held, and what was missing to the full rate meanwhile"
    return Answer("limits", "What limited sending", about, rows)


def _paths(con: duckdb.DuckDBPyConnection, most: int) -> Answer:
    """Say how flows did; recordings without events tell no more than this."""
    rows = _table(
        con,
        "SELECT path_class AS path, version, count(*) AS flows, sum(duration_s) AS sent_s,"
        " median(goodput_mbps) AS goodput_mbps, median(queue_delay_us) / 1e3 AS queue_ms,"
        " median(loss_rate) AS lost_share, avg(app_limited_share) AS app_share,"
        " avg(rwnd_limited_share) AS rwnd_share, avg(sndbuf_limited_share) AS sndbuf_share"
        f" FROM fleet_flows GROUP BY ALL ORDER BY sent_s DESC, path, version LIMIT {most}",
    )
    about = (
        "what was measured of all flows, of samples (inet_diag, M-Lab's archives) too: medians of"
        " goodput, queueing delay and losses (of samples: packets sent again), means of the shares"
        " of time that application, receive window and send buffer limited; -: not recorded. Why"
        " is known of recordings with events alone"
    )
    return Answer("paths", "How flows did", about, rows)
