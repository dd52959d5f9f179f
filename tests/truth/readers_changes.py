"""Numbers of findings about paths whose round trip changed, by raw rows."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise

import polars as pl

from tests.truth.facts import Flow, Numbers
from tests.truth.readers_bounds import priced
from tests.truth.seconds import SECOND, missing_by_second, number, of_flow, others


def trips(flow: Flow) -> list[tuple[int, float, float]]:
    """Of each sample of the queue, the first ACK after it that a packet can have which came then
    and left after the wait that it shows: when it came [ns], its round trip and that wait [us].

    None is later than that by more than its round trip.
    """
    acks = flow.acks.filter(pl.col("rs.rtt_us") > 0).select("ns", "rs.rtt_us").rows()
    times, found = [ns for ns, _ in acks], []
    for at, wait in flow.of.waits_of_run:
        left = at + round(1000 * wait)
        place = bisect_left(times, left)
        if place < len(acks) and acks[place][0] - left <= 1000 * acks[place][1]:
            found.append((acks[place][0], float(acks[place][1]), wait))
    return sorted(found)


def min_rtt_stale(flow: Flow) -> Numbers:
    """Whole seconds in which min_rtt was less than four fifths of the least round trip, while the
    queue held less than half of the difference, or its samples leave as much to the path; and what
    of the seconds around them is as long without the wait of each packet."""
    least = {
        int(second): int(us) for second, us in flow.by_second.select("second", "least").iter_rows()
    }
    events = flow.spans.group_by(second=number(flow.of)).agg(
        pl.col("bbr.min_rtt_us").max(), first=pl.col("ns").min(), last=pl.col("ns").max()
    )
    shortest: dict[int, float] = {}
    waits: dict[int, list[float]] = {}
    for at, rtt, wait in trips(flow):
        second = (at - flow.zero) // SECOND
        shortest[second] = min(shortest.get(second, rtt), rtt - wait)
        waits.setdefault(second, []).append(wait)
    seconds = of_flow(flow)
    found = []
    for second, believed, first, last in events.sort("second").iter_rows():
        around = [least[n] for n in range(second - 1, second + 2) if n in least]
        # One of whole milliseconds is by a timestamp.
        most = 1.25 * (believed + (1000 if believed % 1000 == 0 else 0)) if believed else 0
        if not around or not believed or second not in waits or min(around) <= most:
            continue
        wait = statistics.fmean(waits[second])
        there = [shortest[n] for n in range(second - 1, second + 2) if n in shortest]
        path = min(around) if wait < (min(around) - believed) / 2 else min(there, default=0)
        if second in shortest or path == min(around):
            own = least if path == min(around) else shortest
            kept = (int(second), believed, first, last, wait, own[second])
            found += [kept] if path > most else []
    # Of an even number of seconds, the one before the middle.
    middle = sorted(found, key=lambda each: each[1] / each[5])[(len(found) - 1) // 2]
    spells = spells_of(flow, [(it[0], it[2], it[3]) for it in found])
    within = [flow.spans.filter(pl.col("ns").is_between(*spell)) for spell in spells]
    carried = sum(
        int(rows.filter(pl.col("ns") > spell[0])["acked"].sum())
        for spell, rows in zip(spells, within, strict=True)
    )
    least_us = [
        rows.filter((pl.col("rs.rtt_us") > 0) & (pl.col("ns") < spell[1]) & (pl.col("kind") == "M"))
        for spell, rows in zip(spells, within, strict=True)
    ]
    fell = fallen(flow, *spells[-1])
    parts = [part for spell in spells for part in parts_of(flow, *spell)]
    later = parts_of(flow, spells[-1][1], int(flow.zero + 1e9 * fell["back_at"])) if fell else []
    short = missing_by_second(flow, "cwnd_target", "pacing_max_bw")
    late = sum(part * short.get(n, 0) for n, part in later)
    if fell:
        missing_then = sum(part * seconds[n].short for n, part in later)
        fell["back_share"] = 1 - missing_then / sum(part * seconds[n].full for n, part in later)
    begins, ends = flow.at(spells[0][0]), flow.at(spells[-1][1])
    return {
        "held_s": sum(b - a for a, b in spells) / SECOND,
        "believed_us": middle[1],
        "least_us": min(int(rows["rs.rtt_us"].min()) for rows in least_us),  # type: ignore[arg-type]
        "path_us": middle[5],
        "believed_ratio": middle[1] / middle[5],
        "t0_at": begins,
        "t1_at": ends,
        "begins_at": begins,
        "ends_at": ends,
        "wait_us": statistics.fmean(each[4] for each in found),
        "used": [100 * carried / sum(part * seconds[n].full for n, part in parts)],
        **fell,
        **priced(flow, late + sum(part * short.get(n, 0) for n, part in parts)),
    }


def spells_of(flow: Flow, seconds: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """When the rows of successive seconds [number, first, last ns] begin and end, with what of the
    two seconds before and after has round trips that are as long."""
    waits = flow.of.waits_of_run
    times = [at for at, _ in waits]
    known = pl.col("bbr.min_rtt_us").is_not_null()
    trips_there = flow.spans.filter((pl.col("kind") == "M") & (pl.col("rs.rtt_us") > 0) & known)
    rows = []
    for ns, rtt, us in trips_there.select("ns", "rs.rtt_us", "bbr.min_rtt_us").iter_rows():
        place = bisect_right(times, ns - 1000 * rtt)
        wait = waits[place - 1][1] if place else 0
        rows.append((ns, rtt - wait > 1.25 * (us + (1000 if us % 1000 == 0 else 0))))
    found: list[list[tuple[int, int, int]]] = []
    for each in seconds:
        if found and each[0] == found[-1][-1][0] + 1:
            found[-1].append(each)
        else:
            found.append([each])
    spells = []
    for spell in found:
        (first, begin, _), (last, _, end) = spell[0], spell[-1]
        near = [
            (ns, long)
            for ns, long in rows
            if min(abs((ns - flow.zero) // SECOND - n) for n in (first, last)) <= 2
            and not first < (ns - flow.zero) // SECOND < last
        ]
        opened = [b[0] for a, b in pairwise(near) if b[1] and not a[1] and b[0] <= begin]
        closed = [ns for ns, long in near if not long and ns >= end]
        spells.append((max(opened, default=begin), min(closed, default=end)))
    return [
        (a, min(b, spells[n + 1][0]) if n + 1 < len(spells) else b)
        for n, (a, b) in enumerate(spells)
    ]


def parts_of(flow: Flow, begin: int, end: int) -> list[tuple[int, float]]:
    """The seconds that a time [ns] is in, and which part of the flow's time there it is."""
    a, b = (begin - flow.zero) / SECOND, (end - flow.zero) / SECOND
    return [
        (n, max(0.0, min(b, n + 1) - max(a, n)) / covered)
        for n in range(int(a), int(b) + 1)
        if n in of_flow(flow) and (covered := of_flow(flow)[n].covered) > 0
    ]


