"""Every sentence with a count reads well where the count is one."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from string import Formatter
from types import SimpleNamespace
from typing import cast

import pytest
from bbrscope.analyze.bbr.codes import CODES
from bbrscope.analyze.diagnosis.engine import Diagnosis, Finding
from bbrscope.analyze.diagnosis.rule import Rule, rules
from bbrscope.analyze.story.observed import OBSERVATIONS
from bbrscope.analyze.story.sentences import fill
from bbrscope.analyze.study.claim_numbers import ClaimNumbers
from bbrscope.collect.bundle import quality
from bbrscope.probes.base.plurals import worded
from bbrscope.reports.text.findings import finding_text

ROOT = Path(__file__).parents[1]
# Words that end with s and follow one thing, or no count at all.
_SINGULAR = frozenset(
    "is was has goes this its less loss as ms us bus across always class status process address"
    " follows ends holds stays belongs enters retires replaces overflows lies stands says names"
    " needs takes keeps makes grows calls begins starts fires lacks leaves decides draws misses"
    " declares appears lets records exists reads does comes tells sets meets s".split()
)
# After one of these comes something else than what was counted.
_ENDS = frozenset(
    "a an and at between both by can could for from had in lost must no not of on or per than that"
    " the to towards which while with x".split()
)
_PLURAL_VERBS = frozenset({"are", "were", "have"})
# Of table capture_quality, what is no count.
_NAMES = frozenset(
    "call ended have kind line missing name packet probe said sk tag tags text then untold"
    " what why acked grown".split()
)


def _is_plural(words: str) -> bool:
    """Whether what follows a count of one speaks of several."""
    found = re.match(r" (?:[A-Za-z'-]+(?: |(?=[^\w=])|$)){1,4}", words)
    for word in found[0].split() if found else []:
        if word in _PLURAL_VERBS:
            return True
        if word in _SINGULAR | _ENDS or word[0].isupper():
            return False
        if word.endswith("s") and not word.endswith("'s"):
            return True
    return False


def _faults(sentence: str) -> list[str]:
    ones = re.finditer(r"(?<![\w.,])1(?= )", sentence)
    return [sentence for one in ones if _is_plural(sentence[one.end() :])]


def _finding(rule: Rule) -> list[str]:
    values = {name: 1 for name in rule.names if name.rpartition("_")[2] != "at"}
    times = dict.fromkeys(rule.names - set(values), 0)
    words = {name: "some" for name in values if name.rpartition("_")[2] not in finding_text._WORDS}
    evidence = [line.text for line in rule.evidence]
    found = SimpleNamespace(rule=rule, flow=1, values=values | times | words, evidence=evidence)
    finding = cast("Finding", found)
    diagnosis = cast("Diagnosis", SimpleNamespace(zero_ns=0))
    sentences = [finding_text.sentence(diagnosis, finding)]
    sentences += finding_text.evidence(diagnosis, finding)
    return [finding_text.text(each) for each in sentences]


def _noted(template: str) -> str:
    places = {name: spec for _, name, spec, _ in Formatter().parse(template) if name}
    values: dict[str, object] = {
        name: "some" if name in _NAMES else 1.5 if spec and spec[-1] == "f" else 1
        for name, spec in places.items()
    }
    return worded(template, **values)


def _measured(template: str) -> str:
    """A claim's number; one with digits is a mean, which is never of one thing."""
    specs = [spec for _, name, spec, _ in Formatter().parse(template) if name is not None]
    return ClaimNumbers(template, tuple(1 if not s or "|" in s else 1.5 for s in specs)).text()


def _claims() -> Iterator[str]:
    for path in sorted((ROOT / "collect" / "lab" / "catalogue").glob("*.toml")):
        for claim in tomllib.loads(path.read_text()).get("claim", []):
            yield from re.findall(r"row\('([^']+)'", claim["sql"])


def _sentences() -> Iterator[str]:
    for code in (*CODES.values(), *OBSERVATIONS.values()):
        yield fill(code, [1] * len(code.units), 1448)
    for template in quality.CODES.values():
        yield _noted(template)
    for rule in rules():
        yield from _finding(rule)
    yield from map(_measured, _claims())


def test_no_sentence_of_a_table_speaks_of_one_as_of_several() -> None:
    sentences = list(_sentences())
    assert len(sentences) > 400
    assert [fault for sentence in sentences for fault in _faults(sentence)] == []


def _is_count(value: ast.FormattedValue) -> bool:
    """Whether a value may be a count: no limit, no number with digits, no amount with a unit."""
    spec = ast.unparse(value.format_spec) if value.format_spec else ""
    if isinstance(value.value, ast.Name) and value.value.id.strip("_").isupper():
        return False
    if re.search(r"[efg]['\"]*$", spec):
        return False
    called = value.value.func if isinstance(value.value, ast.Call) else None
    return not (isinstance(called, ast.Name) and called.id in {"quantity", "plural"})


def _written(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, after in pairwise(node.values):
            if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                continue
            words = str(after.value)
            one = ast.unparse(value.value).startswith("plural(")
            verb = (words.split() or [""])[0] in _PLURAL_VERBS
            if (one and verb) or (_is_count(value) and _is_plural(words)):
                yield f"{path.relative_to(ROOT)}:{after.lineno}: {ast.unparse(value)}{words}"


@pytest.mark.parametrize("room", ["probes", "collect", "analyze", "reports"])
def test_no_code_writes_a_count_before_a_noun_by_itself(room: str) -> None:
    """`plural`, `worded` and `words_after` of probes/base/plurals.py do it."""
    assert [line for path in sorted((ROOT / room).rglob("*.py")) for line in _written(path)] == []
