"""Numbers of findings about paths that do not fit the flows on them, by raw rows."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from tests.truth.facts import PROBE_BW, PROBE_RTT, Flow, Numbers
from tests.truth.limits import LEAST_CWND
from tests.truth.readers_bounds import priced
from tests.truth.readers_loss import probe_spans, resent
from tests.truth.readers_shares import together
from tests.truth.seconds import SECOND, of_flow, of_run


def overruns_shallow_buffer(flow: Flow) -> Numbers:
    rows = flow.after_init.select("bbr.mode").with_columns(
        flow.spans.select("ns", "lost", "delivered", "srtt")
    )
    inside = rows.filter(pl.col("bbr.mode") == PROBE_BW)
    marked = inside.filter(pl.col("lost") > 0)
    begins, ends = int(marked["ns"][0]), int(marked["ns"][-1])
    probes, own, early = probe_spans(flow), 0, 0
    for ns, packets, srtt in marked.select("ns", "lost", "srtt").iter_rows():
        last = max(((a, b) for a, b in probes if a < ns), default=None)
        own += packets if last and ns <= last[1] + 1500 * srtt else 0
        early += packets if ns <= (begins + ends) / 2 else 0
    lost = int(marked["lost"].sum())
    seconds = of_flow(flow)
    lossy = flow.spans.filter(pl.col("lost") > 0)["ns"]
    with_loss = {(ns - flow.zero) // SECOND for ns in lossy} & set(seconds)
    return {
        "loss_share": lost / (lost + int(inside["delivered"].sum())),
        "buffer_share": max(us for _, us in flow.of.waits_of_run) / flow.base_us,
        "dropped_packets": flow.of.dropped(),
        "lost_packets": lost,
        "t0_at": flow.at(begins),
        "t1_at": flow.at(ends),
        "begins_at": flow.at(begins),
        "ends_at": flow.at(ends),
        "aligned_share": own / lost,
        "early_packets": early,
        "late_packets": lost - early,
        "lossy_share": len(with_loss) / len(seconds),
        **resent(flow, lost),
    }


def both(flow: Flow, other: Flow) -> tuple[list[int], int, int, int]:
    """Seconds that both of these flows have whole while all senders were there, what each carried
    in them, and what the other missed.
    """
    _, a, b = together(flow)
    mine, its = of_flow(flow), of_flow(other)
    seconds = [
        n
        for n in range(a, b + 1)
        if n in mine and n in its and min(mine[n].covered, its[n].covered) > 0.99
    ]
    ours, theirs = (sum(each[n].bytes for n in seconds) for each in (mine, its))
    return seconds, ours, theirs, sum(its[n].short for n in seconds)


def least_beside(flow: Flow) -> tuple[float, Flow] | None:
    """How many times that of the flow that got the least this one carried, and which it is, of
    those with so much shorter a path.
    """
    found = []
    for other in flow.of.flows:
        if flow.base_us >= 1.5 * other.base_us:
            _, ours, theirs, _ = both(flow, other)
            found.append((ours / theirs, other))
    return max(found, key=lambda one: one[0], default=None)


def rtt_unfairness(flow: Flow) -> Numbers:
    """Beside the flow with so much shorter a path that got the least of this one's."""
    found = least_beside(flow)
    assert found
    ratio, other = found
    seconds, ours, theirs, short = both(flow, other)
    # All that took it: with a quarter more than that flow, of whose it got the least.
    takers = 0
    for one in flow.of.flows:
        beside = least_beside(one)
        if beside and beside[1] is other and beside[0] >= 1.25:
            takers += both(one, other)[1]
    begins, ends = max(flow.begins, other.begins), min(flow.ends, other.ends)
    return {
        "long_us": flow.base_us,
        "short_us": other.base_us,
        "share_ratio": ratio,
        "long_bps": 8 * ours / len(seconds),
        "short_bps": 8 * theirs / len(seconds),
        "t0_at": seconds[0],
        "t1_at": seconds[-1] + 1,
        "begins_at": begins,
        "ends_at": ends,
        "lost_packets": flow.total("tp.lost") + other.total("tp.lost"),
        **priced(flow, short * ours / takers),
    }


