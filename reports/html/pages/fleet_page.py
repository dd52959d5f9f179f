"""The page about a lake: what `bbrscope fleet` answers, linked to reports of the worst flows."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...text.print_table import cell
from . import frame

if TYPE_CHECKING:
    from ....analyze.lake.fleet import Answer


def build(lake: str, counted: str, answers: Sequence[Answer], reports: Mapping[str, str]) -> str:
    """Return one HTML page that needs no network.

    Args:
        lake: what the user calls it.
        counted: how much it holds, in words.
        answers: the tables.
        reports: by run, the path of its report from where the page lies.
    """
    shown = [_shown(answer, reports) for answer in answers]
    return frame.fill("fleet.html.j2", "", "", {"lake": lake, "counted": counted, "answers": shown})


def _shown(answer: Answer, reports: Mapping[str, str]) -> dict[str, object]:
    import pyarrow.types as kinds

    rows = [
        [(cell(value), _link(name, value, reports)) for name, value in row.items()]
        for row in answer.rows.to_pylist()
    ]
    right = [kinds.is_integer(f.type) or kinds.is_floating(f.type) for f in answer.rows.schema]
    return {
        "name": answer.name,
        "title": answer.title,
        "about": answer.about,
        "heads": answer.rows.column_names,
        "right": right,
        "rows": rows,
    }


def _link(column: str, value: object, reports: Mapping[str, str]) -> str:
    return urllib.parse.quote(reports.get(str(value), "")) if column == "run" else ""
