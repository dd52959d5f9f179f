"""Flows as they are now: their phases and what limits them, as the store's views find them."""

from __future__ import annotations

import json
from pathlib import Path

from bbrscope import fixtures
from bbrscope.analyze.live import live_limits as limits
from bbrscope.analyze.live.follower import Follower
from bbrscope.analyze.views.store_with_views import open_store

from tests.live_stream import batches

WANTED = """
SELECT b.ns::BIGINT, e.next_ns, b.phase, b.binding FROM binding b JOIN (
  SELECT run_id, flow, seq, kind, lead(ns::BIGINT) OVER w AS next_ns, lead(kind) OVER w AS next_kind
  FROM events WINDOW w AS (PARTITION BY run_id, flow ORDER BY seq)) e USING (run_id, flow, seq)
WHERE run = ? AND e.next_kind = 'main'
"""


def test_limits_and_phases_are_those_of_the_view(shipped_path: Path) -> None:
    for name in ("v1_x_lt", "v2_single_1bdp", "v3_x_tlp5"):
        bundle, follower = fixtures.path(name), Follower()
        follower.begin({**json.loads((bundle / "manifest.json").read_text()), "rung": "fentry"})
        last: dict[int, dict[str, int]] = {}
        found: dict[int, tuple[str, str]] = {}
        for batch in batches(bundle):
            for event in follower.take(batch).events:
                before = last.get(event.flow.number)
                if before and event.kind == "main":
                    limit = limits.limit_of(follower.version, before, event.values, event.ns)
                    found[event.ns] = limits.phase_of(follower.version, event.values), limit
                last[event.flow.number] = event.values
        with open_store(shipped_path, read_only=True) as store:
            rows = store.con.execute(WANTED, [name]).fetchall()
        wanted = {until: (phase, limit) for _, until, phase, limit in rows}
        # That a pause was the application's, the mark says that ends it.
        later = {
            ns
            for ns, (phase, limit) in wanted.items()
            if limit == "application" and found.get(ns) == (phase, "unknown")
        }
        same = {ns for ns in wanted if found.get(ns) == wanted[ns]} | later
        odd = [(ns, found.get(ns), wanted[ns]) for ns in wanted if ns not in same]
        assert len(wanted) > 1000
        assert not odd, (name, len(odd), len(wanted), odd[:8])
