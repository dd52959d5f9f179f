"""What the flows of a simulated run reached."""

from __future__ import annotations

from .simulation import Simulated, goodput_mbps

Row = dict[str, object]


def flows_of(outcome: Simulated) -> list[Row]:
    """One row per flow: Mbit/s of payload, and packets marked lost, dropped and sent again."""
    rates = goodput_mbps(outcome)
    rows: list[Row] = []
    for number, flow in enumerate(outcome.setup.flows):
        row, tp = outcome.flows[number], outcome.events["tp"][number]
        rows.append(
            {
                "flow": number + 1,
                "cc": flow.variant or flow.cc,
                "goodput_mbps": rates[number],
                "lost": int(tp["lost"]),
                "dropped": int(row["dropped"]),
                "retransmitted": int(row["retrans_segs"]),
            }
        )
    return rows
