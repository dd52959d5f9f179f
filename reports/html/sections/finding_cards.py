"""The findings at the top of the page: sentences whose times open the charts there."""

from __future__ import annotations

from dataclasses import dataclass

from ....analyze.diagnosis.engine import Diagnosis, Finding
from ....analyze.diagnosis.rule import Rule
from ....probes.base.plurals import in_words
from ...text.findings import finding_text as findings
from ...text.quantities import fixed
from ..data.select import Run
from .links import At, Linked


@dataclass(frozen=True)
class FindingText:
    """One finding as the page shows it; `window` is the link that opens where it holds."""

    finding: Finding
    weight: str
    cost: str
    sentence: Linked
    evidence: list[Linked]
    codes: list[str]
    window: At


@dataclass(frozen=True)
class Card:
    """What a rule found, of each flow that has it: the costliest first."""

    rule: Rule
    texts: list[FindingText]

    @property
    def flows(self) -> str:
        """Which flows have it, in words; empty if one has."""
        numbers = [str(one) for one in sorted(texts.finding.flow or 0 for texts in self.texts)]
        return f"flows {in_words(numbers)}" if len(numbers) > 1 else ""

    @property
    def causes(self) -> str:
        """What usually brings it about: all that fits what was found of any of the flows."""
        fitting = {text for one in self.texts for text in one.finding.causes}
        return " ".join(line.text for line in self.rule.causes if line.text in fitting)

    @property
    def remedies(self) -> list[str]:
        """What to try: all that fits what was found of any of the flows."""
        return list(dict.fromkeys(text for one in self.texts for text in one.finding.remedies))


@dataclass(frozen=True)
class FindingsSection:
    """The findings of a run by rule, why to trust them, and rules that are clear or unchecked."""

    head: str
    cards: list[Card]
    trust: list[tuple[str, str]]
    clear: list[str]
    unchecked: list[tuple[str, list[str]]]


def findings_section(run: Run, diagnosis: Diagnosis) -> FindingsSection:
    """Return what the page says of a run's diagnosis."""
    unchecked = [
        (need, [check.rule.title for check in checks])
        for need, checks in findings.unchecked(diagnosis)
    ]
    clear = [check.rule.title for check in diagnosis.outcomes("clear")]
    cards: dict[object, Card] = {}
    for place, finding in enumerate(diagnosis.findings):
        # What is about the run stands alone; what flows share is explained once.
        key = finding.rule.name if finding.flow is not None else place
        cards.setdefault(key, Card(finding.rule, [])).texts.append(
            _finding_text(run, diagnosis, finding)
        )
    # How far the replay and the recording can be trusted is said once, in the page's head.
    trust = findings.rules_trust(diagnosis)
    return FindingsSection(findings.head(diagnosis), list(cards.values()), trust, clear, unchecked)


def _finding_text(run: Run, diagnosis: Diagnosis, finding: Finding) -> FindingText:
    a, b = run.us(finding.t0_ns) / 1e6, run.us(finding.t1_ns) / 1e6
    pad = max(0.05, 0.02 * (b - a))
    return FindingText(
        finding,
        findings.weight(finding),
        findings.cost(finding),
        _linked(run, findings.sentence(diagnosis, finding)),
        [_linked(run, texts) for texts in findings.evidence(diagnosis, finding)],
        findings.codes(finding),
        At(f"{fixed(a, 2)} s to {fixed(b, 2)} s", a - pad, b + pad),
    )


def _linked(run: Run, texts: findings.Sentence) -> Linked:
    return [part if isinstance(part, str) else _place(run, part) for part in texts]


def _place(run: Run, time: findings.InstantText) -> At:
    """An instant with a little around it."""
    at = run.us(time.ns) / 1e6
    return At(time.text, at - 0.5, at + 0.5)
