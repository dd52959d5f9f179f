"""A flow's facts in words, with the places in time that they are about; renders, no more."""

from __future__ import annotations

from ....analyze.bbr.codes import Unit
from ....analyze.story.changes import GAP, SAMPLED, Change
from ....analyze.story.facts import (
    BoundHistory,
    CapturedStall,
    Cuts,
    EventTotals,
    GapTotals,
    LossEpisode,
    PacketTotals,
    Pauses,
    ProbeRtt,
    Probing,
    SampleTotals,
    Span,
    Stall,
    Startup,
    StoryFacts,
    Totals,
)
from ....analyze.story.sentences import bound_unit, milliseconds, value
from ....probes.base.plurals import plural, words_after
from ..quantities import clock, quantity, seconds, share, times
from .phrases import counted, phrase
from .prose import Prose, TimedText

# So many episodes, stalls, probes' ends and times in PROBE_RTT are listed one by one.
MOST_EPISODES, MOST_STALLS, MOST_ENDS, MOST_SPANS = 3, 3, 3, 6
# Pauses of a smaller share of the time are not told.
LEAST_PAUSED = 0.01
# What is shown around a change of a bound [ns].
_AROUND_NS = 250_000_000
# What is shorter is printed as an instant [ns].
_INSTANT_NS = 10_000_000


