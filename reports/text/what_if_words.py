"""Words of the closed loop's answer, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping

QUANTITY_WORDS = {
    "goodput_mbps": "goodput, Mbit/s",
    "lost_packets": "packets lost",
    "rtt_p50_ms": "RTT median, ms",
    "rtt_p95_ms": "RTT 95 %, ms",
}


def path_words(fitted: Mapping[str, object]) -> str:
    """The path that a run was simulated on, and where it is known from."""
    return (
        f"{fitted['rate_mbps']:g} Mbit/s, {fitted['base_rtt_ms']:g} ms, buffer of"
        f" {fitted['buffer_packets']} packets, loss {fitted['loss_share']:.3g}"
        f" (from {fitted['source']})"
    )
