"""Sentences: every code's template takes its evidence, in units that people read."""

from __future__ import annotations

import pytest
from bbrscope.analyze.bbr.codes import BY_NAME, CODES, Code
from bbrscope.analyze.names import DRAFT_NAMES, kernel_name, translate
from bbrscope.analyze.sentences import (
    gain,
    mbps,
    megabits,
    milliseconds,
    rate,
    sentence,
    stamp,
    value,
)
from bbrscope.collect.store import Store

UNSET = 0xFFFFFFFF


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.name)
@pytest.mark.parametrize("number", [0, 1, 320, 167772, UNSET])
def test_every_code_makes_a_sentence(code: Code, number: int) -> None:
    for names in ("kernel", "draft"):
        text = sentence(code.number, [number] * len(code.evidence), 1448, names, 250, 7)
        assert "{" not in text
        assert "}" not in text
        assert text.strip() == text


def test_every_recorded_decision_makes_a_sentence(shipped: Store) -> None:
    rows = shipped.con.execute(
        "SELECT code, min_by([e0, e1, e2, e3], hash(seq)), max_by([e0, e1, e2, e3], hash(seq))"
        " FROM decisions GROUP BY code"
    ).fetchall()
    assert len(rows) > 80
    for code, one, other in rows:
        for evidence in (one, other):
            text = sentence(code, evidence, 1448)
            assert text
            assert str(UNSET) not in text


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        # 167772 packets/us << 24 is 100 packets in 10 ms: 10,000 x 1448 x 8 bit/s
        ("bw", 167772, "116 Mbit/s"),
        ("bw_lo", UNSET, "unset"),
        ("old", UNSET, "unset"),
        ("inflight_hi", 44, "44"),
        ("min_rtt_us", 40041, "40.04 ms"),
        ("probe_wait_us", 2_345_678, "2,346 ms"),
        ("new_rate", 12_500_000, "100 Mbit/s"),
        ("rate", -1, "unlimited"),
        ("gain", 320, "1.25"),
        ("loss_in_round", 1, "yes"),
        ("old_state", 3, "Recovery"),
    ],
)
def test_numbers_have_units(name: str, number: int, text: str) -> None:
    assert value(name, number, 1448) == text


def test_bandwidth_follows_the_segment_size() -> None:
    assert mbps(1 << 24, 1000) == "8,000 Mbit/s"  # one packet of 1000 bytes per us
    assert mbps(0, 1448) == "0 Mbit/s"
    assert [megabits(v) for v in (9.5, 0.123, 12.34, 99.97)] == [
        "9.50 Mbit/s",
        "0.12 Mbit/s",
        "12.3 Mbit/s",
        "100 Mbit/s",
    ]


def test_times_keep_what_matters() -> None:
    assert [milliseconds(us) for us in (0, 38, 3037, 40041, 468_000, 5_000_000)] == [
        "0.000 ms",
        "0.038 ms",
        "3.037 ms",
        "40.04 ms",
        "468.0 ms",
        "5,000 ms",
    ]


def test_jiffies_say_how_far_away_they_are_even_across_the_wrap() -> None:
    assert stamp(50, 0xFFFFFFFF - 149, 250) == "50 (in 0.800 s)"
    assert stamp(100, 200, 1000) == "100 (0.100 s ago)"
    assert stamp(100, None, 1000) == "100"
    text = sentence(BY_NAME["PRTT_WAIT_TIME"].number, [1200, 1000], 1448, hz=1000)
    assert "1200 (in 0.200 s)" in text


def test_gains_and_rates() -> None:
    assert [gain(g) for g in (256, 192, 739, 88)] == ["1.0", "0.75", "2.89", "0.34"]
    assert rate((1 << 64) - 1) == "unlimited"


def test_draft_names_replace_whole_words_only() -> None:
    text = "inflight_hi 40->28, my_inflight_hi_x stays, bw_lo cleared in PROBE_BW_CRUISE"
    assert translate(text, "kernel") == text
    assert translate(text, "draft") == (
        "inflight_longterm 40->28, my_inflight_hi_x stays, bw_shortterm cleared in ProbeBW_CRUISE"
    )


@pytest.mark.parametrize("kernel", [name for name in DRAFT_NAMES if name != "PROBE_UP"])
def test_draft_names_lead_back_to_the_kernels(kernel: str) -> None:
    assert kernel_name(DRAFT_NAMES[kernel]) == kernel
    assert kernel_name(kernel) == kernel
