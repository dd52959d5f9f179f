"""``bbrscope diff``: what differs between two groups of runs, and is it noise?"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...collect.store.query import run_names
from ...probes.base.errors import ScenarioError
from ...probes.base.plurals import plural
from ..choose import by_name
from ..options import complete_runs, format_option, gather, store_option
from ..parameter_types import ShareType
from ..text.screen import say
from ..window_options import check, window_notes, window_options, windows_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ...analyze.compare.blocks import RunBlock
    from ...analyze.compare.groups import Difference
    from ...collect.store.store import Store

COLUMNS = (
    "kind name unit a b change change_in difference_low difference_high verdict noise p p_adjusted"
    " a_runs b_runs about"
).split()
KINDS = ("metric", "phase", "limit", "decision")
# People get this many of the decisions that differ; programs get all.
MOST_DECISIONS = 12
_WORDS = {
    "real": "real",
    "noise": "noise",
    "unknown": "unknown: too few repetitions",
}


@dataclass(frozen=True)
class DiffRequest:
    """Which groups of runs to compare, and what counts as a difference."""

    pair: tuple[str, ...]
    store: Path
    first: tuple[str, ...]
    second: tuple[str, ...]
    threshold: float
    fail_on: tuple[str, ...]
    everything: bool
    between: tuple[int, int] | None
    steady: bool
    output_format: str

    def patterns(self) -> tuple[list[str], list[str]]:
        """Return names of runs, or patterns of them, of both groups.

        Raises:
            click.UsageError: a group has none.
        """
        if len(self.pair) not in (0, 2):
            raise click.UsageError("name two runs (or patterns), or use --a and --b")
        a, b = [*self.pair[:1], *self.first], [*self.pair[1:], *self.second]
        if not (a and b):
            raise click.UsageError("both sides need a run: bbrscope diff A B, or --a RUN --b RUN")
        return a, b


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
    type=ShareType(),
    default="10%",
    show_default=True,
    help="Changes up to this are no difference; of shares of time, in percentage points.",
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
@window_options
@format_option()
@gather(DiffRequest)
def command(request: DiffRequest) -> None:
    """Say what got better or worse from runs A to runs B.

    A and B are runs, or patterns of names; --a and --b add more. Metrics, the time per phase, what
    limited sending and the rate of each decision are compared by their means. Runs of the same
    scenario and seed are compared with each other, those of other scenarios are not pooled.
    Repetitions tell noise from change: an exact permutation test over the runs (p <= 0.05), which
    takes at least 4 and 4 runs, 3 and 5, or 6 pairs; with fewer it says that noise is unknown.
    A change is called real if p stays as small after Holm's correction for the number of
    quantities, which takes more runs: for 30 of them 7 and 7, or 11 pairs.

    The exit status is 1 if a metric got worse by more than the threshold and that is not noise
    (--fail-on adds phases, limits and decisions, of which any change counts), 0 if not, 2 for
    wrong usage. An error, such as a run that is missing, is 1 with a message.

    \b
    bbrscope diff v2_single_1bdp v2_x_spur
    bbrscope diff 'base_*' 'new_*' --threshold 5%
    bbrscope diff --a monday1 --a monday2 --b tuesday --format json
    bbrscope diff v2_single_1bdp v2_x_spur --steady
    """
    a, b = request.patterns()
    check(request.between, request.steady)
    from ...analyze.views.store_with_views import open_store
    from ..text.print_table import write_table
    from ..text.run_notes import say_notes

    with open_store(request.store, read_only=True) as opened:
        groups = (by_name(opened, a), by_name(opened, b))
        opened.restrict_to([run for group in groups for run in group])
        say_notes(opened.con, [opened.run_id(run) for group in groups for run in group])
        differences, notes = _compare(opened, groups, request)
    if request.output_format == "table":
        _print(groups, notes, differences, request.everything)
    else:
        write_table(table(differences), request.output_format)
    sys.exit(int(any(_fails(each, request.fail_on) for each in differences)))


def _compare(
    store: Store, groups: tuple[list[str], list[str]], request: DiffRequest
) -> tuple[list[Difference], list[str]]:
    """Return what differs between two groups of runs, and what the reader must know of them."""
    from ...analyze.compare import groups as compare
    from ...analyze.compare.blocks import blocks

    a, b = ([store.run_id(name) for name in names] for names in groups)
    run_ids = sorted({*a, *b})
    compared = blocks(store.con, a, b)
    windows = windows_of(store, run_ids, request.between, request.steady)
    measured = compare.measure(store.con, run_ids, windows)
    differences = compare.differences(measured, compared, request.threshold)
    notes = [
        *unlike(store, a, b),
        *_left_out(store, compared, run_ids),
        *window_notes(store, windows),
    ]
    return differences, notes


def _fails(difference: Difference, kinds: Sequence[str]) -> bool:
    """A metric fails if it got worse; of the other kinds, any change may be one too many."""
    verdicts = ("worse",) if difference.quantity.kind == "metric" else ("worse", "differs")
    return difference.quantity.kind in kinds and difference.verdict in verdicts


def unlike(store: Store, a: list[int], b: list[int]) -> list[str]:
    """Return lines: what the groups were made with that differs."""
    notes = []
    sides = [_settings(store, ids) for ids in (a, b)]
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        a_values, b_values = (side.get(name, {"not recorded"}) for side in sides)
        if {_value(name, each) for each in a_values} != {_value(name, each) for each in b_values}:
            in_words = [", ".join(sorted(values)) for values in (a_values, b_values)]
            notes.append(f"{name}: A {in_words[0]}; B {in_words[1]}")
    return notes


def _value(name: str, text: str) -> object:
    """What a setting says, however it is written: 10mbit is 10000000, and 40 is 40.0."""
    from ...collect.lab import units

    readers: dict[str, Callable[[str], float]] = {"rate": units.rate, "loss": units.share}
    for read in (float, readers.get(name, float)):
        try:
            return float(read(text))
        except (ScenarioError, ValueError):
            continue
    return text


def _settings(store: Store, run_ids: list[int]) -> dict[str, set[str]]:
    """What the runs were made with: version, kernel and each line of the set-up."""
    values: dict[str, set[str]] = {}
    for version, kernel, setup in store.con.execute(
        "SELECT version, kernel, setup FROM runs WHERE list_contains(?, run_id)", [run_ids]
    ).fetchall():
        settings = {"version": version, "kernel": kernel, **_setup(setup)}
        for name, value in settings.items():
            values.setdefault(str(name), set()).add(str(value))
    return values


def _setup(text: str | None) -> dict[str, object]:
    """What a run's set-up says line by line; a set-up that is no JSON object is one line."""
    try:
        document = json.loads(text or "{}")
    except ValueError:
        document = text
    return document if isinstance(document, dict) else {"set-up": document}


