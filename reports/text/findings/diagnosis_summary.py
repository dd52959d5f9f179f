"""The diagnosis of many runs: findings by what they cost in all, with the worst run of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....analyze.story.names import translate
from ..print_table import render

if TYPE_CHECKING:
    from ....analyze.diagnosis.engine import Diagnosis, Finding


def summary_lines(diagnoses: Sequence[Diagnosis], names: str = "kernel") -> list[str]:
    """Return a table of all findings, the costliest first, and what to type for more."""
    import pyarrow as pa

    groups: dict[str, list[tuple[str, Finding]]] = {}
    for diagnosis in diagnoses:
        for finding in diagnosis.findings:
            groups.setdefault(finding.rule.name, []).append((diagnosis.run, finding))
    rows = sorted(map(_row, groups.values()), key=lambda row: (-row[4], -row[2], row[0]))
    heads = ("finding", "title", "runs", "flows", "cost_s", "cost_bytes", "worst_run")
    clean = sum(not diagnosis.findings for diagnosis in diagnoses)
    inexact = [one.run for one in diagnoses if one.exact != one.compared]
    lines = [f"{len(diagnoses)} runs; {clean} without a finding", ""]
    if rows:
        columns = zip(heads, zip(*rows, strict=True), strict=True)
        table = pa.table({head: list(values) for head, values in columns})
        lines += [translate(render(table), names), ""]
    if inexact:
        lines.append(f"the replay differs from the kernel in {', '.join(inexact[:5])}")
    return [*lines, "of one run all: bbrscope diagnose RUN; of each run all: --full"]


def _row(findings: Sequence[tuple[str, Finding]]) -> tuple[str, str, int, int, float, float, str]:
    rule = findings[0][1].rule
    worst = max(findings, key=lambda one: one[1].cost_s or 0)
    return (
        rule.name,
        rule.title,
        len({run for run, _ in findings}),
        len({(run, finding.flow) for run, finding in findings}),
        sum(finding.cost_s or 0 for _, finding in findings),
        sum(finding.cost_bytes or 0 for _, finding in findings),
        worst[0],
    )