def fallen(flow: Flow, begin: int, end: int) -> dict[str, float]:
    """Of a flow alone, that knew 95 % of the link's rate at one time [ns] and less at another, when
    it knew it again, or its last row."""
    if len(flow.of.flows) > 1 or others(flow.of) or not flow.of.rates:
        return {}
    rows = pl.DataFrame(
        {"ns": flow.spans["ns"], "bw": flow.believed_after, "carries": flow.carries}
    ).with_columns(knows=pl.col("bw") >= 0.95 * pl.col("carries"))
    before, then = (rows.filter(pl.col("ns") <= at).row(-1, named=True) for at in (begin, end))
    if not before["knows"] or then["knows"]:
        return {}
    back = rows.filter((pl.col("ns") > end) & pl.col("knows"))["ns"]
    at = int(back[0] if len(back) else rows["ns"][-1])
    return {"low_bps": 8 * then["bw"], "back_at": flow.at(at), "back_s": (at - end) / SECOND}


def path_shorter(flow: Flow) -> Numbers:
    """From the first sample on, after the lab changed its path, that leaves less than half of the
    way down."""
    (changed, us), *_ = flow.of.changed("rtt")
    half = (flow.base_us + us + flow.extra_us) / 2
    ns = next(at for at, rtt, wait in trips(flow) if at >= changed and rtt - wait < half)
    near = [each for each in trips(flow) if ns - 3 * SECOND <= each[0] < ns + 3 * SECOND]
    old, new = ([it for it in near if (it[0] < ns) == before] for before in (True, False))
    after = statistics.median(rtt - wait for _, rtt, wait in new)
    holds = flow.rate * after / 1e6 / max(flow.segment_sizes)
    extra = pl.max_horizontal("bbr.extra_acked[0]", "bbr.extra_acked[1]")
    rows = flow.spans.filter(pl.col("ns") >= ns).with_columns(extra=extra)
    return {
        "change_at": flow.at(ns),
        "begins_at": flow.at(ns),
        "ends_at": flow.ends,
        "old_us": statistics.median(rtt - wait for _, rtt, wait in old),
        "new_us": after,
        "before_us": statistics.median(rtt for _, rtt, _ in old),
        "after_us": statistics.median(rtt for _, rtt, _ in new),
        "samples_count": len(near),
        "extra_packets": rows["extra"].max(),
        "bdp_packets": holds,
        "held_s": int(rows.filter(2 * pl.col("extra") > holds)["d"].sum()) / SECOND,
    }


READERS = {
    "min_rtt_stale": min_rtt_stale,
    "path_shorter": path_shorter,
}
