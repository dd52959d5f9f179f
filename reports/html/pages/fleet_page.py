"""The page about a lake: what `bbrscope fleet` answers, linked to reports of the worst flows."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ....analyze.lake.fleet_examples import EXAMPLES
from ...text.column_headings import heading, words_and_unit
from ...text.print_table import cell
from ...text.quantities import quantity, share
from . import frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from ....analyze.lake.fleet import Answer

# How a measured column is written, by the end of its name.
_WRITTEN: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_s", lambda value: f"{value:,.1f}" if value >= 0.05 else f"{value:.2g}"),
    ("_bytes", lambda value: quantity(value, "B")),
    ("_mbps", lambda value: f"{value:.3g}"),
    ("share_of_time", share),
    ("_share", share),
    ("_ms", lambda value: f"{value:.3g}"),
)
# Columns of the table of changes: shares, and of them a difference's ends.
_SHARES = ("before", "now")
_POINTS = ("low", "high")


def build(
    lake: str,
    counted: str,
    answers: Sequence[Answer],
    reports: Mapping[str, str],
    notes: Sequence[str] = (),
) -> str:
    """Return one HTML page that needs no network.

    Args:
        lake: what the user calls it.
        counted: how much it holds, in words.
        answers: the tables.
        reports: by run, the path of its report from where the page lies.
        notes: sentences on how far the numbers hold.
    """
    shown = [_shown(answer, reports) for answer in answers]
    values: dict[str, object] = {
        "lake": lake,
        "counted": counted,
        "notes": notes,
        "answers": shown,
        "examples": EXAMPLES,
    }
    return frame.fill("fleet.html.j2", "", "", values)


def _shown(answer: Answer, reports: Mapping[str, str]) -> dict[str, object]:
    import pyarrow.types as kinds

    rows = [
        [(_text(name, value), _link(name, value, reports)) for name, value in row.items()]
        for row in answer.rows.to_pylist()
    ]
    right = [kinds.is_integer(f.type) or kinds.is_floating(f.type) for f in answer.rows.schema]
    return {
        "name": answer.name,
        "title": answer.title,
        "about": answer.about,
        "heads": [_head(name) for name in answer.rows.column_names],
        "right": right,
        "rows": rows,
        "empty": f"{answer.empty[:1].upper()}{answer.empty[1:]}.",
    }


def _head(column: str) -> str:
    """A column's heading, with the unit where the cells are bare numbers.

    >>> _head("cost_s"), _head("short_bytes"), _head("v1_mbps"), _head("share_of_time")
    ('cost, s', 'short', 'v1, Mbit/s', 'share of time')
    """
    if column.endswith("_bytes"):
        return words_and_unit(column)[0]
    return heading(column) + (", points" if column in _POINTS else "")


def _text(column: str, value: object) -> str:
    if not isinstance(value, float):
        return cell(value)
    if column in _SHARES:
        return share(value)
    if column in _POINTS:
        return f"{100 * value:+.2g}"
    if column == "p":
        return f"{value:.2g}"
    written = [write for end, write in _WRITTEN if column.endswith(end)]
    return written[0](value) if written else cell(value)


def _link(column: str, value: object, reports: Mapping[str, str]) -> str:
    return urllib.parse.quote(reports.get(str(value), "")) if column == "run" else ""
