"""Numbers of findings about queues and round trips, by raw rows."""

from __future__ import annotations

import statistics

import polars as pl

from tests.truth.facts import Flow, Numbers
from tests.truth.judged import threshold
from tests.truth.limits import in_flight
from tests.truth.seconds import SECOND, number, of_flow, others

# bbr_ecn_max_rtt_us.
MOST_ECN_US = 5000

# With nothing in flight, nothing waits; what begins to be sent is not in flight yet.
UNDER_WAY = (in_flight() != 0) | (pl.col("kind") == "E")


def bufferbloat(flow: Flow) -> Numbers:
    """Seconds whose median RTT is half as long again as the path's, and 5 ms."""
    seconds = flow.bloated_seconds
    covered = {n: max(0.0, flow.covered(n) - flow.paused.get(n, 0)) for n in seconds}
    medians = {int(n): us for n, us in flow.by_second.select("second", "us").iter_rows()}
    rows = flow.acks.filter(pl.col("rs.rtt_us") > 0).with_columns(second=number(flow.of))
    rows = rows.filter(pl.col("second").is_in(seconds))
    usual = pl.Series([medians[n] for n in seconds]).median()
    senders = max(of_flow(flow)[n].senders for n in seconds)
    waits = [flow.waited_in[n] for n in seconds if n in flow.waited_in]
    bases = [flow.other_in(n, flow.base_us) for n in seconds]
    base = statistics.median_low(bases)
    ends = flow.at(rows["ns"][0]), flow.at(rows["ns"][-1])
    return {
        **(beyond_the_link(flow, seconds) if senders == 1 else {}),
        "bloated_s": sum(covered.values()),
        "base_us": base,
        "rtt_us": usual,
        "rtt_ratio": float(usual) / base,  # type: ignore[arg-type]
        "most_us": rows["rs.rtt_us"].max(),
        "senders": [senders],
        "queue": [sum(waits) / len(waits) / 1e3] if waits else [],
        **dict(zip(("t0_at", "t1_at"), ends, strict=True)),
        **dict(zip(("begins_at", "ends_at"), ends, strict=True)),
        "cost_s": sum(
            (1 - path / medians[n]) * covered[n] for n, path in zip(seconds, bases, strict=True)
        ),
    }


def beyond_the_link(flow: Flow, seconds: list[int]) -> Numbers:
    """What it believed in on average, where that is more than a link of one rate carries, on a path
    of one length."""
    lengths = {flow.other_in(n, us) for n, us in flow.by_second.select("second", "base").rows()}
    rows = flow.after_init.select("ns", believed=flow.believed_after, carries=flow.carries)
    rows = rows.with_columns(second=number(flow.of), beyond=pl.col("believed") / pl.col("carries"))
    means = rows.filter(pl.col("second").is_in(seconds)).group_by("second").mean()
    beyond, believed = (float(means[name].mean() or 0) for name in ("beyond", "believed"))  # type: ignore[arg-type]
    changes = flow.carries.n_unique() > 1 or len(lengths) > 1
    if changes or beyond < threshold("bufferbloat", "least_beyond"):
        return {}
    return {"beyond_ratio": beyond, "believed_bps": 8 * believed}


def ecn_ignored(flow: Flow) -> Numbers:
    marked = flow.spans.filter(flow.of_marks > 0)
    least = int(flow.after_init.filter(pl.col("bbr.min_rtt_us") > 0)["bbr.min_rtt_us"].min())  # type: ignore[arg-type]
    return {
        # As far as it speaks of numbers: what it asks of min_rtt, and what that never fell below.
        "why": [MOST_ECN_US / 1e3, least / 1e3],
        "ce_share": flow.marked,
        "ce_packets": flow.total("tp.delivered_ce"),
        "lost_packets": flow.total("tp.lost"),
        "base_us": flow.base_us,
        "first_at": flow.at(marked["ns"][0]),
        "begins_at": flow.at(marked["ns"][0]),
        "ends_at": flow.at(marked["ns"][-1]),
        "srtt_us": flow.spans.filter(kind="M")["srtt"].mean(),
        "cost_s": flow.waited(flow.spans),
    }


def ecn_without_marks(flow: Flow) -> Numbers:
    lossy = flow.marked_lost.filter(pl.col("lost") > 0)["ns"]
    first, last = flow.at(lossy[0]), flow.at(lossy[-1])
    marked, delivered = flow.without_timeouts()
    return {
        "delivered_packets": delivered,
        "lost_packets": max(0, marked - flow.came_twice),
        "srtt_us": flow.spans.filter(kind="M")["srtt"].mean(),
        "base_us": flow.base_us,
        "t0_at": first,
        "t1_at": last,
        "begins_at": first,
        "ends_at": last,
    }


def marks_echoed(flow: Flow) -> Numbers:
    spells = flow.window_reductions
    inside = pl.any_horizontal([pl.col("ns").is_between(a, b) for a, b in spells])
    rows = flow.spans.filter((pl.col("kind") == "M") & inside)
    first, last = flow.at(spells[0][0]), flow.at(max(b for _, b in spells))
    return {
        "spells_count": len(spells),
        "spells_s": sum(b - a for a, b in spells) / SECOND,
        "srtt_us": rows["srtt"].mean(),
        "base_us": flow.base_us,
        "t0_at": first,
        "t1_at": last,
        "begins_at": first,
        "ends_at": last,
        "cost_s": flow.waited(rows),
    }


