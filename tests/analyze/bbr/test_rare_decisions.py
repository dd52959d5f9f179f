"""Decisions that no recording exercises, on hand-made inputs.

Expected values follow from the kernel source's arithmetic; each test says how.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from bbrscope.analyze.bbr import codes, loops, params
from bbrscope.analyze.bbr.log import COLUMNS
from bbrscope.analyze.bbr.plain import records
from bbrscope.analyze.bbr.records import (
    BBR_ACKS_PROBE_STOPPING,
    BBR_BW_PROBE_CRUISE,
    BBR_BW_PROBE_DOWN,
    BBR_BW_PROBE_UP,
    BBR_DRAIN,
    BBR_PROBE_BW,
    BBR_PROBE_RTT,
    BBR_STARTUP,
    CA_EVENT_TLP_RECOVERY,
    CA_EVENT_TX_START,
    CWND_EVENT,
    EVENT,
    MAIN,
    SET_STATE,
    SKB_MARKED_LOST,
    STATE,
    TCP_CA_LOSS,
    TCP_CA_OPEN,
    UNDO_CWND,
)

UNSET = 2**32 - 1
BW = 100_000  # packets/us << 24: about 69 Mbit/s at an MSS of 1448


class Callback:
    """One callback on hand-made state and inputs; remembers what was decided."""

    def __init__(self, version: str, kind: int, arg: int = 0, **settings: int) -> None:
        self.version = version
        self.params = params.make(params.DEFAULTS[version] | {"HZ": 1000} | settings)
        self.state = np.zeros(1, STATE)
        self.event = np.zeros(1, EVENT)
        self.event["ctl"]["kind"], self.event["ctl"]["arg"] = kind, arg
        self.decided: dict[str, tuple[int, ...]] = {}
        self.bbr(
            min_rtt_us=40_000,
            probe_rtt_min_us=40_000,
            bw_lo=UNSET,
            inflight_lo=UNSET,
            inflight_hi=UNSET,
            bw_probe_up_cnt=UNSET,
            has_seen_rtt=1,
            pacing_gain=256,
            cwnd_gain=512,
            init_cwnd=10,
            initialized=1,
            prior_cwnd=20,
            bw_hi=(BW, BW),
            bw_v=(BW, BW, BW),
        )
        self.tp(
            snd_cwnd=50,
            snd_cwnd_clamp=UNSET,
            mss_cache=1448,
            srtt_us=320_000,
            sk_pacing_rate=1_000_000,
            sk_max_pacing_rate=2**64 - 1,
            sk_pacing_shift=10,
            packets_out=30,
            jiffies32=100_000,
            delivered=1_000,
            delivered_mstamp=9_000_000,
            tcp_mstamp=9_000_000,
            jiffies_split=1 << 30,
        )

    def bbr(self, **fields: Any) -> Callback:
        for name, value in fields.items():
            self.state[name] = value
        return self

    def tp(self, **fields: int) -> Callback:
        for name, value in fields.items():
            self.event["tp"][name] = value
        return self

    def rs(self, **fields: int) -> Callback:
        for name, value in fields.items():
            self.event["rs"][name] = value
        return self

    def skb(self, **fields: int) -> Callback:
        for name, value in fields.items():
            self.event["skb"][name] = value
        return self

    def run(self) -> Callback:
        module = importlib.import_module(f"bbrscope.analyze.bbr.versions.{self.version[:2]}")
        log = np.zeros((64, COLUMNS), np.int64)
        bbr, event, p = (records(each)[0] for each in (self.state, self.event, self.params))
        module.dispatch(bbr, event, p, log)
        for row in log[1 : log[0, 0] + 1]:
            code = codes.CODES[int(row[1])]
            assert self.version[1] in code.versions, code.name
            self.decided[code.name] = tuple(int(x) for x in row[2 : 2 + len(code.evidence)])
        return self

    def __getitem__(self, name: str) -> Any:
        value = self.state[name][0]
        return value.tolist() if value.ndim else int(value)

    @property
    def snd_cwnd(self) -> int:
        return int(self.event["tp"]["snd_cwnd"][0])


def ack(version: str, **settings: int) -> Callback:
    """main() for an ordinary ACK of two packets in PROBE_BW CRUISE, 40 ms RTT, nothing special."""
    return (
        Callback(version, MAIN, **settings)
        .bbr(
            mode=BBR_PROBE_BW,
            cycle_idx=BBR_BW_PROBE_CRUISE,
            full_bw_reached=1,
            min_rtt_stamp=100_000,
            probe_rtt_min_stamp=100_000,
            probe_wait_us=60_000_000,
            cycle_mstamp=8_990_000,
            next_rtt_delivered=5_000,
            loss_round_delivered=5_000,
        )
        .rs(
            delivered=40,
            interval_us=41_000,
            rtt_us=41_000,
            acked_sacked=2,
            prior_delivered=960,
            prior_in_flight=30,
            tx_in_flight=30,
        )
    )


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_probe_rtt_before_the_pipe_was_full_returns_to_startup(version: str) -> None:
    # check_probe_rtt_done: round done and jiffies after done_stamp; full_bw_reached 0: STARTUP,
    # cwnd = max(cwnd, prior_cwnd) = max(4, 20)
    call = ack(version).bbr(
        mode=BBR_PROBE_RTT,
        full_bw_reached=0,
        probe_rtt_done_stamp=99_999,
        probe_rtt_round_done=1,
        bw_lo=7,
        inflight_lo=9,
    )
    call.tp(snd_cwnd=4, packets_out=4).run()
    assert call["mode"] == BBR_STARTUP
    assert call.decided["PRTT_EXIT_STARTUP"] == (40_000, 4, 20)
    assert call.snd_cwnd == 22  # then grown by the two packets acknowledged
    if version != "v1":
        assert call.decided["BWLO_RESET_PRTT_EXIT"] == (7,)
        assert call["bw_lo"] == call["inflight_lo"] == UNSET


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_a_restart_from_idle_ends_a_probe_rtt_that_is_over(version: str) -> None:
    # cwnd_event(TX_START) with app_limited in PROBE_RTT calls check_probe_rtt_done at once
    call = Callback(version, CWND_EVENT, CA_EVENT_TX_START).bbr(
        mode=BBR_PROBE_RTT, full_bw_reached=1, probe_rtt_done_stamp=99_000, prior_cwnd=77
    )
    call.tp(app_limited=5, rand_cycle=2, rand_rounds=1, rand_wait_us=500_000).run()
    assert call.decided["PRTT_EXIT_ON_TX_START"] == (99_000,)
    assert call["mode"] == BBR_PROBE_BW
    assert call["idle_restart"] == 1
    assert call.snd_cwnd == 77
    if version == "v1":
        assert call["cycle_idx"] == 6  # (8 - draw) & 7
    else:
        assert call["cycle_idx"] == BBR_BW_PROBE_CRUISE
        assert (call["rounds_since_probe"], call["probe_wait_us"]) == (1, 2_500_000)


def _policer(**state: int) -> Callback:
    """v1 main() that may close a lossy interval of five rounds: 30 of 100 delivered were lost."""
    call = ack("v1").bbr(
        cycle_idx=3,
        lt_is_sampling=1,
        lt_rtt_cnt=5,
        lt_last_lost=70,
        lt_last_delivered=900,
        lt_last_stamp=8_000,
        pacing_gain=256,
    )
    return call.bbr(**state).tp(lost=100).rs(losses=3)


def test_a_policer_interval_younger_than_a_millisecond_waits() -> None:
    # t = delivered_mstamp / 1000 - lt_last_stamp = 9000 - 9000 = 0 ms
    call = _policer(lt_last_stamp=9_000).run()
    assert call.decided["LT_WAIT_MS"] == (0,)
    assert call["lt_bw"] == 0


def test_a_policer_interval_that_overflows_its_clock_starts_over() -> None:
    # t >= ~0U / 1000 = 4294967 ms; 5 s of uptime less an old stamp that lies 2^31 - 1 ms back
    call = _policer(lt_last_stamp=(9_000 - 5_000_000) % 2**32).run()
    assert call.decided["LT_RESET_TIME"] == (5_000_000,)
    assert call["lt_is_sampling"] == 0


def test_two_slow_policer_intervals_within_4_kbit_agree_by_difference() -> None:
    # 100 packets in 1000 ms: bw = 100 * 2^24 / 1e6 = 1677; lt_bw 1300 differs by 377, more than an
    # eighth (377 * 256 = 96512 > 32 * 1300 = 41600). 377 at MSS 12: 377*12*256>>8 = 4524,
    # * 990000 >> 24 = 266 bytes/s <= 500: taken as equal, mean (1677 + 1300) / 2 = 1488
    call = _policer(lt_bw=1_300).tp(mss_cache=12).run()
    assert call.decided["LT_USE_DIFF"] == (1_677, 1_300, 1_488)
    assert call["lt_use_bw"] == 1
    assert call["lt_bw"] == 1_488


def test_ecn_that_ceased_brings_the_next_probe_forward_in_v2_if_asked_for() -> None:
    # ilog2(inflight_hi * 128 >> 8) = ilog2(100 * 128 >> 8 = 50) = 5
    call = ack("v2", ecn_reprobe_gain=128).bbr(ecn_eligible=1, ecn_in_cycle=1, inflight_hi=100)
    call.tp(icsk_ca_state=TCP_CA_OPEN).run()
    assert call.decided["REFILL_BY_ECN_CLEAR"] == (5, 100)
    assert call["bw_probe_up_rounds"] == 5
    assert call["debug_event"] == ord("A")


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_ilog2_of_zero_fills_the_five_bits(version: str) -> None:
    # ilog2(0) is -1, stored to a 5-bit field: 31
    call = ack(version, ecn_reprobe_gain=1).bbr(ecn_eligible=1, ecn_in_cycle=1, inflight_hi=100)
    call.tp(icsk_ca_state=TCP_CA_OPEN).run()
    assert call["bw_probe_up_rounds"] == 31


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_an_empty_bandwidth_window_does_not_rotate(version: str) -> None:
    # the sample's interval is 0: no sample enters bw_hi[1], which is 0 when the probe's feedback
    # ends; but then no round starts either, so take a valid sample that acknowledges nothing
    call = ack(version).bbr(
        ack_phase=BBR_ACKS_PROBE_STOPPING, bw_hi=(BW, 0), next_rtt_delivered=900
    )
    call.rs(acked_sacked=0).run()
    assert call.decided["BWHI_KEEP_EMPTY"] == (BW,)
    assert call["bw_hi"] == [BW, 0]


def _probing(version: str, kind: int, arg: int = 0, **settings: int) -> Callback:
    """PROBE_UP with inflight_hi 100; BDP at BW and 40 ms is ceil(100000 * 40000 / 2^24) = 239."""
    return Callback(version, kind, arg, **settings).bbr(
        mode=BBR_PROBE_BW,
        cycle_idx=BBR_BW_PROBE_UP,
        full_bw_reached=1,
        bw_probe_samples=1,
        inflight_hi=100,
        inflight_latest=60,
    )


def test_a_tail_loss_repaired_by_tlp_cuts_inflight_hi_in_v3() -> None:
    # lost 1, tx_in_flight = inflight_latest + 1 = 41; limit 41 * 5 >> 8 = 0, so too high.
    # target = min(BDP, cwnd 50) = 50, floor 50 * 180 >> 8 = 35; hi = max(41, 35) = 41
    call = _probing("v3", CWND_EVENT, CA_EVENT_TLP_RECOVERY).bbr(inflight_latest=40).run()
    assert call.decided["HI_CUT_TLP"] == (100, 41, 41, 50)
    assert call.decided["DOWN_BY_TLP"] == (1, 41, 0)
    assert call["cycle_idx"] == BBR_BW_PROBE_DOWN


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_a_cut_can_raise_inflight_hi(version: str) -> None:
    # 200 in flight, 10 lost: limit 200 * 5 >> 8 = 3. hi = max(200, 35) = 200, above the old 100
    call = _probing(version, MAIN).rs(
        delivered=40, interval_us=41_000, rtt_us=41_000, acked_sacked=2, lost=10, tx_in_flight=200
    )
    call.bbr(next_rtt_delivered=5_000, loss_round_delivered=5_000).run()
    assert call.decided["HI_CUT_RAISED"] == (100, 200, 200, 50)
    assert call.decided["DOWN_BY_LOSS"] == (10, 200, 3)


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_an_application_limited_sample_stops_the_probe_but_keeps_the_bound(version: str) -> None:
    call = _probing(version, SKB_MARKED_LOST).tp(lost=10)
    call.skb(in_flight=60, lost=5, is_app_limited=1, delivered_mstamp=1, gso_segs=1).run()
    assert call.decided["HI_NOCUT_APPLIMITED"] == (60, 100)
    assert call["inflight_hi"] == 100
    assert call["cycle_idx"] == BBR_BW_PROBE_DOWN


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_books_that_do_not_add_up_unset_the_bound(version: str) -> None:
    # tx_in_flight 10 - pcount 11 < 0: the kernel warns and returns ~0U
    call = _probing(version, SKB_MARKED_LOST).tp(lost=12)
    call.skb(in_flight=10, lost=0, delivered_mstamp=1, gso_segs=11).run()
    assert call.decided["HI_LOST_INFINITY"] == (10, 12, 11)
    assert call["inflight_hi"] == UNSET


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_a_reneged_skb_says_nothing(version: str) -> None:
    # tx.delivered_mstamp 0 marks an skb that was SACKed before
    call = _probing(version, SKB_MARKED_LOST).tp(lost=30)
    call.skb(in_flight=60, lost=5, delivered_mstamp=0, gso_segs=1).run()
    assert call.decided["HI_KEEP_SKB_UNUSABLE"] == (100,)
    assert call["bw_probe_samples"] == 1


def test_refill_add_inc_grows_the_bound_in_v2() -> None:
    # 63 rounds have passed: the Reno-fair limit min(63, target) is reached
    call = ack("v2", refill_add_inc=3).bbr(rounds_since_probe=63, inflight_hi=100).run()
    assert call.decided["HI_REFILL_ADD"] == (100, 103, 3)


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_undo_restores_what_was_saved(version: str) -> None:
    call = Callback(version, UNDO_CWND).bbr(
        inflight_hi=70,
        undo_inflight_hi=100,
        bw_lo=900,
        undo_bw_lo=1_000,
        inflight_lo=30,
        undo_inflight_lo=40,
        prior_cwnd=88,
        full_bw=BW,
    )
    call.run()
    assert call.decided["HI_UNDO"] == (70, 100)
    assert call.decided["BWLO_UNDO"] == (900, 1_000)
    assert call.decided["LO_UNDO"] == (900, 1_000, 30, 40)
    assert call.decided["CWND_UNDO"] == (50, 88)
    assert call.snd_cwnd == 88


def test_v2_without_undo_keeps_its_bounds() -> None:
    call = Callback("v2", UNDO_CWND, undo=0).bbr(inflight_hi=70, undo_inflight_hi=100).run()
    assert call["inflight_hi"] == 70
    assert "HI_UNDO" not in call.decided


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_inflight_lo_is_capped_by_inflight_hi_on_entering_cruise(version: str) -> None:
    call = ack(version).bbr(cycle_idx=BBR_BW_PROBE_DOWN, inflight_lo=90, inflight_hi=60)
    call.rs(prior_in_flight=20).run()
    assert call.decided["INFLO_CAP_HI"] == (90, 60)
    assert call["cycle_idx"] == BBR_BW_PROBE_CRUISE


def test_v3s_bw_lo_is_never_zero() -> None:
    # a lossy round: bw_lo = max(bw_latest, 1 * 180 >> 8) = max(0, 0); no delivery rate known,
    # the sample being invalid as delivered is 0: sample_bw 0
    call = ack("v3").bbr(bw_lo=1, inflight_lo=20, loss_in_round=1, loss_round_delivered=900)
    call.rs(delivered=0).run()
    assert call.decided["BWLO_FLOOR"] == (0, 1)
    assert call["bw_lo"] == 1


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_the_window_is_never_below_four(version: str) -> None:
    # STARTUP with a tiny cwnd: 1 + 2 acknowledged = 3, floor 4
    call = ack(version).bbr(mode=BBR_STARTUP, full_bw_reached=0).tp(snd_cwnd=1).run()
    assert call.decided["CWND_FLOOR4"] == (3, 4)
    assert call.snd_cwnd == 4


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_snd_cwnd_clamp_wins(version: str) -> None:
    call = ack(version).tp(snd_cwnd_clamp=30).run()
    assert call.decided["CWND_CLAMP"] == (52, 30)
    assert call.snd_cwnd == 30


def test_usage_based_cwnd_stops_at_twice_what_was_used() -> None:
    # max(2 * max_packets_out 10, cwnd 50) = 50 < 52
    call = ack("v2", usage_based_cwnd=1).tp(max_packets_out=10).run()
    assert call.decided["CWND_USAGE"] == (52, 50)


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_an_expired_filter_does_not_take_a_delayed_acks_rtt(version: str) -> None:
    # stamps 20 s old (HZ 1000), beyond 10 s and 5 s; idle_restart keeps PROBE_RTT away
    call = ack(version).bbr(min_rtt_stamp=80_000, probe_rtt_min_stamp=80_000, idle_restart=1)
    call.rs(is_ack_delayed=1, rtt_us=90_000).run()
    assert call.decided["MINRTT_SKIP_DELAYED_ACK"] == (90_000, 40_000)
    assert call["min_rtt_us"] == 40_000


def _congested(**settings: int) -> Callback:
    """A v3 round start with PLB on and 600 of 1000 packets CE-marked: ratio 153/256."""
    return (
        ack("v3", plb_enabled=1, **settings)
        .bbr(next_rtt_delivered=900)
        .tp(ecn_flags=1 + 16, delivered_ce=600)
    )


def test_plb_counts_congested_rounds() -> None:
    call = _congested().run()  # 600 * 256 / 1000 = 153 >= 128
    assert call.decided["PLB_CONGESTED_ROUND"] == (1, 153)


def test_plb_starts_over_after_a_clear_round() -> None:
    call = _congested().bbr(plb_consec_cong_rounds=5).tp(delivered_ce=100).run()
    assert call.decided["PLB_CLEAR"] == (25,)  # 100 * 256 / 1000
    assert call["plb_consec_cong_rounds"] == 0


def test_plb_repaths_after_twelve_congested_rounds() -> None:
    call = _congested().bbr(plb_consec_cong_rounds=11).run()
    assert call.decided["PLB_REHASH"] == (12,)
    assert call["plb_consec_cong_rounds"] == 0


def test_plb_waits_after_a_timeout() -> None:
    # pause_until 100 ticks ahead, within 2 * 60 s: still pausing
    call = _congested().bbr(plb_consec_cong_rounds=11, plb_pause_until=100_100).run()
    assert call.decided["PLB_PAUSED"] == (12, 100_100)
    assert call["plb_consec_cong_rounds"] == 12


def test_plb_forgets_a_pause_that_is_over_or_impossible() -> None:
    for pause_until in (99_000, 100_000 + 2 * 60 * 1000 + 1):
        call = _congested().bbr(plb_consec_cong_rounds=11, plb_pause_until=pause_until).run()
        assert "PLB_REHASH" in call.decided
        assert call["plb_pause_until"] == 0


def test_a_timeout_pauses_plb_for_one_to_two_minutes() -> None:
    # 60 s * HZ 1000 + the random part
    call = Callback("v3", SET_STATE, TCP_CA_LOSS, plb_enabled=1).tp(rand_pause=7).run()
    assert call.decided["PLB_PAUSE_RTO"] == (100_000 + 60_000 + 7,)


def test_v1_on_a_patched_kernel_has_no_cap_on_its_tso_goal() -> None:
    # 65536 - 1 - 320 = 65215 bytes at MSS 100 are 652 segments; mainline caps them at 127.
    # In DRAIN the target is BDP 239 + 3 goals, rounded up to even.
    def target(flavour: str) -> int:
        call = ack(flavour).bbr(mode=BBR_DRAIN).tp(packets_out=5_000, mss_cache=100)
        call.tp(sk_pacing_rate=10**9).run()
        return call.decided["DRAIN_STAY"][1]

    assert target("v1") == 239 + 3 * 127 + 0
    assert target("v1-patched") == 239 + 3 * 652 + 1


@pytest.mark.parametrize(
    ("new", "code"),
    [(49, "CORE_MTU_PROBE"), (51, "CORE_MTU_PROBE"), (10, "CORE_OTHER")],
)
def test_cwnd_changes_behind_bbrs_back_are_named(new: int, code: str) -> None:
    event = np.zeros(1, EVENT)
    event["ctl"]["kind"], event["ctl"]["take_cwnd"] = MAIN, 1
    event["ctl"]["entry_snd_cwnd"] = new
    assert _core_writes(event, 50, 0) == {code: (50, new)}


def test_a_timeouts_collapse_is_told_from_other_changes() -> None:
    # tcp_enter_loss() sets packets_in_flight + 1 = 8 - (2 + 3) + 1 + 1 = 5
    event = np.zeros(1, EVENT)
    event["ctl"]["kind"], event["ctl"]["arg"], event["ctl"]["take_cwnd"] = SET_STATE, TCP_CA_LOSS, 1
    tp = event["tp"]
    tp["packets_out"], tp["sacked_out"], tp["lost_out"], tp["retrans_out"] = 8, 2, 3, 1
    event["ctl"]["entry_snd_cwnd"] = 5
    assert _core_writes(event, 50, 0) == {"CORE_RTO_COLLAPSE": (50, 5)}


def test_so_max_pacing_rate_is_not_taken_for_bbrs_decision() -> None:
    event = np.zeros(1, EVENT)
    event["ctl"]["kind"], event["ctl"]["take_pacing"] = MAIN, 1
    event["ctl"]["entry_sk_pacing_rate"] = 125_000
    assert _core_writes(event, 0, 999_999) == {"CORE_PACING": (999_999, 125_000)}


def _core_writes(event: np.ndarray, cwnd: int, rate: int) -> dict[str, tuple[int, ...]]:
    log = np.zeros((64, COLUMNS), np.int64)
    loops._note_core_writes(records(event)[0], cwnd, np.uint64(rate), log)
    rows = log[1 : log[0, 0] + 1]
    return {codes.CODES[int(row[1])].name: (int(row[2]), int(row[3])) for row in rows}


@pytest.mark.parametrize("version", ["v2", "v3"])
@pytest.mark.parametrize(("before", "losses"), [(0, 1), (1, 0), (0, 0)])
def test_a_loss_that_the_last_ack_of_a_round_tells_is_in_it(
    version: str, before: int, losses: int
) -> None:
    """A probe that ends by a lost packet clears the mark; the ACK that tells it sets it again,
    before the bounds are asked (bbr_update_congestion_signals)."""
    call = ack(version).bbr(loss_round_delivered=900, loss_in_round=before).rs(losses=losses).run()
    assert call.decided["LOSSROUND_START"] == (1_000, before | losses)
