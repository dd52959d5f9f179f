"""``bbrscope schema``: what is in the store, with units and meaning."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...collect.lake.lake_place import is_lake
from ...probes.base.errors import BbrscopeError
from ..options import DEFAULT_STORE, format_option, store_option
from ..text.screen import say

if TYPE_CHECKING:
    import pyarrow as pa

    from ...analyze.views.view import View
    from ...collect.store.schema import Table


def complete_relations(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of tables and views."""
    names = relations(ctx.params.get("store") or DEFAULT_STORE)
    return [name for name in names if name.startswith(incomplete)]


def relations(store: Path) -> dict[str, Table | View]:
    """Return the tables and views by name: those of any store, and of a lake its own besides."""
    from ...analyze.lake.lake_tables import SESSION_TABLES
    from ...analyze.views.registry import TABLES, VIEWS
    from ...collect.lake.lake_manifest import lake_columns
    from ...collect.store.schema import Table

    tables = TABLES
    if is_lake(store):
        every = (*TABLES, *SESSION_TABLES)
        tables = tuple(Table(one.name, one.meaning, lake_columns(one)) for one in every)
    known: tuple[Table | View, ...] = (*tables, *VIEWS)
    return {item.name: item for item in known}


def describe_macros() -> str:
    """Return the text on the functions that queries can call."""
    from ...analyze.views.registry import MACROS

    calls = [f"{macro.name}({', '.join(macro.parameters)})" for macro in MACROS]
    lines = ["macros: the kernel's arithmetic, for queries"]
    for call, macro in zip(calls, MACROS, strict=True):
        unit = f" [{macro.unit}]" if macro.unit else ""
        lines += [f"  {call}{unit}", click.wrap_text(macro.meaning, 78, "    ", "    ")]
    return "\n".join(lines)


@click.command()
@click.argument("table", required=False, shell_complete=complete_relations)
@store_option
@click.option("--codes", is_flag=True, help="List the decisions that BBR can take, instead.")
@format_option()
def command(table: str | None, store: Path, codes: bool, output_format: str) -> None:
    """Print the store's tables, views and macros: columns, types, units and meaning.

    They are the same in every store, and the store need not exist. A lake has three tables more:
    lake_runs, findings and flow_limits.

    \b
    bbrscope schema
    bbrscope schema events
    bbrscope schema findings --store lake
    bbrscope schema --codes
    bbrscope schema --format csv > schema.csv
    """
    if codes:
        if table is not None:
            raise click.UsageError("--codes lists the decisions: leave the table out")
        _print_codes(output_format)
        return
    known = relations(store)
    if table is not None and table not in known:
        near = difflib.get_close_matches(table, known, n=3)
        way = f"near: {', '.join(near)}" if near else f"there are {', '.join(known)}"
        raise BbrscopeError(f"no table or view called {table!r}", way)
    chosen = list(known.values()) if table is None else [known[table]]
    if output_format == "table":
        texts = [describe(item) for item in chosen]
        say("\n\n".join(texts if table else [*texts, describe_macros()]))
    else:
        from ..text.print_table import write_table

        write_table(as_table(chosen), output_format)


def _print_codes(output_format: str) -> None:
    """Print the decision vocabulary: `collect --until` and `explain --only` take its names."""
    from ...analyze.replay.decision_codes import vocabulary
    from ..text.print_table import write_table

    table = vocabulary()
    if output_format != "table":
        write_table(table, output_format)
        return
    for code in table.to_pylist():
        say(_code_text(code))


def _code_text(code: dict[str, str]) -> str:
    """A decision in two lines or more: what it is about, and its sentence."""
    versions = ", ".join(f"v{number}" for number in code["versions"]) or "variants"
    about = f"{code['name']} ({code['about']}; {versions}; {code['function']})"
    return f"{about}\n{click.wrap_text(code['sentence'], 98, '  ', '  ')}"


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
