"""Each variant does what its paper says: callbacks worked out by hand, and a second of each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.bbr.variants.catalogue import VARIANTS, help_text

_BY_HAND = Path(__file__).with_name("by_hand.py")
_README = Path(__file__).resolve().parents[4] / "analyze" / "bbr" / "README.md"
Found = dict[str, Any]


@pytest.fixture(scope="module")
def found() -> Found:
    done = subprocess.run(
        [sys.executable, str(_BY_HAND), "simulate"],
        env={**os.environ, "BBRSCOPE_PLAIN": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document: Found = json.loads(done.stdout)
    return document


def test_bbr_prime_holds_075x_until_drained_and_the_studys_bbr_for_a_min_rtt(found: Found) -> None:
    # cycle_idx 1 is 0.75x. 80 ms into it (min_rtt 40 ms) with 300 packets in flight (BDP 239, and
    # room for bursts: 246), and 20 ms into it with 100: v1 leaves in both, each variant in one.
    assert found["0.75x"] == {"v1": [2, 2], "bbr-prime": [1, 2], "bbr-lanigan-code": [2, 1]}


def test_bbrplus_draws_the_length_of_its_cycle_and_asks_for_125x(found: Found) -> None:
    as_described, as_run = found["bbrplus"]["bbrplus"], found["bbrplus"]["bbrplus-lanigan-code"]
    # 8 less the draw 3 is 5 min_rtts: not over at 200 ms, over a microsecond later.
    assert as_described["begun"] == as_run["begun"] == [0, 5, 320, True]
    assert as_described["ends"] == as_run["ends"] == [2, 0]
    # 400 packets are above 1.25 BDP (about 306), 100 are not: the study's code has it inverted.
    assert (as_described["much"], as_described["little"]) == (1, 0)
    assert (as_run["much"], as_run["little"]) == (0, 1)


def test_bbr_plus_adds_lambda_deviations_to_min_rtt_and_paces_at_15x(found: Found) -> None:
    # 40, 60, 40, 60 ms have a standard deviation of 10 ms.
    assert found["rtprop"] == {
        "bbr-plus-0.5": [40_000 + 5_000, 384],
        "bbr-plus-0.125": [40_000 + 1_250, 384],
        "bbr-plus-lanigan-code": [60_000 + 5_000, 384],  # the last RTT, and whole ms
    }


def test_delay_bbr_backs_off_above_12_times_the_lowest_rtt(found: Found) -> None:
    below, above = found["delay"]
    # 0.1 x 40 + 0.9 x 48.8 = 47.92 ms, below 1.2 x 40 = 48 ms; with 49 ms 48.1 ms, above it.
    assert below == [2, 256, [], 2]
    # PROBE_RTT at 0.75x (192/256), until 238 packets are in flight, fewer than the BDP.
    assert above == [3, 192, ["PRTT_ENTER_DELAY"], 2]
    # alpha 0, beta 1: twice the RTT is nothing
    assert found["delay as run"] == [2, 256, []]


def test_bbr2_exp_cuts_the_rate_by_marks_and_probes_when_they_cease(found: Found) -> None:
    marks = found["marks"]
    # ecn_alpha 1/2, ecn_factor 1/2: a quarter less than max_bw 100000.
    assert (marks["cut"], marks["phase"]) == (75_000, 2)
    # REFILL with one packet more than 300, and without bw_lo.
    assert marks["again"] == [3, 301, 2**32 - 1]
    # ecn_alpha 1: half of it, as the least of the three bounds.
    assert marks["bw"] == 50_000


def test_the_studys_bbr2_has_fractions_of_0(found: Found) -> None:
    as_run = found["lanigan v2"]
    assert as_run["bps"] == pytest.approx(2**31 - 1, rel=1e-6)
    assert as_run["wait"] == 40_000  # a min_rtt
    assert as_run["high"] == 1  # BY_LOSS: one packet of 100, v2 tolerates 1.95 %


def test_the_draft_ends_drain_with_the_fourth_round(found: Found) -> None:
    # round_count > drain_start_round + 3; v3 drains on. Then DOWN at 0.9 (232/256).
    assert found["drain"]["v3"] == [1, 1, 1, 1, 1, 1, 88]
    assert found["drain"]["bbr3-draft"] == [1, 1, 1, 2, 2, 2, 232]


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_fills_a_link_alone(name: str, found: Found) -> None:
    # Payload is 1448 of 1514 bytes: 2.87 of 3 Mbit/s, less the first round trips of the second.
    assert 2.4 < found["mbps"][name] < 2.88


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_is_in_the_documents_and_in_the_help(name: str) -> None:
    assert f"`{name}`" in _README.read_text()
    assert f"  {name} " in help_text()
