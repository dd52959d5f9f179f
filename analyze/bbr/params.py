"""One parameter record per kernel: the versions differ first in data.

Every parameter says its unit, what it does and what 0 means there. A parameter that a version lacks
is 0. The last ones are not the kernel's: each names a difference between the versions' code. With
them one function serves v2 and v3, and some variants differ in their parameter record alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Protocol, get_type_hints

import numpy as np

from .records import Eight


@dataclass(frozen=True)
class Parameter:
    """What a parameter means.

    Attributes:
        unit: "1/256" for gains, shares and thresholds; "switch" for 0 or 1; "" for a plain number.
        meaning: what it does.
        zero: what 0 means; "" where 0 is a value like any other.
    """

    unit: str
    meaning: str
    zero: str = ""


_P = Parameter
_SWITCH = "switch"


# fmt: off
class Params(Protocol):
    """Everything that tunes BBR, of all three versions; what a version lacks is 0."""

    HZ: Annotated[int, _P("ticks/s", "jiffies per second, CONFIG_HZ", "not allowed: the recording must say it")]
    max_tcp_header: Annotated[int, _P("bytes", "MAX_TCP_HEADER: room for headers in a TSO burst")]
    gso_max_size: Annotated[int, _P("bytes", "largest TSO burst; v2: GSO_MAX_SIZE, v1 and v3: GSO_LEGACY_MAX_SIZE")]
    min_tso_rate: Annotated[int, _P("bits/s", "below this pacing rate a burst may be one segment, else it has two", "always two")]
    min_tso_segs: Annotated[int, _P("segments", "v3: least segments of a burst, net.ipv4.tcp_min_tso_segs", "min_tso_rate decides")]
    tso_rtt_shift: Annotated[int, _P("log2 us", "the burst that a short RTT allows halves every 2^n us of min_rtt", "RTT allows no extra burst")]
    cwnd_tso_budget: Annotated[int, _P(_SWITCH, "room for TSO bursts: 1: cwnd is at least three bursts", "three bursts are added to cwnd")]
    high_gain: Annotated[int, _P("1/256", "pacing gain of STARTUP (v3: startup_pacing_gain), and of the first pacing rate")]
    drain_gain: Annotated[int, _P("1/256", "pacing gain of DRAIN")]
    startup_cwnd_gain: Annotated[int, _P("1/256", "cwnd gain of STARTUP and DRAIN")]
    cwnd_gain: Annotated[int, _P("1/256", "cwnd gain of PROBE_BW")]
    bw_probe_cwnd_gain: Annotated[int, _P("1/4", "v3: added to cwnd_gain in UP", "UP has the gain of the other phases")]
    cwnd_min_target: Annotated[int, _P("packets", "cwnd is never lower; v1: also the window of PROBE_RTT")]
    min_rtt_win_sec: Annotated[int, _P("s", "window of the min_rtt filter; v1: also how often PROBE_RTT is due")]
    probe_rtt_mode_ms: Annotated[int, _P("ms", "how long PROBE_RTT holds inflight low", "never enter PROBE_RTT")]
    probe_rtt_win_ms: Annotated[int, _P("ms", "v2, v3: window of probe_rtt_min_us, after which PROBE_RTT is due")]
    probe_rtt_cwnd_gain: Annotated[int, _P("1/256", "v2, v3: the window of PROBE_RTT as a share of the BDP", "cwnd_min_target")]
    bw_rtts: Annotated[int, _P("rounds", "v1: window of the maximum filter of bandwidth; v2 has it and does not use it")]
    full_bw_thresh: Annotated[int, _P("1/256", "bandwidth that grew by this factor is no plateau")]
    full_bw_cnt: Annotated[int, _P("rounds", "rounds without such growth that make a plateau", "the first one does")]
    full_loss_cnt: Annotated[int, _P("loss events", "v2, v3: loss events in a round of recovery that end STARTUP if the loss rate is too high", "loss does not end STARTUP")]
    full_ecn_cnt: Annotated[int, _P("rounds", "v2, v3: rounds in a row with a high CE ratio that end STARTUP", "CE marks do not end STARTUP")]
    extra_acked_gain: Annotated[int, _P("1/256", "share of extra_acked that is added to cwnd's target", "aggregation is not measured")]
    extra_acked_win_rtts: Annotated[int, _P("rounds", "how long each of the two windows of extra_acked lasts")]
    extra_acked_max_us: Annotated[int, _P("us", "extra_acked adds at most what this time delivers", "it adds nothing")]
    extra_acked_in_startup: Annotated[int, _P(_SWITCH, "v2, v3: use extra_acked in STARTUP, too, with windows of one round")]
    ack_epoch_acked_reset_thresh: Annotated[int, _P("packets", "an aggregation epoch of more packets starts over", "every ACK starts over")]
    beta: Annotated[int, _P("1/256", "v2, v3: share by which loss cuts bw_lo and inflight_lo, and by which inflight_hi may fall below the target", "loss cuts nothing")]
    loss_thresh: Annotated[int, _P("1/256", "v2, v3: share of a flight whose loss is too much", "any loss is too much")]
    inflight_headroom: Annotated[int, _P("1/256", "v2, v3: share of inflight_hi left to others outside probes", "one packet is left")]
    refill_add_inc: Annotated[int, _P("packets", "v2: added to inflight_hi upon entering REFILL", "nothing is added")]
    usage_based_cwnd: Annotated[int, _P(_SWITCH, "v2: cwnd grows to at most twice the packets that were in use")]
    drain_to_target: Annotated[int, _P(_SWITCH, "v2, v3: DOWN lasts until inflight is down to the BDP", "or for one min_rtt")]
    fast_path: Annotated[int, _P(_SWITCH, "v2, v3: skip the model on application-limited samples that say nothing new")]
    undo: Annotated[int, _P(_SWITCH, "v2: a spurious recovery gives bounds and cwnd back (v3 always does)")]
    loss_probe_recovery: Annotated[int, _P(_SWITCH, "v3: a loss that a tail loss probe repaired counts as loss")]
    bw_probe_pif_gain: Annotated[int, _P("1/256", "v2: UP ends when this multiple of the BDP is in flight")]
    bw_probe_reno_gain: Annotated[int, _P("1/256", "v2, v3: probe after so many times the target inflight, in rounds, as Reno would", "rounds do not call for a probe before bw_probe_max_rounds")]
    bw_probe_max_rounds: Annotated[int, _P("rounds", "v2, v3: most rounds between probes", "probe at once")]
    bw_probe_rand_rounds: Annotated[int, _P("rounds", "v2, v3: the random start of the count of rounds is below this")]
    bw_probe_base_us: Annotated[int, _P("us", "v2, v3: least time between probes")]
    bw_probe_rand_us: Annotated[int, _P("us", "v2, v3: the random time added to it is below this")]
    ecn_enable: Annotated[int, _P(_SWITCH, "v2: use ECN (v3 asks the route)")]
    precise_ece_ack: Annotated[int, _P(_SWITCH, "v2, v3: as a receiver, answer a change of CE state at once")]
    ecn_alpha_gain: Annotated[int, _P("1/256", "v2, v3: weight of the round's CE ratio in ecn_alpha", "ecn_alpha never moves")]
    ecn_alpha_init: Annotated[int, _P("1/256", "v2, v3: the first ecn_alpha")]
    ecn_factor: Annotated[int, _P("1/256", "v2, v3: share of ecn_alpha by which CE marks cut inflight_lo", "they cut nothing; v2: ECN is not followed at all")]
    ecn_thresh: Annotated[int, _P("1/256", "v2, v3: share of CE marks that is too much", "no share is")]
    ecn_max_rtt_us: Annotated[int, _P("us", "v2, v3: ECN is used up to this min_rtt", "at any RTT")]
    ecn_reprobe_gain: Annotated[int, _P("1/256", "v2, v3: share of inflight_hi by which UP starts to grow when CE marks have ceased", "their end does not start a probe")]
    plb_enabled: Annotated[int, _P(_SWITCH, "v3: protective load balancing, net.ipv4.tcp_plb_enabled")]
    plb_cong_thresh: Annotated[int, _P("1/256", "v3: CE ratio of a congested round", "every round is congested")]
    plb_rehash_rounds: Annotated[int, _P("rounds", "v3: congested rounds in a row that ask for another path", "every round asks for one")]
    plb_idle_rehash_rounds: Annotated[int, _P("rounds", "v3: the same while nothing is in flight", "idleness asks for none")]
    plb_suspend_rto_sec: Annotated[int, _P("s", "v3: pause after a timeout, to which up to as much is added at random", "no pause")]
    pacing_margin_percent: Annotated[int, _P("%", "pacing stays this far below the bandwidth")]
    pacing_floor: Annotated[int, _P("bytes/s", "v2, v3: least pacing rate")]
    bw_lo_floor: Annotated[int, _P("pkts/us << 24", "v3: least bw_lo")]
    tso_segs_cap: Annotated[int, _P("segments", "v1: most segments of a burst", "no cap")]
    pacing_gain: Annotated[Eight, _P("1/256", "pacing gains of PROBE_BW: of v1's eight phases, or of UP, DOWN, CRUISE, REFILL")]

    # What the code of a version does differently where the kernel has no parameter.
    max_bw_by_rounds: Annotated[int, _P(_SWITCH, "v1: max_bw is the maximum of bw_rtts rounds", "of this probe cycle and the one before it")]
    has_lower_bounds: Annotated[int, _P(_SWITCH, "v2, v3: bw_lo bounds the rate to send at", "v1: a policer's rate, lt_bw, replaces it")]
    bdp_without_rtt: Annotated[int, _P("packets", "v1: stands for the BDP while no RTT is known", "cwnd at init does")]
    tso_bytes_u32: Annotated[int, _P(_SWITCH, "v1 in a kernel with v2's patch: a burst's bytes are cut to 32 bits first")]
    min_rtt_accepts_equal: Annotated[int, _P(_SWITCH, "v2: an RTT equal to probe_rtt_min_us puts PROBE_RTT off")]
    ecn_at_thresh_is_high: Annotated[int, _P(_SWITCH, "v2: a share of CE marks equal to ecn_thresh is too much", "only more is")]
    inflight_lo_asks_ecn_eligible: Annotated[int, _P(_SWITCH, "v2: CE marks cut inflight_lo of eligible flows only", "v3: of all, since only theirs are counted")]
    startup_exit_keeps_latest: Annotated[int, _P(_SWITCH, "v3: inflight_hi at STARTUP's exit is no less than what the last round delivered", "it is the BDP")]
    probe_up_to_plateau: Annotated[int, _P(_SWITCH, "v3: UP ends when bandwidth stops growing", "v2: when a queue of bw_probe_pif_gain builds")]
    zero_up_acks_when_not_limited: Annotated[int, _P(_SWITCH, "v2: ACKs in UP count towards inflight_hi only while cwnd limits sending")]
    raise_ends_fast_path: Annotated[int, _P(_SWITCH, "v3: after raising inflight_hi in UP, cwnd must be set before the next fast path")]
# fmt: on


PARAMETERS: dict[str, Parameter] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Params, include_extras=True).items()
}
_GAINS = 8
PARAMS = np.dtype(
    [(name, "i8", (_GAINS,)) if name == "pacing_gain" else (name, "i8") for name in PARAMETERS]
)

_GSO_LEGACY_MAX_SIZE = 65536
# align64(128 + LL_MAX_HEADER), LL_MAX_HEADER being 128 where WLAN or tunnels are configured. It
# decides only above 66 MB/s of pacing, and there for a few MSS values.
_MAX_TCP_HEADER = 320

# What all versions have in common.
_COMMON: dict[str, Any] = {
    "HZ": 0,  # build constant: the recording must say it
    "max_tcp_header": _MAX_TCP_HEADER,
    "gso_max_size": _GSO_LEGACY_MAX_SIZE,
    "drain_gain": 88,  # 1/2.885
    "cwnd_gain": 512,
    "cwnd_min_target": 4,  # packets
    "min_rtt_win_sec": 10,
    "probe_rtt_mode_ms": 200,
    "full_bw_thresh": 320,  # 1.25
    "full_bw_cnt": 3,  # rounds
    "extra_acked_gain": 256,
    "extra_acked_win_rtts": 5,
    "extra_acked_max_us": 100_000,
    "ack_epoch_acked_reset_thresh": 1 << 20,  # packets
    "pacing_margin_percent": 1,
}

# tcp_bbr.c of mainline
V1: dict[str, Any] = _COMMON | {
    "min_tso_rate": 1_200_000,  # bits/s
    "high_gain": 739,  # 2.887
    "startup_cwnd_gain": 739,  # v1 uses high_gain for both
    "bw_rtts": 10,  # rounds
    "tso_segs_cap": 0x7F,
    "max_bw_by_rounds": 1,
    "bdp_without_rtt": 10,  # TCP_INIT_CWND
    "pacing_gain": [320, 192, 256, 256, 256, 256, 256, 256],
}

# tcp_bbr.c as the v2alpha patch leaves it: no cap on the TSO goal, min_t(u32) on its bytes
V1_PATCHED: dict[str, Any] = V1 | {"tso_segs_cap": 0, "tso_bytes_u32": 1}

# Alike in v2 and v3.
_V2_V3: dict[str, Any] = _COMMON | {
    "tso_rtt_shift": 9,  # the RTT-based TSO allowance halves every 512 us
    "cwnd_tso_budget": 1,
    "probe_rtt_win_ms": 5000,
    "probe_rtt_cwnd_gain": 128,
    "full_ecn_cnt": 2,  # rounds
    "extra_acked_in_startup": 1,
    "beta": 76,  # cut by 0.3
    "loss_thresh": 5,  # 1.95 %
    "inflight_headroom": 38,  # 0.15
    "drain_to_target": 1,
    "fast_path": 1,
    "undo": 1,
    "bw_probe_reno_gain": 256,
    "bw_probe_max_rounds": 63,
    "bw_probe_rand_rounds": 2,
    "bw_probe_base_us": 2_000_000,
    "bw_probe_rand_us": 1_000_000,
    "precise_ece_ack": 1,
    "ecn_alpha_gain": 16,
    "ecn_alpha_init": 256,
    "ecn_factor": 85,
    "ecn_thresh": 128,
    "ecn_max_rtt_us": 5000,
    "pacing_floor": 1,  # bytes/s
    "has_lower_bounds": 1,
}

# tcp_bbr2.c of google/bbr v2alpha
V2: dict[str, Any] = _V2_V3 | {
    "min_tso_rate": 1_200_000,
    "high_gain": 739,
    "startup_cwnd_gain": 739,
    "full_loss_cnt": 8,  # loss events
    "bw_probe_pif_gain": 320,
    "min_rtt_accepts_equal": 1,
    "ecn_at_thresh_is_high": 1,
    "zero_up_acks_when_not_limited": 1,
    "inflight_lo_asks_ecn_eligible": 1,
    "pacing_gain": [320, 192, 256, 256, 256, 256, 256, 256],
}

# tcp_bbr.c of google/bbr v3
V3: dict[str, Any] = _V2_V3 | {
    "min_tso_segs": 2,  # net.ipv4.tcp_min_tso_segs
    "high_gain": 710,  # v3's startup_pacing_gain, 2.773
    "startup_cwnd_gain": 512,
    "bw_probe_cwnd_gain": 1,  # quarters added to cwnd_gain in UP
    "full_loss_cnt": 6,
    "loss_probe_recovery": 1,
    "ecn_reprobe_gain": 128,
    "plb_cong_thresh": 128,
    "plb_rehash_rounds": 12,
    "plb_idle_rehash_rounds": 3,
    "plb_suspend_rto_sec": 60,
    "bw_lo_floor": 1,
    "startup_exit_keeps_latest": 1,
    "probe_up_to_plateau": 1,
    "raise_ends_fast_path": 1,
    "pacing_gain": [320, 232, 256, 256, 0, 0, 0, 0],
}

DEFAULTS = {"v1": V1, "v1-patched": V1_PATCHED, "v2": V2, "v3": V3}

# What the code that v1 shares with the others reads although v1 has no such parameter.
_SHARED = frozenset(
    "min_tso_segs tso_rtt_shift cwnd_tso_budget bw_probe_cwnd_gain probe_rtt_cwnd_gain"
    " extra_acked_in_startup pacing_floor has_lower_bounds tso_bytes_u32".split()
)
_PLB = frozenset(name for name in PARAMETERS if name.startswith("plb_"))
# Parameters that nothing in a version reads, whatever their value is.
UNREAD: dict[str, frozenset[str]] = {
    "v1": frozenset(PARAMETERS) - V1.keys() - _SHARED,
    "v2": _PLB | {"bw_rtts", "loss_probe_recovery"},
    "v3": frozenset({"bw_rtts", "undo", "ecn_enable"}),
}

# The kernel's own name of a parameter, where the record's is another version's.
ALIASES: dict[str, dict[str, tuple[str, ...]]] = {
    "v3": {"startup_pacing_gain": ("high_gain",)},
    "v1": {"high_gain": ("high_gain", "startup_cwnd_gain")},
    "v1-patched": {"high_gain": ("high_gain", "startup_cwnd_gain")},
}


def make(values: dict[str, Any]) -> np.ndarray[Any, Any]:
    """A one-element array of the parameter record; names that a version lacks are 0."""
    record = np.zeros(1, PARAMS)
    for name, value in values.items():
        record[name] = value
    return record
