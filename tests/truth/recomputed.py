"""Every number of a finding beside what raw rows say of it, and how many of them there are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from bbrscope.analyze.diagnosis.engine import MODERATE, SEVERE, Diagnosis, Finding

from tests.truth.facts import Flow, Recording

# A number in words, with its decimals.
_NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.(\d+))?")

Numbers = Mapping[str, Any]
# None: the trouble is not there.
Reader = Callable[[Flow], Numbers | None]


def numbers_of(finding: Finding, zero_ns: int) -> dict[str, Any]:
    """Return all numbers of a finding: its columns, where it begins and ends, and its price.

    Times are seconds of the run's clock; of words with numbers in them, the words.
    """
    found: dict[str, Any] = {}
    for name, value in finding.values.items():
        if isinstance(value, str):
            found |= {name: value} if _NUMBER.search(value) else {}
        elif value is not None and not isinstance(value, bool):
            found[name] = _on_the_clock(value, zero_ns) if name.endswith("_at") else value
    found["begins_at"] = _on_the_clock(finding.t0_ns, zero_ns)
    found["ends_at"] = _on_the_clock(finding.t1_ns, zero_ns)
    prices = {"cost_s": finding.cost_s, "cost_bytes": finding.cost_bytes}
    return found | {name: price for name, price in prices.items() if price is not None}


def _on_the_clock(ns: Any, zero_ns: int) -> Any:
    if isinstance(ns, list):
        return [(one - zero_ns) / 1e9 for one in ns]
    return (ns - zero_ns) / 1e9


def same(told: Any, want: Any) -> bool:
    """Whether a number, or each number in words, is what was worked out, as exactly as it is told.

    Words are told with few digits: there half a unit of the last one is as near as can be.
    """
    if not isinstance(told, str):
        return bool(told == pytest.approx(want, rel=1e-6, abs=2e-6))
    in_words = [
        (float(found[0].replace(",", "")), len(found[1] or "")) for found in _NUMBER.finditer(told)
    ]
    return len(in_words) == len(want) and all(
        abs(number - wanted) <= 0.5 * 10**-decimals + 1e-9
        for (number, decimals), wanted in zip(in_words, want, strict=True)
    )


@dataclass
class Recomputed:
    """Numbers of findings, by rule: how many there are, and how many raw rows were asked for.

    Attributes:
        readers: of each rule, its numbers by the raw rows of the flow.
        excused: numbers that raw rows do not have: rule -> name -> why.
        missing: names that are neither, as "rule.name".
    """

    readers: Mapping[str, Reader]
    excused: Mapping[str, Mapping[str, str]]
    whole: Counter[str] = field(default_factory=Counter)
    compared: Counter[str] = field(default_factory=Counter)
    missing: set[str] = field(default_factory=set)

    def check(self, made: Diagnosis, of: Recording) -> None:
        """Compare the numbers of a recording's findings with its raw rows.

        Raises:
            AssertionError: one is not what they say.
        """
        order = sorted(made.flows, key=lambda number: made.flows[number].first_ns)
        flows = dict(zip(order, of.flows, strict=True))
        for finding in made.findings:
            rule = finding.rule.name
            flow = flows[order[0] if finding.flow is None else finding.flow]
            told = numbers_of(finding, made.zero_ns)
            wanted = self.readers[rule](flow) if rule in self.readers else {}
            assert wanted is not None, f"{made.run}: {rule} is told, and raw rows deny it"
            for name in sorted(told.keys() & wanted.keys()):
                where = f"{made.run}: {rule}.{name} is {told[name]}, and {wanted[name]} by raw rows"
                assert same(told[name], wanted[name]), where
            lacking = told.keys() - wanted.keys() - self.excused.get(rule, {}).keys()
            self.missing |= {f"{rule}.{name}" for name in lacking}
            self.whole[rule] += len(told)
            self.compared[rule] += len(told.keys() & wanted.keys())
            if finding.cost_s is not None:
                share = finding.cost_s / (flow.seconds if finding.flow else made.duration_s)
                words = {"severe": share >= SEVERE, "moderate": SEVERE > share >= MODERATE}
                assert finding.severity == next((w for w, it in words.items() if it), "minor")

    def verdicts(self, made: Diagnosis, of: Recording) -> None:
        """Compare of which flows rules tell something with what raw rows say.

        Raises:
            AssertionError: a rule tells what raw rows deny, or is silent where they do not.
        """
        order = sorted(made.flows, key=lambda number: made.flows[number].first_ns)
        told = {(each.rule.name, each.flow) for each in made.findings}
        # Another finding says these, too.
        within = {(name, each.flow) for each in made.findings for name in each.rule.explains}
        asked = {check.rule.name for one in ("found", "clear") for check in made.outcomes(one)}
        for rule in sorted(asked & self.readers.keys()):
            for number, flow in zip(order, of.flows, strict=True):
                there = self.readers[rule](flow) is not None
                where = f"{made.run}: {rule} of flow {number}"
                assert (rule, number) in within or there == ((rule, number) in told), (
                    f"{where}: by raw rows {there}"
                )

    def leave_out(self, made: Diagnosis) -> None:
        """Count a recording's numbers as such that raw rows do not tell: it lacks rows."""
        for finding in made.findings:
            self.whole[finding.rule.name] += len(numbers_of(finding, made.zero_ns))

    def table(self) -> str:
        """Return how many numbers of each rule were worked out anew, as text."""
        lines = [f"{'rule':28}numbers recomputed"]
        lines += [
            f"{rule:28}{self.whole[rule]:7} {self.compared[rule]:10}" for rule in sorted(self.whole)
        ]
        in_all = f"{self.compared.total()} of {self.whole.total()} numbers of findings"
        return "\n".join([*lines, f"{in_all} were worked out of raw rows"])
