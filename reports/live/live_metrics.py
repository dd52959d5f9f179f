"""What flows do, as OpenMetrics: histograms and counters by phase, limit and decision.

No label tells one connection from another: a host with a million of them has the same series.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...analyze.bbr.codes import CODES
from ..exports.openmetrics_snapshot import Family, Labels

if TYPE_CHECKING:
    from ...analyze.live.follower import Followed
    from ...analyze.live.live_flows import FlowNow
    from ...analyze.live.live_session import LiveSession

RTT_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
RATE_BITS = (1e5, 3e5, 1e6, 3e6, 1e7, 3e7, 1e8, 3e8, 1e9, 1e10)
LOSS = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
# A flow's end is told by nothing but silence: else one of 0.1 s would count ten times.
EACH = "once a second of each flow that was heard of since"
TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Histogram:
    """A histogram family; each set of labels has its buckets, a count and a sum."""

    def __init__(self, name: str, unit: str, about: str, bounds: Iterable[float]) -> None:
        self.family = Family(f"bbrscope_live_{name}", "histogram", unit, about)
        self.bounds = (*bounds, float("inf"))

    def observe(self, labels: Labels, value: float) -> None:
        """Count a value."""
        for bound in self.bounds:
            shown = "+Inf" if bound == float("inf") else repr(float(bound))
            self.family.add((*labels, ("le", shown)), float(value <= bound), "_bucket")
        self.family.add(labels, 1, "_count")
        self.family.add(labels, value, "_sum")


class LiveMetrics:
    """Counts what a session brings; `text()` may be called from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flows: dict[Labels, int] = {}
        self._heard_ns = 0
        self._rtt = Histogram("rtt_seconds", "seconds", f"srtt of flows, {EACH}.", RTT_S)
        self._rate = Histogram(
            "delivery_bits_per_second", "", f"Delivered payload, {EACH}.", RATE_BITS
        )
        self._loss = Histogram("loss_ratio", "ratio", f"Share of packets lost, {EACH}.", LOSS)
        self._decisions = _counter("decisions", "", "Decisions that changed something.")
        self._events = _counter("events", "", "Calls of BBR that were seen.")
        self._lost = _counter("lost_rows", "", "Rows that were lost or came too fast to look at.")

    def take(self, followed: Followed) -> None:
        """Count events and decisions."""
        with self._lock:
            for event in followed.events:
                self._events.add((("kind", event.kind),), 1, "_total")
            for decision in followed.decisions:
                code = CODES[decision.code]
                if code.change:
                    labels = (("about", code.about), ("decision", code.name))
                    self._decisions.add(labels, 1, "_total")

    def update_flows(self, flows: Iterable[FlowNow], lost: int) -> None:
        """Count the flows as they are now, and the events `lost` so far; call it once a second."""
        with self._lock:
            self._flows = {}
            self._lost.samples["_total", ()] = float(lost)
            heard_ns = self._heard_ns
            for flow in flows:
                labels = (("phase", flow.phase or "unknown"), ("limit", flow.limit or "unknown"))
                self._flows[labels] = self._flows.get(labels, 0) + 1
                if flow.ns <= heard_ns:
                    continue
                self._heard_ns = max(self._heard_ns, flow.ns)
                if flow.srtt_ms is not None:
                    self._rtt.observe(labels, flow.srtt_ms / 1e3)
                if flow.delivered_mbps is not None:
                    self._rate.observe(labels, flow.delivered_mbps * 1e6)
                if flow.loss is not None:
                    self._loss.observe(labels, flow.loss)

    def text(self) -> str:
        """Everything in OpenMetrics 1.0."""
        with self._lock:
            flows = Family("bbrscope_live_flows", "gauge", "", "Flows heard of within 10 s.")
            for labels, count in self._flows.items():
                flows.add(labels, count)
            histograms = [one.family for one in (self._rtt, self._rate, self._loss)]
            families = [flows, *histograms, self._decisions, self._events, self._lost]
            return "".join("".join(grouped(one).text()) for one in families) + "# EOF\n"

    def follow(self, session: LiveSession) -> None:
        """Let a session read what is new, and count it."""
        self.take(session.tick())


def grouped(family: Family) -> Family:
    """The family with the samples of one set of labels together, as the format wants histograms."""
    if family.kind != "histogram":
        return family

    def labels_of(sample: tuple[tuple[str, Labels], float]) -> Labels:
        return tuple(label for label in sample[0][1] if label[0] != "le")

    order = {labels_of(one): None for one in family.samples.items()}
    places = {labels: place for place, labels in enumerate(order)}
    samples = dict(sorted(family.samples.items(), key=lambda one: places[labels_of(one)]))
    return Family(family.name, family.kind, family.unit, family.about, samples)


def _counter(name: str, unit: str, about: str) -> Family:
    return Family(f"bbrscope_live_{name}", "counter", unit, about)