def min_rtt_inflated(flow: Flow) -> Numbers:
    rows = flow.inflated
    under = rows.filter(UNDER_WAY)
    lasted = int(rows["d"].sum())
    typical = float((rows["bbr.min_rtt_us"] * rows["d"]).sum()) / lasted
    begins, ends = int(rows["ns"][0]), int(rows["ns"][-1] + rows["d"][-1])
    told = {"t0_at": flow.at(begins), "t1_at": flow.at(ends)}
    # One wait for each min_rtt that held, of the one that held longest.
    longest = (
        rows.with_columns(most=pl.col("bbr.min_rtt_us") - pl.col("path"))
        .group_by("set", "wait")
        .agg(pl.col("d").sum(), pl.col("most").first())
        .sort("d")
        .row(-1, named=True)
    )
    held = rows.group_by("set", "path").agg(pl.col("d").sum())
    base = held.sort("d", -pl.col("set")).row(-1, named=True)["path"]
    bdp = flow.rate * base / 1e6 / max(flow.segment_sizes)
    probes = [(a, b) for a, b in flow.probe_rtt_spans if begins <= b <= ends]
    rtts = flow.acks.filter(pl.col("rs.rtt_us") > 0)
    least = [rtts.filter(pl.col("ns").is_between(a, b))["rs.rtt_us"].min() for a, b in probes]
    return {
        "held_s": lasted / SECOND,
        "most_us": rows["bbr.min_rtt_us"].max(),
        "typical_us": typical,
        "typical_ratio": typical / base,
        "base_us": base,
        **told,
        "begins_at": told["t0_at"],
        "ends_at": told["t1_at"],
        "queue": [min(longest["wait"], longest["most"]) / 1e3]
        if longest["wait"] is not None
        else [],
        "floor": [4, bdp, 4 * max(flow.segment_sizes) / flow.rate * 1e3] if bdp < 4 else [bdp, 4],
        "probes": [len(probes), min(us for us in least if us is not None) / 1e3] if probes else [],  # type: ignore[operator,type-var]
        "cost_s": float(((1 - under["path"] / under["bbr.min_rtt_us"]) * under["d"]).sum())
        / SECOND,
    }


def standing_queue(flow: Flow) -> Numbers:
    """Seconds of which not even the two before and after had a short round trip, by the queue."""
    seconds, bases = of_flow(flow), dict[int, float]()
    rtts = {int(n): us for n, us in flow.by_second.select("second", "least").iter_rows()}
    drained: dict[int, float] = {}
    for at, us in flow.of.waits_of_run:
        passed = (at + round(1e3 * flow.base_us) - flow.zero) // SECOND
        drained[passed] = min(us, drained.get(passed, us))
    ratios: dict[int, float] = {}
    for n in seconds:
        least, waits = (
            [of[m] for m in range(n - 2, n + 3) if m in of and m in seconds]
            for of in (rtts, drained)
        )
        base = flow.other_in(n, flow.base_us)
        if min(least) > 1.25 * base and min(waits) >= 0.5 * (min(least) - base):
            ratios[n], bases[n] = min(least) / base, base
    a, b = min(ratios), max(ratios)
    extra = pl.max_horizontal("bbr.extra_acked[0]", "bbr.extra_acked[1]")
    rows = flow.spans.with_columns(second=number(flow.of), extra=extra.shift(-1))
    rows = rows.filter(pl.col("second").is_in(list(ratios)))
    bunch = float(rows["extra"].median() or 0)  # type: ignore[arg-type]
    under = rows.filter(UNDER_WAY).with_columns(base=pl.col("second").replace_strict(bases))
    part = (1 - pl.col("base") / pl.col("srtt")).clip(0)
    waits = [us for at, us in flow.of.waits_of_run if (at - flow.zero) // SECOND in ratios]
    believed: dict[int, float] = {}
    for one in flow.of.flows:
        after = one.spans.with_columns(bw=one.believed_after)
        means = after.group_by(second=number(flow.of)).agg(pl.col("bw").mean())
        for n, bw in means.iter_rows():
            believed[int(n)] = believed.get(int(n), 0) + bw
    most = max(seconds[n].senders for n in ratios)
    fullest = min(n for n in ratios if seconds[n].senders == most)
    theirs = sum(sums.get(fullest, 0) > 0 for sums in others(flow.of))
    counts = [most, most - theirs, *([theirs] if theirs else [])]
    return {
        "standing_s": sum(seconds[n].covered for n in ratios),
        "least_ratio": statistics.median(ratios.values()),
        "base_us": statistics.median_low(bases.values()),
        "srtt_us": rows["srtt"].mean(),
        "t0_at": max(a, flow.at(flow.after_init["ns"][0])),
        "begins_at": max(a, flow.at(flow.after_init["ns"][0])),
        "ends_at": min(b + 1, flow.ends),
        "believed_bps": 8 * statistics.median(believed[n] for n in ratios),
        "rate_bps": 8 * flow.rate,
        "bunch_packets": bunch,
        "bunch_us": 1e6 * bunch * max(flow.segment_sizes) / flow.rate,
        "senders": counts if counts[0] > 1 else [],
        "queue": [float(pl.Series(waits).quantile(0.1, "linear") or 0) / 1e3],
        "cost_s": float(under.select((part * pl.col("d")).sum()).item()) / SECOND,
    }


READERS = {
    "standing_queue": standing_queue,
    "bufferbloat": bufferbloat,
    "ecn_ignored": ecn_ignored,
    "ecn_without_marks": ecn_without_marks,
    "marks_echoed": marks_echoed,
    "min_rtt_inflated": min_rtt_inflated,
}
