"""Which signals the charts show of a flow that only packets tell of (rung capture)."""

from __future__ import annotations

from dataclasses import replace

from .flow_panels import FLOW_PANELS, LOSS, RTT, VOLUMES
from .signals import Panel, Signal

_IN_FLIGHT = replace(
    VOLUMES,
    title="Data in flight at the capture point",
    unit="kB",
    signals=(
        Signal(
            "pkt_inflight",
            "in flight",
            "payload that had passed the capture point and was not acknowledged there, when the"
            " newest segment passed (tshark)",
            "in_flight",
            1e-3,
            where="in_flight IS NOT NULL",
            source="segments",
            colour="inflight",
        ),
    ),
)
_LOSS = replace(
    LOSS,
    title="Sent again, and ECN",
    signals=(
        Signal(
            "pkt_again",
            "sent again",
            "a segment below what had passed the capture point already: sent again, or overtaken",
            "again::INTEGER",
            shape="stem",
            source="segments",
            colour="retrans_out",
        ),
        Signal(
            "pkt_ce",
            "CE mark",
            "a segment that passed the capture point with a CE mark",
            "ce::INTEGER",
            shape="stem",
            source="segments",
            colour="ce",
        ),
        Signal(
            "pkt_ece",
            "ECE flag",
            "an ACK with the ECE flag: echoes CE marks, or under AccECN a bit of their count",
            "ece::INTEGER",
            shape="stem",
            source="acks",
            colour="ecn_alpha",
        ),
    ),
)
# First what the table and the story tell of: its queue may lie before the capture point.
_RTT = replace(
    RTT,
    signals=(
        Signal(
            "echo_rtt",
            "RTT by timestamps",
            "from when the sender stamped data to the ACK that echoes the stamp",
            "rtt_us",
            1e-3,
            "line",
            source="echoes",
            width=1.0,
            colour="rtt",
            round_trip="rtt_us",
        ),
        *(signal for signal in RTT.signals if signal.source == "acks"),
    ),
)
_OWN = {panel.key: panel for panel in (_IN_FLIGHT, _LOSS, _RTT)}


def _panel(panel: Panel) -> Panel:
    """A chart of a flow without events: what packets tell."""
    from_packets = (s for s in panel.signals if s.source in ("segments", "acks", "wire"))
    return _OWN.get(panel.key) or panel.of(tuple(from_packets))


CAPTURED_PANELS: tuple[Panel, ...] = tuple(map(_panel, FLOW_PANELS))
