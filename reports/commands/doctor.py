"""``bbrscope doctor``: what this host can record, and what to do about the rest."""

from __future__ import annotations

import json
from pathlib import Path

import click

MARKS = {"ok": "ok", "note": "--", "missing": "NO"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    help="Folder where bundles would go, for the free space [.].",
)
def command(as_json: bool, output: Path) -> None:
    """Say in one screen what this host can record, without changing anything on it.

    \b
    Examples:
      sudo bbrscope doctor
      bbrscope doctor --json | jq .best
    """
    from ...collect import doctor

    diagnosis = doctor.diagnose(output.resolve())
    if as_json:
        click.echo(json.dumps(diagnosis.as_dict(), indent=1))
        return
    for finding in diagnosis.findings:
        click.echo(f"{MARKS[finding.state]}  {finding.topic:<19}{finding.value}")
        if finding.advice:
            click.echo(f"{'':23}-> {finding.advice}")
    click.echo("\nWays to record, best first:")
    for rung in diagnosis.rungs:
        mark = "ok" if rung["usable"] else "NO"
        click.echo(f"{mark}  {rung['rung']:<11}{rung['reason']}")
        click.echo(f"{'':15}{rung['answers']}")
    click.echo(f"\ncollect would use: {diagnosis.best}")
