"""Flows as they are now: each with its own numbers, whoever had its ends or its socket before."""

from __future__ import annotations

import json

import pytest
from bbrscope import fixtures
from bbrscope.analyze.live.follower import Followed, Follower
from bbrscope.analyze.live.live_events import LiveEvent, LiveFlow
from bbrscope.analyze.live.live_flows import GONE_NS, LiveFlows
from bbrscope.collect.samples.ss_log import samples

from tests.live_stream import batches

MS, MSS = 1_000_000, 1000
# A connection as ss shows it, which has acknowledged so many bytes.
SS = (
    "ESTAB 0 0 192.0.2.1:443 192.0.2.9:5555 sk:{cookie} bbr wscale:7,7 rto:204 rtt:12.5/1 "
    "mss:1448 cwnd:40 {acked} bbr:(bw:20000000bps,mrtt:10.5,pacing_gain:{gain},cwnd_gain:2) "
    "pacing_rate 25000000bps delivery_rate 1158400000bps app_limited"
)
ENDS = {"saddr": "192.0.2.1", "sport": 443, "daddr": "192.0.2.9", "dport": 5555}


def sent(flow: LiveFlow, ms: int, packets: int, first: int) -> LiveEvent:
    """An event after so many packets, whose sequence numbers began at `first`."""
    values = {
        "tp_delivered": packets,
        "tp_lost": 0,
        "tp_snd_una": (first + packets * MSS) % (1 << 32),
        "tp_mss_cache": MSS,
    }
    return LiveEvent(flow, "main", ms * MS, packets, values)


def test_a_flow_with_the_ends_of_an_earlier_one_has_rates_of_its_own() -> None:
    """A port is given again: the new connection's numbers begin elsewhere."""
    for sk in ("a", "b"):
        flows = LiveFlows()
        old, new = LiveFlow(1, "a", {**ENDS}), LiveFlow(2, sk, {**ENDS})
        events = [sent(old, ms, ms, 7) for ms in range(0, 1000, 100)]
        events += [sent(new, ms, ms - 1000, 3_000_000_000) for ms in range(1000, 1500, 100)]
        flows.take("v1", Followed(events, []))
        # A packet of 1000 bytes per ms.
        assert [round(flow.delivered_mbps or 0, 6) for flow in flows.flows][-1] == 8.0
        assert len(flows.flows) == (1 if sk == "a" else 2)


def test_a_rate_is_of_the_last_two_seconds_after_a_silence_too() -> None:
    """A packet of 1000 bytes per ms for 3 s, nothing for 20 s, and the same for a second again."""
    flows, flow = LiveFlows(), LiveFlow(1, "a", {**ENDS})
    before = [sent(flow, ms, ms, 7) for ms in range(0, 3000, 10)]
    after = [sent(flow, 20_000 + ms, ms, 7) for ms in range(3000, 4000, 10)]
    flows.take("v1", Followed(before, []))
    assert flows.flows[0].delivered_mbps == pytest.approx(8.0)
    flows.take("v1", Followed(after, []))
    assert flows.flows[0].delivered_mbps == pytest.approx(4.0)


def test_equal_ends_in_two_namespaces_are_two_flows() -> None:
    flows = LiveFlows()
    one, other = (LiveFlow(n, str(n), {**ENDS, "netns": n}) for n in (1, 2))
    events = [sent(flow, ms, ms, 7) for ms in range(0, 1000, 100) for flow in (one, other)]
    flows.take("v1", Followed(events, []))
    assert [flow.delivered_mbps for flow in flows.flows] == [8.0, 8.0]
    flows.forget(1000 * MS + GONE_NS)
    assert flows.flows == []


@pytest.mark.parametrize(("name", "few"), [("v1_x_lt", 3000), ("v2_x_spur", 4000)])
def test_what_is_shown_is_of_one_instant(name: str, few: int) -> None:
    """The pacing rate is that of the phase and the bandwidth beside it, the policer's included."""
    bundle, follower, flows, seen = fixtures.path(name), Follower(), LiveFlows(), 0
    follower.begin({**json.loads((bundle / "manifest.json").read_text()), "rung": "fentry"})
    gains = {"UP": 1.25, "DOWN": 0.75, "CRUISE": 1.0, "REFILL": 1.0, "LT": 1.0}
    for event in (event for batch in batches(bundle) for event in follower.take(batch).events):
        flows.take(follower.version, Followed([event], []))
        (now,) = (flow for flow in flows.flows if flow.flow == event.flow.name)
        phase, _, part = str(now.phase).rpartition("_")
        if event.kind != "main" or phase != "PROBE_BW":
            continue
        assert now.pacing_mbps is not None
        assert now.bw_mbps is not None
        gain = gains.get(part) or float(part)
        # bbr_bw_to_pacing_rate() takes 1 % off, and rounds.
        assert now.pacing_mbps == pytest.approx(now.bw_mbps * gain * 0.99, rel=2e-3), now
        seen += 1
    assert seen > few


def polled(flows: LiveFlows, second: int, acked: int, cookie: int = 9, gain: str = "1") -> None:
    """What ss shows after so many seconds; it leaves out a count that is 0."""
    shown = f"bytes_acked:{acked}" if acked else ""
    line = SS.format(acked=shown, cookie=cookie, gain=gain)
    flows.sample(samples([line]), second * 1000 * MS)


def test_ss_tells_a_rate_by_what_was_acknowledged_between_its_polls() -> None:
    """delivery_rate stays what it was at the last ACK, however long ago."""
    flows = LiveFlows()
    told = []
    for second, acked in enumerate((0, 1_000_000, 2_000_000, 2_000_000, 2_000_000)):
        polled(flows, second, acked)
        told.append(flows.flows[0].delivered_mbps)
    assert told == [None, 8.0, 8.0, 4.0, 0.0]
    # Another connection with the same ends has its own count.
    polled(flows, 5, 500, cookie=10)
    polled(flows, 6, 1500, cookie=10)
    assert [flow.delivered_mbps for flow in flows.flows] == [0.0, 0.008]


def test_ss_tells_a_story_of_the_phases_that_its_polls_saw() -> None:
    flows = LiveFlows()
    for second, gain in enumerate(("1.25", "1.25", "0.75")):
        polled(flows, second, 1000 * second, gain=gain)
    (flow,) = flows.flows
    assert flows.story(flow.flow) == [
        (2000 * MS, "PROBE_BW_1.25 > PROBE_BW_0.75 between two polls of ss")
    ]
