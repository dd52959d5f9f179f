"""A flow's story on the page: its facts in words, linked to the charts."""

from __future__ import annotations

from dataclasses import dataclass

from ....analyze.story.captured_flows import CapturedFlow
from ....analyze.story.flow_stories import FlowStory
from ....analyze.story.sampled_flows import SampledFlow
from ...text.stories.captured_story import BEYOND
from ...text.stories.instant_text import limit_words
from ...text.stories.prose import Prose, TimedText
from ...text.stories.story_prose import StoryWords, totals
from .links import At, Linked

# What limited sending for less than this share of the time is not worth a line.
LEAST_SHARE = 0.002
_BETWEEN_SAMPLES = (
    "What happened between two samples is not recorded, nor why anything changed: a mode, a burst"
    " or a loss may have come and gone."
)


@dataclass(frozen=True)
class LimitBar:
    """What limited sending (view `binding`), in words, and its share of the time."""

    binding: str
    words: str
    share: float


def story(flow_story: FlowStory) -> list[Linked]:
    """Return a flow's story: what it carried, what is missing, its phases, losses, bounds."""
    if isinstance(flow_story.flow, CapturedFlow):
        return [*_in_words(flow_story), [BEYOND]]
    if isinstance(flow_story.flow, SampledFlow):
        return [[totals(flow_story.facts.totals)], [_BETWEEN_SAMPLES]]
    return _in_words(flow_story)


def _in_words(flow_story: FlowStory) -> list[Linked]:
    zero_ns = flow_story.flow.zero_ns
    return [linked(prose, zero_ns) for prose in StoryWords(flow_story.facts, zero_ns).paragraphs()]


def linked(prose: Prose, zero_ns: int) -> Linked:
    """Return a paragraph whose places open the charts there."""
    return [part if isinstance(part, str) else _link(part, zero_ns) for part in prose]


def _link(place: TimedText, zero_ns: int) -> At:
    return At(place.text, (place.start_ns - zero_ns) / 1e9, (place.end_ns - zero_ns) / 1e9)


def limits(flow_story: FlowStory) -> list[LimitBar]:
    """Return what limited sending, the most first."""
    return [
        LimitBar(
            limit.binding,
            limit_words(limit.binding).full,
            limit.time_share,
        )
        for limit in flow_story.facts.limits
        if limit.time_share >= LEAST_SHARE
    ]
