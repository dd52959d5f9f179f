"""The findings at the top of the page: sentences whose times open the charts there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...analyze.diagnosis.engine import Diagnosis, Finding, diagnose
from ..text import finding_text as findings
from ..text.quantities import fixed
from .links import At, Linked
from .select import Run

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Card:
    """One finding as the page shows it; `window` is the link that opens where it holds."""

    finding: Finding
    weight: str
    cost: str
    sentence: Linked
    evidence: list[Linked]
    codes: list[str]
    window: At


@dataclass(frozen=True)
class FindingsSection:
    """The findings of a run, why to trust them, rules that are clear, or unchecked by need."""

    head: str
    cards: list[Card]
    trust: list[tuple[str, str]]
    clear: list[str]
    unchecked: list[tuple[str, list[str]]]


def findings_section(con: duckdb.DuckDBPyConnection, run: Run) -> FindingsSection:
    """Diagnose a run for its page."""
    made = diagnose(con, run.row["run_id"])
    unchecked = [
        (need, [check.rule.title for check in checks]) for need, checks in findings.unchecked(made)
    ]
    clear = [check.rule.title for check in made.outcomes("clear")]
    cards = [_card(run, made, finding) for finding in made.findings]
    # How far the replay and the recording can be trusted is said once, in the page's head.
    trust = findings.rules_trust(made)
    return FindingsSection(findings.head(made), cards, trust, clear, unchecked)


def _card(run: Run, made: Diagnosis, finding: Finding) -> Card:
    a, b = run.us(finding.t0_ns) / 1e6, run.us(finding.t1_ns) / 1e6
    pad = max(0.05, 0.02 * (b - a))
    return Card(
        finding,
        findings.weight(finding),
        findings.cost(finding),
        _linked(run, findings.sentence(made, finding)),
        [_linked(run, told) for told in findings.evidence(made, finding)],
        findings.codes(finding),
        At(f"{fixed(a, 2)} s to {fixed(b, 2)} s", a - pad, b + pad),
    )


def _linked(run: Run, told: findings.Sentence) -> Linked:
    return [part if isinstance(part, str) else _place(run, part) for part in told]


def _place(run: Run, time: findings.InstantText) -> At:
    """An instant with a little around it."""
    at = run.us(time.ns) / 1e6
    return At(time.text, at - 0.5, at + 0.5)
