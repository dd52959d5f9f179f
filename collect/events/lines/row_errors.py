"""Why a line of ``events.csv`` is refused, in words."""

from __future__ import annotations

from ....probes.base.plurals import plural
from ..loop import rows
from ..loop.column_plan import bounds_of
from .header import Header, Tag


def why_refused(tag: Tag, column: int, why: int, line: str) -> str:
    """Say what is impossible about a row.

    Args:
        tag: what the row is of.
        column: place among the tag's columns where reading stopped.
        why: rows.TOO_SHORT, TOO_LONG, OUT_OF_RANGE or NOT_A_NUMBER.
        line: the row as it was recorded.
    """
    values = line.split(",")[1:]
    declared = len(tag.printed)
    name = tag.columns[min(column, declared - 1)]
    if why == rows.TOO_SHORT:
        return f"{tag.name} has {plural(len(values), 'column')}, the header names {declared}"
    if why == rows.TOO_LONG:
        return f"{tag.name} has {plural(len(values), 'column')}, the header names {declared}"
    value = values[column][:40] if column < len(values) else ""
    if why == rows.OUT_OF_RANGE:
        low, high = bounds_of(name)
        return f"{name.name} of {tag.name} is {value}, outside {low}..{high}"
    return f"{name.name} of {tag.name} is {value!r}, not a number"


def header_line(declared: Header, name: str) -> str | None:
    """Return the header line that declared a tag, None if there was none."""
    tag = next((tag for tag in declared.tags if tag.name == name), None)
    return None if tag is None else ",".join([f"#{name}", *(c.name for c in tag.printed)])
