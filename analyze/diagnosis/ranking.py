"""Which findings are told, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import Diagnosis, Finding


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings by rank, without those that another one about the same flow explains."""
    told = (one for one in findings if not any(_explains(cause, one) for cause in findings))
    return sorted(told, key=_rank)


def _explains(cause: Finding, other: Finding) -> bool:
    """Tell whether a finding follows from another one: of a like price, a third has to be its."""
    about = cause.flow, cause.values.get(cause.rule.other_flow, cause.flow)
    if other.flow not in about or other.rule.name not in cause.rule.explains:
        return False
    unpriced = cause.cost_s is None or other.cost_s is None or cause.rule.cost != other.rule.cost
    return unpriced or 3 * (cause.cost_s or 0) >= (other.cost_s or 0)


def _rank(finding: Finding) -> tuple[bool, bool, float, int]:
    cost_s = finding.cost_s
    return not finding.rule.setup, cost_s is None, -(cost_s or 0), finding.t0_ns


def both_ways(one: Diagnosis, other: Diagnosis) -> Diagnosis:
    """Return what was found on two ways of a run; mistakes of its set-up are told once."""
    told = {found.rule.name for found in one.findings if found.rule.setup and found.flow is None}
    more = [found for found in other.findings if found.rule.name not in told]
    checks = [
        min(pair, key=lambda check: _OUTCOMES.index(check.outcome))
        for pair in zip(one.checks, other.checks, strict=True)
    ]
    flows = dict(sorted({**one.flows, **other.flows}.items()))
    findings = sorted([*one.findings, *more], key=_rank)
    small = one.small[0] + other.small[0], one.small[1] + other.small[1]
    return replace(one, flows=flows, findings=findings, checks=checks, small=small)


# What a check says of a run with two ways is what comes first here.
_OUTCOMES = ("found", "clear", "not checked", "not applicable")
