"""Rows of stories and diagnoses as polars frames, with the columns that README and help name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...analyze.views.view_parts import UNSET
from ..text.findings import finding_text

if TYPE_CHECKING:
    import polars

    from ...analyze.diagnosis.engine import Diagnosis
    from ...analyze.story.flow_stories import FlowStory


def findings_frame(diagnoses: Sequence[Diagnosis]) -> polars.DataFrame:
    """Return one row per finding, the costliest first within a run.

    Columns: run, rank, name (of the rule), flow (null: the run), severity, confidence, cost_s,
    cost_bytes, t0_s and t1_s (seconds on the run's clock), sentence.
    """
    import polars

    schema = {
        "run": polars.String,
        "rank": polars.Int32,
        "name": polars.String,
        "flow": polars.Int32,
        "severity": polars.String,
        "confidence": polars.String,
        "cost_s": polars.Float64,
        "cost_bytes": polars.Float64,
        "t0_s": polars.Float64,
        "t1_s": polars.Float64,
        "sentence": polars.String,
    }
    rows = [
        {"run": diagnosis.run, "rank": rank, **finding}
        for diagnosis in diagnoses
        for rank, finding in enumerate(finding_text.document(diagnosis)["findings"], 1)
    ]
    chosen = [{name: row[name] for name in schema} for row in rows]
    return polars.DataFrame(chosen, schema=schema, strict=False)


def story_frame(stories: Sequence[FlowStory]) -> polars.DataFrame:
    """Return one row per change of the flows, in their order.

    Columns: flow, t_s (seconds on the run's clock), about (phase, inflight_hi, inflight_lo, bw_lo
    or what else changed), old and new (phases, or values in the kernel's units, as text; null
    where there is none, or a bound is unset), decision (its stable name, or GAP, SAMPLED,
    MID_FLOW), why (a sentence with the numbers), function (the kernel's).
    """
    import polars

    schema = {
        "flow": polars.Int32,
        "t_s": polars.Float64,
        "about": polars.String,
        "old": polars.String,
        "new": polars.String,
        "decision": polars.String,
        "why": polars.String,
        "function": polars.String,
    }
    rows = [
        (
            story.flow.flow,
            (change.ns - story.flow.zero_ns) / 1e9,
            change.about,
            _shown(change.old),
            _shown(change.new),
            change.name,
            "; ".join(reason.sentence for reason in change.reasons) or None,
            change.reasons[0].code.function if change.reasons else None,
        )
        for story in stories
        for change in story.changes
    ]
    return polars.DataFrame(rows, schema=schema, orient="row")


def _shown(value: str | int | None) -> str | None:
    return None if value is None or str(value) == UNSET else str(value)


def in_order_of(run_ids: Sequence[int], frame: polars.DataFrame) -> polars.DataFrame:
    """Return rows of runs in the order of `run_ids`, and those of one run in their own."""
    import polars

    places = {run_id: place for place, run_id in enumerate(run_ids)}
    return frame.sort(polars.col("run_id").replace_strict(places), maintain_order=True)
