"""Pauses of a flow, counted once more row by row."""

from __future__ import annotations

from itertools import pairwise

import pytest
from bbrscope.analyze.story import event_flows
from bbrscope.analyze.story.event_flows import EventFlow
from bbrscope.analyze.story.facts import EventTotals, Pauses, Span, StoryFacts
from bbrscope.analyze.story.pauses import pauses_of
from bbrscope.collect.store.store import Store
from bbrscope.reports.text.stories.prose import plain
from bbrscope.reports.text.stories.story_prose import StoryWords

MS = 1_000_000


@pytest.fixture(params=["shipped", pytest.param("all_runs", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest) -> Store:
    """First the shipped recordings, then (slow) every recording."""
    found: Store = request.getfixturevalue(request.param)
    return found


def counted(store: Store, flow: EventFlow) -> list[int]:
    """Durations of the pauses [ns], by a walk over the recorded rows.

    Not of those that pacing made: the next packet's departure lay ahead for half of them or more.
    """
    rows = store.con.execute(
        "SELECT ns, kind::VARCHAR, event, tp_packets_out, tp_delivered, seq,"
        " tp_tcp_wstamp_ns::BIGINT - tp_tcp_clock_cache::BIGINT, tp_retrans_out, tp_snd_nxt"
        " FROM events WHERE run_id = ? AND flow = ? ORDER BY seq",
        [flow.run_id, flow.flow],
    ).fetchall()
    hidden = {gap.seq for gap in flow.gaps}
    found = []
    for before, row in pairwise(rows):
        paced = before[7:] == row[7:] and 2 * before[6] >= row[0] - before[0]
        restarts = row[1] == "cwnd_event" and row[2] == 0 and not paced
        if restarts and row[3] == 0 and row[4] > 1 and before[5] not in hidden:
            found.append(row[0] - before[0])
    return found


def test_pauses_are_those_of_the_recorded_rows(store: Store) -> None:
    with_pauses = 0
    for run in store.runs(with_events=True):
        for flow in event_flows.flows_of(store.con, store.run_id(run)):
            again, pauses = counted(store, flow), pauses_of(store.con, flow)
            if pauses is None:
                assert again == []
                continue
            with_pauses += 1
            assert (pauses.pause_count, pauses.total_ns) == (len(again), sum(again))
            assert pauses.longest.duration_ns == max(again)
            assert min(again) <= pauses.median_ns <= max(again)
    assert with_pauses


@pytest.mark.slow
def test_a_sender_of_bursts_pauses_between_them(all_runs: Store) -> None:
    """iperf3 -b 4M writes 128 KiB at once, over 10 Mbit/s and 40 ms: the rest is a pause."""
    flows = event_flows.flows_of(all_runs.con, all_runs.run_id("v1_applimited"))
    pauses = pauses_of(all_runs.con, flows[0])
    assert pauses is not None
    block = 128 << 10
    every, sent = block * 8 / 4e6, block / 1448 * 1514 * 8 / 10e6
    assert abs(pauses.pause_count - 20 / every) < 2
    assert pauses.median_ns / 1e9 == pytest.approx(every - sent - 0.040, abs=0.005)


def told(*lengths_ms: int) -> str:
    spans = [Span(20_000 * MS, (20_000 + ms) * MS) for ms in lengths_ms]
    total = sum(span.duration_ns for span in spans)
    median = sorted(lengths_ms)[len(lengths_ms) // 2] * MS
    totals = EventTotals(10_000 * MS, False, 1, 1, None, None, None, None, None, None, None)
    pauses = Pauses(len(spans), total, median, max(spans, key=lambda span: span.duration_ns))
    facts = StoryFacts("v3", totals, pauses=pauses)
    paragraphs = map(plain, StoryWords(facts, 15_000 * MS).beyond_totals())
    return "\n".join(text for text in paragraphs if "paused" in text)


def test_pauses_are_told_where_they_take_time() -> None:
    assert told(90) == ""
    once = "It paused with nothing in flight once, 500 ms in all (5 % of the time), from 5.00 s on."
    assert told(500) == once
    assert told(100, 300, 600) == (
        "It paused with nothing in flight 3 times, 1.00 s in all (10 % of the time), 300 ms at the"
        " median; the longest, 600 ms, from 5.00 s on."
    )
