"""What iperf3 would have said of a simulated flow, as far as bbrscope reads it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from .simulation import Simulated
from .write_events import SERVER_PORT, local_port


def report(outcome: Simulated, number: int, rate_mbps: float) -> dict[str, Any]:
    """The report of flow `number`, from 1: totals, and the receiver's intervals of a second."""
    flow, row = outcome.setup.flows[number - 1], outcome.flows[number - 1]
    end_us = int(row["done_ns"]) // 1000 or min(flow.stop_us, outcome.setup.duration_us)
    seconds = max(end_us - flow.start_us, 1) / 1e6
    size = int(rate_mbps * 1e6 / 8 * (flow.stop_us - flow.start_us) / 1e6)
    received = {"bytes": size, "seconds": seconds, "bits_per_second": size * 8 / seconds}
    sent = {**received, "retransmits": int(row["retrans_segs"])}
    ports = {"local_port": local_port(number - 1), "remote_port": SERVER_PORT}
    intervals = list(_intervals(outcome, number - 1, end_us))
    return {
        "start": {"connected": [{"socket": 5, **ports}]},
        "intervals": [],
        "end": {"sum_sent": sent, "sum_received": received},
        "server_output_json": {"intervals": intervals, "end": {"sum_received": received}},
    }


def _intervals(outcome: Simulated, index: int, end_us: int) -> Iterator[dict[str, Any]]:
    """From full second to full second of the run; the first and the last may be shorter."""
    start_us = outcome.setup.flows[index].start_us
    got = [int(value) for value in outcome.reached["rcv_nxt"][:, index]]
    seconds = [(at_us, got[at_us // 1_000_000 - 1]) for at_us in _full(start_us, end_us)]
    mss = outcome.setup.path.mss
    points = [(start_us, 0), *seconds, (end_us, int(outcome.flows["rcv_nxt"][index]))]
    for (begin, before), (end, after) in pairwise(points):
        yield {
            "sum": {
                "start": (begin - start_us) / 1e6,
                "seconds": (end - begin) / 1e6,
                "bytes": (after - before) * mss,
            }
        }


def _full(start_us: int, end_us: int) -> range:
    """The full seconds between two times, in us."""
    return range((start_us // 1_000_000 + 1) * 1_000_000, end_us, 1_000_000)
