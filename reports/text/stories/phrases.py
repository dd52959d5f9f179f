"""A few words for each decision that a story counts: they complete "so many times: ..."."""

from __future__ import annotations

from collections.abc import Iterable

PHRASES: dict[str | None, str] = {
    # the phase
    "INIT": "the connection began",
    "DRAIN_ENTER": "the pipe was full",
    "DRAIN_EXIT_DRAINED": "the queue was drained",
    "PBW_ENTER_PHASE_RANDOM": "at a random place of the cycle",
    "PBW_ENTER_DOWN": "the queue was drained",
    "PRTT_ENTER_EXPIRED": "the RTT filter had expired",
    "PRTT_DWELL_START": "inflight was low enough",
    "PRTT_EXIT_PBW": "the RTT had been probed",
    "PRTT_EXIT_CRUISE": "the RTT had been probed",
    "PRTT_EXIT_STARTUP": "the RTT had been probed",
    "PRTT_EXIT_ON_TX_START": "the RTT had been probed while the flow was idle",
    "CYC_NEXT_TIME": "a min_rtt had passed",
    "CYC_NEXT_UP_LOSS": "packets were lost",
    "CYC_NEXT_UP_INFLIGHT": "1.25 BDP were in flight",
    "CYC_NEXT_DOWN_TIME": "a min_rtt had passed",
    "CYC_NEXT_DOWN_DRAINED": "the queue was drained",
    "REFILL_BY_CLOCK": "the wait drawn at random was over",
    "REFILL_BY_RENO_ROUNDS": "as many rounds as Reno would take had passed",
    "REFILL_BY_ECN_CLEAR": "CE marks had ceased",
    "REFILL_BY_SAFE_RISKY_PROBE": "a cautious probe had done no harm",
    "UP_ENTER": "the pipe was refilled",
    "DOWN_BY_RISK": "inflight was back where the probe before went too high",
    "DOWN_BY_QUEUE": "a queue was building",
    "DOWN_BY_PLATEAU": "bandwidth grew no more",
    "DOWN_BY_LOSS": "too much was lost",
    "DOWN_BY_ECN": "too much was marked CE",
    "DOWN_BY_LOST_SKB": "a lost packet brought the loss over the limit",
    "DOWN_BY_TLP": "a tail loss probe repaired a loss",
    "CRUISE_ENTER": "inflight was low enough",
    "CRUISE_AFTER_PRTT": "PROBE_RTT had emptied the queue",
    # the phase under a variant's rules
    "CYC_BEGIN_RANDOM_LENGTH": "a cycle of random length began",
    "PRTT_ENTER_DELAY": "the smoothed RTT was a fifth above its lowest",
    "PRTT_EXIT_BELOW_BDP": "inflight was below the BDP",
    "REFILL_BY_ECN_CEASED": "CE marks had ceased",
    "DRAIN_EXIT_ROUNDS": "DRAIN had lasted its rounds",
    # v1's policer
    "LT_SAMPLE_START": "a first loss started the sampling for a policer",
    "LT_RESET_APPLIMITED": "sampling for a policer dropped, application-limited",
    "LT_RESET_TOO_LONG": "an interval of the policer's sampling got too long",
    "LT_RESET_TIME": "an interval of the policer's sampling overflowed its clock",
    "LT_INTERVAL_FIRST": "a first lossy interval was measured",
    "LT_USE_RATIO": "two lossy intervals agreed: a policer was assumed",
    "LT_USE_DIFF": "two lossy intervals agreed: a policer was assumed",
    "LT_END_48R": "48 rounds at the policer's rate were over",
    "LT_RESET_UNDO": "the loss was spurious",
    # inflight_hi
    "HI_SET_STARTUP_EXIT": "set as STARTUP ended by loss or ECN",
    "HI_CUT_RS_LOSS": "cut after a probe that lost too much",
    "HI_CUT_RS_ECN": "cut after a probe that drew too many CE marks",
    "HI_CUT_LOST_SKB": "cut to where in the flight the loss crossed the limit",
    "HI_CUT_TLP": "cut after a tail loss",
    "HI_CUT_RAISED": "raised by what should have been a cut",
    "HI_LOST_INFINITY": "unset by a bookkeeping anomaly",
    "HI_RAISE_OBSERVED": "raised to what was in flight without harm",
    "HI_RAISE_SLOPE": "raised step by step while probing",
    "HI_REFILL_ADD": "raised before a probe",
    "HI_UNDO": "restored, the loss was spurious",
    # short-term bounds
    "BWLO_CUT_ECN": "cut by the share of CE marks",
    "BWLO_INIT": "started from max_bw",
    "BWLO_CUT": "cut to 0.7",
    "BWLO_HELD_LATEST": "held at the latest delivery rate",
    "BWLO_FLOOR": "kept from being zero",
    "BWLO_UNDO": "restored, the loss was spurious",
    "BWLO_RESET_REFILL": "cleared before a probe",
    "BWLO_RESET_PRTT_EXIT": "cleared after PROBE_RTT",
    "INFLO_INIT": "started from cwnd",
    "INFLO_CUT_LOSS": "cut to 0.7 after loss",
    "INFLO_HELD_LATEST": "held at what the last round delivered",
    "INFLO_CUT_ECN": "cut after CE marks",
    "INFLO_SET_RTO": "set to the window before TCP entered the state Loss",
    "INFLO_CAP_HI": "capped by inflight_hi",
    "LO_RESET_REFILL": "cleared before a probe",
    "LO_RESET_PRTT_EXIT": "cleared after PROBE_RTT",
    "LO_UNDO": "restored, the loss was spurious",
    # TCP and the application
    "CWND_UNDO": "restored, the loss was spurious",
    "CORE_RTO_COLLAPSE": "a retransmission timeout",
    "CORE_UNDO": "TCP stored what the undo returned",
    "CORE_MTU_PROBE": "an MTU probe",
    "CORE_OTHER": "TCP or the application",
    "CORE_PACING": "the application's SO_MAX_PACING_RATE",
    "TIMEOUT": "a retransmission timeout",
    "TIMEOUT_AGAIN": "another timeout in a row",
    "MTU_DROP": "the path MTU fell",
    "MSS_CHANGED": "the segment size changed",
    "PACING_CAPPED": "the application set SO_MAX_PACING_RATE",
    "TLP_REPAIRED": "a tail loss probe repaired a loss",
    # no decision
    "GAP": "not recorded",
    "SAMPLED": "why is not recorded",
    "MID_FLOW": "the recording begins",
    None: "no decision is known",
}


def phrase(name: str | None) -> str:
    """Return a few words for a decision.

    >>> phrase("DOWN_BY_QUEUE")
    'a queue was building'
    """
    return PHRASES.get(name) or str(name)


def counted(names: Iterable[tuple[str | None, int]]) -> str:
    """Return how often which decisions were taken; those of the same words are counted together.

    >>> counted([("LO_RESET_REFILL", 30), ("BWLO_CUT", 9), ("BWLO_RESET_REFILL", 2)])
    '32 x cleared before a probe, 9 x cut to 0.7'
    """
    by_words: dict[str, int] = {}
    for name, count in names:
        by_words[phrase(name)] = by_words.get(phrase(name), 0) + count
    most_first = sorted(by_words.items(), key=lambda item: -item[1])
    return ", ".join(f"{count:,} x {words}" for words, count in most_first)
