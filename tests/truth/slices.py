"""A flow's time in slices, by its raw rows: per phase, per round, and what limited it meanwhile."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from tests.truth import raw
from tests.truth.facts import HEADERS, Flow
from tests.truth.limits import held_by, in_flight

Numbers = dict[str, float | None]
MODES = {0: "STARTUP", 1: "DRAIN", 3: "PROBE_RTT"}
CYCLE = {0: "PROBE_BW_UP", 1: "PROBE_BW_DOWN", 2: "PROBE_BW_CRUISE", 3: "PROBE_BW_REFILL"}
GAINS = {0: "PROBE_BW_1.25", 1: "PROBE_BW_0.75"}
BITS = {"": 1.0, "bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def phases(rows: pl.DataFrame) -> list[str]:
    """The phase that each row found."""
    v1 = "bbr.lt_use_bw" in rows.columns
    held = rows["bbr.lt_use_bw"] if v1 else [0] * rows.height
    names = []
    for mode, cycle, policed in zip(rows["bbr.mode"], rows["bbr.cycle_idx"], held, strict=True):
        in_v1 = "PROBE_BW_LT" if policed else GAINS.get(cycle, "PROBE_BW_1.0")
        names.append(MODES.get(mode) or (in_v1 if v1 else CYCLE[cycle]))
    return names


def rounds(rows: pl.DataFrame) -> list[int]:
    """The round that each row is in: one begins with the ACK after which bbr.round_start is set."""
    after = rows["bbr.round_start"].shift(-1).fill_null(0)
    starts = rows.filter((rows["kind"] == "M") & (after == 1))["ns"]
    found: list[int] = np.searchsorted(starts.to_numpy(), rows["ns"].to_numpy(), "right").tolist()
    return found


def begun(flow: Flow, by: str) -> tuple[npt.NDArray[np.int64], list[Hashable]]:
    """When each phase or round begins [ns], and its label; the last one goes on to the end."""
    rows = flow.after_init
    labels: list[Hashable] = [*(phases(rows) if by == "phase" else rounds(rows))]
    starts = [(int(rows["ns"][0]), labels[0])]
    if by == "round":
        starts = [(0, 0)]
    # A phase is found by the event after the one that began it; a round by the one itself.
    later = 1 if by == "phase" else 0
    for place, (old, new) in enumerate(pairwise(labels), 1):
        if old != new:
            starts.append((int(rows["ns"][place - later]), new))
    ns, named = zip(*starts, strict=True)
    return np.array(ns, dtype=np.int64), list(named)


def brought(rows: pl.DataFrame, labels: pl.Series) -> dict[object, Numbers]:
    """What the rows of each slice brought: counters that grew, and RTTs."""
    rtt = pl.when((pl.col("kind") == "M") & (pl.col("rs.rtt_us") > 0)).then("rs.rtt_us")
    table = pl.DataFrame(
        {
            "label": labels,
            "acked_bytes": raw.grown(rows, "tp.snd_una"),
            "delivered_packets": raw.grown(rows, "tp.delivered"),
            "lost_packets": raw.grown(rows, "tp.lost"),
            "rtt": rows.select(rtt.cast(pl.Float64).alias("rtt"))["rtt"],
        }
    )
    sums = ("acked_bytes", "delivered_packets", "lost_packets")
    aggregates = table.group_by("label").agg(
        *(pl.col(name).sum() for name in sums),
        rtt_min_us=pl.col("rtt").min(),
        rtt_mean_us=pl.col("rtt").mean(),
        rtt_p95_us=pl.col("rtt").quantile(0.95, "linear"),
    )
    return {row.pop("label"): row for row in aggregates.to_dicts()}


def held(rows: pl.DataFrame, labels: pl.Series) -> dict[object, Numbers]:
    """What held from each row to the next, the last one's slice included, weighted with time."""
    cwnd = pl.coalesce("out.tp.snd_cwnd", "tp.snd_cwnd")
    spans = rows.select(
        d=pl.col("ns").shift(-1) - pl.col("ns"), flight=in_flight(), cwnd=cwnd
    ).with_columns(label=labels)
    spans = spans.drop_nulls("d")
    aggregates = spans.group_by("label").agg(
        duration_s=pl.col("d").sum() / 1e9,
        inflight_packets=(pl.col("flight") * pl.col("d")).sum() / pl.col("d").sum(),
        cwnd_packets=(pl.col("cwnd") * pl.col("d")).sum() / pl.col("d").sum(),
    )
    return {row.pop("label"): row for row in aggregates.to_dicts()}


