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
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Say how complete this recording is instead; exit status 1 if events were lost.",
)
def command(as_json: bool, output: Path, bundle: Path | None) -> None:
    """Say in one screen what this host can record, without changing anything on it.

    With --bundle, say what became of a recording: attempted = recorded + cut + lost per probe as
    counted in the kernel, numbers that are missing from the rows, what tp.delivered proves.

    \b
    Examples:
      sudo bbrscope doctor
      bbrscope doctor --json | jq .best
      bbrscope doctor --bundle edge7
    """
    if bundle is not None:
        tell_bundle(bundle, as_json)
        return
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


def tell_bundle(folder: Path, as_json: bool) -> None:
    """Print a recording's account; a row that was lost is an error."""
    from ...collect.bundle import EVENTS, MANIFEST, read_manifest
    from ...collect.errors import BbrscopeError
    from ...collect.record import accounting
    from ...collect.record.check import check

    raw = read_manifest(folder / MANIFEST, f"{folder}/{MANIFEST}").raw
    if (folder / EVENTS).is_file():
        # What the rows say now counts, not what they said when they were written.
        try:
            raw = raw | {"completeness": check(folder / EVENTS).as_dict()}
        except (IndexError, KeyError, ValueError) as error:
            raise BbrscopeError(
                f"{folder}/{EVENTS} has rows that make no sense ({error})",
                f"bbrscope ingest {folder} says where",
            ) from error
    told = list(accounting.lines(raw))
    problems = accounting.trouble(raw)
    if as_json:
        kept = ("probe", "ended", "ladder", "accounting", "completeness", "settings_changed")
        document = {name: raw.get(name) for name in kept}
        click.echo(json.dumps(document | {"problems": problems}, indent=1))
    else:
        click.echo("\n".join(told))
    if problems:
        raise BbrscopeError(
            f"{folder} is not complete: {'; '.join(problems)}",
            "what is there can be used: ingest names every gap, replay steps over them",
        )
