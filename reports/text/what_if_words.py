"""Words of the closed loop's answer, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...probes.base.plurals import plural

QUANTITY_WORDS = {
    "goodput_mbps": "goodput, Mbit/s",
    "lost_packets": "packets lost",
    "rtt_p50_ms": "RTT median, ms",
    "rtt_p95_ms": "RTT 95 %, ms",
}

MOST_CHANGES = 4
# What changes on a path while it is simulated: a new value, or what is lost for how long.
_CHANGES = {
    "rate": "rate {:.3g} Mbit/s",
    "down": "link down for {:.3g} s",
    "outage": "data lost for {:.3g} s",
    "acks": "ACKs lost for {:.3g} s",
}


def path_words(fitted: Mapping[str, Any]) -> str:
    """The path that a run was simulated on, and where it is known from."""
    bucket, queue = fitted["policer_packets"], fitted["buffer_packets"]
    # A bucket of two packets is tbf's least, which all paths have.
    beside = f", a bucket of {fitted['bucket_packets']}" if fitted["bucket_packets"] > 2 else ""
    words = [
        f"{fitted['rate_mbps']:g} Mbit/s, {fitted['base_rtt_ms']:g} ms",
        f"policer with a bucket of {plural(bucket, 'packet')}"
        if bucket
        else f"buffer of {plural(queue, 'packet')}{beside}",
        f"random loss {100 * fitted['loss_share']:.3g} %",
    ]
    words += [
        f"{_CHANGES[what].format(value / 1e6)} from {at / 1e6:.1f} s on"
        for at, what, value in fitted["changes"][:MOST_CHANGES]
        if what in _CHANGES
    ]
    if (more := len(fitted["changes"]) - MOST_CHANGES) > 0:
        words.append(plural(more, "more change"))
    optional = {
        "reordered_share": "{:.1%} of packets overtake others",
        "aggregation_ms": "ACKs come every {:g} ms",
        "host_mbps": "the sender's own link {:g} Mbit/s",
        "application_mbps": "the application writes {:.3g} Mbit/s",
    }
    words += [text.format(fitted[name]) for name, text in optional.items() if fitted[name]]
    words += [f"others from {at:.1f} s on" for at in fitted["others_from_s"]]
    return f"{', '.join(words)} (from {fitted['source']})"
