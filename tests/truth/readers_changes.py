"""Numbers of findings about paths whose round trip changed, by raw rows."""

from __future__ import annotations

import statistics
from bisect import bisect_left

import polars as pl

from tests.truth.facts import Flow, Numbers
from tests.truth.readers_bounds import priced
from tests.truth.seconds import SECOND, number, of_flow


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
    queue held less than half of the difference, or its samples leave as much to the path."""
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
            kept = (seconds[second], believed, least[second], first, last, wait, own[second])
            found += [kept] if path > most else []
    its = [each[0] for each in found]
    # Of an even number of seconds, the one before the middle.
    middle = sorted(found, key=lambda each: each[1] / each[6])[(len(found) - 1) // 2]
    begins, ends = flow.at(found[0][3]), flow.at(found[-1][4])
    return {
        "held_s": sum(it.covered for it in its),
        "believed_us": middle[1],
        "least_us": min(each[2] for each in found),
        "path_us": middle[6],
        "believed_ratio": middle[1] / middle[6],
        "t0_at": begins,
        "t1_at": ends,
        "begins_at": begins,
        "ends_at": ends,
        "wait_us": statistics.fmean(each[5] for each in found),
        "used": [100 * sum(it.bytes for it in its) / sum(it.full for it in its)],
        **priced(flow, sum(it.short for it in its)),
    }


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
