"""A queue that keeps flows apart tells what all hold together, and so no flow's wait."""

from __future__ import annotations

from bbrscope.analyze.diagnosis.engine import diagnose
from bbrscope.analyze.diagnosis.tables import prepare
from bbrscope.collect.store.store import Store

from tests.analyze.diagnosis.test_diagnosis_fires import PUT, RULES, Alter, alter, clone

__all__ = ["alter"]
FAIR = "UPDATE queue_samples SET kind = 'fq_codel' WHERE {run}"
RUN, BLOATED = PUT["bufferbloat"]
# Another flow that did the same, and a queue that passed both.
BESIDE = (
    *clone(9),
    "UPDATE queue_samples SET sent_bytes = 2 * sent_bytes, sent_pkts = 2 * sent_pkts WHERE {run}",
)


def waits(store: Store, run: str) -> tuple[int, int, int]:
    """Samples of the queue, those that tell a wait, and round trips of which one is known."""
    prepare(store.con, [store.run_id(run)], [])
    query = "SELECT count(*), count(wait_s), (SELECT count(*) FROM this_trips) FROM this_queue"
    return store.con.execute(query).fetchall()[0]


def test_beside_others_no_wait_is_known(alter: Alter) -> None:
    with alter(RUN, BESIDE) as store:
        samples, known, trips = waits(store, RUN)
        assert samples == known > 0 < trips
        store.con.execute(FAIR.format(run=f"run_id = {store.run_id(RUN)}"))
        assert waits(store, RUN) == (samples, 0, 0)


def test_of_a_flow_alone_it_is(alter: Alter) -> None:
    with alter(RUN, [FAIR]) as store:
        samples, known, trips = waits(store, RUN)
        assert samples == known > 0 < trips


def test_how_long_the_buffer_is_is_known_of_any(alter: Alter) -> None:
    with alter(RUN, [FAIR, *BESIDE]) as store:
        prepare(store.con, [store.run_id(RUN)], [])
        query = (
            "SELECT max(most_us) > 0, max(most_us) = 1e6 * max(drain_s)"
            " FROM this_drops JOIN this_queue USING (flow)"
        )
        assert store.con.execute(query).fetchall() == [(True, True)]


def test_its_own_packets_are_told_as_what_waits(alter: Alter) -> None:
    rules = [RULES["bufferbloat"], RULES["path_shorter"], RULES["min_rtt_stale"]]
    with alter(RUN, [*BLOATED, FAIR, *BESIDE]) as store:
        found = diagnose(store.con, store.run_id(RUN), rules).findings
    assert {finding.rule.name for finding in found} == {"bufferbloat"}
    for finding in found:
        assert finding.confidence != "high"
        assert "fq_codel keeps one for each flow" in finding.values["queue"]
        causes = " ".join(finding.causes)
        assert "no other's packets are in this one's way" in causes
        assert "Several senders' estimates" not in causes
