"""The rule that the rules' page adds is whole, and fires with the words that the page shows."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from bbrscope.analyze import diagnosis
from bbrscope.analyze.diagnosis.engine import diagnose
from bbrscope.analyze.diagnosis.rule import Rule, rule_of
from bbrscope.analyze.diagnosis.tables import TABLES, prepare
from bbrscope.collect.store.store import Store
from bbrscope.reports.text.findings.finding_text import sentence, text

PAGE = Path(diagnosis.__file__).with_name("README.md").read_text()
# Tables that other tables are made of.
INNER_TABLES = {"chosen", "other_senders", "bases", "others", "policed"}


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    return str(found)


def test_the_rule_of_the_page_fires_with_the_sentence_that_the_page_shows(shipped: Store) -> None:
    rule = rule_of("rtt_spike", block("toml"))
    result = diagnose(shipped.con, shipped.run_id("v2_x_spur"), [rule])
    (finding,) = result.findings
    assert text(sentence(result, finding)) == block("text").strip()
    assert finding.severity == "moderate"
    silent = diagnose(shipped.con, shipped.run_id("v2_single_1bdp"), [rule])
    assert [check.outcome for check in silent.checks] == ["clear"]


def test_the_page_names_every_key_of_a_rule_and_every_table() -> None:
    named = set(re.findall(r"`\[?(\w+)\]?`", PAGE))
    assert {field.name for field in fields(Rule)} - {"name"} <= named
    assert named >= {f"this_{name}" for name in TABLES.keys() - INNER_TABLES}


def test_the_python_of_the_page_runs(shipped: Store, capsys: pytest.CaptureFixture[str]) -> None:
    body = block("python").partition(":\n")[2].replace("\n    ", "\n").removeprefix("    ")
    exec(body, {"store": shipped, "prepare": prepare})
    assert "1737000" in capsys.readouterr().out
