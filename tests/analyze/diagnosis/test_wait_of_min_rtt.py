"""The packet whose round trip is min_rtt waited for no longer than that round trip allows."""

from __future__ import annotations

from tests.analyze.diagnosis.test_diagnosis_fires import HEALTHY, Alter, alter, ask

__all__ = ["alter"]


def test_a_drain_between_two_samples_is_no_contradiction(alter: Alter) -> None:
    """Both samples around it show 160 ms; of its 120 ms the path takes 40."""
    put = [
        "UPDATE events SET bbr_min_rtt_us = 120000 WHERE {run} AND ns > {zero} + 8000000000",
        "UPDATE events SET rs_rtt_us = 120000 WHERE {run} AND seq = (SELECT min(seq)"
        " FROM events WHERE {run} AND rs_rtt_us > 0 AND ns > {zero} + 3000000000)",
        "UPDATE queue_samples SET backlog_bytes = CASE WHEN ns BETWEEN {zero} + 2500000000"
        " AND {zero} + 3500000000 THEN 200000 ELSE 0 END WHERE {run}",
    ]
    found = ask(alter(HEALTHY, put), HEALTHY, "min_rtt_inflated")
    allowed = (found.values["most_us"] - found.values["base_us"]) / 1e3
    assert found.values["queue"].endswith(f"show a wait of {allowed:.1f} ms or more.")
