"""What the flows of a simulated run reached."""

from __future__ import annotations

from .simulation import Simulated, goodput_mbps

Row = dict[str, object]


def flows_of(outcome: Simulated) -> list[Row]:
    """One row per flow: Mbit/s of payload, and packets marked lost, dropped and sent again.

    `flow` is the number that a store gives it (None: its bundle has no events of it); where nothing
    was written, its place in the set-up.
    """
    rates = goodput_mbps(outcome)
    places = outcome.began or range(len(outcome.setup.flows))
    numbers = {place: number for number, place in enumerate(places, 1)}
    rows: list[Row] = []
    for number, flow in enumerate(outcome.setup.flows):
        row, tp = outcome.flows[number], outcome.events["tp"][number]
        rows.append(
            {
                "flow": numbers.get(number),
                "cc": flow.variant or flow.cc,
                "goodput_mbps": rates[number],
                "lost": int(tp["lost"]),
                "dropped": int(row["dropped"]),
                "retransmitted": int(row["retrans_segs"]),
            }
        )
    return rows