class StoryWords:
    """Puts a flow's facts into words; times count from the run's zero [ns, CLOCK_MONOTONIC]."""

    def __init__(self, facts: StoryFacts, zero_ns: int) -> None:
        self.facts, self.zero_ns = facts, zero_ns

    def paragraphs(self) -> list[Prose]:
        """Return the whole story: what was carried, what is missing, phases, losses, bounds."""
        return [[totals(self.facts.totals)], *self.beyond_totals()]

    def beyond_totals(self) -> list[Prose]:
        """Return the story without the totals, for where these are printed already."""
        facts = self.facts
        prose: list[Prose] = []
        prose += [self._gaps(facts.gaps)] if facts.gaps else []
        prose += [self._startup(facts.startup)] if facts.startup else []
        prose += [self._probing(facts.probing)] if facts.probing else []
        prose += [self._probe_rtt(facts.probe_rtt)] if facts.probe_rtt else []
        if facts.pauses and facts.pauses.total_ns >= LEAST_PAUSED * facts.totals.duration_ns:
            prose.append(self._pauses(facts.pauses))
        prose += [self._stalls()] if facts.stalls else []
        prose += [self._losses()] if facts.losses else []
        prose += self._bounds()
        prose += [self._sizes(facts.mss_changes)] if facts.mss_changes else []
        prose += [self._caps(facts.pacing_caps)] if facts.pacing_caps else []
        return prose

    def _when(self, ns: int, digits: int = 2) -> str:
        return clock(ns, self.zero_ns, digits)

    def _at(self, span: Span) -> TimedText:
        """The end of a span as a place that shows all of it."""
        return _around(f"at {self._when(span.end_ns)}", span)

    def _gaps(self, gaps: GapTotals) -> Prose:
        return [
            f"The recording lacks events in {plural(gaps.gap_count, 'place')}, "
            f"{seconds(gaps.hidden_ns / 1e9)} in all (grey in the charts, first ",
            _around(f"at {self._when(gaps.first.start_ns, 3)}", gaps.first, 50_000_000, 1.0),
            "). What BBR decided there is not known; everything outside is complete.",
        ]

    def _startup(self, startup: Startup) -> Prose:
        phase = startup.phase
        if phase.ended_by is None:
            return ["It was in ", _around("STARTUP", phase.span), " to the end of the recording."]
        prose: Prose = [_around("STARTUP", phase.span)]
        prose.append(f" lasted {seconds(phase.span.duration_ns / 1e9)}.{_why(phase.ended_by)}")
        if startup.drain:
            prose += [" ", _around("DRAIN", startup.drain)]
            prose.append(f" took {seconds(startup.drain.duration_ns / 1e9)}.")
        if startup.startup_count > 1:
            prose.append(f" It was in STARTUP {times(startup.startup_count)}.")
        return prose

    def _probing(self, probing: Probing) -> Prose:
        prose: Prose = [f"It probed for more bandwidth {times(probing.probe_count)}"]
        if probing.median_interval_ns is not None:
            prose.append(f", every {seconds(probing.median_interval_ns / 1e9)} at the median")
        prose.append(".")
        for end in probing.ends[:MOST_ENDS]:
            count = plural(end.probe_count, "probe")
            if end.name in (GAP, SAMPLED):
                what = "end" if end.name == GAP else "reason for the end"
                prose.append(f" The {what} of {count} was not recorded.")
                continue
            prose.append(f" {count} ended because {phrase(end.name)}, last ")
            prose.append(self._at(end.last.span))
            why = _why(end.last.ended_by)
            prose.append(f":{why}" if why else ".")
        rest = probing.ends[MOST_ENDS:]
        if rest:
            ways = counted((end.name, end.probe_count) for end in rest)
            prose.append(f" Other probes that ended: {ways}.")
        if probing.probe_count > sum(end.probe_count for end in probing.ends):
            prose.append(" The last probe went on to the end of the recording.")
        return prose

    def _probe_rtt(self, probe_rtt: ProbeRtt) -> Prose:
        spans = probe_rtt.spans
        whole = max(self.facts.totals.duration_ns, 1)
        prose: Prose = [
            f"It was in PROBE_RTT {times(len(spans))}, {seconds(probe_rtt.total_ns / 1e9)} in all"
            f" ({share(probe_rtt.total_ns / whole)} of the time):"
        ]
        for index, span in enumerate(spans[:MOST_SPANS]):
            began = f"at {self._when(span.start_ns)}"
            prose += [", " if index else " ", _around(began, span)]
        prose.append("." if len(spans) <= MOST_SPANS else " ...")
        return prose

    def _pauses(self, pauses: Pauses) -> Prose:
        whole = share(pauses.total_ns / max(self.facts.totals.duration_ns, 1))
        prose: Prose = [
            f"It paused with nothing in flight {times(pauses.pause_count)}, "
            f"{seconds(pauses.total_ns / 1e9)} in all ({whole} of the time)"
        ]
        if pauses.pause_count > 1:
            longest = seconds(pauses.longest.duration_ns / 1e9)
            prose.append(
                f", {seconds(pauses.median_ns / 1e9)} at the median; the longest, {longest}"
            )
        began = f"{self._when(pauses.longest.start_ns)} on"
        return [*prose, ", from ", _around(began, pauses.longest), "."]

    def _stalls(self) -> Prose:
        stalls = sorted(self.facts.stalls, key=lambda stall: -stall.span.duration_ns)
        prose: Prose = []
        for stall in sorted(stalls[:MOST_STALLS], key=lambda stall: stall.span.start_ns):
            prose += self._stall(stall)
        if len(stalls) > MOST_STALLS:
            rest = stalls[MOST_STALLS:]
            lost_s = sum(stall.span.duration_ns for stall in rest) / 1e9
            prose.append(f"It stalled {times(len(rest))} more, {seconds(lost_s)} in all.")
        return prose

    def _stall(self, stall: Stall | CapturedStall) -> Prose:
        prose: Prose = [f"Nothing was acknowledged for {seconds(stall.span.duration_ns / 1e9)} "]
        prose.append("at the flow's beginning, from " if stall.at_start else "from ")
        prose.append(_around(f"{self._when(stall.span.start_ns)} on", stall.span))
        if isinstance(stall, CapturedStall):
            outstanding = f"{quantity(stall.outstanding_bytes, 'B')} outstanding"
            again = f"{plural(stall.resent_count, 'segment')} sent again"
            return [*prose, f", with {outstanding}; meanwhile the capture saw {again}. "]
        prose.append(f", with {plural(stall.outstanding_packets, 'packet')} outstanding")
        if stall.timeout_count:
            prose.append(f": the retransmission timer expired {times(stall.timeout_count)}")
        prose.append(". ")
        return prose

    def _losses(self) -> Prose:
        episodes = self.facts.losses
        lost = sum(episode.lost_packets for episode in episodes)
        worst = sorted(episodes, key=lambda episode: -episode.lost_packets)[:MOST_EPISODES]
        count = plural(len(episodes), "episode")
        prose: Prose = [f"Packets were lost in {count}, {plural(lost, 'packet')} in all."]
        if len(episodes) > len(worst):
            prose.append(f" The {len(worst)} that lost most:")
        for episode in sorted(worst, key=lambda episode: episode.span.start_ns):
            prose += self._episode(episode)
        return prose

    def _episode(self, episode: LossEpisode) -> Prose:
        span = episode.span
        lost = plural(episode.lost_packets, "packet")
        if episode.delivered_packets:
            sent = episode.lost_packets + episode.delivered_packets
            lost += f" ({share(episode.lost_packets / sent)})"
        lost += " was lost" if episode.lost_packets == 1 else " were lost"
        if span.duration_ns < _INSTANT_NS:
            prose: Prose = [" ", _around(f"At {self._when(span.start_ns)}", span), f" {lost}"]
        else:
            until = f"{self._when(span.start_ns)} to {self._when(span.end_ns)}"
            lasted = seconds(span.duration_ns / 1e9)
            prose = [" From ", _around(until, span), f" ({lasted}) {lost}"]
        counts = (
            (episode.recovery_count, "fast recovery", "fast recoveries"),
            (episode.timeout_count, "retransmission timeout", "retransmission timeouts"),
            (episode.tlp_count, "repair by a tail loss probe", "repairs by a tail loss probe"),
            (episode.undo_count, "undoing of a false alarm", "undoings of false alarms"),
        )
        answers = [f"{n:,} {one if n == 1 else many}" for n, one, many in counts if n]
        prose += [f", with {', '.join(answers)}"] if answers else []
        prose.append(".")
        if episode.held_ns:
            v1 = self.facts.version == "v1"
            holders = "recovery" if v1 else "recovery, inflight_lo or bw_lo"
            prose.append(f" For {seconds(episode.held_ns / 1e9)} of it {holders} held sending back")
            low = episode.lowest_bw_lo
            if low is not None:
                prose.append(f" (bw_lo down to {value_of(low, low.new)})")
            prose.append(f"; {quantity(episode.delivered_bps, 'bit/s')} were delivered meanwhile.")
        return prose

    def _bounds(self) -> list[Prose]:
        facts = self.facts
        if facts.version is None:
            return []
        if facts.version == "v1":
            text = "BBR v1 has no inflight_hi, inflight_lo or bw_lo: only its window's gain bounds"
            return [[f"{text} it."]]
        if facts.inflight_hi is None:
            prose: Prose = [
                "inflight_hi was never set: no loss or mark showed this flow how much is too much."
            ]
        else:
            prose = self._history(facts.inflight_hi)
        return [prose, *([self._cuts(facts.inflight_lo)] if facts.inflight_lo else [])]

    def _history(self, history: BoundHistory) -> Prose:
        first, last = history.first, history.last
        prose: Prose = [
            f"{history.bound} was set to ",
            _change_place(value_of(first, first.new), first),
            f" at {self._when(first.ns)}.",
        ]
        prose += [_why(first)] if value_of(first, first.old) == "unset" else []
        if history.change_count:
            prose.append(f" After that it changed {times(history.change_count)}: ")
            prose.append(f"{counted(history.by_decision)}. The last change was ")
            prose.append(
                _change_place(f"{value_of(last, last.old)} to {value_of(last, last.new)}", last)
            )
            prose.append(f" at {self._when(last.ns)}.{_why(last)}")
        return prose

    def _cuts(self, cuts: Cuts) -> Prose:
        lowest = cuts.lowest
        value = value_of(lowest, lowest.new)
        return [
            f"Loss or ECN outside a probe set or cut {cuts.bound} {times(cuts.cut_count)}, lowest ",
            _change_place(f"{value} {words_after(value, 'packet|packets')}", lowest),
            f" at {self._when(lowest.ns)}.{_why(lowest)}",
        ]

    def _sizes(self, changes: tuple[Change, ...]) -> Prose:
        return self._moves("The segment size (MSS) changed", changes, " bytes")

    def _caps(self, changes: tuple[Change, ...]) -> Prose:
        return self._moves("The application set SO_MAX_PACING_RATE", changes, "")

    def _moves(self, head: str, changes: tuple[Change, ...], unit: str) -> Prose:
        prose: Prose = [f"{head} {times(len(changes))}:"]
        for change in changes[:MOST_SPANS]:
            prose += [
                " ",
                _change_place(f"at {self._when(change.ns)}", change),
                f" from {value_of(change, change.old)} to {value_of(change, change.new)}{unit},",
            ]
        prose[-1] = str(prose[-1]).removesuffix(",") + (
            "." if len(changes) <= MOST_SPANS else " ..."
        )
        return prose


