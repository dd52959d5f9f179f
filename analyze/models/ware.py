"""How much BBRv1 leaves to loss-based flows: the in-flight-cap model of Ware et al. (IMC 2019).

Equation numbers are the paper's. N BBR flows share a drop-tail queue with any number of loss-based
flows, which the model does not count. The queue is full, so shares of it are shares of the link.
BBR raises its share until what it may have in flight, cwnd_gain x bandwidth x RTT estimate, stops
it; the RTT estimate comes from PROBE_RTT, when the others' packets alone are in the queue.

Assumed: BBRv1, one RTT for all, constant capacity, all start together, the state long after that.
A run of a minute in a deep buffer is not there yet, so that the model's share is above what such a
run measures.
"""

from __future__ import annotations

from dataclasses import dataclass

PACKET_BYTES = 1500
# BBRv1's constants: packets kept in flight in PROBE_RTT, how long at least, and how often.
PROBE_RTT_PACKETS = 4
PROBE_RTT_S = 0.2
PROBE_RTT_EVERY_S = 10
CWND_GAIN = 2.0
# What the paper measured over, after convergence with CUBIC.
DURATION_S = 400.0


@dataclass(frozen=True)
class Link:
    """The bottleneck.

    Attributes:
        capacity: c, packets/s.
        rtt_s: l, the round trip without any queue.
        queue: q, packets that fit into the buffer; the actual number, not a nominal one.
    """

    capacity: float
    rtt_s: float
    queue: float

    @property
    def bdp(self) -> float:
        """c x l, packets."""
        return self.capacity * self.rtt_s


@dataclass(frozen=True)
class Prediction:
    """What the model says of N BBR flows against loss-based ones.

    Attributes:
        p_raw: share of the loss-based flows by equation 9; below 0, BBR takes everything.
        p: the same, at least 0.
        rtt_est_s: what BBR takes for the round trip (7).
        btlbw: what all BBR flows together take for the bandwidth (2), packets/s.
        inflight_cap: what all BBR flows together may have in flight (8), packets.
        probe_time_s: time in PROBE_RTT (11).
        bbr_share: BBR's share of the link (10).
        simple_share: the same for one BBR flow in a very deep buffer (5), without PROBE_RTT.
    """

    p_raw: float
    p: float
    rtt_est_s: float
    btlbw: float
    inflight_cap: float
    probe_time_s: float
    bbr_share: float
    simple_share: float


def predict(
    link: Link, flows: int, gain: float = CWND_GAIN, duration_s: float = DURATION_S
) -> Prediction:
    """Return the extended model's prediction for `flows` BBR flows, N."""
    raw = loss_based_share(link, flows, gain)
    # The paper leaves open whether PROBE_RTT still counts where BBR takes everything: here it does.
    p = max(raw, 0.0)
    probing = probe_time(link, duration_s)
    return Prediction(
        p_raw=raw,
        p=p,
        rtt_est_s=rtt_estimate(link, flows, p),
        btlbw=bandwidth_estimate(link, p),
        inflight_cap=inflight_cap(link, flows, p, gain),
        probe_time_s=probing,
        bbr_share=bbr_share(p, probing, duration_s),
        simple_share=1 - simple_loss_based_share(gain),
    )


def bandwidth_estimate(link: Link, p: float) -> float:
    """Equation 2: packets/s, for all BBR flows together."""
    return (1 - p) * link.capacity


def simple_rtt_estimate(link: Link, p: float) -> float:
    """Equation 3: seconds; one BBR flow, and a queue far above the BDP."""
    return p * link.queue / link.capacity


def simple_inflight_cap(link: Link, p: float, gain: float = CWND_GAIN) -> float:
    """Equations 1 and 4: packets; one BBR flow, and a queue far above the BDP."""
    return gain * simple_rtt_estimate(link, p) * bandwidth_estimate(link, p)


def simple_loss_based_share(gain: float = CWND_GAIN) -> float:
    """Equation 5: where the simple cap equals what BBR has in the queue.

    >>> simple_loss_based_share(2), simple_loss_based_share(4)
    (0.5, 0.25)
    """
    return 1 / gain


def rtt_estimate_alone(link: Link, flows: int) -> float:
    """Equation 6: seconds, for N BBR flows with nobody else.

    In PROBE_RTT each keeps four packets; once 4N exceed the BDP, their own queue is in the RTT.
    """
    return max(link.rtt_s, PROBE_RTT_PACKETS * flows / link.capacity)


def inflight_cap_alone(link: Link, flows: int, gain: float = CWND_GAIN) -> float:
    """Equations 1 and 6: packets, for all N BBR flows together."""
    return gain * link.capacity * rtt_estimate_alone(link, flows)


def rtt_estimate(link: Link, flows: int, p: float) -> float:
    """Equation 7: seconds, beside loss-based flows.

    As printed it adds 4N packets of queue even where they would fit into the BDP, unlike (6).
    """
    return (p * link.queue + PROBE_RTT_PACKETS * flows) / link.capacity + link.rtt_s


def inflight_cap(link: Link, flows: int, p: float, gain: float = CWND_GAIN) -> float:
    """Equation 8: packets, for all BBR flows together."""
    return gain * bandwidth_estimate(link, p) * rtt_estimate(link, flows, p)


def loss_based_share(link: Link, flows: int, gain: float = CWND_GAIN) -> float:
    """Equation 9: where the cap (8) equals BBR's part of the queue and of the path.

    Below 0: BBR takes everything. With a gain other than 2, derived in the same way.
    """
    depth = link.queue / link.bdp
    return 1 / gain - (1 - 1 / gain) / depth - PROBE_RTT_PACKETS * flows / link.queue


def probe_time(link: Link, duration_s: float = DURATION_S) -> float:
    """Equation 11: seconds in PROBE_RTT: each time, the full queue must drain first."""
    once = link.queue / link.capacity + PROBE_RTT_S + link.rtt_s
    return once * duration_s / PROBE_RTT_EVERY_S


def bbr_share(p: float, probe_time_s: float, duration_s: float = DURATION_S) -> float:
    """Equation 10: BBR's share of the link; what it does not send in PROBE_RTT goes to others."""
    return (1 - p) * max(duration_s - probe_time_s, 0.0) / duration_s
