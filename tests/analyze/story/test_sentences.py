"""Sentences: every code's template takes its evidence, in units that people read."""

from __future__ import annotations

import pytest
from bbrscope.analyze.bbr.codes import BY_NAME, CODES, Code, Unit
from bbrscope.analyze.story.names import DRAFT_NAMES, kernel_name, translate
from bbrscope.analyze.story.sentences import (
    gain,
    mbps,
    megabits,
    milliseconds,
    rate,
    sentence,
    stamp,
    value,
)
from bbrscope.collect.store.store import Store

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
    ("unit", "number", "text"),
    [
        # 167772 packets/us << 24 is 100 packets in 10 ms: 10,000 x 1448 x 8 bit/s
        (Unit.BW, 167772, "116 Mbit/s"),
        (Unit.BW_OR_UNSET, UNSET, "unset"),
        (Unit.VOLUME, UNSET, "unset"),
        (Unit.VOLUME, 44, "44"),
        (Unit.TIME_OR_UNSET, 40041, "40.04 ms"),
        (Unit.TIME, 2_345_678, "2,346 ms"),
        (Unit.RATE, 12_500_000, "100 Mbit/s"),
        (Unit.RATE, -1, "unlimited"),
        (Unit.GAIN, 320, "1.25"),
        (Unit.FLAG, 1, "yes"),
        (Unit.CA_STATE, 3, "Recovery"),
        (Unit.LOSS_EVENTS, 14, "14"),
        (Unit.LOSS_EVENTS, 15, "15 or more"),
    ],
)
def test_numbers_are_written_by_their_unit(unit: Unit, number: int, text: str) -> None:
    assert value(unit, number, 1448) == text


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


def test_a_phase_ends_at_the_level_it_has_reached() -> None:
    """tcp_bbr2.c bbr2_update_cycle_phase() compares with >=, and with more than 1.25 x BDP."""
    text = sentence(BY_NAME["DOWN_BY_QUEUE"].number, [24, 24], 1448)
    assert "exceeds" not in text
    assert "Inflight 24 has reached 24, 1.25 BDP and room for TSO bursts" in text


def test_probe_rtt_is_not_said_to_follow_from_rtts_that_were_not_seen(shipped: Store) -> None:
    """v1 and v3 are not renewed by an equal RTT, and such were seen within the window."""
    equal, entered = shipped.con.execute(
        "SELECT count(*) FILTER (e.rs_rtt_us = d.e0), count(DISTINCT d.seq)"
        " FROM decisions d JOIN decision_codes c USING (code) JOIN runs r USING (run_id)"
        " JOIN events e ON e.run_id = d.run_id AND e.flow = d.flow AND e.seq < d.seq"
        " AND e.ns > d.ns - 4900000000"
        " WHERE c.name = 'PRTT_ENTER_EXPIRED' AND r.version IN ('v1', 'v3')"
    ).fetchall()[0]
    assert entered
    assert equal
    text = sentence(BY_NAME["PRTT_ENTER_EXPIRED"].number, [20000, 5000, 4, 7], 1448)
    assert text.startswith("No RTT renewed the minimum of 20.00 ms for 5000 ms")


def test_after_probe_rtt_a_queue_is_only_taken_to_be_empty() -> None:
    """Beside CUBIC 16 to 22 packets stood in it at each end of PROBE_RTT (v3_vs_cubic_2bdp)."""
    code = BY_NAME["CRUISE_AFTER_PRTT"].number
    text = sentence(code, [2_100_000], 1448)
    assert text.startswith("PROBE_RTT is taken to have emptied the queue: ")
