"""Cao19's loss cliff: where it is predicted, and where a sweep shows it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from bbrscope.analyze.models.cliff import PACING_MARGIN, Point, cliff, observed, policer_loss

with open(Path(__file__).parent / "cliff.csv", newline="") as _file:
    VECTORS = list(csv.DictReader(_file))


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: row["gain"])
def test_the_cliff_is_where_the_probe_stops_to_gain(row: dict[str, str]) -> None:
    gain = float(row["gain"])
    assert cliff(gain) == pytest.approx(float(row["p_pred"]), abs=5e-5)
    margin = float(row["p_pred_with_1pct_pacing_margin_D"])
    assert cliff(gain, PACING_MARGIN) == pytest.approx(margin, abs=6e-5)
    assert gain * (1 - cliff(gain)) == pytest.approx(1)


def test_the_policer_comes_before_the_cliff_of_a_gain_of_one_and_a_half_only() -> None:
    assert cliff(1.1) < policer_loss() < cliff(1.5)
    assert policer_loss() == pytest.approx(0.163, abs=5e-4)


def test_a_sweep_shows_its_cliff_in_any_order() -> None:
    points = [Point(0.3, 1, 10), Point(0, 96, 0), Point(0.1, 90, 50), Point(0.2, 80, 400)]
    found = observed(points)
    assert (found.last_good, found.collapsed, found.most_retransmits) == (0.2, 0.3, 0.2)


def test_a_slope_is_no_cliff_and_nothing_shows_nothing() -> None:
    slope = [Point(loss / 10, 100 * 0.6**loss, loss) for loss in range(6)]
    assert observed(slope).collapsed is None
    assert observed([]) == observed([]).__class__(None, None, None)
