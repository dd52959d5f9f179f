"""Which recorded flow is which flow of the lab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..lab.lab_results import LabRows


def recorded_flows(
    its: LabRows, run: Mapping[str, Any], flows: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of lab_flows, with what was recorded of them.

    A flow of the lab is the flow from its sender's port; BBR's own first event says best when it
    began (iperf3 tells whole seconds). Of a simulated one the lab knows whether it was a variant,
    which is of no version.

    Args:
        its: what the lab says.
        run: the row of table runs.
        flows: the rows of table flows.
    """
    start_ns = run["traffic_start_ns"]
    by_port: dict[int, Mapping[str, Any]] = {}
    for flow in sorted(flows, key=lambda flow: flow["events"]):
        if flow["events"] and flow["local_port"] is not None:
            by_port[flow["local_port"]] = flow
    simulated = any(one["place"] == "simulation" for one in its.runs)
    for row in its.flows:
        seen = by_port.get(row.get("local_port", -1))
        if seen is None or start_ns is None:
            yield row
            continue
        began = (seen["first_ns"] - start_ns) / 1e9
        stop_s = row.get("stop_s")
        yield row | {
            "flow": seen["flow"],
            "bbr_version": row["bbr_version"] if simulated else run["version"],
            "stop_s": None if stop_s is None else stop_s - row["start_s"] + began,
            "start_s": began,
        }
