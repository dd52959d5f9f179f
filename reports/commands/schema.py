"""``bbrscope schema``: what is in the store, with units and meaning."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from ...collect.errors import BbrscopeError
from ..options import format_option

if TYPE_CHECKING:
    import pyarrow as pa

    from ...collect.schema import Table, View


def complete_relations(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of tables and views."""
    return [name for name in relation_names() if name.startswith(incomplete)]


def relation_names() -> list[str]:
    """Return the names of all tables and views."""
    from ...collect.schema import TABLES, VIEWS

    return [table.name for table in TABLES] + [view.name for view in VIEWS]


@click.command()
@click.argument("table", required=False, shell_complete=complete_relations)
@format_option()
def command(table: str | None, output_format: str) -> None:
    """Print the store's tables and views: columns, types, units and meaning.

    \b
    bbrscope schema
    bbrscope schema events
    bbrscope schema --format csv > schema.csv
    """
    from ...collect.schema import relation

    names = relation_names() if table is None else [table]
    chosen = [item for name in names if (item := relation(name)) is not None]
    if not chosen:
        near = difflib.get_close_matches(str(table), relation_names(), n=3)
        way = f"near: {', '.join(near)}" if near else f"there are {', '.join(relation_names())}"
        raise BbrscopeError(f"no table or view called {table!r}", way)
    if output_format == "table":
        click.echo("\n\n".join(describe(item) for item in chosen))
    else:
        from ..tables import write_table

        write_table(as_table(chosen), output_format)


def describe(item: Table | View) -> str:
    """Return the text on one table or view."""
    kind = "view" if hasattr(item, "sql") else "table"
    columns = [(c.name, short_type(c.type), c.unit, c.meaning) for c in item.columns]
    widths = [max(len(column[i]) for column in columns) for i in range(3)]
    lines = [f"{kind} {item.name}", *click.wrap_text(item.meaning, 78, "  ", "  ").splitlines()]
    for name, sql_type, unit, meaning in columns:
        cells = (
            f"{text:{width}}" for text, width in zip((name, sql_type, unit), widths, strict=True)
        )
        lines.append(f"  {'  '.join(cells)}  {meaning}".rstrip())
    return "\n".join(lines)


def short_type(sql_type: str) -> str:
    """Return a type as it fits into a column: an enumeration's values are in its meaning."""
    return sql_type.partition("(")[0]


def as_table(items: list[Table | View]) -> pa.Table:
    """Return the columns of several tables as one Arrow table."""
    import pyarrow as pa

    rows = [
        {
            "table": item.name,
            "kind": "view" if hasattr(item, "sql") else "table",
            "column": column.name,
            "type": column.type,
            "unit": column.unit,
            "meaning": column.meaning,
        }
        for item in items
        for column in item.columns
    ]
    return pa.Table.from_pylist(rows)
