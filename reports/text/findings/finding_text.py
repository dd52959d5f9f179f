"""Findings in words: sentences filled with numbers in units that people read, times as places.

What a column of a rule's query means to a reader is in the end of its name: `_at` a time on the
axis (or a list of them), `_s` and `_us` durations, `_share` a share, `_bps` bits per second,
`_bytes`, `_packets` and `_count` amounts, `_mss` the payload of a segment.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ....analyze.diagnosis.engine import Check, Diagnosis, Finding, Flow
from ....analyze.story.names import translate
from ....probes.base.plurals import plural, words_after
from ..print_table import printable
from ..quantities import clock, quantity, seconds, share
from .completeness_text import completeness

# So many of a list of times are printed, the others counted.
MOST_TIMES = 5
LEAST_COST_S = 0.001


@dataclass(frozen=True)
class InstantText:
    """An instant in a sentence: its words, and when [ns, CLOCK_MONOTONIC]."""

    text: str
    ns: int


# A sentence: text and instants, one after the other.
Sentence = list[str | InstantText]


def sentence(diagnosis: Diagnosis, finding: Finding) -> Sentence:
    """Return the finding's sentence."""
    return _fill(finding.rule.sentence, diagnosis, finding)


def evidence(diagnosis: Diagnosis, finding: Finding) -> list[Sentence]:
    """Return the sentences with the numbers that show it."""
    return [_fill(text, diagnosis, finding) for text in finding.evidence]


def text(sentence: Sentence) -> str:
    """Return a sentence as plain text."""
    return "".join(part if isinstance(part, str) else part.text for part in sentence)


def _fill(template: str, diagnosis: Diagnosis, finding: Finding) -> Sentence:
    parts: Sentence = []
    for literal, name, words, _ in string.Formatter().parse(template):
        if literal:
            parts.append(literal)
        if name == "flow":
            parts.append(str(finding.flow))
        elif name:
            parts += _value(name, finding.values[name], diagnosis)
        if words and name:
            parts.append(f" {words_after(finding.values[name], words)}")
    return parts


def _value(name: str, value: object, diagnosis: Diagnosis) -> Sentence:
    if value is None:
        return ["not known"]
    kind = name.rpartition("_")[2]
    if kind == "at" and isinstance(value, int | list):
        return _times(value, diagnosis)
    if kind in _WORDS and isinstance(value, int | float | Decimal):
        return [_WORDS[kind](value if isinstance(value, int) else float(value))]
    return [printable(str(value))]


_WORDS: dict[str, Callable[[float], str]] = {
    "s": seconds,
    "us": lambda value: seconds(value / 1e6),
    "share": share,
    "bps": lambda value: quantity(value, "bit/s"),
    "bytes": lambda value: quantity(value, "B"),
    "mss": lambda value: plural(round(value), "byte"),
    "packets": lambda value: plural(round(value), "packet"),
    "count": lambda value: f"{value:,}",
    "ratio": lambda value: f"{value:.2f}",
}


def _times(value: int | list[int], diagnosis: Diagnosis) -> Sentence:
    instants = value if isinstance(value, list) else [value]
    parts: Sentence = []
    for index, ns in enumerate(instants[:MOST_TIMES]):
        parts += [", "] if index else []
        parts.append(InstantText(clock(ns, diagnosis.zero_ns), ns))
    if len(instants) > MOST_TIMES:
        parts.append(f" and {len(instants) - MOST_TIMES:,} more")
    return parts


def head(diagnosis: Diagnosis) -> str:
    """Return how many findings there are, or why there are none."""
    if not diagnosis.flows and diagnosis.completeness.no_main:
        return "not diagnosed: main() was never recorded, which tells what ACKs brought and did"
    if not diagnosis.flows:
        return "not diagnosed: no kernel event of a flow that carries data was recorded"
    return plural(len(diagnosis.findings), "finding") if diagnosis.findings else "no findings"


def weight(finding: Finding) -> str:
    """Return the severity of a finding, "not priced", or "set-up" for a rule about the set-up."""
    if finding.rule.setup:
        return "set-up"
    return "not priced" if finding.severity == "unknown" else finding.severity


def cost(finding: Finding) -> str:
    """Return what the finding cost, in words."""
    if finding.rule.setup:
        return "puts every other finding in doubt"
    if finding.cost_s is None:
        return "cost not known"
    if finding.cost_s < LEAST_COST_S:
        return "no time lost"
    lost = f"{seconds(finding.cost_s)} {finding.rule.cost}"
    return lost if finding.cost_bytes is None else f"{lost} ({quantity(finding.cost_bytes, 'B')})"


def codes(finding: Finding) -> list[str]:
    """Return the decisions behind it, each with how often it was taken."""
    return [f"{name} ({count:,}x)" for name, count in finding.codes.items()]