def totals(facts: Totals) -> str:
    """Return what a flow carried, in words."""
    if isinstance(facts, EventTotals):
        return _event_totals(facts)
    return _sample_totals(facts) if isinstance(facts, SampleTotals) else _packet_totals(facts)


def _event_totals(facts: EventTotals) -> str:
    duration = seconds(facts.duration_ns / 1e9)
    # What was not recorded cannot be counted.
    least = "at least " if facts.incomplete else ""
    if not facts.delivered_packets:
        return f"It delivered nothing in the {duration} that were recorded."
    text = f"It delivered {least}{quantity(facts.delivered_bytes, 'B')} in {duration}: "
    text += f"{least}{quantity(facts.throughput_bps or 0, 'bit/s')} on average; max_bw reached "
    text += f"{quantity(facts.max_bw_bps or 0, 'bit/s')}."
    if facts.rtt_min_us is not None:
        text += f" The RTT was {facts.rtt_min_us / 1e3:.1f} ms at best; smoothed, it was "
        text += f"{(facts.srtt_mean_us or 0) / 1e3:.1f} ms on average and at most "
        text += f"{(facts.srtt_p95_us or 0) / 1e3:.1f} ms on 95 % of the ACKs."
    lost = facts.lost_packets
    if lost is None:
        text += " Losses were not recorded."
    elif lost:
        part = share(lost / (facts.delivered_packets + lost))
        text += f" {plural(lost, 'packet')} ({part}) {words_after(lost, 'was|were')} marked lost."
    else:
        text += " Nothing was lost."
    if facts.retransmitted_packets:
        text += f" {plural(facts.retransmitted_packets, 'packet was', 'packets were')} sent again."
    return text


