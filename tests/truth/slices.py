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
from tests.truth.facts import HEADERS, Flow, Recording
from tests.truth.limits import held_by, in_flight

Numbers = dict[str, float | None]
MODES = {0: "STARTUP", 1: "DRAIN", 3: "PROBE_RTT"}
CYCLE = {0: "PROBE_BW_UP", 1: "PROBE_BW_DOWN", 2: "PROBE_BW_CRUISE", 3: "PROBE_BW_REFILL"}
GAINS = {0: "PROBE_BW_1.25", 1: "PROBE_BW_0.75"}
SECOND = 1_000_000_000
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


def brought(flow: Flow, labels: pl.Series) -> dict[object, Numbers]:
    """What the rows of each slice brought: counters that grew, RTTs and rate samples."""
    rows = flow.after_init
    is_ack = pl.col("kind") == "M"
    sampled = is_ack & (pl.col("rs.delivered") > 0) & (pl.col("rs.interval_us") > 0)
    mbps = pl.col("rs.delivered") * pl.col("tp.mss_cache") * 8 / pl.col("rs.interval_us")
    counters = {"acked": "snd_una", "delivered": "delivered", "lost": "lost"}
    marked = "tp.delivered_ce" in rows.columns
    if marked:
        counters["ce"] = "delivered_ce"
    table = rows.select(
        label=labels,
        rtt=pl.when(is_ack & (pl.col("rs.rtt_us") > 0)).then("rs.rtt_us").cast(pl.Float64),
        mbps=pl.when(sampled).then(mbps),
        kind="kind",
        **{name: raw.grown(rows, f"tp.{field}") for name, field in counters.items()},
    )
    rtt, lost, delivered = pl.col("rtt"), pl.col("lost").sum(), pl.col("delivered").sum()
    aggregates = table.group_by("label").agg(
        acked_bytes=pl.col("acked").sum(),
        delivered_packets=delivered,
        lost_packets=lost,
        loss_rate=pl.when(lost + delivered > 0).then(lost / (lost + delivered)),
        ce_rate=pl.when(delivered > 0).then(pl.col("ce").sum() / delivered if marked else None),
        rtt_min_us=rtt.min(),
        rtt_mean_us=rtt.mean(),
        queue_delay_us=(rtt.mean() - flow.base_us).clip(lower_bound=0),
        delivery_rate_mbps=pl.col("mbps").median(),
        delivery_rate_max_mbps=pl.col("mbps").max(),
        acks=is_ack.sum(),
        **{f"rtt_p{n}_us": rtt.quantile(n / 100, "linear") for n in (50, 95, 99)},
    )
    return {row.pop("label"): row for row in aggregates.to_dicts()}


def held(flow: Flow, labels: pl.Series) -> dict[object, Numbers]:
    """What held from each row to the next, the last one's slice included, weighted with time."""
    rows, by = flow.after_init, held_by(flow)["by"]
    spans = rows.select(
        label=labels,
        d=pl.col("ns").shift(-1) - pl.col("ns"),
        inflight_packets=in_flight(),
        cwnd_packets=pl.coalesce("out.tp.snd_cwnd", "tp.snd_cwnd"),
        pacing_mbps=pl.coalesce("out.sk.sk_pacing_rate", "sk.sk_pacing_rate").cast(pl.Float64)
        * 8e-6,
        inflight_minus_bdp_packets=above_bdp(flow),
    ).drop_nulls("d")
    limited = {"app_limited_share": "application", "rwnd_limited_share": "receive_window"}
    spans = spans.with_columns(**{name: by == what for name, what in limited.items()})
    means = (name for name in spans.columns if name not in ("label", "d"))
    aggregates = spans.group_by("label").agg(
        duration_s=pl.col("d").sum() / 1e9,
        **{name: (pl.col(name) * pl.col("d")).sum() / pl.col("d").sum() for name in means},
    )
    found = {row.pop("label"): row for row in aggregates.to_dicts()}
    if not link(flow.of.folder):
        for numbers in found.values():
            numbers["inflight_minus_bdp_packets"] = None
    return found


