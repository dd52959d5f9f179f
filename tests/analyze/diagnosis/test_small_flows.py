"""Flows too small for rules to look at are counted, where they carried enough to count."""

from __future__ import annotations

import pytest
from bbrscope.analyze.diagnosis.engine import Diagnosis
from bbrscope.reports.text.findings.finding_text import rules_trust

from tests.truth.simulated import by_name, of_texts

ALONE = """
title = "A long download"
source = "test"
duration = "8s"
[path]
rate = "20mbit"
rtt = "20ms"
buffer = "1bdp"
[[flow]]
cc = "bbr3"
"""
BESIDE = """
[[flow]]
cc = "bbr3"
kind = "fixed-size"
size = "100kB"
count = 6
every = "1s"
start = "1s"
"""
TEXTS = {"alone": ALONE, "beside": ALONE + BESIDE}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Diagnosis]:
    folder = tmp_path_factory.mktemp("small")
    return by_name(of_texts(TEXTS, folder), folder)


def test_short_downloads_beside_a_long_one_are_told(made: dict[str, Diagnosis]) -> None:
    count, size = made["beside"].small
    assert (len(made["beside"].flows), count) == (1, 6)
    # What the last ACK brought, a connection that closes does not tell.
    assert 0.7 * 6 * 100_000 < size <= 6 * 100_000 * 1.1
    told = [words for _, words in rules_trust(made["beside"]) if "small flows" in words]
    assert len(told) == 1
    assert told[0].startswith("6 small flows carried ")


def test_nothing_is_told_where_none_is_left_out(made: dict[str, Diagnosis]) -> None:
    assert made["alone"].small == (0, 0)
    assert not any("small" in words for _, words in rules_trust(made["alone"]))
