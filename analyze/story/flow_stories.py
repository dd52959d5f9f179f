"""A flow's story, whatever recorded it: kernel events, samples of its state, or packets only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import captured_flows, event_facts, event_flows, event_story, sampled_flows
from .captured_flows import CapturedFlow
from .changes import Change
from .event_flows import EventFlow
from .facts import StoryFacts
from .sampled_flows import SampledFlow

if TYPE_CHECKING:
    import duckdb

# What they have in common: run_id, run, flow, zero_ns, first_ns, last_ns, summary and tiny.
RecordedFlow = EventFlow | SampledFlow | CapturedFlow


@dataclass(frozen=True)
class FlowStory:
    """What happened to a flow.

    Attributes:
        flow: who it is, and how it was recorded.
        changes: every change, in order; nothing is folded or cut.
        facts: what sums them up.
    """

    flow: RecordedFlow
    changes: tuple[Change, ...]
    facts: StoryFacts


def flows_of(con: duckdb.DuckDBPyConnection, run_id: int) -> list[RecordedFlow]:
    """Return the run's flows, the one that carried most first."""
    captured = captured_flows.flows_of(con, run_id)
    if captured is not None:
        return list(captured)
    if sampled_flows.sampled_by(con, run_id) is not None:
        return list(sampled_flows.flows_of(con, run_id))
    return list(event_flows.flows_of(con, run_id))


def story_of(con: duckdb.DuckDBPyConnection, flow: RecordedFlow) -> FlowStory:
    """Return a flow's whole story."""
    if isinstance(flow, CapturedFlow):
        return FlowStory(flow, (), captured_flows.facts_of(flow))
    if isinstance(flow, SampledFlow):
        changes = sampled_flows.changes_of(flow)
        return FlowStory(flow, tuple(changes), sampled_flows.facts_of(flow))
    changes = event_story.story(con, flow)
    return FlowStory(flow, tuple(changes), event_facts.facts_of(con, flow, changes))