def above_bdp(flow: Flow) -> pl.Series:
    """What is in flight at each row above what the link carries in the path's round trip."""
    rows, steps = flow.after_init, link(flow.of.folder) or [(0, 0.0)]
    starts = np.array([at for at, _ in steps], dtype=np.int64)
    rates = np.array([rate for _, rate in steps])
    at_row: npt.NDArray[np.float64] = rates[np.searchsorted(starts, rows["ns"], "right") - 1]
    bdp = pl.Series(at_row) * flow.base_us / 8e6 / (rows["tp.mss_cache"] + HEADERS)
    return rows.select(in_flight()).to_series() - bdp


def by_phase(flow: Flow) -> dict[object, Numbers]:
    """Columns of metrics_by_phase: an ACK counts for the phase that it found."""
    found = pl.Series(phases(flow.after_init))
    both = _both(brought(flow, found), held(flow, found.shift(-1)))
    return _with(both, sampled(flow, "phase"))


def by_round(flow: Flow) -> dict[object, Numbers]:
    """Columns of metrics_by_round; number 0 begins with the recording, before init."""
    rows = flow.after_init
    labels = pl.Series(rounds(rows))
    found = held(flow, labels)
    if 0 in found:
        earlier = int(rows["ns"][0]) - int(flow.rows["ns"][0])
        found[0]["duration_s"] = (found[0]["duration_s"] or 0) + earlier / 1e9
    both = _both(brought(flow, labels), found)
    # The metrics' row goes on to the first packet, which may be earlier.
    both.get(0, {}).pop("duration_s", None)
    return _with(both, sampled(flow, "round"))


def by_second(flow: Flow) -> dict[object, Numbers]:
    """Columns of metrics_by_second: of the run's clock; a row counts for the second it is in."""
    labels = (flow.after_init["ns"] - flow.zero) // SECOND
    found = _both(brought(flow, labels), held(flow, labels))
    begins, ends = flow.begins, flow.ends
    for second, numbers in found.items():
        assert isinstance(second, int)
        covered = min(ends, second + 1) - max(begins, second)
        # The metrics' row begins with the first packet, which may be earlier.
        del numbers["duration_s"]
        numbers["goodput_mbps"] = (numbers["acked_bytes"] or 0) * 8e-6 / covered
    return found


def sampled(flow: Flow, by: str) -> dict[object, Numbers]:
    """The bottleneck queue's mean backlog at the link's rate [us] in each phase or round."""
    starts, labels = begun(flow, by)
    waits = [(at, us) for at, us in flow.of.drains if starts[0] <= at < int(flow.rows["ns"][-1])]
    found: dict[object, list[float]] = {label: [] for label in labels}
    for at, us in waits:
        found[labels[int(np.searchsorted(starts, at, "right")) - 1]].append(us)
    # The metrics' first round goes on to the first packet, which may be earlier.
    return {
        label: {}
        if label == 0
        else {"queue_sampled_us": sum(those) / len(those) if those else None}
        for label, those in found.items()
    }


def _with(found: dict[object, Numbers], more: Mapping[object, Numbers]) -> dict[object, Numbers]:
    return {label: numbers | more[label] for label, numbers in found.items()}


def _both(
    brought: Mapping[object, Numbers], held: Mapping[object, Numbers]
) -> dict[object, Numbers]:
    found = {label: {**brought.get(label, {}), **numbers} for label, numbers in held.items()}
    for numbers in found.values():
        if not numbers.pop("acks", 0):
            numbers["rwnd_limited_share"] = None  # no ACK told of a window
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
        if change.get("what") == "rate":  # of the lab: counted from when its traffic was started
            began = round(said["traffic_start_uptime_s"] * 1e9) - ahead
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


