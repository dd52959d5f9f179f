"""What the kernel's C gave for chosen inputs: every reader and replay of it is held to the same."""

from __future__ import annotations

# Where loss crossed its limit within a flight (bbr_inflight_hi_from_lost_skb(); loss_thresh 2 %):
# packets in flight when it was sent, lost since, segments of the skb, and the prefix that was not
# too much.
LOST_SKBS = [
    (100, 3, 1, 99),
    (100, 2, 1, 100),
    (60, 2, 2, 60),
    (1000, 20, 1, 1000),
    (1000, 30, 10, 990),
    (1000, 20, 20, 1000),
    (44, 44, 44, 0),
    (10, 12, 11, 2**32 - 1),
]
