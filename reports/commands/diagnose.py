"""``bbrscope diagnose``: what is wrong with a run's flows, how one knows, what to try."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options import format_option, names_option, runs_argument, store_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...analyze.diagnosis.engine import Diagnosis, Finding
    from ...analyze.diagnosis.rule import Rule

_WIDTH = 96


def complete_rules(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of rules."""
    from ...analyze.diagnosis.rule import rules

    return [rule.name for rule in rules() if rule.name.startswith(incomplete)]


@click.command()
@runs_argument
@store_option
@click.option("--list", "listing", is_flag=True, help="All rules, with sentence and source.")
@click.option(
    "--explain", "explained", metavar="NAME", shell_complete=complete_rules, help="One rule whole."
)
@format_option("text", "json", "csv", "parquet")
@names_option
def command(
    runs: tuple[str, ...],
    store: Path,
    listing: bool,
    explained: str | None,
    output_format: str,
    names: str,
) -> None:
    """Say what is wrong with RUN's flows, how one knows, and what to try.

    Without RUN, of all; what was not replayed yet is replayed first. Findings come ranked by what
    they cost: seconds lost, or bytes that could have been carried. Each is a rule that held: SQL
    over the recording, with the numbers that show it, times in seconds since the first flow began,
    the decisions behind it, what usually causes it, what to try, who described it. No finding is an
    answer, too: it says which rules were checked, and which could not be for lack of data.

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
    if listing or explained is not None:
        click.echo("\n\n".join(_list(names) if listing else [_explain(str(explained), names)]))
        return
    diagnoses = _diagnose(store, runs)
    if output_format == "text":
        if not diagnoses:
            click.echo(f"{store} holds no run with events; load one with `bbrscope ingest BUNDLE`")
        for made in diagnoses:
            click.echo("\n".join(told(made, names)))
    elif output_format == "json":
        from ..findings import document

        click.echo(json.dumps([document(made, names) for made in diagnoses]))
    else:
        _write(diagnoses, output_format, names)


def _diagnose(store: Path, runs: Sequence[str]) -> list[Diagnosis]:
    from ...analyze.diagnosis.engine import diagnose
    from ...collect.store import open_store
    from .explain import open_replayed

    if not runs:
        with open_store(store, read_only=True) as opened:
            runs = opened.runs(with_events=True)
    with open_replayed(store, *runs) as opened:
        return [diagnose(opened.con, opened.run_id(name)) for name in runs]


def told(made: Diagnosis, names: str = "kernel") -> list[str]:
    """Return a diagnosis as lines of text."""
    from .. import findings
    from ..tables import printable

    name = printable(made.run) + (f" (BBR {made.version})" if made.version else "")
    lines = [click.style(f"{name}: {findings.head(made)}", bold=True)]
    for number, finding in enumerate(made.findings, 1):
        lines += ["", *_told(made, number, finding, names)]
    lines.append("")
    lines += [f"  {words}" for _, words in findings.trust(made)]
    clear = ", ".join(check.rule.name for check in made.outcomes("clear"))
    if clear:
        lines += _wrap(f"checked and clear: {clear}", "  ", "    ")
    for need, checks in findings.unchecked(made):
        names = ", ".join(check.rule.name for check in checks)
        lines += _wrap(f"not checked, {need}: {names}", "  ", "    ")
    return [*lines, ""]


def _told(made: Diagnosis, number: int, finding: Finding, names: str) -> list[str]:
    from ...analyze.names import translate
    from .. import findings

    rule = finding.rule
    lines = [
        click.style(f"{number}. {translate(rule.title, names)}", bold=True) + f"  [{rule.name}]",
        f"   {findings.weight(finding)}: {findings.cost(finding)}; confidence {finding.confidence}",
        *_wrap(translate(findings.text(findings.sentence(made, finding)), names), "   ", "   "),
    ]
    for sentence in findings.evidence(made, finding):
        lines += _wrap(translate(findings.text(sentence), names), "   - ", "     ")
    if finding.codes:
        decisions = ", ".join(findings.codes(finding))
        lines += _wrap(f"decisions: {decisions}", "   ", "     ")
    lines += _wrap(f"usual cause: {translate(rule.cause, names)}", "   ", "     ")
    lines.append("   try:")
    for remedy in rule.remedies:
        lines += _wrap(translate(remedy, names), "   - ", "     ")
    return [*lines, *_wrap(f"described by: {'; '.join(rule.sources)}", "   ", "     ")]


def _wrap(text: str, first: str, other: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=other, break_on_hyphens=False
    )


def _list(names: str) -> list[str]:
    from ...analyze.diagnosis import NOT_RULES
    from ...analyze.diagnosis.rule import rules
    from ...analyze.names import translate

    lines = [
        "\n".join(
            [
                click.style(rule.name, bold=True),
                *_wrap(translate(rule.sentence, names), "  ", "  "),
                *_wrap("; ".join(rule.sources), "  source: ", "    "),
            ]
        )
        for rule in rules()
    ]
    left = [f"{name}: {why}" for name, why in NOT_RULES.items()]
    told = "\n".join(line for text in left for line in _wrap(text, "  ", "    "))
    return [*lines, f"What the studies found and one run's data cannot show:\n{told}"]


def _explain(name: str, names: str) -> str:
    import difflib

    from ...analyze.diagnosis.rule import rules

    known = {rule.name: rule for rule in rules()}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3) or sorted(known)
        raise click.UsageError(f"--explain {name}: no such rule; near: {', '.join(near)}")
    return _whole(known[name], names)


def _whole(rule: Rule, names: str) -> str:
    from ...analyze.diagnosis.needs import NEEDS
    from ...analyze.names import translate

    versions = ", ".join(f"v{digit}" for digit in rule.versions)
    about = [
        ("finding", rule.sentence),
        *(("evidence", text) for text in rule.evidence),
        ("about", f"BBR {versions}; at least {rule.flows} flow{'s' * (rule.flows > 1)}"),
        ("cost", f"seconds {rule.cost}"),
        ("needs", ", ".join(NEEDS[need].words for need in rule.needs) or "events"),
        ("decisions", ", ".join(rule.codes) or "none"),
        ("usual cause", rule.cause),
        *(("try", text) for text in rule.remedies),
        *(("source", text) for text in rule.sources),
        *(("studies", f"finding {name}") for name in rule.catalogue),
        ("confidence", rule.confidence),
        *(("threshold", f"{key} = {value:g}") for key, value in rule.thresholds.items()),
    ]
    lines = [click.style(f"{rule.name}: {rule.title}", bold=True)]
    for label, text in about:
        lines += _wrap(translate(text, names), f"  {label + ':':<13}", " " * 15)
    return "\n".join([*lines, "  query:", textwrap.indent(rule.sql.strip(), "    ")])


def _write(diagnoses: Sequence[Diagnosis], output_format: str, names: str) -> None:
    import pyarrow as pa

    from .. import findings
    from ..tables import write_table

    schema = pa.schema(
        [
            ("run", pa.string()),
            ("rank", pa.int32()),
            ("name", pa.string()),
            ("flow", pa.int32()),
            ("severity", pa.string()),
            ("confidence", pa.string()),
            ("cost_s", pa.float64()),
            ("cost_bytes", pa.float64()),
            ("t0_s", pa.float64()),
            ("t1_s", pa.float64()),
            ("sentence", pa.string()),
        ]
    )
    rows = [
        {"run": made.run, "rank": rank, **findings.document(made)["findings"][rank - 1]}
        for made in diagnoses
        for rank in range(1, len(made.findings) + 1)
    ]
    kept = [{name: row[name] for name in schema.names} for row in rows]
    write_table(pa.Table.from_pylist(kept, schema), output_format, names)
