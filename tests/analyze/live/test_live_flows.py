"""Flows as they are now: each with its own numbers, whoever had its ends or its socket before."""

from __future__ import annotations

from bbrscope.analyze.live.follower import Followed
from bbrscope.analyze.live.live_events import LiveEvent, LiveFlow
from bbrscope.analyze.live.live_flows import GONE_NS, LiveFlows

MS, MSS = 1_000_000, 1000
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


def test_equal_ends_in_two_namespaces_are_two_flows() -> None:
    flows = LiveFlows()
    one, other = (LiveFlow(n, str(n), {**ENDS, "netns": n}) for n in (1, 2))
    events = [sent(flow, ms, ms, 7) for ms in range(0, 1000, 100) for flow in (one, other)]
    flows.take("v1", Followed(events, []))
    assert [flow.delivered_mbps for flow in flows.flows] == [8.0, 8.0]
    flows.forget(1000 * MS + GONE_NS)
    assert flows.flows == []
