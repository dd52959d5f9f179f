"""``bbrscope runs``: list the runs in the store, or remove some."""

from __future__ import annotations

from pathlib import Path

import click

from ..options import complete_runs, format_option, store_option
from ..text.screen import say

# What people get of the columns; programs get them all.
SHORT = "run version rung kernel seconds flows events rows_lost quality_notes".split()


@click.command()
@store_option
@click.option(
    "--remove",
    multiple=True,
    metavar="RUN",
    shell_complete=complete_runs,
    help="Remove a run and everything derived from it.",
)
@format_option()
def command(store: Path, remove: tuple[str, ...], output_format: str) -> None:
    """List the runs in the store.

    rung says how the run was recorded; view rungs has what each can and cannot answer.
    quality_notes counts what the recording lacks or what is odd in it; see table capture_quality.

    \b
    bbrscope runs
    bbrscope runs --format json | jq '.[] | select(.rows_lost > 0) | .run'
    bbrscope runs --remove monday
    """
    from ...analyze.views.store_with_views import open_to_change

    if remove:
        with open_to_change(store) as opened:
            run_ids = [opened.run_id(name) for name in remove]
            with opened.transaction():
                for run_id in run_ids:
                    opened.delete_run(run_id)
        say(f"removed {', '.join(remove)}")
        return
    import polars

    from ..api.opening import open
    from ..text.print_table import write_table

    with open(store) as recordings:
        table = recordings.runs()
        way_in = recordings.store.filled_by
    if output_format == "table":
        seconds = (polars.col("duration_ns") / 1e9).round(2).alias("seconds")
        table = table.with_columns(seconds).select(SHORT)
    if table.is_empty() and output_format == "table":
        say(f"{store} holds no run; load one with `{way_in}`")
    else:
        write_table(table.to_arrow(), output_format)
