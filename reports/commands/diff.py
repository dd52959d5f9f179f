"""``bbrscope diff``: what differs between two groups of runs, and is it noise?"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..choose import by_name
from ..options import Share, complete_runs, format_option, store_option

if TYPE_CHECKING:
    from ...analyze.compare import Difference
    from ...collect.store import Store

KINDS = ("metric", "phase", "limit", "decision")
# People get this many of the decisions that differ; programs get all.
MOST_DECISIONS = 12
_WORDS = {
    "real": "real",
    "noise": "noise",
    "unknown": "unknown: too few repetitions",
}


@click.command()
@click.argument("pair", nargs=-1, metavar="[A B]", shell_complete=complete_runs)
@store_option
@click.option(
    "--a",
    "first",
    multiple=True,
    metavar="RUN",
    shell_complete=complete_runs,
    help="A run before the change, or a pattern such as 'base_*'; may be given again.",
)
@click.option(
    "--b",
    "second",
    multiple=True,
    metavar="RUN",
    shell_complete=complete_runs,
    help="A run after the change, likewise.",
)
@click.option(
    "--threshold",
    type=Share(),
    default="10%",
    show_default=True,
    help="Changes up to this are no difference; of shares of time, in points.",
)
@click.option(
    "--fail-on",
    type=click.Choice(KINDS),
    multiple=True,
    default=("metric",),
    show_default=True,
    help="Kinds of differences that make the exit status 1; may be given again.",
)
@click.option("--all", "everything", is_flag=True, help="Print what does not differ, too.")
@format_option()
def command(
    pair: tuple[str, ...],
    store: Path,
    first: tuple[str, ...],
    second: tuple[str, ...],
    threshold: float,
    fail_on: tuple[str, ...],
    everything: bool,
    output_format: str,
) -> None:
    """Say what got better or worse from runs A to runs B.

    A and B are runs, or patterns of names; --a and --b add more. Metrics, the time per phase, what
    limited sending and the rate of each decision are compared by their means. Repetitions tell
    noise from change: an exact permutation test over the runs (p <= 0.05 is called real), which
    takes at least 4 and 4 runs, or 3 and 5; with fewer it says that noise is unknown. One in
    twenty quantities that did not change will still be called real.

    The exit status is 1 if a metric got worse by more than the threshold and that is not noise
    (--fail-on adds phases, limits and decisions, of which any change counts), 0 if not, 2 for
    wrong usage. An error, such as a run that is missing, is 1 with a message.

    \b
    bbrscope diff v2_single_1bdp v2_x_spur
    bbrscope diff 'base_*' 'new_*' --threshold 5%
    bbrscope diff --a monday1 --a monday2 --b tuesday --format json
    """
    if len(pair) not in (0, 2):
        raise click.UsageError("name two runs (or patterns), or use --a and --b")
    patterns = [[*pair[:1], *first], [*pair[1:], *second]]
    if not all(patterns):
        raise click.UsageError("both sides need a run: bbrscope diff A B, or --a RUN --b RUN")
    from ...analyze import compare
    from ...collect.store import open_store
    from ..tables import write_table

    with open_store(store, read_only=True) as opened:
        groups = [by_name(opened, names) for names in patterns]
        a, b = ([opened.run_id(name) for name in names] for names in groups)
        measured = compare.measure(opened.con, sorted({*a, *b}))
        found = compare.differences(measured, a, b, threshold)
        notes = unlike(opened, a, b)
    if output_format == "table":
        _print(groups, notes, found, everything)
    else:
        write_table(table(found), output_format)
    sys.exit(int(any(_fails(d, fail_on) for d in found)))


def _fails(found: Difference, kinds: Sequence[str]) -> bool:
    """A metric fails if it got worse; of the other kinds, any change may be one too many."""
    verdicts = ("worse",) if found.quantity.kind == "metric" else ("worse", "differs")
    return found.quantity.kind in kinds and found.verdict in verdicts


def unlike(store: Store, a: list[int], b: list[int]) -> list[str]:
    """Return what else than the measured differs between the groups, or spoils them."""
    notes = []
    sides = [_settings(store, ids) for ids in (a, b)]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        values = [", ".join(sorted(side.get(name, {"not recorded"}))) for side in sides]
        if values[0] != values[1]:
            notes.append(f"{name}: A {values[0]}; B {values[1]}")
    lossy = store.con.execute(
        "SELECT run, greatest(coalesce(lost_declared, 0), coalesce(lost_reported, 0))"
        " + coalesce(half_events, 0) AS lost FROM runs WHERE lost > 0 AND list_contains(?, run_id)",
        [[*a, *b]],
    ).fetchall()
    notes += [f"{run} is incomplete: {lost:,} rows or events lost" for run, lost in lossy]
    return notes


def _settings(store: Store, run_ids: list[int]) -> dict[str, set[str]]:
    """What the runs were made with: version, kernel and each line of the set-up."""
    found: dict[str, set[str]] = {}
    for version, kernel, setup in store.con.execute(
        "SELECT version, kernel, setup FROM runs WHERE list_contains(?, run_id)", [run_ids]
    ).fetchall():
        told = {"version": version, "kernel": kernel}
        try:
            known = json.loads(setup or "{}")
        except ValueError:
            known = {"set-up": setup}
        told |= known if isinstance(known, dict) else {"set-up": known}
        for name, value in told.items():
            found.setdefault(str(name), set()).add(str(value))
    return found


def table(found: Sequence[Difference]) -> Any:
    """Return differences as Arrow: one row per quantity, with every value."""
    import pyarrow as pa

    return pa.Table.from_pylist(
        [
            {
                "kind": d.quantity.kind,
                "name": d.quantity.name,
                "unit": d.quantity.unit,
                "a": sum(d.a) / len(d.a),
                "b": sum(d.b) / len(d.b),
                "change": d.change,
                "change_in": "points" if d.quantity.points else "share of a",
                "verdict": d.verdict,
                "noise": d.noise,
                "p": d.p,
                "a_runs": d.a,
                "b_runs": d.b,
                "about": d.quantity.about,
            }
            for d in found
        ],
        pa.schema(
            [
                *((name, pa.string()) for name in ("kind", "name", "unit")),
                *((name, pa.float64()) for name in ("a", "b", "change")),
                *((name, pa.string()) for name in ("change_in", "verdict", "noise")),
                ("p", pa.float64()),
                ("a_runs", pa.list_(pa.float64())),
                ("b_runs", pa.list_(pa.float64())),
                ("about", pa.string()),
            ]
        ),
    )


def _print(
    groups: list[list[str]], notes: list[str], found: list[Difference], everything: bool
) -> None:
    import pyarrow as pa

    from ..tables import printable, render

    for letter, names in zip("AB", groups, strict=True):
        click.echo(printable(f"{letter}: {', '.join(names)}"))
    for note in notes:
        click.echo(printable(f"  differs in {note}" if ": A " in note else f"  {note}"))
    shown = [d for d in found if everything or d.verdict != "same"]
    more = 0
    if not everything:
        decisions = [d for d in shown if d.quantity.kind == "decision"]
        more = len(decisions[MOST_DECISIONS:])
        shown = [d for d in shown if d not in decisions[MOST_DECISIONS:]]
    if shown:
        rows = [
            {
                "": d.quantity.kind,
                "quantity": d.quantity.name,
                "A": _spread(d.a, d.quantity.unit),
                "B": _spread(d.b, d.quantity.unit),
                "change": f"{100 * d.change:+.1f} {'points' if d.quantity.points else '%'}",
                "verdict": d.verdict,
                "noise?": _WORDS[d.noise] if d.p is None else f"{_WORDS[d.noise]}, p = {d.p:.2g}",
            }
            for d in shown
        ]
        click.echo()
        click.echo(render(pa.Table.from_pylist(rows)))
    if more:
        click.echo(f"... and {more} more decisions; --all prints everything")
    same = sum(d.verdict == "same" for d in found)
    click.echo(f"\n{len(found) - same} of {len(found)} quantities differ")


def _spread(values: list[float], unit: str) -> str:
    """The mean of a group, and the range of its runs."""
    mean = _number(sum(values) / len(values))
    spread = f" ({_number(min(values))} to {_number(max(values))})" if len(values) > 1 else ""
    return f"{mean}{spread} {unit}".strip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
