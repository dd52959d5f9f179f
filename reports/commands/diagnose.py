"""``bbrscope diagnose``: what is wrong with a run's flows, what shows it, and what to try."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options import format_option, names_option, runs_argument, store_option
from ..text.screen import say

if TYPE_CHECKING:
    from ...analyze.diagnosis.engine import Diagnosis
    from ...analyze.diagnosis.rule import Rule


# Of more runs, text is a ranked summary: a page or two for each would be a book.
MOST_WHOLE = 5


def complete_rules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of rules."""
    from ...analyze.diagnosis.rule import rules

    return [rule.name for rule in rules() if rule.name.startswith(incomplete)]


@click.command()
@runs_argument
@store_option
@click.option("--list", "listing", is_flag=True, help="List all rules, with sentence and source.")
@click.option(
    "--explain",
    "explained",
    metavar="NAME",
    shell_complete=complete_rules,
    help="Print all about one rule, with its query.",
)
@click.option(
    "--full",
    is_flag=True,
    help=f"Print all findings of each run, even of more than {MOST_WHOLE} runs.",
)
@format_option("text", "json", "csv", "parquet")
@names_option
def command(
    runs: tuple[str, ...],
    store: Path,
    listing: bool,
    explained: str | None,
    full: bool,
    output_format: str,
    names: str,
) -> None:
    """Say what is wrong with RUN's flows, what shows it, and what to try.

    Without RUN, all runs are diagnosed; those that were not replayed yet are replayed first.
    Findings are ranked by their cost: seconds lost, or bytes that could have been carried. Each
    comes from a rule, which is SQL over the recording, and has the numbers that show it, times in
    seconds since the first flow began, the decisions behind it, its usual cause, what to try, and
    who described it. Below the findings stands which rules were checked, and which could not be for
    lack of data: a recording by tcp_probe tells less than one by fentry or kprobe, one by inet_diag
    nothing that rules ask for. Of many runs a summary is printed: findings by their cost over all
    runs, and the worst run of each.

    json is one object per run, in a list: findings (sentence, evidence, values as the rule computed
    them, cost_s, cost_bytes, severity, confidence, t0_s, t1_s), checks (found, clear, not
    applicable, not checked) and trust. csv and parquet have one row per finding. The exit status is
    0 whatever is found, 1 if the job failed, 2 for wrong usage.

    \b
    bbrscope diagnose v2_single_1bdp
    bbrscope diagnose --format json | jq '.[] | {run, found: [.findings[].name]}'
    bbrscope diagnose --list
    bbrscope diagnose --explain policer
    """
    from ..api.opening import open
    from ..text.findings import diagnosis_text

    if explained is not None and not listing:
        say(diagnosis_text.rule_description(_rule(explained), names))
        return
    if listing:
        say("\n\n".join(diagnosis_text.rule_list(names)))
        return
    with open(store) as recordings:
        diagnoses = recordings.diagnose(*runs)
        way_in = recordings.store.filled_by
    if output_format == "text":
        if not diagnoses:
            say(f"{store} holds no run with events; load one with `{way_in}`")
        _print_text(diagnoses, names, full)
    elif output_format == "json":
        from ..text.findings.finding_text import document

        say(json.dumps([document(diagnosis, names) for diagnosis in diagnoses]))
    else:
        from ..api.frames import findings_frame
        from ..text.print_table import write_table

        write_table(findings_frame(diagnoses).to_arrow(), output_format, names)


def _rule(name: str) -> Rule:
    import difflib

    from ...analyze.diagnosis.rule import rules

    known = {rule.name: rule for rule in rules()}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3) or sorted(known)
        raise click.UsageError(f"--explain {name}: no such rule; near: {', '.join(near)}")
    return known[name]


def _print_text(diagnoses: Sequence[Diagnosis], names: str, full: bool) -> None:
    from ..text.findings.diagnosis_summary import summary_lines
    from ..text.findings.diagnosis_text import diagnosis_lines

    if len(diagnoses) > MOST_WHOLE and not full:
        say("\n".join(summary_lines(diagnoses, names)))
        return
    for diagnosis in diagnoses:
        say("\n".join(diagnosis_lines(diagnosis, names)))
