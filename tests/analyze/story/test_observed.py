"""What TCP and the application do beside BBR: made in recorded rows, and told for what it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bbrscope.analyze.story import event_facts, event_flows, event_story
from bbrscope.analyze.story.changes import Change
from bbrscope.analyze.story.event_flows import EventFlow
from bbrscope.analyze.story.facts import StoryFacts
from bbrscope.analyze.views import materialize
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store

RUN = "v2_x_spur"
LOSS = 4


@pytest.fixture
def copied(shipped_path: Path, tmp_path: Path) -> Path:
    """A store whose rows a test may change."""
    path = tmp_path / "copied.duckdb"
    shutil.copy(shipped_path, path)
    return path


def story(store: Store) -> tuple[EventFlow, list[Change], StoryFacts]:
    (flow,) = event_flows.flows_of(store.con, store.run_id(RUN))
    changes = event_story.story(store.con, flow)
    return flow, changes, event_facts.facts_of(store.con, flow, changes)


def changed(store: Store, statement: str) -> None:
    """Change the run's events; what views had kept of them is worked out again."""
    run_id = store.run_id(RUN)
    materialize.forget(store.con, [run_id])
    store.con.execute(statement.replace("$run", str(run_id)))


def losses_of(store: Store) -> list[int]:
    """The events at which TCP entered the state Loss, or entered it again."""
    rows = store.con.execute(
        "SELECT seq FROM events JOIN runs USING (run_id) WHERE run = ? AND kind = 'set_state'"
        " AND new_state = ? ORDER BY seq",
        [RUN, LOSS],
    ).fetchall()
    return [seq for (seq,) in rows]


def test_every_timeout_is_reported_backed_off_ones_too(shipped: Store) -> None:
    """The kernel calls set_state(Loss) each time that the retransmission timer expires."""
    _, changes, facts = story(shipped)
    timeouts = [c for c in changes if c.name in ("CORE_RTO_COLLAPSE", "TIMEOUT", "TIMEOUT_AGAIN")]
    assert [change.seq for change in timeouts] == losses_of(shipped)
    again = [change for change in timeouts if change.name == "TIMEOUT_AGAIN"]
    assert [change.reasons[0].evidence["timeouts"] for change in again] == [2, 2, 3, 2, 3]
    assert [stall.timeout_count for stall in facts.stalls] == [2, 3, 3]
    assert sum(episode.timeout_count for episode in facts.losses) == len(timeouts)


def test_stalls_are_the_times_without_an_ack(shipped: Store) -> None:
    flow, _, facts = story(shipped)
    acks = shipped.con.execute(
        "SELECT ns::BIGINT, lead(ns) OVER (ORDER BY seq)::BIGINT FROM events"
        " WHERE run_id = ? AND flow = 1 AND kind = 'main' ORDER BY seq",
        [flow.run_id],
    ).fetchall()
    silent = [(a, b) for a, b in acks if b is not None and b - a > 500_000_000]
    assert [(stall.span.start_ns, stall.span.end_ns) for stall in facts.stalls] == silent


def test_a_stall_at_the_beginning_is_reported(copied: Path) -> None:
    """All but the init and the first transmission happen two seconds later."""
    with open_store(copied) as store:
        (sent,) = store.con.execute(
            "SELECT min(seq) FROM events JOIN runs USING (run_id) JOIN flows f"
            " USING (run_id, flow) WHERE run = ? AND kind = 'main' AND seq > f.init",
            [RUN],
        ).fetchall()[0]
        changed(store, f"UPDATE events SET ns = ns + 2e9 WHERE run_id = $run AND seq >= {sent}")
        changed(store, "UPDATE flows SET last_ns = last_ns + 2e9 WHERE run_id = $run")
        _, _, facts = story(store)
    first = facts.stalls[0]
    assert first.at_start
    assert 2.0e9 < first.span.duration_ns < 2.2e9
    assert first.outstanding_packets > 0


