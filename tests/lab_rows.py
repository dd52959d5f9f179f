"""Rows of the lab's tables as if a scenario had been run: what each flow reached is made up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from bbrscope.collect.lab.lab_points import FlowSpec, LabPoint
from bbrscope.collect.lab.scenario import Scenario, override, points, quick
from bbrscope.collect.store.arrow import registered
from bbrscope.collect.store.store import Store

Row = dict[str, Any]


def share(point: LabPoint, flow: FlowSpec, version: str | None) -> float:
    """An equal part of the bottleneck for each flow, as payload."""
    return 0.95 * point.path.rate_bps / len(point.flows)


def fill(
    store: Store,
    scenario: Scenario,
    goodput: Callable[[LabPoint, FlowSpec, str | None], float] = share,
    first: int = 1,
    **changed: Any,
) -> int:
    """Add a run per point of both forms, of the first repetition, long axes thinned.

    Those with `bbr` are added as v1 and as v3. Returns the next free run_id.
    """
    rows: dict[str, list[Row]] = {"runs": [], "lab_runs": [], "lab_flows": [], "lab_intervals": []}
    run_id = first
    for form in (quick(scenario), thinned(scenario)):
        for point in points(form):
            if point.rep > 1:
                continue
            for version in ("v1", "v3"):
                if version == "v3" and all(flow.cc != "bbr" for flow in point.flows):
                    continue
                _add(rows, point, run_id, version, goodput)
                rows["lab_runs"][-1].update(changed)
                run_id += 1
    insert(store, rows)
    return run_id


def thinned(scenario: Scenario) -> Scenario:
    """Keep the first, the middle and the last value of each axis but the congestion control."""
    axes = {
        name: [values[0], values[len(values) // 2], values[-1]]
        for name, values in scenario.sweep.items()
        if len(values) > 3 and name != "cc"
    }
    return override(scenario, axes)


def insert(store: Store, rows: dict[str, list[Row]]) -> None:
    """Add rows to tables by their names."""
    for table, added in rows.items():
        if added:
            with registered(store.con, "added", pa.Table.from_pylist(added)):
                store.con.execute(f"INSERT INTO {table} BY NAME FROM added")


def _add(
    rows: dict[str, list[Row]],
    point: LabPoint,
    run_id: int,
    version: str,
    goodput: Callable[[LabPoint, FlowSpec, str | None], float],
) -> None:
    path, seconds = point.path, point.duration_us / 1e6
    run = f"{point.run_name(version)}.{run_id}"[-100:]
    rows["runs"].append({"run_id": run_id, "run": run, "version": version, "events": 0})
    rows["lab_runs"].append(
        {
            "run_id": run_id,
            "scenario": point.scenario,
            "title": point.title,
            "source": point.source,
            "rep": point.rep,
            "seed": point.seed,
            "quick": point.quick,
            "place": "vm",
            "kernel": f"made up with {version}",
            "params": "{}",
            "duration_s": seconds,
            "rate_bps": path.rate_bps,
            "rtt_us": path.rtt_us,
            "bdp_bytes": path.bdp_bytes,
            "buffer_bytes": path.buffer_bytes,
            "loss": path.loss,
            "aqm": path.aqm,
            "flows": len(point.flows),
            "changes": _changes(point),
            "cpu_busy": 0.5,
            "valid": True,
        }
    )
    for flow in point.flows:
        made = {"bbr": version, "bbr2": "v2"}.get(flow.cc)
        rate = goodput(point, flow, made)
        start, stop = flow.start_us / 1e6, flow.stop_us / 1e6
        rows["lab_flows"].append(
            {
                "run_id": run_id,
                "flow_no": flow.flow_no,
                "cc": flow.cc,
                "bbr_version": made,
                "kind": flow.kind,
                "start_s": start,
                "stop_s": stop,
                "goodput_bps": rate,
                "bytes": int(rate * (stop - start) / 8),
                "retransmits": 100 * flow.flow_no,
                "completion_s": 8 * flow.size_bytes / rate if flow.size_bytes else None,
                "extra_rtt_us": flow.extra_rtt_us,
            }
        )
        length = max(1.0, (stop - start) / 20)
        rows["lab_intervals"] += [
            {
                "run_id": run_id,
                "flow_no": flow.flow_no,
                "t_s": start + length * number,
                "seconds": length,
                "goodput_bps": rate,
            }
            for number in range(int((stop - start) / length))
        ]


def _changes(point: LabPoint) -> str:
    import json

    told: Iterable[Row] = (
        {"at_s": change.at_us / 1e6, "what": change.what, "value": change.value}
        for change in point.changes
    )
    return json.dumps(list(told))
