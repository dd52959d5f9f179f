"""Every rule's file is whole: its words, its query and the vocabulary that both use."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from bbrscope.analyze import diagnosis
from bbrscope.analyze.bbr.codes import BY_NAME
from bbrscope.analyze.diagnosis.needs import NEEDS
from bbrscope.analyze.diagnosis.rule import COLUMNS, CONFIDENCE, CONFIDENCES, Rule, rules
from bbrscope.analyze.diagnosis.tables import prepare
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store

RULES = pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)


@pytest.fixture(scope="module")
def prepared(shipped_path: Path) -> Iterator[Store]:
    """A store with the tables that rules ask, about one run."""
    with open_store(shipped_path, read_only=True) as store:
        prepare(store.con, [store.run_id("v2_single_1bdp")], [])
        yield store


@RULES
def test_the_sentences_name_what_the_query_returns(rule: Rule, prepared: Store) -> None:
    result = prepared.con.execute(f"FROM ({rule.sql}) LIMIT 0", rule.thresholds)
    columns = [column[0] for column in result.description]
    common = {column.name for column in COLUMNS}
    assert common <= set(columns)
    assert rule.names - {"flow"} <= set(columns) - common
    known = common | rule.names | {CONFIDENCE.name}
    assert set(columns) <= known, "a column that no sentence shows"


@RULES
def test_thresholds_are_parameters_and_each_says_why(rule: Rule) -> None:
    assert set(rule.thresholds) == set(re.findall(r"\$(\w+)", rule.sql))


@RULES
def test_words_are_there_and_vocabularies_known(rule: Rule) -> None:
    assert rule.title.strip(".") == rule.title != ""
    assert rule.sentence.endswith((".", "}"))
    texts = (rule.sentence, *(line.text for line in rule.evidence))
    assert not re.search(r"_packets\} packets|_bytes\} bytes", " ".join(texts))
    assert all((rule.evidence, rule.causes, rule.remedies, rule.sources))
    assert set(rule.codes) <= set(BY_NAME)
    assert set(rule.needs) <= set(NEEDS)
    assert set(rule.explains) <= {other.name for other in rules()} - {rule.name}
    assert rule.confidence in CONFIDENCES
    assert rule.versions in {"1", "2", "3", "12", "13", "23", "123"}
    if rule.codes and "decisions" not in rule.needs:
        # The decisions are then told, not asked for.
        assert "this_decisions" not in rule.sql


def test_a_file_without_its_reasons_would_not_pass() -> None:
    """Each threshold has a comment above it; the loader drops comments, so look at the text."""
    from importlib import resources

    folder = resources.files("bbrscope.analyze.diagnosis") / "rules"
    for rule in rules():
        text = (folder / f"{rule.name}.toml").read_text("utf-8")
        for name in rule.thresholds:
            before = text.partition("[thresholds]")[2].partition(f"\n{name} =")[0]
            assert "#" in before, f"{rule.name}: {name} has no reason"


def test_the_catalogues_page_has_every_finding_and_the_rules_that_tell_it() -> None:
    page = Path(diagnosis.__file__).with_name("CATALOGUE.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| F-")]
    listed = {row[0]: set(row[-1].split(", ")) - {"-"} for row in rows}
    numbers = [f"F-{number:02}" for number in range(1, 38)]
    assert [row[0] for row in rows] == numbers
    by_rules = {name: {rule.name for rule in rules() if name in rule.catalogue} for name in numbers}
    assert listed == by_rules
    assert {name for name in numbers if not listed[name]} == set(diagnosis.NOT_RULES)


def test_the_advice_on_ecn_low_works_with_an_iproute2_that_does_not_know_it() -> None:
    (asked,) = (
        remedy.text
        for rule in rules()
        for remedy in rule.remedies
        if "features ecn_low" in remedy.text
    )
    (module,) = re.findall(r"python -m ([\w.]+)", asked)
    assert importlib.util.find_spec(module) is not None
