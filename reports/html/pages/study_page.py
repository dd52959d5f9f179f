"""The page of a study: verdicts first, then what the source drew, then every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....analyze.study import claims
from ....probes.base.plurals import plural
from ...text.claim_words import expected
from ...text.column_headings import heading
from ...text.print_table import cell, listed
from ..charts import study_charts, vega
from ..data import document
from . import frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from ....analyze.study.figures import Figure
    from ....analyze.study.study import Drawn, Study

# Longer tables, and more charts of one figure, slow a browser down; `bbrscope study` has them all.
MOST_ROWS = 300
MOST_PANELS = 16
STATES = {
    claims.REPRODUCED: ("good", "\u2713"),
    claims.NOT_REPRODUCED: ("bad", "\u2717"),
    claims.NOT_COMPARABLE: ("none", "\u2013"),
}
# What a column of a figure is headed with: of x and y, the axes' titles say the units.
_FIGURE_HEADS = {"t": "time, s", "lo": "least", "hi": "most", "n": "runs"}


@dataclass(frozen=True)
class TextTable:
    """A table for the page: heads, whether a column is of numbers, and cells as text."""

    heads: list[str]
    right: list[bool]
    rows: list[list[str]]
    left_out: int


@dataclass(frozen=True)
class FigureSection:
    """A figure of the page: its charts (name and number), its rows, and text of a tree."""

    name: str
    title: str
    about: str
    charts: list[tuple[str, int]]
    charts_left_out: int
    table: TextTable
    is_table: bool
    text: str
    wide: bool


def build(study: Study) -> str:
    """Return the study as one HTML page that needs no network."""
    specs: list[dict[str, Any]] = []
    shown = [_shown(drawn, specs) for drawn in study.drawn if drawn.rows.num_rows]
    counted = {state: sum(verdict.state == state for verdict in study.verdicts) for state in STATES}
    scenario = study.scenario
    return frame.fill(
        "study.html.j2",
        document.embedded(specs),
        frame.text("study.js"),
        {
            "scenario": scenario,
            "facts": _facts(study),
            "counted": [(state, *STATES[state], n) for state, n in counted.items()],
            "verdicts": [
                (each, *STATES[each.state], expected(each.claim)) for each in study.verdicts
            ],
            "shown": shown,
            "empty": [drawn.figure.title for drawn in study.drawn if not drawn.rows.num_rows],
            "invalid": study.chosen.invalid,
            "runs": table(study.runs),
        },
    )


def _facts(study: Study) -> list[tuple[str, str]]:
    runs = study.runs.to_pylist()
    kernels = sorted({str(run["kernel"]) for run in runs})
    where = {"vm": "in guests in virtual time", "host": "on hosts", "simulation": "simulated"}
    places = sorted({where.get(run["place"], str(run["place"])) for run in runs})
    form = "quick form" if study.chosen.quick else "full form"
    facts = [("Source", study.scenario.source)]
    if runs:
        others = study.chosen.other_form
        more = f"; {plural(others, 'run')} of the other form left out" if others else ""
        facts.append(("Runs", f"{plural(len(runs), 'run')}, {form}{more}"))
        facts.append(("Congestion control", ", ".join(sorted({str(r["algos"]) for r in runs}))))
        facts.append(("Kernels", "; ".join(kernels)))
        facts.append(("Made", ", ".join(places)))
    facts += [("Fidelity of simulated runs", text) for text in study.fidelity]
    return facts


def _figure_heads(figure: Figure) -> dict[str, str]:
    """Return what the columns of a figure's rows are headed with, where it is not their name."""
    axes = {"x": figure.x, "y": figure.y, "value": figure.value}
    return _FIGURE_HEADS | {column: title for column, title in axes.items() if title}


def table(rows: pa.Table, heads: Mapping[str, str] | None = None) -> TextTable:
    """Return the rows as text, no more than a page takes; `heads` of columns, or their names."""
    import pyarrow as pa

    first = rows.slice(0, MOST_ROWS)
    columns = [[cell(value) for value in listed(column)] for column in first.columns]
    right = [
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        for kind in first.schema.types
    ]
    lines = [list(line) for line in zip(*columns, strict=True)]
    shown = [(heads or {}).get(name) or heading(name) for name in rows.column_names]
    return TextTable(shown, right, lines, rows.num_rows - first.num_rows)


def _shown(drawn: Drawn, specs: list[dict[str, Any]]) -> FigureSection:
    figure = drawn.figure
    panels = study_charts.panels(drawn)
    charts = []
    for name, chart in panels[:MOST_PANELS]:
        charts.append((name, len(specs)))
        specs.append(vega.compiled(chart))
    about, text = figure.about, drawn.why_none
    if drawn.tree is not None:
        about, text = f"{drawn.tree.summary()} {about}", drawn.tree.text()
    return FigureSection(
        figure.name,
        figure.title,
        about,
        charts,
        len(panels) - len(charts),
        table(drawn.rows, None if figure.kind == "table" else _figure_heads(figure)),
        figure.kind == "table",
        text,
        drawn.tree is not None,
    )
