"""Every flow as it is now: phase, rates, volumes, what limits, losses, RTT, the last decision."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from ...collect.events.addresses import flow_name
from ...collect.samples.load_samples import Sample
from ..bbr.codes import CODES
from . import live_limits as limits
from .follower import Followed
from .live_events import LiveEvent, LiveFlow
from .live_limits import UNSET

# Rates and losses are those of this much time.
RATE_NS = 2_000_000_000
# A flow of which nothing came for so long is no longer shown.
GONE_NS = 10_000_000_000
STORY = 200
# A time [ns, CLOCK_MONOTONIC], and packets delivered, packets lost and bytes acknowledged by then.
Mark = tuple[int, int, int, int]


@dataclass
class FlowNow:
    """One flow; None is what this rung does not tell. Volumes are packets, rates Mbit/s payload.

    `limit` is a word of the view binding; `loss` the share of packets lost of those sent lately;
    `decision` the last one that changed something, in words, `decided_ns` when.
    """

    flow: str
    phase: str | None = None
    limit: str | None = None
    delivered_mbps: float | None = None
    bw_mbps: float | None = None
    pacing_mbps: float | None = None
    in_flight: int | None = None
    cwnd: int | None = None
    inflight_hi: int | None = None
    inflight_lo: int | None = None
    srtt_ms: float | None = None
    min_rtt_ms: float | None = None
    loss: float | None = None
    lost: int | None = None
    decision: str | None = None
    decided_ns: int | None = None
    ns: int = 0

    def as_dict(self) -> dict[str, object]:
        """The flow for JSON."""
        return asdict(self)


@dataclass
class _Track:
    """What is remembered of a flow: its last values, its progress, and its story."""

    now: FlowNow
    values: dict[str, int] = field(default_factory=dict)
    marks: deque[Mark] = field(default_factory=deque)
    story: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=STORY))

    def grown(self, mark: Mark) -> Mark:
        """Take a mark; return by how much each of its numbers grew in the last RATE_NS or so."""
        self.marks.append(mark)
        while len(self.marks) > 2 and self.marks[1][0] <= mark[0] - RATE_NS:
            self.marks.popleft()
        first = self.marks[0]
        return (mark[0] - first[0], mark[1] - first[1], mark[2] - first[2], mark[3] - first[3])


class LiveFlows:
    """Takes what a follower brings; `flows` are those that are alive."""

    def __init__(self) -> None:
        # By the flow's number, or by its name and cookie where ss tells of it.
        self._tracks: dict[int | str, _Track] = {}
        self._sockets: dict[str, int] = {}

    @property
    def flows(self) -> list[FlowNow]:
        """The flows, in order of appearance."""
        return [track.now for track in self._tracks.values()]

    def story(self, flow: str) -> list[tuple[int, str]]:
        """Times [ns, CLOCK_MONOTONIC] and sentences of a flow's last changes, oldest first."""
        stories = [track.story for track in self._tracks.values() if track.now.flow == flow]
        return list(stories[-1]) if stories else []

    def take(self, version: str, followed: Followed) -> None:
        """Take events and decisions."""
        for event in followed.events:
            self._event(version, event)
        for decision in followed.decisions:
            code, track = CODES[decision.code], self._tracks.get(decision.event.flow.number)
            if track is not None and code.change and code.about != "round":
                words = decision.words
                track.story.append((decision.event.ns, words))
                track.now.decision, track.now.decided_ns = words, decision.event.ns

    def _track(self, flow: LiveFlow) -> _Track:
        """A flow's track; the flow before it on its socket is no more."""
        if flow.number not in self._tracks:
            self._tracks.pop(self._sockets.get(flow.sk, flow.number), None)
            self._sockets[flow.sk] = flow.number
            self._tracks[flow.number] = _Track(FlowNow(flow.name))
        return self._tracks[flow.number]

    def _event(self, version: str, event: LiveEvent) -> None:
        track = self._track(event.flow)
        values, before, now = event.values, track.values, track.now
        now.ns = event.ns
        phase = limits.phase_of(version, values)
        if phase:
            if now.phase and phase != now.phase and event.kind == "sample":
                track.story.append((event.ns, f"{now.phase} > {phase}"))
            now.phase = phase
        if before and event.kind in ("main", "sample"):
            now.limit = limits.limit_of(version, before, values, event.ns)
        self._volumes(now, values)
        self._rates(track, event)
        track.values = values

    def _volumes(self, now: FlowNow, values: dict[str, int]) -> None:
        mss = values.get("tp_mss_cache", 0)
        # All as the event found it: of BBR's own state a row shows no later time.
        now.cwnd = values.get("tp_snd_cwnd", now.cwnd)
        now.in_flight = limits.in_flight(values)
        now.inflight_hi = _if_set(values.get("bbr_inflight_hi"))
        now.inflight_lo = _if_set(values.get("bbr_inflight_lo"))
        if "tp_srtt_us" in values:
            now.srtt_ms = values["tp_srtt_us"] / 8e3
        if (rtt := _if_set(values.get("bbr_min_rtt_us"))) is not None:
            now.min_rtt_ms = rtt / 1e3
        now.bw_mbps = limits.bandwidth(values) * mss * 8 / (1 << 24)
        pacing = values.get("sk_pacing_rate")
        if pacing is not None and pacing < 1 << 63:
            now.pacing_mbps = pacing * 8 / 1e6

    def _rates(self, track: _Track, event: LiveEvent) -> None:
        """Delivery rate and losses since the oldest mark."""
        values = event.values
        delivered, lost = values.get("tp_delivered"), values.get("tp_lost")
        if delivered is None or lost is None:
            return
        # Packets may be smaller than a segment: bytes are those of the sequence numbers.
        grown = track.grown((event.ns, delivered, lost, values.get("tp_snd_una", 0)))
        _, packets, gone, acked = (n % (1 << 32) for n in grown)
        if grown[0] > 0:
            # Without a row in between nothing was acknowledged: the oldest mark's is what there was
            # at the beginning of the time, however long before it the flow fell silent.
            track.now.delivered_mbps = acked * 8e3 / min(grown[0], RATE_NS)
        track.now.lost = gone
        track.now.loss = gone / (packets + gone) if packets + gone else 0.0

    def sample(self, samples: Iterable[Sample], now_ns: int) -> None:
        """Take the output of one call of ss: all that the rung inet_diag tells."""
        for one in samples:
            ends, values = one.ends, one.values
            known = {"saddr": ends.local_address, "sport": ends.local_port}
            known |= {"daddr": ends.remote_address, "dport": ends.remote_port}
            name = flow_name({end: value for end, value in known.items() if value is not None}, "")
            # The cookie tells connections apart that have the same ends one after the other.
            track = self._tracks.setdefault(f"{name} {one.cookie}", _Track(FlowNow(name)))
            now = track.now
            now.ns = now_ns
            phase = values.get("phase") or now.phase
            if now.phase and phase != now.phase:
                track.story.append((now_ns, f"{now.phase} > {phase} between two polls of ss"))
            now.phase = phase
            now.cwnd, now.in_flight = values.get("snd_cwnd"), values.get("in_flight")
            now.inflight_hi, now.inflight_lo = values.get("inflight_hi"), values.get("inflight_lo")
            # Not ss's delivery_rate: that is of the last ACK, and stays when nothing is sent.
            # ss leaves out a count that is 0.
            span, _, _, acked = track.grown((now_ns, 0, 0, values.get("bytes_acked") or 0))
            now.delivered_mbps = acked * 8e3 / span if span else None
            now.bw_mbps = _scaled(values.get("bw"), 1e6)
            now.pacing_mbps = _scaled(values.get("sk_pacing_rate"), 1e6)
            now.srtt_ms = _scaled(values.get("srtt_us"), 1e3)
            now.min_rtt_ms = _scaled(values.get("min_rtt_us"), 1e3)
            now.limit = "application" if values.get("app_limited") else None

    def forget(self, now_ns: int) -> None:
        """Drop flows of which nothing came for long; rates of those that stand still are 0."""
        for key, track in list(self._tracks.items()):
            if track.now.ns < now_ns - GONE_NS:
                del self._tracks[key]
            elif track.now.ns < now_ns - RATE_NS and track.now.delivered_mbps is not None:
                track.now.delivered_mbps = 0.0
        self._sockets = {sk: n for sk, n in self._sockets.items() if n in self._tracks}


def _if_set(value: int | None) -> int | None:
    return None if value in (None, UNSET) else value


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value / scale
