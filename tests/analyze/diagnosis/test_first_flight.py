"""A first flight that is lost: nothing comes back from its first packet on, until a timeout."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.analyze.diagnosis.engine import diagnose
from bbrscope.analyze.diagnosis.rule import rules
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest

# A kernel's first 91 events on a path that was down for the first 0.8 s.
RECORDED = Path(__file__).parents[2].joinpath("collect", "events", "aborted")
SECOND = 1_000_000_000


@pytest.mark.parametrize("pause_s", [0, 5])
def test_a_lost_first_flight_is_an_outage_from_its_first_packet_on(
    pause_s: int, tmp_path: Path
) -> None:
    """An application that waits before it writes is not taken for a path that is down."""
    (outage,) = (rule for rule in rules() if rule.name == "outage")
    with open_store(tmp_path / "first_flight.duckdb") as store:
        ingest(store, RECORDED, packets=False)
        store.con.execute(
            "UPDATE events SET ns = ns + ? WHERE seq >= 2", [pause_s * SECOND]
        )  # the first two come before anything is sent
        store.con.execute("UPDATE flows SET last_ns = last_ns + ?", [pause_s * SECOND])
        sent, heard = store.con.execute(
            "SELECT min(ns) FILTER (kind = 'cwnd_event'), min(ns) FILTER (kind = 'main'"
            " AND rs_acked_sacked > 0 AND seq > 2) FROM events"
        ).fetchall()[0]
        (finding,) = diagnose(store.con, store.run_id("aborted"), [outage]).findings
    assert finding.values["silence_at"] == sent
    assert finding.values["silence_s"] == pytest.approx((heard - sent) / SECOND)
    assert 1.1 < finding.values["silence_s"] < 1.2
