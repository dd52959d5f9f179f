"""`bbrscope ingest`: load run bundles into the store."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--store", type=click.Path(path_type=Path), default=Path("bbrscope.duckdb"))
def command(bundles: tuple[Path, ...], store: Path) -> None:
    """Load run bundles into the store."""
    from ...collect.ingest import ingest
    from ...collect.store import open_store

    with open_store(store) as opened:
        for bundle in bundles:
            ingest(opened, bundle)
