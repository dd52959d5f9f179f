"""The facts of a flow's story: typed records that text, HTML and JSON render alike.

A number's unit is the end of its field's name: `_ns` times and durations (times are
CLOCK_MONOTONIC), `_us` durations, `_packets`, `_bytes`, `_bps` bits per second, `_share`, `_count`.
A `Change` refers to its event, and has numbers in kernel units.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ..bbr.kernel_units import U32_MAX
from .changes import Change

# Phases in which a flow asks for more bandwidth than it has.
_PROBES = ("PROBE_BW_UP", "PROBE_BW_1.25")
# What lowers inflight_lo without loss or ECN: bbr_start_bw_probe_cruise().
_CAPPED = "INFLO_CAP_HI"


@dataclass(frozen=True)
class Span:
    """From when to when."""

    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        """How long."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Phase:
    """A phase of a flow; `ended_by` is the change that ended it, None at the recording's end."""

    name: str
    span: Span
    ended_by: Change | None


@dataclass(frozen=True)
class EventTotals:
    """What a flow carried, from kernel events; None: not known.

    Attributes:
        incomplete: the recording lacks events, so that amounts are the least there can have been.
        max_bw_bps: the largest that the bandwidth filter held.
        rtt_min_us: the smallest sample; srtt_mean_us, srtt_p95_us: of the smoothed RTT over ACKs.
        retransmitted_packets: sent again, where that was counted.
    """

    duration_ns: int
    incomplete: bool
    delivered_packets: int | None
    delivered_bytes: int
    throughput_bps: float | None
    max_bw_bps: float | None
    rtt_min_us: int | None
    srtt_mean_us: float | None
    srtt_p95_us: float | None
    lost_packets: int | None
    retransmitted_packets: int | None


@dataclass(frozen=True)
class SampleTotals:
    """What a flow carried between its samples; None: not known. min_rtt_us is BBR's, at the end."""

    duration_ns: int
    sample_count: int
    delivered_bytes: int | None
    goodput_bps: float | None
    retransmitted_packets: int | None
    lost_packets: int | None
    min_rtt_us: float | None
    max_bw_bps: float | None


@dataclass(frozen=True)
class PacketTotals:
    """What a flow carried past a capture point; None: not known. RTTs are from TCP timestamps."""

    duration_ns: int
    data_packets: int
    throughput_bps: float | None
    delivered_bytes: int | None
    goodput_bps: float | None
    retransmitted_packets: int
    retransmitted_share: float
    reordered_packets: int
    rtt_p50_us: float | None
    rtt_min_us: float | None
    rtt_p99_us: float | None
    ce_share: float | None


Totals = EventTotals | SampleTotals | PacketTotals


@dataclass(frozen=True)
class GapTotals:
    """Where the recording lacks events."""

    gap_count: int
    hidden_ns: int
    first: Span


@dataclass(frozen=True)
class Startup:
    """STARTUP, the first time, what ended it, and how often the flow was in it."""

    phase: Phase
    drain: Span | None
    startup_count: int


@dataclass(frozen=True)
class ProbeEnd:
    """What ended probes for bandwidth: a decision, GAP, SAMPLED; None: not known."""

    name: str | None
    probe_count: int
    last: Phase


@dataclass(frozen=True)
class Probing:
    """The probes for bandwidth; what ended them, the most frequent first."""

    probe_count: int
    median_interval_ns: int | None
    ends: tuple[ProbeEnd, ...]


@dataclass(frozen=True)
class ProbeRtt:
    """The times in PROBE_RTT."""

    total_ns: int
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class BoundHistory:
    """How a bound was first set, how often it changed after that, by what, and the last time."""

    bound: str
    first: Change
    change_count: int
    by_decision: tuple[tuple[str | None, int], ...]
    last: Change


@dataclass(frozen=True)
class Cuts:
    """How often a short-term bound was set or cut, and when it was at its lowest."""

    bound: str
    cut_count: int
    lowest: Change


@dataclass(frozen=True)
class LossEpisode:
    """A time in which packets were lost again and again, until a recovery ended for good.

    Attributes:
        span: from the first loss or recovery to the last.
        lost_packets, delivered_packets: in it.
        recovery_count: how often TCP entered the state Recovery.
        timeout_count: how often the retransmission timer expired, backed-off ones included.
        undo_count: how often TCP found that it had been wrong.
        tlp_count: losses repaired by a tail loss probe (recorded of v3 alone).
        delivered_bps: payload acknowledged in it.
        held_ns: so long recovery, inflight_lo or bw_lo limited sending.
        lowest_bw_lo: the change that brought bw_lo to its least; None: it was not cut.
    """

    span: Span
    lost_packets: int
    delivered_packets: int
    recovery_count: int
    timeout_count: int
    undo_count: int
    tlp_count: int
    delivered_bps: float
    held_ns: int
    lowest_bw_lo: Change | None


