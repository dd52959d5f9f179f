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


def changes_of(con: duckdb.DuckDBPyConnection, flow: RecordedFlow) -> list[Change]:
    """Return every change of a flow's story, in order; packets alone tell none."""
    if isinstance(flow, CapturedFlow):
        return []
    if isinstance(flow, SampledFlow):
        return sampled_flows.changes_of(flow)
    return event_story.story(con, flow)


def story_of(con: duckdb.DuckDBPyConnection, flow: RecordedFlow) -> FlowStory:
    """Return a flow's whole story."""
    changes = changes_of(con, flow)
    if isinstance(flow, CapturedFlow):
        facts = captured_flows.facts_of(flow)
    elif isinstance(flow, SampledFlow):
        facts = sampled_flows.facts_of(flow)
    else:
        facts = event_facts.facts_of(con, flow, changes)
    return FlowStory(flow, tuple(changes), facts)