def table(differences: Sequence[Difference]) -> pa.Table:
    """Return differences as Arrow: one row per quantity, with every value."""
    import pyarrow as pa

    numbers = ("a", "b", "change", "difference_low", "difference_high", "p", "p_adjusted")
    types = {name: pa.float64() for name in numbers}
    types |= {name: pa.list_(pa.float64()) for name in ("a_runs", "b_runs")}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in COLUMNS])
    return pa.Table.from_pylist([_row(each) for each in differences], schema)


def _row(difference: Difference) -> dict[str, object]:
    quantity, interval = difference.quantity, difference.interval
    return {
        "kind": quantity.kind,
        "name": quantity.name,
        "unit": quantity.unit,
        "a": difference.a_mean,
        "b": difference.b_mean,
        "change": None if difference.from_nothing else difference.change,
        "change_in": "points" if quantity.points else "share of a",
        "difference_low": interval[0] if interval else None,
        "difference_high": interval[1] if interval else None,
        "verdict": difference.verdict,
        "noise": difference.noise,
        "p": difference.p,
        "p_adjusted": difference.p_adjusted,
        "a_runs": difference.a,
        "b_runs": difference.b,
        "about": quantity.about,
    }


def _print(
    groups: tuple[list[str], list[str]],
    notes: list[str],
    differences: list[Difference],
    everything: bool,
) -> None:
    import pyarrow as pa

    from ..text.print_table import printable, render

    for letter, names in zip("AB", groups, strict=True):
        say(printable(f"{letter}: {', '.join(names)}"))
    for note in notes:
        say(printable(f"  differs in {note}" if ": A " in note else f"  {note}"))
    shown = differences if everything else _most_telling(differences)
    differing = [each for each in differences if each.verdict != "same"]
    if shown:
        say()
        say(render(pa.Table.from_pylist([_printed_row(each) for each in shown])))
    if len(shown) < len(differing):
        say(
            f"... and {plural(len(differing) - len(shown), 'more decision')}; --all prints"
            " everything"
        )
    all_of_them = plural(len(differences), "quantity differs", "quantities differ")
    say(f"\n{len(differing)} of {all_of_them}")


def _most_telling(differences: list[Difference]) -> list[Difference]:
    """Return what differs, and of the decisions that do only the first ones."""
    differing = [each for each in differences if each.verdict != "same"]
    decisions = [each for each in differing if each.quantity.kind == "decision"]
    too_many = decisions[MOST_DECISIONS:]
    return [each for each in differing if each not in too_many]


def _printed_row(difference: Difference) -> dict[str, str]:
    quantity, p = difference.quantity, difference.p_adjusted
    return {
        "": quantity.kind,
        "quantity": quantity.name,
        "A": _spread(difference.a_mean, difference.a, quantity.unit),
        "B": _spread(difference.b_mean, difference.b, quantity.unit),
        "change": _change(difference),
        "95 %": _between(difference),
        "verdict": difference.verdict,
        "noise?": _WORDS[difference.noise] + ("" if p is None else f", p = {p:.2g}"),
    }


def _left_out(store: Store, compared: Sequence[RunBlock], run_ids: Sequence[int]) -> list[str]:
    """Name the runs whose scenario the other group lacks."""
    inside = {run for block in compared for run in (*block.a, *block.b)}
    known = run_names(store.con).items()
    names = [run for run_id, run in known if run_id in run_ids and run_id not in inside]
    if not names:
        return []
    return [f"not compared, for want of a counterpart: {', '.join(names)}"]


def _change(d: Difference) -> str:
    """The change in %, in points, or, from next to nothing, as it is."""
    if d.from_nothing:
        return f"{_signed(d.b_mean - d.a_mean)} {d.quantity.unit}".strip()
    return f"{100 * d.change:+.1f} {'points' if d.quantity.points else '%'}"


def _between(d: Difference) -> str:
    """Where the difference of the means lies, as the bootstrap has it, with its unit."""
    if not d.interval:
        return ""
    times, unit = (100, "points") if d.quantity.points else (1, d.quantity.unit)
    low, high = (_signed(times * end) for end in d.interval)
    return f"{low} to {high} {unit}".strip()


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{_number(abs(value))}"


def _spread(mean: float, values: list[float], unit: str) -> str:
    """The mean of a group, and the range of its runs."""
    spread = f" ({_number(min(values))} to {_number(max(values))})" if len(values) > 1 else ""
    return f"{_number(mean)}{spread} {unit}".strip()


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
