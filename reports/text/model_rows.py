"""Rows of `bbrscope model`: what the models predict, and how far from it runs were."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...analyze.models import cliff, ware

if TYPE_CHECKING:
    from ...analyze.models.cliff import Observed
    from ...analyze.models.measured import Measured
    from ...analyze.models.ware import Link

Row = Mapping[str, object]


@dataclass(frozen=True)
class Comparison:
    """A run's share of BBR, measured (0 to 1), beside what the in-flight-cap model predicts."""

    measured: Measured
    share: float
    link: Link
    gain: float

    @property
    def predicted_share(self) -> float:
        """The model's, for as many flows and seconds as the run had."""
        run = self.measured
        return ware.predict(self.link, run.flows, self.gain, run.seconds).bbr_share

    @property
    def error(self) -> float:
        """How far apart the two are, as a share of the link (0 to 1)."""
        return abs(self.predicted_share - self.share)

    @property
    def relative_error(self) -> float | None:
        """The error as a share of what was measured; None: BBR got nothing."""
        return self.error / self.share if self.share else None

    def row(self) -> Row:
        """Return the comparison as a row of the table."""
        return {
            "run": self.measured.run,
            "version": self.measured.version,
            **_path(self.link),
            "flows": self.measured.flows,
            "others": self.measured.others,
            "seconds": self.measured.seconds,
            "predicted_share": self.predicted_share,
            "measured_share": self.share,
            "error_points": 100 * self.error,
            "error_relative": self.relative_error,
        }


def prediction(link: Link, flows: int, gain: float, duration_s: float) -> Row:
    """Return what Ware19's model predicts for BBR flows beside loss-based ones on a link."""
    predicted = ware.predict(link, flows, gain, duration_s)
    return {
        **_path(link),
        "flows": flows,
        "bbr_share": predicted.bbr_share,
        "simple_share": predicted.simple_share,
        "p_raw": predicted.p_raw,
        "rtt_est_ms": 1e3 * predicted.rtt_est_s,
        "btlbw_share": predicted.btlbw / link.capacity,
        "inflight_cap_packets": predicted.inflight_cap,
        "probe_time_s": predicted.probe_time_s,
    }


def prediction_without_others(link: Link, flows: int, gain: float) -> Row:
    """Return the RTT estimate and the cap of BBR flows that have a link for themselves."""
    cap = ware.inflight_cap_alone(link, flows, gain)
    return {
        **_path(link),
        "flows": flows,
        "rtt_est_ms": 1e3 * ware.rtt_estimate_alone(link, flows),
        "inflight_cap_packets": cap,
        "cap_per_flow_packets": cap / flows,
    }


def cliff_prediction(gain: float) -> Row:
    """Return at which random loss BBRv1 collapses with a pacing gain (Cao19)."""
    return {
        "gain": gain,
        "cliff": cliff.cliff(gain),
        "cliff_with_margin": cliff.cliff(gain, cliff.PACING_MARGIN),
        "policer_loss": cliff.policer_loss(),
    }


def collapse(name: str, points: int, observed: Observed, gain: float) -> Row:
    """Return where a congestion control collapsed, beside the prediction if it is BBRv1.

    `points` is the number of losses at which it was measured.
    """
    return {
        "cc": name,
        "points": points,
        "predicted_cliff": cliff.cliff(gain) if name in ("v1", "bbr") else None,
        "last_good_loss": observed.last_good,
        "collapsed_at_loss": observed.collapsed,
        "most_retransmits_at_loss": observed.most_retransmits,
    }


def error_summary(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the median errors; of BBRv1 first, for which alone the model was made."""
    groups: dict[str, tuple[str | None, ...]] = {
        "BBRv1": ("v1",),
        "BBRv2 and v3, which the model is not about": ("v2", "v3"),
        "BBR of unknown version": (None,),
    }
    lines = []
    for name, versions in groups.items():
        chosen = [each for each in comparisons if each.measured.version in versions]
        if chosen:
            lines.append(f"{name}: {_median_errors(chosen)}; n = {len(chosen)}")
    return lines


def _median_errors(comparisons: Sequence[Comparison]) -> str:
    points = statistics.median(100 * each.error for each in comparisons)
    text = f"median error {points:.1f} percentage points"
    relative = [each.relative_error for each in comparisons if each.relative_error is not None]
    return f"{text}, {statistics.median(relative):.0%} of what was measured" if relative else text


def _path(link: Link) -> dict[str, float]:
    return {
        "rtt_ms": 1e3 * link.rtt_s,
        "buffer_bdp": link.queue / link.bdp,
        "buffer_packets": link.queue,
    }