def test_a_fall_of_the_path_mtu_is_no_timeout(copied: Path) -> None:
    """tcp_simple_retransmit(): a smaller MSS, packets marked lost, the state Loss, the old cwnd."""
    with open_store(copied) as store:
        loss = losses_of(store)[0]
        (marked,) = store.con.execute(
            "SELECT max(seq) + 1 FROM events JOIN runs USING (run_id) WHERE run = ? AND seq < ?"
            " AND kind = 'main'",
            [RUN, loss],
        ).fetchall()[0]
        changed(
            store,
            f"UPDATE events SET tp_mss_cache = 1348 WHERE run_id = $run AND seq >= {marked}",
        )
        changed(store, f"UPDATE events SET tp_snd_cwnd = 38 WHERE run_id = $run AND seq = {loss}")
        changed(
            store,
            "DELETE FROM decisions USING decision_codes c WHERE run_id = $run AND"
            f" seq = {loss} AND decisions.code = c.code AND c.name = 'CORE_RTO_COLLAPSE'",
        )
        changed(
            store,
            "UPDATE events SET kind = 'skb_marked_lost', event = NULL WHERE run_id = $run"
            f" AND seq BETWEEN {marked} AND {loss - 1}",
        )
        _, changes, facts = story(store)
    here = [change for change in changes if change.seq == loss]
    assert "MTU_DROP" in [change.name for change in here]
    assert not any(change.about == "timeout" for change in here)
    words = " ".join(reason.sentence for change in here for reason in change.reasons)
    assert "timeout" not in words.lower()
    assert "The path MTU fell, so that segments have 1348 bytes and no longer 1448" in words
    assert [(c.old, c.new) for c in facts.mss_changes] == [(1448, 1348)]
    assert facts.mss_changes[0].seq == marked


def test_a_cap_on_pacing_is_reported(copied: Path) -> None:
    with open_store(copied) as store:
        changed(
            store,
            "UPDATE events SET sk_max_pacing_rate = 1250000 WHERE run_id = $run AND seq >= 3000",
        )
        _, _, facts = story(store)
    (cap,) = facts.pacing_caps
    assert (cap.seq, cap.new) == (3000, 1_250_000)
    assert cap.reasons[0].sentence == (
        "The application set SO_MAX_PACING_RATE from unlimited to 10.0 Mbit/s: BBR paces no faster."
    )


def test_tail_loss_repairs_are_those_that_v3_was_informed_of(shipped: Store) -> None:
    run_id = shipped.run_id("v3_x_tlp5")
    (flow,) = event_flows.flows_of(shipped.con, run_id)
    repairs = [c.seq for c in event_story.story(shipped.con, flow) if c.name == "TLP_REPAIRED"]
    recorded = shipped.con.execute(
        "SELECT seq FROM events WHERE run_id = ? AND kind = 'cwnd_event' AND event = 6"
        " ORDER BY seq",
        [run_id],
    ).fetchall()
    assert repairs == [seq for (seq,) in recorded]
    assert repairs


@pytest.mark.parametrize("run", ["v1_x_lt", "v2_single_1bdp", "v2_x_spur", "v3_x_tlp5"])
def test_episodes_hold_every_loss_and_every_recovery_once(run: str, shipped: Store) -> None:
    flow = event_flows.flows_of(shipped.con, shipped.run_id(run))[0]
    facts = event_facts.facts_of(shipped.con, flow, event_story.story(shipped.con, flow))
    lost, recoveries = shipped.con.execute(
        "SELECT max(tp_lost) - min(tp_lost), count(*) FILTER (kind = 'set_state'"
        " AND new_state = 3 AND icsk_ca_state <> 3) FROM events"
        " WHERE run_id = ? AND flow = ?",
        [flow.run_id, flow.flow],
    ).fetchall()[0]
    assert sum(episode.lost_packets for episode in facts.losses) == lost
    assert sum(episode.recovery_count for episode in facts.losses) == recoveries
    for before, after in zip(facts.losses, facts.losses[1:], strict=False):
        assert after.span.start_ns - before.span.end_ns > 1_000_000_000
    assert all(0 <= episode.held_ns <= episode.span.duration_ns for episode in facts.losses)
