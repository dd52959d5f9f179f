"""The view of what each rung of the attach ladder can and cannot answer."""

from __future__ import annotations

from ....collect.bundle.rungs import LADDER
from ....collect.store.schema.table import Column
from ..view import View


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


_VALUES = ", ".join(
    f"({order}::INTEGER, {_text(rung.name)}, {rung.replays}, {_text(rung.can)}, "
    f"{_text(rung.cannot)})"
    for order, rung in enumerate(LADDER, 1)
)

VIEW = View(
    "rungs",
    "The ways to record, best first, and what a recording made so can and cannot answer: "
    "FROM runs JOIN rungs USING (rung).",
    (
        Column("ord", "INTEGER", "", "1 is the best"),
        Column("rung", "VARCHAR", "", "its name, as in runs"),
        Column("replays", "BOOLEAN", "", "every input is recorded: it can be replayed"),
        Column("can", "VARCHAR", "", "what it shows"),
        Column("cannot", "VARCHAR", "", 'completes "it cannot"'),
    ),
    f"SELECT * FROM (VALUES {_VALUES}) AS ladder(ord, rung, replays, can, cannot)",
)

VIEWS = (VIEW,)
