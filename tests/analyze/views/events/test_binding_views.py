"""What limits a flow of which it is known that it always has data to send."""

from __future__ import annotations

from pathlib import Path

from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.story import event_flows
from bbrscope.analyze.story.pauses import pauses_of
from bbrscope.analyze.views.events.binding_views import PACED
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest

RTT_US = 5_050
SECONDS = 8


def test_a_sender_with_data_is_held_by_pacing_where_nothing_is_in_flight(tmp_path: Path) -> None:
    """Bursts of two packets at the policer's rate, each acknowledged before the next may go."""
    path = PathSetup(4_120_000, RTT_US, limit_bytes=200_000, burst_bytes=200_000, policer=True)
    flow = FlowSetup("v1", 0, SECONDS * 1_000_000)
    write_bundle(Setup(path, (flow,), SECONDS * 1_000_000, 7), tmp_path / "bulk")
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, tmp_path / "bulk")
        resumed = (
            "SELECT count(*) FROM events WHERE kind = 'cwnd_event' AND event = 0"
            " AND tp_packets_out = 0"
        )
        assert store.con.execute(resumed).fetchone()[0] > 100  # type: ignore[index]
        held = dict(
            store.con.execute(
                "SELECT binding, sum(duration_ns) FROM binding GROUP BY ALL"
            ).fetchall()
        )
        # iperf3 waits for an answer before it begins.
        assert held.get("application", 0) <= 2000 * RTT_US
        assert sum(held.get(name, 0) for name in PACED) > 0.5e9 * SECONDS
        (of_events,) = event_flows.flows_of(store.con, store.run_id("bulk"))
        pauses = pauses_of(store.con, of_events)
        assert pauses is None or pauses.total_ns <= 2000 * RTT_US
