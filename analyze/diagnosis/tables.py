"""What rules ask: a run's flows, events, phases, limits and surroundings, worked out once.

Planning a query costs more than running it over a run of usual size. So the temporary tables here
(names begin with ``these_``) hold several runs, and have a column run_id. Rules are SQL over one
run's rows of them (names begin with ``this_``, see `Prepared`) and over the store itself.
Times are CLOCK_MONOTONIC [ns], rates bytes of payload per second, volumes packets, unless a
column's name says otherwise. Flows that carried next to nothing (iperf3's control connection) are
left out, as the report leaves them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...collect.bundle import rungs
from ...collect.store.query import Row, rows
from ..views.materialize import materialized_tables, narrowed, narrowed_query
from ..views.registry import VIEWS
from ..views.runs.sender_views import LEAST_SPELLS
from ..views.view import words_of
from .bound_tables import BOUND_DECISIONS, BOUNDS
from .course_tables import BINDING, DECISIONS, PHASES
from .event_tables import EVENTS, OWN_LINKS, SECOND
from .loss_tables import BURSTS, DROPS, LATE, MARKS, TIMEOUTS, TWICE, UNDONE
from .param_tables import PARAMETERS
from .path_tables import (
    ALONE,
    FAIR,
    FIRST_SAMPLES,
    LITTLE,
    OTHER_SENDERS,
    OTHERS,
    OUTSIDE,
    PASSERS,
    PATHS,
    POLICED,
    PROBES,
    QUEUE,
    RIVALS,
    SMALLER,
    STATED,
    TRENDS,
    TRIPS,
)
from .rule_macros import RULE_MACROS
from .seen_tables import FACTS, SEEN
from .short_tables import SHORT

if TYPE_CHECKING:
    import duckdb

# One row: the run, zero of its clock, and when the last of its flows ended; no flow: no row.
_RUN = """
SELECT run_id, r.run, r.version, r.kernel, r.hz, r.setup, any_value(c.zero_ns) AS zero_ns,
  max(c.last_event_ns) AS last_event_ns, count(*) AS flows
FROM runs r JOIN these_chosen c USING (run_id) GROUP BY ALL
"""

# The flows that carry data and of which main() was recorded, or the state at each packet: samples,
# but not of rung phases, which are few.
_CHOSEN = (
    "SELECT run_id, flow, s.last_event_ns, s.zero_ns FROM senders s"
    " JOIN flows f USING (run_id, flow) JOIN runs r USING (run_id) WHERE s.counts"
    f" AND (f.main > 0 OR f.sample > 0 AND r.rung IS DISTINCT FROM '{rungs.PHASES.name}')"
)

# When all senders were there, and which whole seconds since zero_ns that are; no row: never. Flows
# are compared at no other time. As comparison_windows has it, but where no packets were captured, a
# lab's other flows count, too: their iperf3 says when they sent.
_WINDOW = """
WITH sent AS (
  SELECT run_id, first_ns, last_ns, zero_ns FROM senders WHERE counts
  UNION ALL
  SELECT run_id, (x.traffic_start_ns + 1e9 * min(i.t_s))::BIGINT,
    (x.traffic_start_ns + 1e9 * max(i.t_s + i.seconds))::BIGINT, NULL
  FROM lab_intervals i JOIN lab_flows f USING (run_id, flow_no) JOIN runs x USING (run_id)
  WHERE run_id IN {chosen} AND f.flow IS NULL AND i.goodput_bps > 0
    AND run_id NOT IN (SELECT run_id FROM streams)
  GROUP BY run_id, i.flow_no, x.traffic_start_ns
)
SELECT run_id, max(first_ns) AS start_ns, min(last_ns) AS end_ns,
  ceil((max(first_ns) - any_value(zero_ns)) / 1e9 - 1e-3)::INTEGER AS first_s,
  (floor((min(last_ns) - any_value(zero_ns)) / 1e9 + 1e-3) - 1)::INTEGER AS last_s
FROM sent GROUP BY run_id HAVING count(*) > 1 AND max(first_ns) < min(last_ns)
"""

_BASES = "SELECT run_id, flow, base_rtt_us AS us, source FROM base_rtts"


_FLOWS = f"""
SELECT run_id, flow, min(ns) AS first_ns, max(ns) AS last_ns,
  (max(ns) - min(ns)) / 1e9 AS duration_s, max(mss) AS mss,
  sum(acked_bytes)::BIGINT AS acked_bytes, sum(delivered)::BIGINT AS delivered,
  sum(lost)::BIGINT AS lost, sum(ce)::BIGINT AS ce, min(rtt_us) AS rtt_min_us,
  coalesce(any_value(base.us), min(rtt_us))::DOUBLE AS base_rtt_us,
  any_value(base.source) IN ('lab', 'setup') AS base_is_known,
  max(max_bw) AS max_bw, max(capacity) AS capacity, coalesce(max(capacity), max(max_bw)) AS rate,
  sum(acked_bytes) / nullif((max(ns) - min(ns)) / 1e9, 0) AS goodput,
  sum(lost) / nullif(sum(lost) + sum(delivered), 0) AS loss_share,
  -- TCP_CA_Disorder (1) that ended in TCP_CA_Open (0): a hole that closed by itself.
  count_if(new_state = 0 AND ca_state = 1) AS disorder_spells,
  -- The path's habit: its least round trip is that of its fastest packets.
  disorder_spells >= {LEAST_SPELLS} AS reorders
