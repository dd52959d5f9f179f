"""A query is narrowed to the runs that it asks for, unless it may read those of others."""

from __future__ import annotations

import pytest
from bbrscope.analyze.views.asked_runs import for_asked_runs
from bbrscope.collect.store.store import Store
from polars.testing import assert_frame_equal

RUN = "v2_single_1bdp"
NARROWED = (
    "FROM phases WHERE run = 'v2_single_1bdp' ORDER BY start_ns",
    "SELECT * FROM metrics_by_second WHERE run IN ('v2_single_1bdp', 'v1_x_lt') ORDER BY run, t_s",
    "SELECT count(*) FROM rounds WHERE run = $run AND lost > 0",
    "-- told\nWITH long AS (FROM rounds WHERE run = 'v2_single_1bdp' AND duration_ns > 2e7)\n"
    "SELECT count(*), sum(lost) FROM long JOIN (VALUES (1)) v(one) ON true",
    "SELECT kind::VARCHAR, count(*) FROM events e JOIN runs r USING (run_id)"
    " WHERE r.run = 'v2_single_1bdp' GROUP BY ALL ORDER BY ALL",
    "SELECT p.phase, count(*) FROM phases p LEFT JOIN rounds r ON r.run_id = p.run_id"
    " AND r.flow = p.flow AND r.start_ns >= p.start_ns AND r.start_ns < p.end_ns"
    " WHERE p.run = 'v2_single_1bdp' GROUP BY ALL ORDER BY ALL",
    "SELECT count(*) FROM phases WHERE run = 'v2_single_1bdp'"
    " UNION ALL SELECT count(*) FROM rounds WHERE run = 'v1_x_lt'",
    "SELECT count(*) FROM phases WHERE run = 'nobody'",
)
LEFT_ALONE = (
    "SELECT count(*) FROM phases",
    "SELECT count(*) FROM phases WHERE run = 'v2_single_1bdp' OR flow = 1",
    "SELECT count(*) FROM phases WHERE run <> 'v2_single_1bdp'",
    "SELECT count(*) FROM phases p, rounds r WHERE p.run = 'v2_single_1bdp'",
    "SELECT count(*) FROM phases p JOIN rounds r ON p.flow = r.flow WHERE p.run = 'v1_x_lt'",
    "SELECT (SELECT count(*) FROM runs) FROM phases WHERE run = 'v2_single_1bdp'",
    "SELECT count(*) FROM phases WHERE run = 'v2_single_1bdp' AND flow IN (SELECT flow FROM flows)",
    "WITH phases AS (SELECT 'v1_x_lt' AS run) SELECT count(*) FROM phases WHERE run = 'v1_x_lt'",
    "SELECT count(*) FROM query_table('phases') WHERE run = 'v2_single_1bdp'",
    "SELECT count(*) FROM runs a POSITIONAL JOIN runs b WHERE a.run_id = b.run_id AND a.run_id = 2",
    "SELECT count(*) FROM rungs",
    "SELECT 1",
)


def values_of(query: str) -> dict[str, object]:
    return {"run": RUN} if "$run" in query else {}


@pytest.mark.parametrize("query", NARROWED)
def test_a_query_that_names_its_runs_reads_their_rows_alone(shipped: Store, query: str) -> None:
    values = values_of(query)
    narrowed = for_asked_runs(shipped, query, values)
    assert narrowed != query
    rows = shipped.con.sql(query, params=values or None).pl()
    alone = shipped.con.sql(narrowed, params=values or None).pl()
    # Threads add up a mean in an order of their own, so that its last digit may differ.
    assert_frame_equal(alone, rows, rel_tol=1e-12, abs_tol=0)
    explained = for_asked_runs(shipped, f"EXPLAIN {query}", values)
    assert explained == f"EXPLAIN {narrowed}"


@pytest.mark.parametrize("query", LEFT_ALONE)
def test_a_query_that_may_read_other_runs_stays_as_it_is(shipped: Store, query: str) -> None:
    assert for_asked_runs(shipped, query, {}) == query
    shipped.con.execute(query).fetchall()
