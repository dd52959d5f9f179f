"""One parameter record per kernel: the versions differ first in data.

Units: gains, fractions and thresholds are in 1/256; times as the name says; 0 switches a feature
off where the kernel reads it so. The switches at the end name what the code of one version does
differently where no kernel parameter exists.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .records import Gains, record_of


class Params(Protocol):
    """Everything that tunes BBR, of all three versions; what a version lacks is 0."""

    version: int
    HZ: int
    max_tcp_header: int
    gso_max_size: int
    min_tso_rate: int
    min_tso_segs: int
    tso_rtt_shift: int
    cwnd_tso_budget: int
    high_gain: int
    drain_gain: int
    startup_cwnd_gain: int
    cwnd_gain: int
    bw_probe_cwnd_gain: int
    cwnd_min_target: int
    min_rtt_win_sec: int
    probe_rtt_mode_ms: int
    probe_rtt_win_ms: int
    probe_rtt_cwnd_gain: int
    bw_rtts: int
    full_bw_thresh: int
    full_bw_cnt: int
    full_loss_cnt: int
    full_ecn_cnt: int
    extra_acked_gain: int
    extra_acked_win_rtts: int
    extra_acked_max_us: int
    extra_acked_in_startup: int
    ack_epoch_acked_reset_thresh: int
    beta: int
    loss_thresh: int
    inflight_headroom: int
    refill_add_inc: int
    usage_based_cwnd: int
    drain_to_target: int
    fast_path: int
    undo: int
    loss_probe_recovery: int
    bw_probe_pif_gain: int
    bw_probe_reno_gain: int
    bw_probe_max_rounds: int
    bw_probe_rand_rounds: int
    bw_probe_base_us: int
    bw_probe_rand_us: int
    ecn_enable: int
    precise_ece_ack: int
    ecn_alpha_gain: int
    ecn_alpha_init: int
    ecn_factor: int
    ecn_thresh: int
    ecn_max_rtt_us: int
    ecn_reprobe_gain: int
    plb_enabled: int
    plb_cong_thresh: int
    plb_rehash_rounds: int
    plb_idle_rehash_rounds: int
    plb_suspend_rto_sec: int
    pacing_margin_percent: int
    pacing_floor: int
    bw_lo_floor: int
    tso_segs_cap: int
    tso_bytes_u32: int
    min_rtt_accepts_equal: int
    ecn_at_thresh_is_high: int
    zero_up_acks_when_not_limited: int
    pacing_gain: Gains


PARAMS = record_of(Params)

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
    "version": 1,
    "min_tso_rate": 1_200_000,  # bits/s
    "high_gain": 739,  # 2.887
    "startup_cwnd_gain": 739,  # v1 uses high_gain for both
    "bw_rtts": 10,  # rounds
    "tso_segs_cap": 0x7F,
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
}

# tcp_bbr2.c of google/bbr v2alpha
V2: dict[str, Any] = _V2_V3 | {
    "version": 2,
    "min_tso_rate": 1_200_000,
    "high_gain": 739,
    "startup_cwnd_gain": 739,
    "full_loss_cnt": 8,  # loss events
    "bw_probe_pif_gain": 320,
    "min_rtt_accepts_equal": 1,
    "ecn_at_thresh_is_high": 1,
    "zero_up_acks_when_not_limited": 1,
    "pacing_gain": [320, 192, 256, 256, 256, 256, 256, 256],
}

# tcp_bbr.c of google/bbr v3
V3: dict[str, Any] = _V2_V3 | {
    "version": 3,
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
    "pacing_gain": [320, 232, 256, 256, 0, 0, 0, 0],
}

DEFAULTS = {"v1": V1, "v1-patched": V1_PATCHED, "v2": V2, "v3": V3}

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
