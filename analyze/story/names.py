"""The kernel's names and those of draft-ietf-ccwg-bbr, for everything that users see.

The draft renamed its variables in 2025 so that they say what they are; the kernel keeps the old
names. Only what the draft has is renamed: v1's gain cycle and policer have no counterpart.
"""

from __future__ import annotations

import re

KERNEL, DRAFT = "kernel", "draft"
CHOICES = (KERNEL, DRAFT)

DRAFT_NAMES = {
    "inflight_hi": "inflight_longterm",
    "inflight_lo": "inflight_shortterm",
    "bw_lo": "bw_shortterm",
    "undo_inflight_hi": "undo_inflight_longterm",
    "undo_inflight_lo": "undo_inflight_shortterm",
    "undo_bw_lo": "undo_bw_shortterm",
    "bw_probe_samples": "is_bw_probe_sample",
    "bw_probe_up_cnt": "probe_up_acked_per_inc",
    "bw_probe_up_acks": "bw_probe_up_acked",
    "stopped_risky_probe": "prev_probe_precautionary",
    "probe_wait_us": "bw_probe_wait",
    "probe_rtt_min_us": "probe_rtt_min_delay",
    "min_rtt_us": "min_rtt",
    "full_bw_cnt": "full_bw_count",
    "cycle_mstamp": "cycle_stamp",
    "next_rtt_delivered": "next_round_delivered",
    "bw_hi": "MaxBwFilter",
    "inflight_hi_headroom": "inflight_longterm_headroom",
    "pacing_bw_lo": "pacing_bw_shortterm",
    "STARTUP": "Startup",
    "DRAIN": "Drain",
    "PROBE_RTT": "ProbeRTT",
    "PROBE_BW": "ProbeBW",
    "PROBE_BW_UP": "ProbeBW_UP",
    "PROBE_BW_DOWN": "ProbeBW_DOWN",
    "PROBE_BW_CRUISE": "ProbeBW_CRUISE",
    "PROBE_BW_REFILL": "ProbeBW_REFILL",
    "PROBE_UP": "ProbeBW_UP",
}

_KERNEL_NAMES = {draft: kernel for kernel, draft in DRAFT_NAMES.items() if kernel != "PROBE_UP"}
_WORD = re.compile(r"\w+")


def translate(text: str, names: str) -> str:
    """Replace the kernel's names in a text by the draft's, if `names` asks for them.

    >>> translate("inflight_hi 40->28 in PROBE_BW_UP", "draft")
    'inflight_longterm 40->28 in ProbeBW_UP'
    """
    if names != DRAFT:
        return text
    return _WORD.sub(lambda word: DRAFT_NAMES.get(word[0], word[0]), text)


def column(name: str, names: str) -> str:
    """Translate the name of a column, with the bbr_ prefix that the store gives struct bbr's.

    >>> column("bbr_inflight_hi", "draft"), column("seq", "draft")
    ('bbr_inflight_longterm', 'seq')
    """
    bare = name.removeprefix("bbr_")
    return name.removesuffix(bare) + translate(bare, names)


def kernel_name(name: str) -> str:
    """The kernel's name of something that the user may have called by the draft's.

    >>> kernel_name("inflight_longterm"), kernel_name("inflight_hi")
    ('inflight_hi', 'inflight_hi')
    """
    return _KERNEL_NAMES.get(name, name)
