"""A rule: its words, what it needs, and its query; read from one TOML file."""

from __future__ import annotations

import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from ...collect.store.schema.table import Column

# What every rule's query returns, in any order; more columns are numbers for its sentences.
COLUMNS = (
    Column("flow", "INTEGER", "", "the flow; NULL: the run as a whole"),
    Column("t0_ns", "BIGINT", "ns", "CLOCK_MONOTONIC: where the trouble begins"),
    Column("t1_ns", "BIGINT", "ns", "where it ends"),
    Column("cost_s", "DOUBLE", "s", "time lost to it; NULL: worked out of cost_bytes, or unknown"),
    Column("cost_bytes", "DOUBLE", "bytes", "payload that could have been carried; NULL: unknown"),
)
# A query may also answer with this, where it is not the same for all its findings.
CONFIDENCE = Column("confidence", "VARCHAR", "", "high, medium or low; else as the rule says")
CONFIDENCES = ("high", "medium", "low")


@dataclass(frozen=True)
class RuleLine:
    """A line of evidence, a cause or something to try, which may fit some findings of a rule only.

    Attributes:
        versions: digits of the BBR versions that it fits.
        when: column of the rule's query, true where it fits; empty: always.
        unless: column of the rule's query, true where it does not fit; empty: none.
    """

    text: str
    versions: str = "123"
    when: str = ""
    unless: str = ""

    def fits(self, version: str, values: Mapping[str, Any]) -> bool:
        """Tell whether it fits a finding of this version ("v1"), of these columns of the query."""
        return (
            version.removeprefix("v") in self.versions
            and not (self.when and not values[self.when])
            and not (self.unless and values[self.unless])
        )


@dataclass(frozen=True)
class Rule:
    """A rule.

    Attributes:
        name: the file's; stable, what programs know the finding by.
        title: the trouble in a few words; sentence: in one sentence, numbers in braces.
        evidence: sentences with the numbers and times that show it.
        causes: what usually brings it about; remedies: what to try; sources: who described it.
        cost: words after the lost time, "3 s", such as "of waiting in the queue".
        versions: digits of the BBR versions it is about; flows: how many flows it needs at least.
        needs: what the recording must have, see `needs.NEEDS`.
        codes: decisions behind it: the rows of this_decisions.
        catalogue: findings of the experiments' catalogue that it tells.
        confidence: how sure a finding is, unless the query says.
        setup: a mistake in the set-up, which makes every other finding doubtful: listed first.
        explains: rules whose findings on the same flow are consequences of this one.
        other_flow: the number among `Finding.values` of a second flow that the finding is about:
            `explains` goes for that one, too; empty: it is about one flow.
        thresholds: the query's parameters. Why they are what they are is said beside them.
    """

    name: str
    title: str
    sentence: str
    evidence: tuple[RuleLine, ...]
    causes: tuple[RuleLine, ...]
    remedies: tuple[RuleLine, ...]
    sources: tuple[str, ...]
    sql: str
    cost: str = "of sending at the full rate"
    versions: str = "123"
    flows: int = 1
    needs: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    catalogue: tuple[str, ...] = ()
    confidence: str = "high"
    setup: bool = False
    explains: tuple[str, ...] = ()
    other_flow: str = ""
    thresholds: dict[str, float] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """Columns that the rule's sentences name, and those that lines depend on."""
        texts = (self.sentence, *(line.text for line in self.evidence))
        parts = [part for text in texts for part in _parse(text)]
        lines = (*self.evidence, *self.causes, *self.remedies)
        conditions = {column for line in lines for column in (line.when, line.unless) if column}
        return {name for _, name, _, _ in parts if name} | conditions


def _parse(text: str) -> list[tuple[str, str | None, str | None, str | None]]:
    return list(string.Formatter().parse(text))


@cache
def rules() -> tuple[Rule, ...]:
    """Return all rules, by name."""
    folder = resources.files(__package__) / "rules"
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    return tuple(
        rule_of(file.name.removesuffix(".toml"), file.read_text("utf-8"))
        for file in sorted(files, key=lambda file: file.name)
    )


def rule_of(name: str, text: str) -> Rule:
    """Return the rule `name` from the text of its TOML file.

    Raises:
        TypeError: a key is missing, or is none of `Rule`.
    """
    keys = tomllib.loads(text)
    tuples = {key: tuple(value) for key, value in keys.items() if isinstance(value, list)}
    lines = {key: _lines(keys[key]) for key in ("evidence", "causes", "remedies")}
    return Rule(name=name, **{**keys, **tuples, **lines})


def _lines(texts: list[str | dict[str, str]]) -> tuple[RuleLine, ...]:
    return tuple(RuleLine(text) if isinstance(text, str) else RuleLine(**text) for text in texts)
