"""Findings that several flows share stand in one card, with every flow's own numbers."""

from __future__ import annotations

import re
import string
from types import SimpleNamespace
from typing import cast

from bbrscope.analyze.diagnosis.engine import Diagnosis, Finding, Flow
from bbrscope.analyze.diagnosis.rule import rules
from bbrscope.analyze.story.completeness import RunCompleteness
from bbrscope.reports.html.data.select import Run
from bbrscope.reports.html.pages import frame
from bbrscope.reports.html.sections.finding_cards import findings_section

# What page.html.j2 has around the findings.
PAGE = """
{% macro prose(parts) -%}
{% for part in parts %}{{ part if part is string else part.text }}{% endfor %}
{%- endmacro %}
{% macro linked(parts) %}<p>{{ prose(parts) }}</p>{% endmacro %}
{% include "findings.html.j2" %}
"""


def found(name: str, flow: int | None, cost_s: float) -> Finding:
    """A finding in which every number that its sentences name is 1000 + the flow's."""
    rule = next(rule for rule in rules() if rule.name == name)
    evidence = tuple(line.text for line in rule.evidence)
    texts = (rule.sentence, *evidence)
    fields = {field for text in texts for _, field, _, _ in string.Formatter().parse(text) if field}
    values = dict.fromkeys(fields - {"flow"}, 1000 + (flow or 0))
    causes = tuple(line.text for line in rule.causes[:: -1 if flow == 3 else 1][:2])
    advice = ("for all", f"for flow {flow}")
    shown = (values, evidence, causes, advice, {})
    return Finding(rule, flow, 0, 10**9, cost_s, None, "minor", "high", *shown)


def test_flows_share_a_card_and_keep_their_numbers() -> None:
    shared = [found("bufferbloat", flow, 9.0 - flow) for flow in (3, 1, 2)]
    alone = [found("min_rtt_inflated", 2, 1.0), found("unfair_without_loss", None, 0.5)]
    flows = {flow: Flow(flow, 0, 10**9, 1.0, 1.0, True, 1.0, None, None) for flow in (1, 2, 3)}
    made = Diagnosis("r", "v3", 0, "fentry", flows, 5, 5, RunCompleteness(), [*shared, *alone])
    run = cast(Run, SimpleNamespace(row={"run_id": 1}, us=lambda ns: ns // 1000))
    section = findings_section(run, made)
    assert [(card.flows, len(card.texts)) for card in section.cards] == [
        ("flows 1, 2 and 3", 3),
        ("", 1),
        ("", 1),
    ]
    names = {"share": str, "variable": str}
    html = frame._environment().from_string(PAGE).render(names | {"diagnosis": section})
    cards = re.findall(r"<article.*?</article>", html, re.DOTALL)
    assert [re.findall(r'data-flow="(\d+)"', card) for card in cards] == [
        ["3", "1", "2"],
        ["2"],
        [],
    ]
    for finding in made.findings:
        assert all(advice in html for advice in finding.remedies)
    # Each cause once, in the rule's order, though the first finding has the last of them first.
    shown = cards[0].replace("&#39;", "'")
    causes = shared[0].rule.causes
    places = [shown.find(line.text) for line in (*causes[:2], *causes[-2:])]
    assert len(places) == 4
    assert -1 < places[0] < places[1] < places[2] < places[3]
    assert shown.count(causes[1].text) == 1
    texts = {
        part for one in section.cards[0].texts for part in one.sentence if isinstance(part, str)
    }
    assert all(text in html.replace("&#39;", "'") for text in texts)
    assert cards[0].count('<p class="cost">') == 3
    assert cards[0].count("Usual cause") == 1
    assert "5 findings" in html.lower()


def test_cards_after_the_third_can_be_folded() -> None:
    """On a phone they are: nine of six flows kept the charts beyond the eighth screen."""
    names = ("bufferbloat", "min_rtt_inflated", "heavy_loss", "policer", "outage")
    flows = {1: Flow(1, 0, 10**9, 1.0, 1.0, True, 1.0, None, None)}
    findings = [found(name, 1, 5.0 - place) for place, name in enumerate(names)]
    made = Diagnosis("r", "v1", 0, "fentry", flows, 5, 5, RunCompleteness(), findings)
    run = cast(Run, SimpleNamespace(row={"run_id": 1}, us=lambda ns: ns // 1000))
    values = {"share": str, "variable": str, "diagnosis": findings_section(run, made)}
    html = frame._environment().from_string(PAGE).render(values)
    cards = re.findall(r"<article.*?</article>", html, re.DOTALL)
    assert ['details class="later" open' in card for card in cards] == [False] * 3 + [True] * 2
    assert all(card.count("<details") == card.count("</details>") for card in cards)
