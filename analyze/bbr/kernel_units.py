"""The kernel's units, and what stands for "unset": numbers only, for those who compute nothing."""

from __future__ import annotations

BBR_SCALE = 8  # tcp_bbr.c: gains and fractions are scaled by 256
BBR_UNIT = 1 << BBR_SCALE
BW_SCALE = 24  # tcp_bbr.c: bandwidth is packets per microsecond, scaled by 2**24
BW_UNIT = 1 << BW_SCALE
USEC_PER_MSEC = 1000
USEC_PER_SEC = 1_000_000
MSEC_PER_SEC = 1000
NSEC_PER_USEC = 1000
U32_MAX = 0xFFFFFFFF  # ~0U: "unset" in bw_lo, inflight_lo, inflight_hi, min_rtt_us
