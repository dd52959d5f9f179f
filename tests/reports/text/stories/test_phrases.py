"""Every decision that a story counts has words of its own, and no code's name is left in prose."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import cast

import pytest
from bbrscope.analyze.bbr.codes import BY_NAME, CODES
from bbrscope.analyze.story.changes import BOUNDS
from bbrscope.analyze.story.event_flows import EventFlow
from bbrscope.analyze.story.flow_stories import flows_of, story_of
from bbrscope.analyze.story.observed import OBSERVATIONS
from bbrscope.collect.store.store import Store
from bbrscope.reports.text.stories.flow_story import _gaps
from bbrscope.reports.text.stories.phrases import PHRASES
from bbrscope.reports.text.stories.prose import plain
from bbrscope.reports.text.stories.story_prose import StoryWords


def test_every_change_of_a_story_has_words() -> None:
    abouts = ("mode", "phase", "policer", "core", *BOUNDS)
    counted = {code.name for code in CODES.values() if code.change and code.about in abouts}
    assert counted | {"CWND_UNDO"} | set(OBSERVATIONS) <= set(PHRASES)


@pytest.mark.parametrize("run", ["v1_x_lt", "v2_single_1bdp", "v2_x_spur", "v3_x_tlp5"])
def test_no_name_of_a_code_is_in_the_prose(run: str, shipped: Store) -> None:
    flow = flows_of(shipped.con, shipped.run_id(run))[0]
    story = story_of(shipped.con, flow)
    paragraphs = [plain(p) for p in StoryWords(story.facts, flow.zero_ns).paragraphs()]
    words = set(re.findall(r"\w+", " ".join(paragraphs)))
    assert len(paragraphs) > 3
    assert not words & (set(BY_NAME) | set(OBSERVATIONS))


def test_a_probe_rtt_is_told_at_the_time_when_it_began(shipped: Store) -> None:
    """By the rows: bbr.mode became 3 at 5.517, 10.746, 15.970 and 21.197 s."""
    flow = flows_of(shipped.con, shipped.run_id("v2_single_1bdp"))[0]
    story = story_of(shipped.con, flow)
    prose = " ".join(plain(p) for p in StoryWords(story.facts, flow.zero_ns).paragraphs())
    assert ": at 5.52 s, at 10.75 s, at 15.97 s, at 21.20 s." in prose


@pytest.mark.parametrize("run", ["v1_x_lt", "v2_single_1bdp", "v2_x_spur", "v3_x_tlp5"])
def test_every_end_of_a_probe_is_told(run: str, shipped: Store) -> None:
    """The three most frequent with a sentence, the others counted, and the one that had no end."""
    flow = flows_of(shipped.con, shipped.run_id(run))[0]
    facts = story_of(shipped.con, flow).facts
    assert facts.probing is not None
    prose = " ".join(plain(p) for p in StoryWords(facts, flow.zero_ns).paragraphs())
    told = re.findall(r"(\d+) probes? (?:ended because|was not recorded)", prose)
    others = re.search(r"Other probes that ended: ([^.]*)\.", prose)
    told += re.findall(r"(\d+) x ", others[1]) if others else []
    ended = sum(end.probe_count for end in facts.probing.ends)
    assert sum(map(int, told)) == ended > 0
    assert ("went on to the end" in prose) == (ended < facts.probing.probe_count)


def test_a_share_of_lost_packets_is_the_one_that_tables_have(shipped: Store) -> None:
    """By the rows: 388 of 6,680."""
    flow = flows_of(shipped.con, shipped.run_id("v3_x_tlp5"))[0]
    story = StoryWords(story_of(shipped.con, flow).facts, flow.zero_ns)
    assert "388 packets (5.8 %) were marked lost." in plain(story.paragraphs()[0])


def test_a_gap_of_a_moment_hides_more_than_nothing() -> None:
    """A missing call of 2.4 ms in 25 s hid "0.0 % of the time"."""
    gap = SimpleNamespace(start_ns=13_351_000_000, end_ns=13_353_430_000, detail="missing_main")
    about = {"gaps": [gap], "hidden_ns": 2_430_000, "zero_ns": 0}
    flow = SimpleNamespace(summary={"duration_ns": 25_100_000_000}, **about)
    line, _ = _gaps(cast(EventFlow, flow))
    assert line.startswith("1 gap in the recording hides < 0.01 % of the time;")
