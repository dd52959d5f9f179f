"""Queries of the store: the list of its runs, and what to say of a query that failed."""

from __future__ import annotations

from ...collect.store.schema.recorded_tables import ROWS_LOST
from ...probes.base.errors import BbrscopeError

_RUNS = f"""
SELECT run, version, kernel, rung, scenario, description, duration_ns, flows, events, rows,
  {ROWS_LOST} AS rows_lost,
  half_events, missing_exits, quality_notes, salvaged, decoded_as, bundle_digest,
  (SELECT any_value(value) FROM host_facts h WHERE h.run_id = runs.run_id
    AND h.scope = 'manifest' AND h.name = 'ended') AS ended,
  (SELECT sum(attempted)::BIGINT FROM accounting a WHERE a.run_id = runs.run_id) AS attempted,
  (SELECT sum(lost)::BIGINT FROM accounting a WHERE a.run_id = runs.run_id) AS events_lost
FROM runs
"""


def runs_query(listed_by: str) -> str:
    """Return SQL of the list of runs, in the order of a column of `runs`."""
    return f"{_RUNS} ORDER BY {listed_by}"


def query_error(error: Exception) -> BbrscopeError:
    """Turn DuckDB's error about a query into a fact and a way out.

    DuckDB's own hints (names that look like the wrong one) are kept.
    """
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    outside = ("disabled by configuration", "has been locked", "read-only mode")
    if lines and any(words in lines[0] for words in outside):
        way = "a query can only read the store"
    else:
        way = "`bbrscope schema` lists tables, views and columns"
    return BbrscopeError(lines[0] if lines else "the query failed", "\n  ".join([*lines[1:], way]))
