"""The sources that the estimator was written from, each pinned to one revision, with its functions.

A comment above each function that implements kernel functions names them: ``# v2 bbr2_main(); v3
bbr_main()`` cites bbr2_main() of the source `v2` below and bbr_main() of `v3`. A test checks every
citation against this table, and demands one for each version that runs the function. ``v2 not, see
NAME`` says that v2 does not run what is cited next, because of its value of the parameter NAME.

Where a function differs from its source, a comment says so at that place; silence means "same".
"""

from __future__ import annotations

from dataclasses import dataclass

from .codes import Code


@dataclass(frozen=True)
class Source:
    """One file of a kernel.

    Attributes:
        repository: on github.com.
        revision: the commit, in full.
        file: path in it.
        functions: the functions (and macros) of the file that are cited.
    """

    repository: str
    revision: str
    file: str
    functions: frozenset[str]

    @property
    def url(self) -> str:
        """Where to read it."""
        return f"https://github.com/{self.repository}/blob/{self.revision}/{self.file}"


# Linux 6.1, whose tag v6.1 names this commit.
_MAINLINE = ("torvalds/linux", "830b3c68c1fb1e9176028d02ef86f3cf76aa2476")
_V2ALPHA = ("google/bbr", "8d11b540f0078078c0ab02a4c76c246773ce2135")
_V3 = ("google/bbr", "001a430b3ddbbc6d9173061a74d8b580c757b91b")

# Functions of tcp_bbr.c that v2alpha's tcp_bbr2.c and v3's tcp_bbr.c have under the same name.
_SHARED = """
bbr_max_bw bbr_bw bbr_extra_acked bbr_rate_bytes_per_sec bbr_bw_to_pacing_rate
bbr_init_pacing_rate_from_rtt bbr_set_pacing_rate bbr_tso_segs_goal bbr_save_cwnd bbr_cwnd_event
bbr_bdp bbr_quantization_budget bbr_inflight bbr_packets_in_net_at_edt bbr_ack_aggregation_cwnd
bbr_set_cwnd bbr_update_ack_aggregation bbr_check_full_bw_reached bbr_check_drain
bbr_check_probe_rtt_done bbr_update_min_rtt bbr_update_gains bbr_init
"""

_V1_ONLY = """
bbr_min_tso_segs bbr_set_cwnd_to_recover_or_restore bbr_is_next_cycle_phase bbr_advance_cycle_phase
bbr_update_cycle_phase bbr_reset_startup_mode bbr_reset_probe_bw_mode bbr_reset_mode
bbr_reset_lt_bw_sampling_interval bbr_reset_lt_bw_sampling bbr_lt_bw_interval_done
bbr_lt_bw_sampling bbr_update_bw bbr_update_model bbr_main bbr_undo_cwnd bbr_ssthresh bbr_set_state
"""

# v2 and v3, with the prefix that v2alpha gives them replaced by v3's.
_V2_V3 = """
bbr_target_inflight bbr_is_probing_bandwidth bbr_has_elapsed_in_phase
bbr_handle_queue_too_high_in_startup bbr_check_ecn_too_high_in_startup bbr_update_ecn_alpha
bbr_raise_inflight_hi_slope bbr_probe_inflight_hi_upward bbr_is_inflight_too_high
bbr_inflight_hi_from_lost_skb bbr_inflight_with_headroom bbr_bound_cwnd_for_inflight_model
bbr_adapt_lower_bounds bbr_reset_lower_bounds bbr_reset_congestion_signals
bbr_update_congestion_signals bbr_is_reno_coexistence_probe_time bbr_pick_probe_wait
bbr_set_cycle_idx bbr_start_bw_probe_refill bbr_start_bw_probe_up bbr_start_bw_probe_down
bbr_start_bw_probe_cruise bbr_handle_inflight_too_high bbr_adapt_upper_bounds
bbr_check_time_to_probe_bw bbr_check_time_to_cruise bbr_update_cycle_phase bbr_exit_probe_rtt
bbr_check_loss_too_high_in_startup bbr_update_model bbr_main bbr_skb_marked_lost bbr_ssthresh
bbr_undo_cwnd bbr_set_state
"""