@dataclass
class _Half:
    """A flow in the second half of the time that all shared."""

    bytes: int
    lost: int
    sent: int
    least_us: int


def _second_half(flow: Flow) -> tuple[int, int, list[_Half]]:
    """From which second to which it is, and each flow in it."""
    _, a, b = together(flow)
    first = a + (b - a) // 2 + 1
    found = []
    for one in flow.of.flows:
        rows = one.between(one.zero + first * SECOND, one.zero + (b + 1) * SECOND)
        rtts = rows.filter((pl.col("kind") == "M") & (pl.col("rs.rtt_us") > 0))["rs.rtt_us"]
        lost = int(rows["lost"].sum())
        of_it = of_flow(one)
        size = sum(of_it[n].bytes for n in range(first, b + 1))
        found.append(_Half(size, lost, lost + int(rows["delivered"].sum()), int(rtts.min())))  # type: ignore[arg-type]
    return first, b, found


def _unfair(flow: Flow, first: int, b: int, half: list[_Half]) -> Numbers:
    sizes = [it.bytes for it in half]
    part = sum(sizes) / len(sizes)
    ranked = sorted(enumerate(sizes, 1), key=lambda one: (-one[1], one[0]))
    return {
        "shares": [number for place, size in ranked for number in (place, size / 1e6)],
        "flows_count": len(sizes),
        "jain_ratio": sum(sizes) ** 2 / (len(sizes) * sum(size**2 for size in sizes)),
        "lost_packets": sum(it.lost for it in half),
        "part_share": min(sizes) / part,
        "t0_at": first,
        "t1_at": b + 1,
        "begins_at": first,
        "ends_at": b + 1,
        **priced(flow, part - min(sizes)),
    }


def unfair_without_loss(flow: Flow) -> Numbers:
    first, b, half = _second_half(flow)
    return _unfair(flow, first, b, half) | {
        "rtt_us": min(it.least_us for it in half),
        "base_us": flow.base_us,
    }


def unfair_with_loss(flow: Flow) -> Numbers:
    first, b, half = _second_half(flow)
    believed = [float(one.believed_after.median()) for one in flow.of.flows]  # type: ignore[arg-type]
    return _unfair(flow, first, b, half) | {
        "loss_share": sum(it.lost for it in half) / sum(it.sent for it in half),
        "least_bps": 8 * min(believed),
        "most_bps": 8 * max(believed),
    }


def four_packets_each(first: Flow) -> Numbers:
    """In the seconds in which the flows that carried something are too many for the path."""
    flows = first.of.flows
    base, size = min(one.base_us for one in flows), max(max(one.segment_sizes) for one in flows)
    bdp = first.rate * base / 1e6 / size
    seconds = of_run(first.of)
    crowded = {}
    for n in {n for of_it in seconds for n in of_it}:
        pairs = zip(flows, seconds, strict=True)
        there = [one for one, of_it in pairs if n in of_it and of_it[n].bytes > 0]
        # By the product of each one's own path.
        if len(there) > 1 and sum(LEAST_CWND / (bdp * it.base_us / base) for it in there) > 1:
            crowded[n] = len(there)
    a, b = min(crowded), max(crowded)
    probe = []
    for one in flows:
        rows = one.spans.filter(
            (pl.col("bbr.mode") == PROBE_RTT)
            & (pl.col("kind") == "M")
            & (pl.col("rs.rtt_us") > 0)
            & ((pl.col("ns") - one.zero) // SECOND).is_between(a, b)
        )
        probe += rows["rs.rtt_us"].to_list()
    most = max(crowded.values())
    return {
        "flows_count": most,
        "floor_packets": LEAST_CWND * most,
        "bdp_packets": bdp,
        "probe_us": min(probe),
        "base_us": base,
        "t0_at": a,
        "t1_at": b + 1,
        "begins_at": a,
        "ends_at": b + 1,
        "cost_s": len(crowded) * (1 - base / min(probe)),
    }


READERS = {
    "overruns_shallow_buffer": overruns_shallow_buffer,
    "rtt_unfairness": rtt_unfairness,
    "unfair_without_loss": unfair_without_loss,
    "unfair_with_loss": unfair_with_loss,
    "four_packets_each": four_packets_each,
}
