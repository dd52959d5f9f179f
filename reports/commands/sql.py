"""``bbrscope sql``: query the store, read-only and sealed off."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from .. import examples
from ..options import format_option, names_option, store_option
from ..text.screen import say


def complete_examples(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of examples."""
    return [name for name in examples.names() if name.startswith(incomplete)]


@click.command()
@click.argument("query", required=False)
@store_option
@format_option()
@names_option
@click.option("--examples", "show", is_flag=True, help="Print queries to start from, and exit.")
@click.option(
    "--example",
    metavar="NAME",
    shell_complete=complete_examples,
    help="Run this one of the examples.",
)
def command(
    query: str | None,
    store: Path,
    output_format: str,
    names: str,
    show: bool,
    example: str | None,
) -> None:
    """Run one SQL query (DuckDB's dialect); with - as QUERY, from standard input.

    The query can only read the store: no files, no network, no settings. `bbrscope schema` lists
    tables, views and columns.

    \b
    bbrscope sql 'FROM runs'
    bbrscope sql "SELECT kind, count(*) FROM events GROUP BY ALL"
    bbrscope sql "SELECT ns, bbr_inflight_hi FROM events" --format parquet > inflight_hi.parquet
    bbrscope sql --examples
    bbrscope sql --example lossy_rounds
    """
    if show + (example is not None) + (query is not None) != 1:
        raise click.UsageError("give a QUERY, --example NAME or --examples")
    if show:
        say("\n\n".join(f"-- {name}\n{examples.text(name)}" for name in examples.names()))
        return
    if example is not None:
        query = _example(example)
    assert query is not None
    run_query(store, sys.stdin.read() if query == "-" else query, output_format, names)


def _example(name: str) -> str:
    if name not in examples.names():
        raise click.BadParameter(
            f"there are {', '.join(examples.names())}", param_hint=f"--example {name}"
        )
    return examples.text(name)


def run_query(store: Path, query: str, output_format: str, names: str = "kernel") -> None:
    """Write the result of a query to standard output.

    Raises:
        BbrscopeError: the query is wrong, or reaches for something outside the store.
    """
    import duckdb
    import pyarrow as pa

    from ...collect.store.select_only import EXPLAIN
    from ..api.opening import open
    from ..api.queries import query_error
    from ..text.print_table import write_plan, write_table
    from ..text.run_notes import say_notes

    with open(store) as recordings:
        try:
            # No name keeps the reader: one that is not drained would bar the notes' queries.
            if output_format == "table" and EXPLAIN.match(query):
                write_plan(recordings.relation(query).to_arrow_reader())
            else:
                write_table(recordings.relation(query).to_arrow_reader(), output_format, names)
        except (duckdb.Error, pa.ArrowException) as error:
            raise query_error(error) from error
        say_notes(recordings.store.con)
