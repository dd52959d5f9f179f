"""The sentence on how whole a recording is."""

from __future__ import annotations

from bbrscope.analyze.story.completeness import RunCompleteness
from bbrscope.reports.text.findings.completeness_text import completeness


def test_fields_that_the_replay_needs_are_named() -> None:
    kind, sentence = completeness(RunCompleteness(columns=("a", "b", "c", "d", "e")), "fentry")
    assert kind == "bad"
    assert sentence.endswith("fields that the replay needs were not recorded (a, b, c, d, 1 more).")
