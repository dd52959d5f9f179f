"""``bbrscope runs``: list the runs in the store, or remove some."""

from __future__ import annotations

from pathlib import Path

import click

from ..options import complete_runs, format_option, store_option

# What programs get; people get `SHORT` of it.
QUERY = """
SELECT run, version, kernel, rung, scenario, description, duration_ns, flows, events, rows,
  greatest(coalesce(lost_declared, 0), coalesce(lost_reported, 0)) AS rows_lost,
  half_events, missing_exits, findings, salvaged, decoded_as, bundle_digest,
  (SELECT any_value(value) FROM host_facts h WHERE h.run_id = runs.run_id
    AND h.scope = 'manifest' AND h.name = 'ended') AS ended,
  (SELECT sum(attempted)::BIGINT FROM accounting a WHERE a.run_id = runs.run_id) AS attempted,
  (SELECT sum(lost)::BIGINT FROM accounting a WHERE a.run_id = runs.run_id) AS events_lost
FROM runs ORDER BY run_id
"""
SHORT = f"""
SELECT run, version, rung, kernel, round(duration_ns / 1e9, 2) AS seconds, flows, events, rows_lost,
  findings
FROM ({QUERY})
"""


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

    rung says how the run was recorded; view rungs has what each can and cannot answer. findings
    counts what the recording lacks or what is odd in it; see table capture_quality.

    \b
    bbrscope runs
    bbrscope runs --format json | jq '.[] | select(.rows_lost > 0) | .run'
    bbrscope runs --remove monday
    """
    from ...collect.store import open_store

    if remove:
        with open_store(store) as opened:
            run_ids = [opened.run_id(name) for name in remove]
            with opened.transaction():
                for run_id in run_ids:
                    opened.delete_run(run_id)
        click.echo(f"removed {', '.join(remove)}")
        return
    from ..tables import write_table

    with open_store(store, read_only=True) as opened:
        query = SHORT if output_format == "table" else QUERY
        table = opened.con.sql(query).to_arrow_table()
    if table.num_rows == 0 and output_format == "table":
        click.echo(f"{store} holds no run; load one with `bbrscope ingest BUNDLE`")
    else:
        write_table(table, output_format)