@dataclass(frozen=True)
class Stall:
    """A time in which data was outstanding and nothing was acknowledged."""

    span: Span
    outstanding_packets: int
    timeout_count: int
    at_start: bool


@dataclass(frozen=True)
class CapturedStall:
    """A time in which captured data was outstanding and no ACK of new data was captured."""

    span: Span
    outstanding_bytes: int
    resent_count: int
    at_start: bool


@dataclass(frozen=True)
class Pauses:
    """Times with nothing in flight, each from the ACK of all that was sent to the next data.

    Time in which pacing held that data is no pause.
    """

    pause_count: int
    total_ns: int
    median_ns: int
    longest: Span


@dataclass(frozen=True)
class Limit:
    """What limited sending (view `binding`), and its share of the time."""

    binding: str
    time_share: float


@dataclass(frozen=True)
class StoryFacts:
    """What sums up a flow's story; what a rung cannot know is None or empty."""

    version: str | None
    totals: Totals
    gaps: GapTotals | None = None
    startup: Startup | None = None
    probing: Probing | None = None
    probe_rtt: ProbeRtt | None = None
    inflight_hi: BoundHistory | None = None
    inflight_lo: Cuts | None = None
    bw_lo: Cuts | None = None
    losses: tuple[LossEpisode, ...] = ()
    stalls: tuple[Stall | CapturedStall, ...] = ()
    mss_changes: tuple[Change, ...] = ()
    pacing_caps: tuple[Change, ...] = ()
    limits: tuple[Limit, ...] = ()
    pauses: Pauses | None = None


def phases_of(changes: Sequence[Change], last_ns: int) -> list[Phase]:
    """Return the phases that changes begin and end; the last one lasts until `last_ns`."""
    begins = [change for change in changes if change.is_phase]
    ends: list[Change | None] = [*begins[1:], None]
    return [
        Phase(str(change.new), Span(change.ns, end.ns if end else max(last_ns, change.ns)), end)
        for change, end in zip(begins, ends, strict=True)
    ]


def startup_of(phases: Sequence[Phase]) -> Startup | None:
    """Return how STARTUP went; None: the flow was never in it."""
    startups = [phase for phase in phases if phase.name == "STARTUP"]
    if not startups:
        return None
    drain = next((phase.span for phase in phases if phase.name == "DRAIN"), None)
    return Startup(startups[0], drain, len(startups))


def probing_of(phases: Sequence[Phase]) -> Probing | None:
    """Return how the flow probed for bandwidth; None: it never did."""
    probes = [phase for phase in phases if phase.name in _PROBES]
    if not probes:
        return None
    intervals = [b.span.start_ns - a.span.start_ns for a, b in pairwise(probes)]
    ended = [phase for phase in probes if phase.ended_by is not None]
    names = Counter(phase.ended_by.name for phase in ended if phase.ended_by is not None)
    last = {phase.ended_by.name: phase for phase in ended if phase.ended_by is not None}
    return Probing(
        len(probes),
        round(median(intervals)) if len(intervals) > 1 else None,
        tuple(ProbeEnd(name, count, last[name]) for name, count in names.most_common()),
    )


def probe_rtt_of(phases: Sequence[Phase]) -> ProbeRtt | None:
    """Return the times in PROBE_RTT; None: there were none."""
    spans = tuple(phase.span for phase in phases if phase.name == "PROBE_RTT")
    return ProbeRtt(sum(span.duration_ns for span in spans), spans) if spans else None


def history_of(bound: str, changes: Sequence[Change]) -> BoundHistory | None:
    """Return how a bound moved; None: it never did."""
    moves = [change for change in changes if change.about == bound]
    if not moves:
        return None
    by_decision = Counter(change.name for change in moves[1:]).most_common()
    return BoundHistory(bound, moves[0], len(moves) - 1, tuple(by_decision), moves[-1])


def cuts_of(bound: str, changes: Sequence[Change]) -> Cuts | None:
    """Return how often loss or ECN set a short-term bound or cut it; None: never."""
    cuts = [
        change
        for change in changes
        if change.about == bound and change.name != _CAPPED and _lowers(change)
    ]
    if not cuts:
        return None
    return Cuts(bound, len(cuts), min(cuts, key=lambda change: int(change.new or 0)))


def _lowers(change: Change) -> bool:
    """Tell whether the bound is lower now. One held at what the last round delivered may rise.

    Unset is above each value: setting a bound lowers it, too.
    """
    if change.new is None:
        return False
    return int(change.new) < (U32_MAX if change.old is None else int(change.old))
