"""The truth files, and what findings are worth by them."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bbrscope.analyze.diagnosis.engine import Diagnosis, Finding
from bbrscope.analyze.diagnosis.rule import rules

HERE = Path(__file__).parent
# What is said of one flow there is true of its run: shares that move move for all.
OF_ALL = {"not_converged"}


def problems() -> dict[str, dict[str, Any]]:
    """What can be true of a flow: `means`, and the `rules` that report it."""
    return tomllib.loads((HERE / "problems.toml").read_text())


def threshold(rule: str, name: str) -> float:
    """A limit that a rule chooses, which no raw row can tell: it is written there alone."""
    return next(one for one in rules() if one.name == rule).thresholds[name]


def truth(name: str, of: str = "recordings") -> dict[str, Any]:
    """Return the reviewed file of a recording, or `of` the lab's `scenarios`.

    Both have `flows` in the order they began; recordings a `setup`, scenarios their `point`.
    """
    return tomllib.loads((HERE / of / f"{name}.toml").read_text())


def about(finding: Finding, numbers: list[int]) -> list[int]:
    """Return the flows that a finding speaks of: one, the other that it names, or all."""
    if finding.flow is None or finding.rule.name in OF_ALL:
        return numbers
    return [finding.flow, *(finding.values[name] for name in ("short",) if name in finding.values)]


@dataclass
class Score:
    """Findings and true problems, counted over recordings.

    Attributes:
        found, right: findings of each rule, and how many of them are true of their flow.
        true, reported: problems that are true of a flow, and how many of them a finding reported.
        wrong, unreported: which ones are not, for people.
    """

    found: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    true: Counter[str] = field(default_factory=Counter)
    reported: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    unreported: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        return self.right.total() / max(self.found.total(), 1)

    @property
    def recall(self) -> float:
        return self.reported.total() / max(self.true.total(), 1)

    def add(self, run: str, made: Diagnosis, reviewed: list[dict[str, Any]]) -> None:
        """Judge what was found in a recording by the flows of its truth file."""
        known = problems()
        numbers = sorted(made.flows, key=lambda number: made.flows[number].first_ns)
        assert len(numbers) == len(reviewed), f"{run}: {numbers}"
        true = dict(zip(numbers, (flow["problems"] for flow in reviewed), strict=True))
        for finding in made.findings:
            whose = about(finding, numbers)
            named = [p for p, its in known.items() if finding.rule.name in its["rules"]]
            self.found[finding.rule.name] += 1
            if any(problem in true[number] for number in whose for problem in named):
                self.right[finding.rule.name] += 1
            else:
                self.wrong.append(f"{run}: {finding.rule.name} of flow {finding.flow}")
        for number, its in true.items():
            reported = {f.rule.name for f in made.findings if number in about(f, numbers)}
            for problem in its:
                self.true[problem] += 1
                if reported & set(known[problem]["rules"]):
                    self.reported[problem] += 1
                else:
                    self.unreported.append(f"{run}: {problem} of flow {number}")

    def table(self) -> str:
        """Return precision per rule and recall per problem, as text."""
        lines = [f"{'rule':28}found right"]
        lines += [
            f"{name:28}{self.found[name]:5} {self.right[name]:5}" for name in sorted(self.found)
        ]
        lines += [f"{'problem':28} true  reported"]
        lines += [
            f"{name:28}{self.true[name]:5} {self.reported[name]:9}" for name in sorted(self.true)
        ]
        lines += [
            f"precision {self.precision:.1%} of {self.found.total()} findings,"
            f" recall {self.recall:.1%} of {self.true.total()} true problems",
            *self.wrong,
            *self.unreported,
        ]
        return "\n".join(lines)


def _counts(whole: Counter[str], part: Counter[str]) -> list[str]:
    return [f"{name:28}{whole[name]:5} {part[name]:5}" for name in sorted(whole)]
