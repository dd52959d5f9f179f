"""What `bbrscope diagnose` prints: a run's findings, and the rules behind them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from ....analyze.diagnosis import NOT_RULES
from ....analyze.diagnosis.needs import NEEDS
from ....analyze.diagnosis.rule import rules
from ....analyze.story.names import translate
from ..print_table import printable
from . import finding_text as findings

if TYPE_CHECKING:
    from ....analyze.diagnosis.engine import Diagnosis, Finding
    from ....analyze.diagnosis.rule import Rule

_WIDTH = 96


def diagnosis_lines(diagnosis: Diagnosis, names: str = "kernel") -> list[str]:
    """Return a diagnosis as lines of text: findings, trust, what was checked and what not."""
    name = printable(diagnosis.run) + (f" (BBR {diagnosis.version})" if diagnosis.version else "")
    lines = [click.style(f"{name}: {findings.head(diagnosis)}", bold=True)]
    for number, finding in enumerate(diagnosis.findings, 1):
        lines += ["", *_finding_lines(diagnosis, number, finding, names)]
    lines.append("")
    lines += [f"  {words}" for _, words in findings.trust(diagnosis)]
    clear = ", ".join(check.rule.name for check in diagnosis.outcomes("clear"))
    if clear:
        lines += _wrap(f"checked and clear: {clear}", "  ", "    ")
    for need, checks in findings.unchecked(diagnosis):
        unchecked = ", ".join(check.rule.name for check in checks)
        lines += _wrap(f"not checked, {need}: {unchecked}", "  ", "    ")
    return [*lines, ""]


def _finding_lines(diagnosis: Diagnosis, number: int, finding: Finding, names: str) -> list[str]:
    rule = finding.rule
    sentence = findings.text(findings.sentence(diagnosis, finding))
    lines = [
        click.style(f"{number}. {translate(rule.title, names)}", bold=True) + f"  [{rule.name}]",
        f"   {findings.weight(finding)}: {findings.cost(finding)}; confidence {finding.confidence}",
        *_wrap(translate(sentence, names), "   ", "   "),
    ]
    for evidence in findings.evidence(diagnosis, finding):
        lines += _wrap(translate(findings.text(evidence), names), "   - ", "     ")
    if finding.codes:
        decisions = ", ".join(findings.codes(finding))
        lines += _wrap(f"decisions: {decisions}", "   ", "     ")
    lines += _wrap(f"usual cause: {translate(' '.join(finding.causes), names)}", "   ", "     ")
    lines.append("   try:")
    for remedy in finding.remedies:
        lines += _wrap(translate(remedy, names), "   - ", "     ")
    return [*lines, *_wrap(f"described by: {'; '.join(rule.sources)}", "   ", "     ")]


def _wrap(text: str, first: str, other: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=other, break_on_hyphens=False
    )


def rule_list(names: str) -> list[str]:
    """Return a paragraph per rule, and one on what cannot be a rule."""
    not_rules = [f"{name}: {why}" for name, why in NOT_RULES.items()]
    reasons = "\n".join(line for text in not_rules for line in _wrap(text, "  ", "    "))
    return [
        *(_rule_summary(rule, names) for rule in rules()),
        f"What the studies found and one run's data cannot show:\n{reasons}",
    ]


def _rule_summary(rule: Rule, names: str) -> str:
    return "\n".join(
        [
            click.style(rule.name, bold=True),
            *_wrap(translate(rule.sentence, names), "  ", "  "),
            *_wrap("; ".join(rule.sources), "  source: ", "    "),
        ]
    )


def rule_description(rule: Rule, names: str) -> str:
    """Return all about a rule, with its query."""
    lines = [click.style(f"{rule.name}: {rule.title}", bold=True)]
    for label, text in _about(rule):
        lines += _wrap(translate(text, names), f"  {label + ':':<13}", " " * 15)
    return "\n".join([*lines, "  query:", textwrap.indent(rule.sql.strip(), "    ")])


def _about(rule: Rule) -> list[tuple[str, str]]:
    """Return labels and texts on a rule."""
    versions = ", ".join(f"v{digit}" for digit in rule.versions)
    return [
        ("finding", rule.sentence),
        *(("evidence", line.text) for line in rule.evidence),
        ("about", f"BBR {versions}; at least {rule.flows} flow{'s' * (rule.flows > 1)}"),
        ("cost", f"seconds {rule.cost}"),
        ("needs", ", ".join(NEEDS[need].words for need in rule.needs) or "events"),
        ("decisions", ", ".join(rule.codes) or "none"),
        *(("usual cause", line.text) for line in rule.causes),
        *(("try", line.text) for line in rule.remedies),
        *(("source", text) for text in rule.sources),
        *(("studies", f"{name} of analyze/diagnosis/CATALOGUE.md") for name in rule.catalogue),
        ("confidence", rule.confidence),
        *(("threshold", f"{key} = {value:g}") for key, value in rule.thresholds.items()),
    ]
