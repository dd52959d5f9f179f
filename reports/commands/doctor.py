"""``bbrscope doctor``: what this host can record, and what to do about the rest."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ...probes.base.errors import BbrscopeError
from ..text.print_table import printable
from ..text.screen import say

# What of a manifest --json prints, besides the rung.
BUNDLE_FACTS = ("ended", "ladder", "accounting", "completeness", "settings_changed")
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

    With --bundle, say how complete a recording is: per probe, attempted = recorded + cut (began
    after the recording ended) + lost, as counted in the kernel; sequence numbers that the rows
    lack; events out of order or there twice; calls at which tp.delivered does not add up; rows
    that are more or fewer than the manifest says.

    \b
    Examples:
      sudo bbrscope doctor
      bbrscope doctor --json | jq .best
      bbrscope doctor --bundle edge7
    """
    if bundle is not None:
        print_bundle(bundle, as_json)
        return
    from ...collect.record.host import host_checks

    report = host_checks.diagnose(output.resolve())
    if as_json:
        say(json.dumps(report.as_dict(), indent=1))
        return
    for check in report.checks:
        say(f"{MARKS[check.state]}  {check.topic:<19}{check.value}")
        if check.advice:
            say(f"{'':23}-> {check.advice}")
    say("\nWays to record, best first:")
    for rung in report.rungs:
        mark = "ok" if rung["usable"] else "NO"
        say(f"{mark}  {rung['rung']:<11}{rung['reason']}")
        say(f"{'':15}{rung['answers']}")
    say(f"\ncollect would use: {report.best}")


def print_bundle(folder: Path, as_json: bool) -> None:
    """Print how complete a recording is.

    Raises:
        BbrscopeError: events were lost, or rows make no sense.
    """
    from ...collect.bundle.bundle import EVENTS, MANIFEST, read_manifest
    from ...collect.bundle.rungs import named_rung
    from ...collect.record.output import accounting, row_counts

    manifest = read_manifest(folder / MANIFEST, f"{folder}/{MANIFEST}")
    raw = manifest.raw
    if (folder / EVENTS).is_file():
        # What the rows say now counts, not what they said when they were written.
        raw = raw | {"completeness": _completeness(folder / EVENTS)}
    problems = accounting.trouble(raw)
    if named_rung(raw) != "inet_diag":
        problems += row_counts.differences(folder / EVENTS, manifest.rows)
    if as_json:
        document: dict[str, object] = {"rung": named_rung(raw)}
        document |= {name: raw.get(name) for name in BUNDLE_FACTS}
        say(json.dumps(document | {"problems": problems}, indent=1))
    else:
        # What a manifest says must not look like lines of bbrscope's own.
        say("\n".join(printable(line) for line in accounting.lines(raw)))
    if problems:
        raise BbrscopeError(
            f"{folder} is not complete: {printable('; '.join(problems))}",
            "what is there can be used: ingest names every gap, replay steps over them",
        )


def _completeness(events: Path) -> dict[str, object]:
    """Count again what a recording's rows say of themselves.

    Raises:
        BbrscopeError: the rows make no sense.
    """
    from ...collect.record.output.check import check

    try:
        return check(events).as_dict()
    except (IndexError, KeyError, ValueError) as error:
        raise BbrscopeError(
            f"{events} has rows that make no sense ({error})",
            f"bbrscope ingest {events.parent} says where",
        ) from error