# v2alpha's functions that are alike in tcp_bbr.c by another name, or not there.
_V2_ONLY = """
bbr_probe_rtt_cwnd bbr_update_round_start bbr_calculate_bw_sample bbr_tso_segs_generic
bbr_min_tso_segs bbr2_take_bw_hi_sample bbr2_advance_bw_hi_filter bbr2_check_drain bbr2_fast_path
bbr2_init
"""

_V3_ONLY = """
bbr_probe_rtt_cwnd bbr_update_round_start bbr_calculate_bw_sample bbr_tso_segs_generic
bbr_can_use_ecn bbr_reset_startup_mode bbr_take_max_bw_sample bbr_advance_max_bw_filter
bbr_reset_full_bw bbr_plb bbr_ecn_cut bbr_init_lower_bounds bbr_loss_lower_bounds
bbr_ecn_lower_bounds bbr_exit_loss_recovery bbr_update_latest_delivery_signals
bbr_advance_latest_delivery_signals bbr_run_fast_path bbr_note_loss bbr_run_loss_probe_recovery
"""


_TCP_H = "tcp_packets_in_flight tcp_jiffies32 tcp_stamp_us_delta before after"


def _named(*texts: str) -> frozenset[str]:
    return frozenset(name for text in texts for name in text.split())


SOURCES: dict[str, Source] = {
    "v1": Source(*_MAINLINE, "net/ipv4/tcp_bbr.c", _named(_SHARED, _V1_ONLY)),
    "v2": Source(
        *_V2ALPHA,
        "net/ipv4/tcp_bbr2.c",
        _named(_SHARED, _V2_ONLY) | {"bbr2" + name.removeprefix("bbr") for name in _V2_V3.split()},
    ),
    "v3": Source(*_V3, "net/ipv4/tcp_bbr.c", _named(_SHARED, _V2_V3, _V3_ONLY)),
    "plb": Source(
        *_V3,
        "net/ipv4/tcp_plb.c",
        _named("tcp_plb_update_state tcp_plb_check_rehash tcp_plb_update_state_upon_rto"),
    ),
    "dctcp": Source(*_V3, "net/ipv4/tcp_dctcp.h", _named("dctcp_ece_ack_update")),
    "minmax": Source(
        *_MAINLINE,
        "lib/win_minmax.c",
        _named("minmax_reset minmax_running_max minmax_subwin_update"),
    ),
    "tcp": Source(
        *_MAINLINE,
        "include/net/tcp.h",
        _named(_TCP_H),
    ),
    "input": Source(*_MAINLINE, "net/ipv4/tcp_input.c", _named("tcp_undo_cwnd_reduction")),
}

# The draft that names the sections of the codes: its tag in ietf-wg-ccwg/draft-ietf-ccwg-bbr.
DRAFT = "draft-ietf-ccwg-bbr-06"

# Functions whose counterpart in another version has a name of its own.
_OTHER_NAMES = {
    "v2": {
        "bbr_run_fast_path": "bbr2_fast_path",
        "bbr_advance_max_bw_filter": "bbr2_advance_bw_hi_filter",
        "bbr_update_latest_delivery_signals": "bbr2_update_congestion_signals",
    },
    "v1": {
        "bbr_update_congestion_signals": "bbr_update_bw",
        "bbr_exit_probe_rtt": "bbr_reset_mode",
    },
}


def kernel_function(code: Code, version: str) -> str:
    """Name of the function that takes `code` in the given kernel ("v1", "v2", "v3")."""
    name = code.function
    there = SOURCES[version].functions
    other = _OTHER_NAMES.get(version, {}).get(name, name)
    prefixed = "bbr2" + name.removeprefix("bbr")
    return other if other in there or prefixed not in there else prefixed