def _sample_totals(facts: SampleTotals) -> str:
    duration = seconds(facts.duration_ns / 1e9)
    text = f"It was sampled {plural(facts.sample_count, 'time')} in {duration}."
    if facts.delivered_bytes:
        text += f" {quantity(facts.delivered_bytes, 'B')} were acknowledged in between"
        text += f": {quantity(facts.goodput_bps or 0, 'bit/s')} on average."
    if facts.retransmitted_packets is not None:
        text += f" {plural(facts.retransmitted_packets, 'packet was', 'packets were')} sent again."
    if facts.lost_packets is not None:
        text += f" {plural(facts.lost_packets, 'packet was', 'packets were')} marked lost."
    if facts.min_rtt_us is not None:
        text += f" BBR's min_rtt was {milliseconds(round(facts.min_rtt_us))} at the end."
    return text


def _packet_totals(facts: PacketTotals) -> str:
    text = f"{plural(facts.data_packets, 'segment')} with data passed the capture point in"
    text += f" {seconds(facts.duration_ns / 1e9)}"
    if facts.throughput_bps:
        text += f": {quantity(facts.throughput_bps, 'bit/s')} of whole frames"
    text += "."
    if facts.delivered_bytes:
        text += f" {quantity(facts.delivered_bytes, 'B')} were acknowledged,"
        text += f" {quantity(facts.goodput_bps or 0, 'bit/s')} on average."
    else:
        text += " No acknowledgement of them was captured."
    text += f" {plural(facts.retransmitted_packets, 'segment was', 'segments were')} sent again"
    text += f" ({share(facts.retransmitted_share)})"
    text += f" and {facts.reordered_packets:,} overtaken by others."
    if facts.rtt_p50_us is not None:
        text += (
            f" By the timestamps, the RTT was {facts.rtt_p50_us / 1e3:.1f} ms in the median,"
            f" {(facts.rtt_min_us or 0) / 1e3:.1f} ms at the least and"
            f" {(facts.rtt_p99_us or 0) / 1e3:.1f} ms in the 99th percentile."
        )
    if facts.ce_share:
        text += f" {share(facts.ce_share)} of the segments had a CE mark."
    return text


def _around(text: str, span: Span, least_ns: int = 20_000_000, part: float = 0.15) -> TimedText:
    """A place that shows a span with a little around it."""
    pad = max(least_ns, round(part * span.duration_ns))
    return TimedText(text, span.start_ns - pad, span.end_ns + pad)


def _change_place(text: str, change: Change) -> TimedText:
    return TimedText(text, change.ns - _AROUND_NS, change.ns + _AROUND_NS)


def _why(change: Change | None) -> str:
    """The reasons of a change, each after a space; empty if none is known."""
    return "".join(f" {reason.sentence}" for reason in change.reasons) if change else ""


def value_of(change: Change, number: str | int | None) -> str:
    """Return the old or new of a change: a phase, packets, bytes, or a rate with its unit."""
    if number is None or isinstance(number, str):
        return number or ""
    own = {"max_pacing_rate": Unit.RATE, "mss": Unit.COUNT}
    return value(own.get(change.about, bound_unit(change.about)), number, change.mss)
