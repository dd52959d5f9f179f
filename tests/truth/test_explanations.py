"""What explanations say, worked out anew from raw rows: counts, times, moves of bounds."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from bbrscope import fixtures
from bbrscope.analyze.story import flow_stories
from bbrscope.analyze.story.facts import EventTotals, StoryFacts
from bbrscope.analyze.story.flow_stories import FlowStory
from bbrscope.collect.store.store import Store

from tests.truth.facts import PROBE_RTT, Flow, Recording

RECOVERY = 3
PROBE_BW = 2
# v2 and v3: cycle_idx of PROBE_BW_UP; v1: pacing_gain of a probe, 1.25 in units of 1/256.
UP = 0
GAIN_UP = 320


def modes(flow: Flow) -> list[tuple[int, int]]:
    """(ns of the event after which it held, mode) of each phase: entry(n + 1) is exit(n)."""
    rows = flow.after_init.select("ns", "bbr.mode").rows()
    found = [(rows[0][0], rows[0][1])]
    for (ns, _), (_, mode) in pairwise(rows):
        if mode != found[-1][1]:
            found.append((ns, mode))
    return found


def probe_rtts(flow: Flow) -> tuple[int, int]:
    """How often it was in PROBE_RTT, and how many ns in all."""
    found = modes(flow)
    ends = [ns for ns, _ in found[1:]] + [int(flow.after_init["ns"][-1])]
    spans = [end - ns for (ns, mode), end in zip(found, ends, strict=True) if mode == PROBE_RTT]
    return len(spans), sum(spans)


def probes(flow: Flow) -> int:
    """How often it began to probe for bandwidth."""
    if "bbr.lt_use_bw" in flow.rows.columns:
        up = (pl.col("bbr.pacing_gain") == GAIN_UP) & (pl.col("bbr.lt_use_bw") == 0)
    else:
        up = pl.col("bbr.cycle_idx") == UP
    states = flow.after_init.select(((pl.col("bbr.mode") == PROBE_BW) & up).alias("up"))["up"]
    return sum(1 for before, now in pairwise(states) if now and not before)


def moves(flow: Flow, field: str) -> list[tuple[int, int]]:
    """Old and new value of each move of a field of struct bbr."""
    values = flow.after_init[f"bbr.{field}"].to_list()
    return [(old, new) for old, new in pairwise(values) if old != new]


def recoveries(flow: Flow) -> int:
    rows = flow.after_init.filter((pl.col("kind") == "S") & (pl.col("new_state") == RECOVERY))
    return rows.height


def totals(flow: Flow) -> dict[str, float | None]:
    rtts, srtts = flow.rtts, flow.acks["tp.srtt_us"] / 8
    return {
        "delivered_packets": flow.total("tp.delivered"),
        "lost_packets": flow.total("tp.lost"),
        "rtt_min_us": rtts.min(),  # type: ignore[dict-item]
        "srtt_mean_us": srtts.mean(),  # type: ignore[dict-item]
        "srtt_p95_us": srtts.quantile(0.95, "linear"),
    }


def check(story: FlowStory, flow: Flow) -> int:
    """Compare a story with the raw rows; return how many things that were."""
    where = f"{flow.of.folder.name} flow {story.flow.flow}"
    facts = story.facts
    assert isinstance(facts.totals, EventTotals)
    for name, want in totals(flow).items():
        assert getattr(facts.totals, name) == pytest.approx(want, rel=1e-9), f"{where}: {name}"
    assert counts(facts) == {
        "PROBE_RTT": probe_rtts(flow),
        "probes": probes(flow),
        "timeouts": len(flow.timeouts),
        "recoveries": recoveries(flow),
        "segment sizes": len(moves_of_mss(flow)),
    }, where
    compared = len(totals(flow)) + 5
    for bound in ("inflight_hi", "inflight_lo", "bw_lo"):
        if f"bbr.{bound}" in flow.rows.columns:
            said = [
                (change.old, change.new)
                for change in story.changes
                if change.about == bound and change.old != change.new
            ]
            # What the last event did, no later entry shows.
            wanted = moves(flow, bound)
            assert said[: len(wanted)] == wanted, f"{where}: {bound}"
            assert len(said) - len(wanted) in (0, 1), f"{where}: {bound}"
            compared += len(wanted)
    return compared


def moves_of_mss(flow: Flow) -> list[tuple[int, int]]:
    return [(a, b) for a, b in pairwise(flow.after_init["tp.mss_cache"].to_list()) if a != b]


def counts(facts: StoryFacts) -> dict[str, object]:
    """The same numbers as the story has them."""
    probing, probe_rtt = facts.probing, facts.probe_rtt
    return {
        "PROBE_RTT": (len(probe_rtt.spans), probe_rtt.total_ns) if probe_rtt else (0, 0),
        "probes": probing.probe_count if probing else 0,
        "timeouts": sum(episode.timeout_count for episode in facts.losses),
        "recoveries": sum(episode.recovery_count for episode in facts.losses),
        "segment sizes": len(facts.mss_changes),
    }


def check_run(store: Store, recording: Recording) -> int:
    stories = flow_stories.flows_of(store.con, store.run_id(recording.folder.name))
    large = sorted((flow for flow in stories if not flow.tiny), key=lambda flow: flow.first_ns)
    return sum(
        check(flow_stories.story_of(store.con, flow), rows)
        for flow, rows in zip(large, recording.flows, strict=True)
    )


def test_stories_of_the_shipped_recordings_are_the_raw_rows(shipped: Store) -> None:
    assert sum(check_run(shipped, Recording(fixtures.path(run))) for run in shipped.runs()) > 300