def trust(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Return (good, bad or soft, sentence): why the findings, or their absence, can be trusted."""
    replayed = [_replayed(diagnosis)] if diagnosis.flows else []
    whole = completeness(diagnosis.completeness, diagnosis.rung)
    return [*replayed, whole, *rules_trust(diagnosis)]


def rules_trust(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Return the part of `trust` that is about the rules and not about the recording."""
    if not diagnosis.flows:
        return [("bad", "No rule could be checked.")]
    checked = diagnosis.outcomes("clear") + diagnosis.outcomes("found")
    left = diagnosis.outcomes("not checked")
    words = f"{plural(len(checked), 'rule')} checked"
    return [
        *(("soft", _used(flow)) for flow in diagnosis.flows.values() if flow.used is not None),
        *([("soft", _small(*diagnosis.small))] if diagnosis.small[0] else []),
        ("soft", f"{words}, {len(left)} not for lack of data." if left else f"{words}."),
    ]


def _used(flow: Flow) -> str:
    """How much of its part a flow carried: what the rules' costs have to explain."""
    of = "the link" if flow.rate_is_known else "the largest bandwidth it believed in"
    if flow.own_link:
        of += f" and of the sender's own, which passes {quantity(flow.own_link, 'bit/s')}"
    carried = quantity(8 * (flow.goodput or 0), "bit/s")
    return f"Flow {flow.number} carried {carried}, {share(flow.used or 0)} of its part of {of}."


def _small(count: int, size: int) -> str:
    """What no rule looks at, such as short downloads beside a long one."""
    return (
        f"{plural(count, 'small flow')} carried {quantity(size, 'B')} in all: no rule looks at them"
        " (bbrscope metrics --format csv has each)."
    )


def _replayed(diagnosis: Diagnosis) -> tuple[str, str]:
    if diagnosis.sampled:
        return (
            "soft",
            "Recorded as samples, without calls of BBR: findings have medium confidence at most.",
        )
    if not diagnosis.compared:
        return "bad", "Not replayed: rules that ask for decisions could not be checked."
    if diagnosis.exact == diagnosis.compared:
        return (
            "good",
            f"The replay agrees with the kernel on all {plural(diagnosis.compared, 'event')}.",
        )
    return (
        "bad",
        "The replay differs from the kernel on"
        f" {plural(diagnosis.compared - diagnosis.exact, 'event')}.",
    )


def unchecked(diagnosis: Diagnosis) -> list[tuple[str, list[Check]]]:
    """Return the rules that could not be checked, by what they need."""
    by_need: dict[str, list[Check]] = {}
    for check in diagnosis.outcomes("not checked"):
        by_need.setdefault(check.why, []).append(check)
    return list(by_need.items())


def document(diagnosis: Diagnosis, names: str = "kernel") -> dict[str, Any]:
    """Return a diagnosis as JSON: sentences, and every number as the rule's query gave it.

    Columns of `values` that end in `_at` are CLOCK_MONOTONIC [ns], as zero_ns is.
    """
    return {
        "run": diagnosis.run,
        "version": diagnosis.version,
        "zero_ns": diagnosis.zero_ns,
        "trust": _trust_document(diagnosis),
        "findings": [
            _finding_document(diagnosis, finding, names) for finding in diagnosis.findings
        ],
        "checks": [
            {"name": check.rule.name, "outcome": check.outcome, "why": check.why}
            for check in diagnosis.checks
        ],
    }


def _trust_document(diagnosis: Diagnosis) -> dict[str, Any]:
    missing = diagnosis.completeness
    return {
        "compared": diagnosis.compared,
        "exact": diagnosis.exact,
        "missing": {"gaps": missing.gaps, "rows": missing.lost, "half_events": missing.halves},
        "noted": missing.noted,
        "notes": [sentence for _, sentence in trust(diagnosis)],
    }


def _finding_document(diagnosis: Diagnosis, finding: Finding, names: str) -> dict[str, Any]:
    rule = finding.rule
    words = text(sentence(diagnosis, finding))
    shown = [text(parts) for parts in evidence(diagnosis, finding)]
    return {
        "name": rule.name,
        "title": translate(rule.title, names),
        "flow": finding.flow,
        "t0_s": (finding.t0_ns - diagnosis.zero_ns) / 1e9,
        "t1_s": (finding.t1_ns - diagnosis.zero_ns) / 1e9,
        "cost_s": finding.cost_s,
        "cost_bytes": finding.cost_bytes,
        "cost_of": rule.cost,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "sentence": translate(words, names),
        "evidence": [translate(each, names) for each in shown],
        "values": finding.values,
        "codes": finding.codes,
        "cause": translate(" ".join(finding.causes), names),
        "try": [translate(remedy, names) for remedy in finding.remedies],
        "sources": list(rule.sources),
    }