FROM these_events JOIN these_bases base USING (run_id, flow)
GROUP BY run_id, flow ORDER BY run_id, flow
"""

# Who carried how much in each second since zero_ns: flows by their ACKs, and other senders by the
# payload of captured connections, or by what a lab's iperf3 received: in the second that most of an
# interval lies in, for the first one begins a round trip before any event. full_bytes is what a
# sender could have carried in the time that it was there, had it sent: an equal part of what the
# link carries (where that is not known, see parts) beside senders too small to count; short_bytes
# is what is missing to it. Rows are in one order, as those of SHORT are.
_SECONDS = f"""
WITH spans AS (
  SELECT run_id, f.flow, f.rate, second::INTEGER AS second,
    (least(f.last_ns, r.zero_ns + (second + 1) * 1000000000)
      - greatest(f.first_ns, r.zero_ns + second * 1000000000)) / 1e9 AS covered_s
  FROM these_flows f JOIN these_run r USING (run_id),
    generate_series((f.first_ns - r.zero_ns) // 1000000000,
      (f.last_ns - r.zero_ns) // 1000000000) AS t(second)
), carried AS (
  SELECT run_id, flow, second,
    sum(e.acked_bytes)::BIGINT AS bytes, sum(e.lost)::BIGINT AS lost,
    sum(e.delivered)::BIGINT AS delivered, avg(e.full_rate) AS full_rate,
    avg(coalesce(e.link_rate, e.full_rate)) AS link_rate, min(e.rtt_us) AS rtt_min_us,
    avg(e.srtt_us) AS srtt_us, arg_max(e.packets_out, e.seq) AS unacked
  FROM these_events e GROUP BY ALL
), ours AS (
  SELECT run_id, s.flow, s.second, s.covered_s, coalesce(c.bytes, 0) AS bytes,
    coalesce(c.lost, 0) AS lost, coalesce(c.delivered, 0) AS delivered,
    coalesce(c.full_rate, s.rate) AS full_rate, coalesce(c.link_rate, s.rate) AS link_rate,
    c.rtt_min_us, c.srtt_us, o.extra_rtt_us AS own_link,
    -- A flow that waits all second for its packets to be acknowledged or sent again, in an outage
    -- perhaps without an event, has left the path to nobody.
    coalesce(c.bytes > 0, false) OR s.covered_s > 0.99 AND coalesce(last_value(c.unacked IGNORE
      NULLS) OVER (PARTITION BY run_id, s.flow ORDER BY s.second) > 0, false) AS sends
  FROM spans s LEFT JOIN carried c USING (run_id, flow, second)
    LEFT JOIN these_own_links o USING (run_id, flow)
), theirs AS (
  SELECT run_id, p.stream AS other, {SECOND.format("p.ns")} AS second,
    sum(p.len)::BIGINT AS bytes
  FROM packets p JOIN these_other_senders s USING (run_id, stream) JOIN these_run r USING (run_id)
  WHERE p.run_id IN {{chosen}} AND p.direction = 'data'
    AND p.ns BETWEEN r.zero_ns AND r.last_event_ns
  GROUP BY ALL
  UNION ALL
  SELECT run_id, f.flow_no,
    ((x.traffic_start_ns::BIGINT + (i.t_s + i.seconds / 2) * 1e9 - r.zero_ns) // 1e9)::INTEGER,
    sum(i.goodput_bps * i.seconds / 8)::BIGINT
  FROM lab_flows f JOIN lab_intervals i USING (run_id, flow_no) JOIN runs x USING (run_id)
    JOIN these_run r USING (run_id)
  WHERE run_id IN {{chosen}} AND f.flow IS NULL
    AND i.t_s + i.seconds / 2 BETWEEN (r.zero_ns - x.traffic_start_ns::BIGINT) / 1e9
      AND (r.last_event_ns - x.traffic_start_ns::BIGINT) / 1e9
    AND run_id NOT IN (SELECT run_id FROM streams)
  GROUP BY ALL
), senders AS (
  SELECT run_id, second, count(*) AS senders FROM (
    SELECT run_id, second FROM ours WHERE sends
    UNION ALL SELECT run_id, second FROM theirs WHERE bytes > 0)
  GROUP BY run_id, second
), links AS (
  SELECT run_id, max(capacity) IS NOT NULL AS known FROM these_flows GROUP BY run_id
), shown AS (
  SELECT run_id, max(bytes) AS most FROM (
    SELECT run_id, second, sum(bytes) AS bytes FROM (
      SELECT run_id, second, bytes FROM ours UNION ALL SELECT run_id, second, bytes FROM theirs)
    GROUP BY run_id, second) GROUP BY run_id
), parts AS (
  -- A flow's part of a link is what it would have if it sent: the link is divided among its senders
  -- and, if it does not send, the flow itself. So is a sender's own link (`apart`: how many are
  -- known to send by another). Of an unknown link a flow's part is what it believes in, and beside
  -- others no more than an equal part of the most that all carried in a second; behind a policer,
  -- whose bucket let pass what it believes in, not alone either.
  SELECT ours.*, coalesce(senders, 1) AS senders,
    coalesce(senders, 0) + (NOT sends)::INTEGER AS sharers,
    count_if(sends) OVER (PARTITION BY run_id, second)
      - count_if(sends) OVER (PARTITION BY run_id, second, own_link) AS apart,
    covered_s * CASE WHEN links.known
      THEN least(greatest(0, link_rate - coalesce(little.bytes, 0)) / sharers,
        full_rate / greatest(1, sharers - apart))
      WHEN sharers > 1 OR policed.dropped > 0 THEN least(full_rate, shown.most / sharers)
      ELSE full_rate END AS full_bytes
  FROM ours JOIN links USING (run_id) JOIN shown USING (run_id)
    LEFT JOIN these_policed policed USING (run_id)
    LEFT JOIN senders USING (run_id, second) LEFT JOIN these_little little USING (run_id, second)
)
SELECT run_id, flow, NULL::UINTEGER AS other, second, bytes, lost, delivered, covered_s, senders,
  full_rate, link_rate, rtt_min_us, srtt_us, full_bytes,
  greatest(0, full_bytes - bytes) AS short_bytes
FROM parts
UNION ALL
SELECT run_id, NULL, other, second, bytes, NULL, NULL, 1, senders, NULL, NULL, NULL, NULL, NULL,
  NULL
FROM theirs JOIN senders USING (run_id, second)
ORDER BY run_id, flow, other, second
"""

TABLES = {
    "chosen": _CHOSEN,
    "other_senders": OTHER_SENDERS,
    "bases": _BASES,
    "run": _RUN,
    "passers": PASSERS,
    "window": _WINDOW,
    "policed": POLICED,
    "fair": FAIR,
    "own_links": OWN_LINKS,
    "events": EVENTS,
    "flows": _FLOWS,
    "phases": PHASES,
    "binding": BINDING,
    "bounds": BOUNDS,
    "decisions": DECISIONS,
    "bound_decisions": BOUND_DECISIONS,
    "others": OTHERS,
    "smaller": SMALLER,
    "little": LITTLE,
    "seconds": _SECONDS,
    "rivals": RIVALS,
    "trends": TRENDS,
    "outside": OUTSIDE,
    "alone": ALONE,
    "probes": PROBES,
    "short": SHORT,
    "first_samples": FIRST_SAMPLES,
    "queue": QUEUE,
    "drops": DROPS,
    "trips": TRIPS,
    "stated": STATED,
    "paths": PATHS,
    "undone": UNDONE,
    "late": LATE,
    "timeouts": TIMEOUTS,
    "marks": MARKS,
    "twice": TWICE,
    "bursts": BURSTS,
    "seen": SEEN,
    "facts": FACTS,
    "params": PARAMETERS,
}

# Of these, DuckDB is to look at the runs' rows only, through the views' windows as well.
_NARROWED = frozenset(
    "chosen passers other_senders bases window phases binding bounds little".split()
)
# Views that several of them, or of their readers, read: found once.
_SHARED = ("senders", "transitions", "phases", "binding")
SHARED_PREFIX = "these_shared_"
# The senders of the way that the tables are about.
ONE_WAY = "these_senders_of_way"
# Flows that no rule looks at, of runs where they carried enough to count, all together.
SMALL = f"""
SELECT run_id, count(*), sum(bytes)::BIGINT FROM {ONE_WAY}
WHERE NOT counts AND flow IS NOT NULL AND bytes > 0
  AND run_id IN (SELECT run_id FROM these_smaller WHERE there) GROUP BY run_id
"""


@dataclass(frozen=True)
class Prepared:
    """The tables of `TABLES` about runs, in a connection, until the next are made there.

    `ways` are the runs of each way that has flows with data.
    """

    con: duckdb.DuckDBPyConnection
    run_ids: tuple[int, ...]
    ways: Mapping[int, Sequence[int]]

    def ask(
        self, query: str, run_ids: Sequence[int], **values: object
    ) -> Iterator[tuple[int, Row]]:
        """Run a query over the ``this_`` tables of each of some runs; yield (run_id, row).

        Args:
            run_ids: some of those that the tables are about.
            values: the query's parameters.
        """
        if len(self.run_ids) > 1:
            query = _of_each(query, run_ids)
        for row in rows(self.con, query, **values) if run_ids else ():
            yield int(row.pop(_OF_RUN, self.run_ids[0])), row


def prepare(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int], codes: Sequence[str], way: int = 1
) -> Prepared:
    """Make the tables of `TABLES` about runs; `codes` are the decisions that rules ask for.

    Senders of one `way` share what they pass, and nothing with those of others (view senders): the
    tables are about its senders. If there is a single run, the ``this_`` tables with its rows are
    made as well.
    """
    chosen = f"({', '.join(str(int(run_id)) for run_id in run_ids) or 'NULL'})"
    stored = materialized_tables(con, run_ids)
    _drop_earlier(con)
    for macro in RULE_MACROS:
        con.execute(macro.ddl(temporary=True))
    for view in VIEWS:
        if view.name in _SHARED and view.name not in stored:
            table = SHARED_PREFIX + view.name
            con.execute(f'CREATE TEMP TABLE "{table}" AS {narrowed(view, chosen, stored)}')
            stored[view.name] = table
    of_way = f"SELECT * FROM {stored['senders']} WHERE way = {int(way)}"
    con.execute(f"CREATE TEMP VIEW {ONE_WAY} AS {of_way}")
    ways = _ways(con, stored["senders"])
    stored["senders"] = ONE_WAY
    for name, query in TABLES.items():
        query = query.replace("{chosen}", chosen)
        if name in _NARROWED:
            query = narrowed_query(query, chosen, stored)
        _make(con, name, query, {"codes": list(codes)} if "$codes" in query else {}, run_ids)
    return Prepared(con, tuple(run_ids), ways)


def _ways(con: duckdb.DuckDBPyConnection, senders: str) -> dict[int, list[int]]:
    """Return the runs of each way on which a flow that counts sends; the first has all others."""
    query = f"SELECT way, list(DISTINCT run_id ORDER BY run_id) FROM {senders}"
    found = con.execute(f"{query} WHERE counts AND flow IS NOT NULL GROUP BY way ORDER BY way")
    return dict(found.fetchall())


def _drop_earlier(con: duckdb.DuckDBPyConnection) -> None:
    """Drop what an earlier call made: a name may have been a table's and become a view's."""
    earlier = con.execute(
        "SELECT 'TABLE', table_name FROM duckdb_tables() WHERE temporary UNION ALL"
        " SELECT 'VIEW', view_name FROM duckdb_views() WHERE temporary"
    ).fetchall()
    for kind, name in earlier:
        if name.startswith(("these_", "this_")):
            con.execute(f'DROP {kind} "{name}"')


def _make(
    con: duckdb.DuckDBPyConnection,
    name: str,
    query: str,
    values: Mapping[str, object],
    run_ids: Sequence[int],
) -> None:
    """Make one of the tables; of a single run as rules ask for it, and a view with its run_id."""
    if len(run_ids) == 1:
        con.execute(f"CREATE TEMP TABLE this_{name} AS {_of_one(name, f'({query})')}", values)
        number = "" if name == "run" else f"{int(run_ids[0])} AS run_id, "
        con.execute(f"CREATE TEMP VIEW these_{name} AS SELECT {number}* FROM this_{name}")
    else:
        con.execute(f"CREATE TEMP TABLE these_{name} AS {query}", values)


_OF_RUN = "asked_run_id"


def _of_each(query: str, run_ids: Sequence[int]) -> str:
    """Return a query over tables ``this_`` for each run, with its number before the rows.

    DuckDB takes the lateral join apart: every table is read once for all runs.
    """
    words = words_of(query)
    tables = [
        f"this_{name} AS NOT MATERIALIZED"
        f" ({_of_one(name, f'these_{name}')} WHERE run_id = {_OF_RUN})"
        for name in TABLES
        if f"this_{name}" in words
    ]
    own = f"WITH {', '.join(tables)} SELECT * FROM ({query})" if tables else query
    listed = ", ".join(f"({int(run_id)})" for run_id in run_ids)
    return f"SELECT {_OF_RUN}, answer.* FROM (VALUES {listed}) t({_OF_RUN}), LATERAL ({own}) answer"


def _of_one(name: str, source: str) -> str:
    """Return a query for the rows of a table of one run; only table run tells its number."""
    return f"SELECT {'*' if name == 'run' else '* EXCLUDE (run_id)'} FROM {source}"
