"""``bbrscope export``: the store as Parquet, for other programs."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options import runs_argument, store_option
from ..text.screen import say

if TYPE_CHECKING:
    from collections.abc import Sequence


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of tables and views."""
    from ...analyze.views.parquet import exported

    return [name for part in exported() for name in part if name.startswith(incomplete)]


@click.command()
@runs_argument
@store_option
@click.option(
    "--parquet",
    "target",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder to make: one folder per table in it, partitioned by run.",
)
@click.option(
    "--only",
    "chosen",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_names,
    help="This table or view only. Repeatable. [all tables, no views]",
)
@click.option("--views", is_flag=True, help="The views, too: their results as they are now.")
@click.option("--force", is_flag=True, help="Replace an earlier export.")
def command(
    runs: tuple[str, ...],
    store: Path,
    target: Path,
    chosen: tuple[str, ...],
    views: bool,
    force: bool,
) -> None:
    """Write runs (default: all) as a Parquet data set that DuckDB, Spark and polars read as it is.

    DIR/events/run=NAME/data_0.parquet and so on, one folder per table, Hive-partitioned by run.
    It is written aside and then renamed: DIR is whole or not there. `bbrscope schema` has the
    columns' meanings and units.

    \b
    bbrscope export --parquet lab
    bbrscope export monday tuesday --parquet lab --only metrics_by_second
    duckdb -c "SELECT run, count(*) FROM 'lab/events/**/*.parquet' GROUP BY run"
    python -c "import polars; print(polars.scan_parquet('lab/events/').head().collect())"
    """
    from ...analyze.views.parquet import export, exported, partial
    from ...analyze.views.store_with_views import open_store
    from ..text.progress_bar import progress

    tables, all_views = exported()
    names = list(chosen) or tables
    if views:
        names += [name for name in all_views if name not in names]
    _require_known(names, [*tables, *all_views])
    with open_store(store, read_only=True, output=partial(target)) as opened:
        run_ids = [opened.run_id(name) for name in runs or opened.runs()]
        with progress(len(names), "exporting") as advance:
            counts = export(opened.con, target, run_ids, names, force, advance)
    rows = sum(counts.values())
    say(f"{target}: {len(counts)} tables of {len(run_ids)} runs, {rows:,} rows")


def _require_known(names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            way = f"near: {', '.join(near)}" if near else "`bbrscope schema` lists them"
            raise click.BadParameter(f"no table or view {name!r}; {way}", param_hint="--only")