def used(flow: Flow, by: str, a: int, b: int) -> dict[object, Numbers]:
    """Frames that each slice's rows told to have come, of what the link carried meanwhile; between
    a sender's first sign and its last, which may be packets without events."""
    rows, steps = flow.after_init, link(flow.of.folder)
    first, last = int(flow.rows["ns"][0]), int(flow.rows["ns"][-1])
    frames = raw.grown(rows, "tp.delivered") * (rows["tp.mss_cache"] + HEADERS)
    if by == "second":
        labels = ((rows["ns"] - flow.zero) // SECOND).to_list()
        spans = [
            (n, max(a, flow.zero + n * SECOND), min(b, flow.zero + (n + 1) * SECOND))
            for n in sorted(set(labels))
        ]
    else:
        labels = phases(rows) if by == "phase" else rounds(rows)
        starts, names = begun(flow, by)
        ends = [*(int(ns) for ns in starts[1:]), last]
        spans = list(zip(names, (int(ns) for ns in starts), ends, strict=True))
    sent: dict[object, int] = {}
    for label, size in zip(labels, frames, strict=True):
        sent[label] = sent.get(label, 0) + int(size)
    could: dict[object, float] = {}
    whole: dict[object, int] = {}
    seen: dict[object, int] = {}
    for label, begin, end in spans:
        could[label] = could.get(label, 0) + (capacity(steps, begin, end) if steps else 0)
        whole[label] = whole.get(label, 0) + end - begin
        seen[label] = seen.get(label, 0) + max(0, min(end, last) - max(begin, first))
    return {
        label: {
            "utilisation": sent[label] * 8 * whole[label] / (could[label] * seen[label])
            if could[label] and seen[label]
            else None
        }
        for label in could
        # The metrics' first round goes on to the first packet, which may be earlier.
        if label in sent and (by, label) != ("round", 0)
    }


def of_link(flow: Flow, a: int, b: int) -> Numbers:
    """What was used of the link between two times, a sender's first and last, and kept above it."""
    rows, steps = flow.after_init, link(flow.of.folder)
    if not steps:
        return {"utilisation": None, "inflight_minus_bdp_packets": None}
    frames = raw.grown(rows, "tp.delivered") * (rows["tp.mss_cache"] + HEADERS)
    seconds = (int(flow.rows["ns"][-1]) - int(flow.rows["ns"][0])) / 1e9
    mean_rate = capacity(steps, a, b) / ((b - a) / 1e9)
    spans = rows["ns"].diff()[1:]
    return {
        "utilisation": float(frames.sum()) * 8 / seconds / mean_rate,
        "inflight_minus_bdp_packets": float((above_bdp(flow)[:-1] * spans).sum())
        / float(spans.sum()),
    }


def of_queue(of: Recording, a: int, b: int) -> Numbers:
    """What the bottleneck queue's samples between two times say, and what it sent until the next.

    Nothing where it was not sampled: those are columns without a value.
    """
    samples = [(round(at * 1e9) - of.ahead_ns, row) for at, row in raw.queue(of.folder)]
    inside = [place for place, (ns, _) in enumerate(samples) if a <= ns <= b]
    if not inside or not of.rates:
        return {}
    backlogs = np.array([int(samples[place][1]["backlog_bytes"]) for place in inside])
    first, last = samples[inside[0]], samples[min(inside[-1] + 1, len(samples) - 1)]
    sent = int(last[1]["sent_bytes"]) - int(first[1]["sent_bytes"])
    waits = [us for ns, us in of.drains if a <= ns <= b]
    return {
        "backlog_mean_bytes": float(backlogs.mean()),
        "standing_queue_bytes": float(np.quantile(backlogs, 0.05)),
        "queue_delay_mean_us": sum(waits) / len(waits),
        "utilisation": sent * 8 / capacity(link(of.folder), first[0], last[0]),
        "dropped_packets": int(last[1]["dropped"]) - int(first[1]["dropped"]),
    }
