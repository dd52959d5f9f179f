"""Numbers of findings about paths whose round trip changed, by raw rows."""

from __future__ import annotations

import statistics

import polars as pl

from tests.truth.facts import Flow, Numbers
from tests.truth.readers_bounds import priced
from tests.truth.seconds import SECOND, number, of_flow


def min_rtt_stale(flow: Flow) -> Numbers:
    """Whole seconds in which min_rtt was less than four fifths of the least round trip, while the
    queue held less than half of the difference."""
    least = {
        int(second): int(us) for second, us in flow.by_second.select("second", "least").iter_rows()
    }
    events = flow.spans.group_by(second=number(flow.of)).agg(
        pl.col("bbr.min_rtt_us").max(), first=pl.col("ns").min(), last=pl.col("ns").max()
    )
    waits: dict[int, list[float]] = {}
    for at, us in flow.of.waits_of_run:
        waits.setdefault((at - flow.zero) // SECOND, []).append(us)
    seconds = of_flow(flow)
    found = []
    for second, believed, first, last in events.sort("second").iter_rows():
        around = [least[n] for n in range(second - 1, second + 2) if n in least]
        # One of whole milliseconds is by a timestamp.
        most = 1.25 * (believed + (1000 if believed % 1000 == 0 else 0)) if believed else 0
        if not around or not believed or second not in waits or min(around) <= most:
            continue
        wait = statistics.fmean(waits[second])
        if wait < (min(around) - believed) / 2:
            found.append((seconds[second], believed, min(around), first, last, wait))
    its = [each[0] for each in found]
    begins, ends = flow.at(found[0][3]), flow.at(found[-1][4])
    return {
        "held_s": sum(it.covered for it in its),
        "believed_us": statistics.median(each[1] for each in found),
        "least_us": statistics.median(each[2] for each in found),
        "believed_ratio": statistics.median(each[1] / each[2] for each in found),
        "t0_at": begins,
        "t1_at": ends,
        "begins_at": begins,
        "ends_at": ends,
        "wait_us": statistics.fmean(each[5] for each in found),
        "used": [100 * sum(it.bytes for it in its) / sum(it.full for it in its)],
        **priced(flow, sum(it.short for it in its)),
    }


def path_shorter(flow: Flow) -> Numbers:
    """From the first round trip on that is below all of the three seconds before the lab changed
    its path."""
    (changed, _), *_ = flow.of.changed("rtt")
    rtts = flow.acks.filter(pl.col("rs.rtt_us") > 0).select("ns", us="rs.rtt_us")
    earlier = rtts.filter(pl.col("ns").is_between(changed - 3 * SECOND, changed))
    limit = int(earlier["us"].min()) - 1000  # type: ignore[arg-type]
    ns = int(rtts.filter((pl.col("ns") >= changed) & (pl.col("us") < limit))["ns"][0])
    before = rtts.filter(pl.col("ns").is_between(ns - 3 * SECOND, ns - 1))
    fastest = before.sort("us", "ns").row(0, named=True)
    after = int(rtts.filter(pl.col("ns").is_between(ns, ns + 3 * SECOND - 1))["us"].min())  # type: ignore[arg-type]
    sent = fastest["ns"] - 1000 * fastest["us"]
    waits = flow.of.waits_of_run
    # A sample's time is told in hundredths of a second.
    known = max((at for at, _ in waits if at <= sent - SECOND // 100), default=sent)
    wait = max(us for at, us in waits if known <= at <= fastest["ns"])
    holds = flow.rate * after / 1e6 / max(flow.segment_sizes)
    extra = pl.max_horizontal("bbr.extra_acked[0]", "bbr.extra_acked[1]")
    rows = flow.spans.filter(pl.col("ns") >= ns).with_columns(extra=extra)
    return {
        "change_at": flow.at(ns),
        "begins_at": flow.at(ns),
        "ends_at": flow.ends,
        "before_us": fastest["us"],
        "after_us": after,
        "wait_us": wait,
        "less_us": fastest["us"] - after,
        "extra_packets": rows["extra"].max(),
        "bdp_packets": holds,
        "held_s": int(rows.filter(2 * pl.col("extra") > holds)["d"].sum()) / SECOND,
    }


READERS = {
    "min_rtt_stale": min_rtt_stale,
    "path_shorter": path_shorter,
}