def by_phase(flow: Flow) -> dict[object, Numbers]:
    """Columns of metrics_by_phase: an ACK counts for the phase that it found."""
    rows = flow.after_init
    found = pl.Series(phases(rows))
    return _both(brought(rows, found), held(rows, found.shift(-1)))


def by_round(flow: Flow) -> dict[object, Numbers]:
    """Columns of metrics_by_round; number 0 begins with the recording, before init."""
    rows = flow.after_init
    labels = pl.Series(rounds(rows))
    found = held(rows, labels)
    if 0 in found:
        earlier = int(rows["ns"][0]) - int(flow.rows["ns"][0])
        found[0]["duration_s"] = (found[0]["duration_s"] or 0) + earlier / 1e9
    both = _both(brought(rows, labels), found)
    # The metrics' row goes on to the first packet, which may be earlier.
    both.get(0, {}).pop("duration_s", None)
    return both


def _both(
    brought: Mapping[object, Numbers], held: Mapping[object, Numbers]
) -> dict[object, Numbers]:
    found = {label: {**brought.get(label, {}), **numbers} for label, numbers in held.items()}
    for numbers in found.values():
        acked, seconds = numbers.get("acked_bytes"), numbers["duration_s"]
        if acked is not None and seconds:
            numbers["goodput_mbps"] = acked * 8 / 1e6 / seconds
    return found


def limits(flow: Flow) -> Numbers:
    """Shares of time in which the application, or the receiver's window, held the flow back."""
    held = held_by(flow)
    whole = float(held["d"].sum())
    return {
        "app_limited_share": float(held.filter(by="application")["d"].sum()) / whole,
        "rwnd_limited_share": float(held.filter(by="receive_window")["d"].sum()) / whole,
    }


def link(bundle: Path) -> list[tuple[int, float]]:
    """The link's rate [bit/s] from each time [ns of the events' clock] on; nothing: not known."""
    said = raw.manifest(bundle)
    found = re.fullmatch(r"([0-9.]+)([a-z]*)", (said.get("setup") or {}).get("rate", ""))
    if not found:
        return []
    steps = [(0, float(found[1]) * BITS[found[2]])]
    clock = (said.get("clocks") or {}).get("start", {"boottime_ns": 0, "monotonic_ns": 0})
    ahead = clock["boottime_ns"] - clock["monotonic_ns"]
    for change in said.get("changes") or []:
        change = json.loads(change) if isinstance(change, str) else change
        if change.get("what") == "rate":  # of a simulated run, whose clocks are one
            began = said["clocks"]["start"]["monotonic_ns"]
            steps.append((began + round(change["at_s"] * 1e9), float(change["value"])))
            continue
        part = re.fullmatch(r"([0-9.]+)([a-z]*)", change.get("rate", ""))
        if part:
            at = round(change["uptime_s"] * 1e9) - ahead
            steps.append((at, float(part[1]) * BITS[part[2]]))
    return steps


def capacity(steps: list[tuple[int, float]], a: int, b: int) -> float:
    """Bits that the link carries between two times."""
    ends = [at for at, _ in steps[1:]] + [b]
    return sum(
        rate * max(0, min(b, end) - max(a, at)) / 1e9
        for (at, rate), end in zip(steps, ends, strict=True)
    )


def of_link(flow: Flow, a: int, b: int) -> Numbers:
    """What was used of the link between two times, a sender's first and last, and kept above it."""
    rows, steps = flow.after_init, link(flow.of.folder)
    if not steps:
        return {"utilisation": None, "inflight_minus_bdp_packets": None}
    frames = raw.grown(rows, "tp.delivered") * (rows["tp.mss_cache"] + HEADERS)
    seconds = (int(flow.rows["ns"][-1]) - int(flow.rows["ns"][0])) / 1e9
    mean_rate = capacity(steps, a, b) / ((b - a) / 1e9)
    starts = np.array([at for at, _ in steps], dtype=np.int64)
    rates = np.array([rate for _, rate in steps])
    at_row: npt.NDArray[np.float64] = rates[np.searchsorted(starts, rows["ns"], "right") - 1]
    least = float(flow.rtts.min())  # type: ignore[arg-type]
    bdp = pl.Series(at_row) * least / 8e6 / (rows["tp.mss_cache"] + HEADERS)
    above = (rows.select(in_flight()).to_series() - bdp)[:-1]
    spans = rows["ns"].diff()[1:]
    return {
        "utilisation": float(frames.sum()) * 8 / seconds / mean_rate,
        "inflight_minus_bdp_packets": float((above * spans).sum()) / float(spans.sum()),
    }
