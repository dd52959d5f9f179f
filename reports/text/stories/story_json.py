"""A flow's story as JSON: nothing folded or cut, evidence in kernel units."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from ....analyze.bbr.citations import kernel_function
from ....analyze.story import names as naming
from ....analyze.story.changes import Change
from ....analyze.story.event_flows import EventFlow
from ....analyze.story.flow_stories import FlowStory
from .flow_story import trust


def document(story: FlowStory, names: str) -> dict[str, Any]:
    """Return the story of a flow of kernel events as JSON.

    `t_ns` counts on the run's clock, `flow_t_ns` from the flow's own first event; times in `facts`
    are CLOCK_MONOTONIC, as `zero_ns` is.
    """
    flow = story.flow
    assert isinstance(flow, EventFlow)
    return {
        "flow": flow.flow,
        "version": flow.version,
        "decoded_as": flow.decoded_as,
        "zero_ns": flow.zero_ns,
        "first_ns": flow.first_ns,
        "trust": {
            "replayed": flow.summary["replayed"],
            "exact": flow.summary["exact"],
            "gaps": len(flow.gaps),
            "has_init": flow.summary["has_init"],
            "notes": trust(flow),
        },
        "facts": facts_document(story.facts, names),
        "lines": [change_document(flow, change, names) for change in story.changes],
        "binding": [
            row | {"binding": naming.translate(row["binding"], names)} for row in flow.binding
        ],
    }


def facts_document(value: object, names: str) -> object:
    """Return typed facts as JSON: records as objects, changes by their event and values."""
    if isinstance(value, Change):
        document = {"seq": value.seq, "ns": value.ns, "about": value.about, "code": value.name}
        document |= {"old": value.old, "new": value.new}
        return {key: _translated(part, names) for key, part in document.items()}
    if is_dataclass(value):
        return {
            field.name: facts_document(getattr(value, field.name), names) for field in fields(value)
        }
    if isinstance(value, tuple | list):
        return [facts_document(part, names) for part in value]
    return _translated(value, names)


def _translated(value: object, names: str) -> object:
    return naming.translate(value, names) if isinstance(value, str) else value


def change_document(flow: EventFlow, change: Change, names: str) -> dict[str, Any]:
    """Return a change with its reasons as JSON."""
    return {
        "seq": change.seq,
        "t_ns": change.ns - flow.zero_ns,
        "flow_t_ns": change.ns - flow.first_ns,
        "about": naming.translate(change.about, names),
        "old": _translated(change.old, names),
        "new": _translated(change.new, names),
        "code": change.name,
        "doubt": change.doubt or None,
        "reasons": [
            {
                "code": reason.code.name,
                "sentence": naming.translate(reason.sentence, names),
                "evidence": {
                    naming.translate(name, names): number
                    for name, number in reason.evidence.items()
                },
                "function": kernel_function(reason.code, flow.version),
                "draft": reason.code.draft,
            }
            for reason in change.reasons
        ],
    }
