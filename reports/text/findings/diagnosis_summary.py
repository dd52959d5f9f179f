"""The diagnosis of many runs: findings by what they cost in all, with the worst run of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ....analyze.story.names import translate
from ....probes.base.plurals import plural
from ..print_table import printable, render

if TYPE_CHECKING:
    from ....analyze.diagnosis.engine import Diagnosis, Finding

_Row = tuple[str, str, int, int, float | None, float | None, str]


def summary_lines(diagnoses: Sequence[Diagnosis], names: str = "kernel") -> list[str]:
    """Return a table of all findings, the costliest first, and what to type for more."""
    import pyarrow as pa

    groups: dict[str, list[tuple[str, Finding]]] = {}
    for diagnosis in diagnoses:
        for finding in diagnosis.findings:
            groups.setdefault(finding.rule.name, []).append((diagnosis.run, finding))
    rows = sorted(map(_row, groups.values()), key=lambda row: (-(row[4] or 0), -row[2], row[0]))
    heads = ("finding", "title", "runs", "flows", "cost_s", "cost_bytes", "worst_run")
    clean = sum(not diagnosis.findings for diagnosis in diagnoses)
    inexact = [one.run for one in diagnoses if one.exact != one.compared]
    lines = [f"{plural(len(diagnoses), 'run')}; {clean} without a finding", ""]
    if rows:
        columns = zip(heads, zip(*rows, strict=True), strict=True)
        table = pa.table({head: list(values) for head, values in columns})
        lines += [translate(render(table), names), ""]
    lacking = [printable(one.run) for one in diagnoses if one.completeness.lacks]
    if lacking:
        lines.append(f"incomplete recordings: {', '.join(lacking[:5])}{_more(len(lacking) - 5)}")
    if inexact:
        names_of = ", ".join(map(printable, inexact[:5])) + _more(len(inexact) - 5)
        lines.append(f"the replay differs from the kernel in {names_of}")
    return [*lines, "of one run all: bbrscope diagnose RUN; of each run all: --full"]


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def _row(findings: Sequence[tuple[str, Finding]]) -> _Row:
    rule = findings[0][1].rule
    worst = max(findings, key=lambda one: one[1].cost_s or 0)
    return (
        rule.name,
        rule.title,
        len({run for run, _ in findings}),
        len({(run, finding.flow) for run, finding in findings}),
        _sum((finding.cost_s for _, finding in findings), 2),
        _sum(finding.cost_bytes for _, finding in findings),
        worst[0],
    )


def _sum(costs: Iterable[float | None], digits: int | None = None) -> float | None:
    """Return the sum of the costs that are known, to so many digits or whole; None: none is."""
    known = [cost for cost in costs if cost is not None]
    return round(sum(known), digits) if known else None
