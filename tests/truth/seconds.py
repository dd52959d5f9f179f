"""Each second of a run: who was there, what they carried, and what was missing to their parts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from tests.truth import raw
from tests.truth.facts import Flow, Recording
from tests.truth.limits import held_by

SECOND = 1_000_000_000


@dataclass
class Second:
    """A flow's second of the run's clock; a link is divided among those that are there.

    Attributes:
        bytes: acknowledged; covered: how much of it the flow was there [s].
        senders: who sent then; full: what its part of the link carries meanwhile [bytes], what
            those with little data leave of the link being divided among the senders and itself.
    """

    bytes: int
    covered: float
    senders: int
    full: float

    @property
    def short(self) -> float:
        return max(0.0, self.full - self.bytes)


def number(of: Recording) -> pl.Expr:
    """The second of the run's clock that a row is in."""
    return (pl.col("ns") - of.flows[0].zero) // SECOND


@lru_cache(maxsize=8)
def others(of: Recording) -> list[dict[int, int]]:
    """Payload of each second, of each sender whose events were not recorded."""
    zero, last = of.flows[0].zero, max(int(flow.rows["ns"][-1]) for flow in of.flows)
    found = []
    for connection in of.unrecorded:
        sent = connection.sent.filter(pl.col("payload") > 0)
        sent = sent.filter((pl.col("ns") >= zero) & (pl.col("ns") <= last))
        sums = sent.group_by(second=(pl.col("ns") - zero) // SECOND).agg(pl.col("payload").sum())
        found.append({int(second): int(size) for second, size in sums.iter_rows()})
    for parts in reports(of):
        by: dict[int, int] = {}
        for begin, lasted, size in parts:
            middle = begin + lasted // 2
            if zero <= middle <= last:
                by[(middle - zero) // SECOND] = by.get((middle - zero) // SECOND, 0) + size
        found.append(by)
    return found


@lru_cache(maxsize=8)
def reports(of: Recording) -> list[list[tuple[int, int, int]]]:
    """What iperf3's receiver counted of each sender of a lab without rows or packets: from when
    [ns of the events' clock], for how long [ns] and how many bytes."""
    if not of.lab or (of.folder / "packets.pcap.zst").is_file():
        return []
    recorded = {flow.spec.get("flow_no") for flow in of.flows}
    start = raw.manifest(of.folder)["traffic_start_uptime_s"] * 1e9 - of.ahead_ns
    found = []
    for plan in of.lab["flows"]:
        if plan["flow_no"] in recorded:
            continue
        told = json.loads((of.folder / f"iperf{plan['flow_no']}.json").read_text())
        parts = [each["sum"] for each in told["server_output_json"]["intervals"]]
        begins = start + plan["start_s"] * 1e9
        found.append(
            [
                (round(begins + it["start"] * 1e9), round(it["seconds"] * 1e9), it["bytes"])
                for it in parts
            ]
        )
    return found


def waiting(unacknowledged: dict[int, int]) -> set[int]:
    """The seconds at whose ends a flow had packets that nobody had acknowledged, by what it had at
    its last row until then."""
    found, now = set(), 0
    for second in range(min(unacknowledged), max(unacknowledged) + 1):
        now = unacknowledged.get(second, now)
        if now:
            found.add(second)
    return found


@lru_cache(maxsize=8)
def of_run(of: Recording) -> list[dict[int, Second]]:
    """The seconds of each flow, by their numbers."""
    carried, rates, waits = [], [], []
    for flow in of.flows:
        rows = flow.spans.with_columns(
            carries=flow.carries.fill_null(flow.believed.max()),
        )
        sums = rows.group_by(second=number(of)).agg(
            pl.col("acked").sum(), pl.col("carries").mean(), pl.col("tp.packets_out").last()
        )
        by = {int(row[0]): row[1:] for row in sums.iter_rows()}
        carried.append({second: int(it[0]) for second, it in by.items()})
        rates.append({second: float(it[1]) for second, it in by.items()})
        waits.append(waiting({second: int(it[2]) for second, it in by.items()}))
    most = max(sum(sums_of.values()) for sums_of in [*carried, *others(of)])
    beside = [sums_of for sums_of in others(of) if sum(sums_of.values()) >= 0.01 * most]
    little = [sums_of for sums_of in others(of) if sums_of not in beside]
    if sum(sum(sums_of.values()) for sums_of in little) < 0.01 * most:
        little = []
    whole: dict[int, int] = {}
    for sums_of in [*carried, *beside]:
        for second, size in sums_of.items():
            whole[second] = whole.get(second, 0) + size

    def sends(n: int, second: int) -> bool:
        waits_all_of_it = second in waits[n] and of.flows[n].covered(second) > 0.99
        return carried[n].get(second, 0) > 0 or waits_all_of_it

    def senders(second: int) -> int:
        there = sum(sends(n, second) for n in range(len(of.flows)))
        return there + sum(sums_of.get(second, 0) > 0 for sums_of in beside)

    found = []
    for n, flow in enumerate(of.flows):
        first, last = (flow.at(flow.after_init["ns"][place]) for place in (0, -1))
        seconds = {}
        for second in range(int(first), int(last) + 1):
            count, rate = senders(second), rates[n].get(second, flow.rate)
            shared_by = count if sends(n, second) else count + 1
            if of.rates:
                taken = sum(sums_of.get(second, 0) for sums_of in little)
                part = max(0.0, rate - taken) / shared_by
            else:
                part = (
                    min(rate, max(whole.values()) / shared_by)
                    if shared_by > 1 or of.policed
                    else rate
                )
            covered, count = flow.covered(second), count or 1
            seconds[second] = Second(carried[n].get(second, 0), covered, count, covered * part)
        found.append(seconds)
    return found


def of_flow(flow: Flow) -> dict[int, Second]:
    return of_run(flow.of)[flow.of.flows.index(flow)]


def everyone(flow: Flow) -> dict[int, int]:
    """What all senders carried in each second [bytes]."""
    found: dict[int, int] = {}
    for seconds in of_run(flow.of):
        for second, it in seconds.items():
            found[second] = found.get(second, 0) + it.bytes
    for sums in others(flow.of):
        for second, size in sums.items():
            found[second] = found.get(second, 0) + size
    return found


def missing(flow: Flow, *limits: str) -> float:
    """What was missing [bytes] in seconds, by how much of them some limits held."""
    return sum(missing_by_second(flow, *limits).values())


def missing_by_second(flow: Flow, *limits: str) -> dict[int, float]:
    """What was missing [bytes] in each second, by how much of it some limits held.

    Until the last moment of a second in which the application had nothing to send, all is its own.
    """
    seconds, found = of_flow(flow), {}
    named = held_by(flow).with_columns(second=number(flow.of))
    for (second,), rows in named.group_by("second"):
        idle = rows.filter((pl.col("by") == "application") & (pl.col("d") > 0))
        later = rows.filter(pl.col("ns") >= ((idle["ns"] + idle["d"]).max() or 0))
        part = later.filter(pl.col("by").is_in(limits))["d"].sum()
        if "application" in limits:
            part += rows["d"].sum() - later["d"].sum()
        short = seconds[int(second)].short
        found[int(second)] = short * part / (rows["d"].sum() or 1)
    return found


def held(flow: Flow, *limits: str) -> float:
    """For how long [s] some limits held."""
    return int(held_by(flow).filter(pl.col("by").is_in(limits))["d"].sum()) / 1e9
