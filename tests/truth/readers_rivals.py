"""What rules say of flows beside senders whose events were not recorded, by raw rows and reports.

A reader returns None where the trouble is not there.
"""

from __future__ import annotations

import statistics
from functools import lru_cache

import polars as pl

from tests.truth.facts import PROBE_RTT, Flow, Numbers, Recording
from tests.truth.judged import threshold
from tests.truth.readers_bounds import priced
from tests.truth.seconds import SECOND, everyone, of_flow, others, reports

HIGH, LOW = 1.1, 1.05


@lru_cache(maxsize=8)
def window(of: Recording) -> tuple[int, int]:
    """From when [ns] all senders were there, until when; by their reports those without rows."""
    ends = [(int(one.after_init["ns"][0]), int(one.rows["ns"][-1])) for one in of.flows]
    ends += [(int(one.sent["ns"][0]), int(one.sent["ns"][-1])) for one in of.unrecorded]
    for parts in reports(of):
        sent = [(begin, begin + lasted) for begin, lasted, size in parts if size]
        ends.append((sent[0][0], sent[-1][1]))
    return max(begin for begin, _ in ends), min(end for _, end in ends)


def whole_seconds(of: Recording) -> range:
    """The whole seconds of it."""
    begin, end = ((ns - of.flows[0].zero) / SECOND for ns in window(of))
    return range(-int(-(begin - 1e-3 + 1)) if begin % 1 > 1e-3 else int(begin), int(end + 1e-3))


def _share(flow: Flow, seconds: list[int]) -> float:
    whole, mine = everyone(flow), of_flow(flow)
    return sum(mine[n].bytes for n in seconds if n in mine) / sum(whole.get(n, 0) for n in seconds)


def starves_others(flow: Flow) -> Numbers | None:
    """More than four fifths of what it and an average other carried, of enough seconds."""
    of, mine, there = flow.of, of_flow(flow), whole_seconds(flow.of)
    kinds = _kinds(of)
    rows: list[tuple[int, list[int]]] = []
    theirs = [sums for sums, kind in zip(others(of), kinds, strict=True) if kind not in PAUSES]
    spans = [
        (max(min(sums), there.start), min(max(sums), there.stop - 1)) for sums in theirs if sums
    ]
    for n, it in mine.items():
        sizes = [sums.get(n, 0) for sums, (a, b) in zip(theirs, spans, strict=True) if a <= n <= b]
        if it.covered > 0.99 and sizes:
            rows.append((n, sizes))
    ours = sum(mine[n].bytes for n, _ in rows)
    average = sum(statistics.fmean(sizes) for _, sizes in rows)
    if len(rows) < threshold("starves_others", "least_s") or ours <= 0.8 * (ours + average):
        return None
    part = {n: mine[n].full / max(1, (1 + len(sizes)) / mine[n].senders) for n, sizes in rows}
    lacking = sum(max(0, part[n] - statistics.fmean(s)) * len(s) for n, s in rows)
    halves = [
        [n for n in there if (n > (there.start + there.stop - 1) / 2) == late] for late in (0, 1)
    ]
    parts = [_share(flow, half) for half in halves]
    equal = 1 / (len(of.flows) + len(kinds))
    moving = abs(parts[0] - _share(flow, [*there])) > 0.05
    moving &= abs(parts[1] - equal) < abs(parts[0] - equal)
    begins, ends = rows[0][0], rows[-1][0] + 1
    carried = sum(everyone(flow).get(n, 0) for n in there)
    each = [sum(sums.get(n, 0) for n in there) / carried for sums in others(of)]
    return {
        "share_share": ours / (ours + average),
        "shared_s": len(rows),
        "theirs_bps": 8 * average / len(rows),
        "ours_bps": 8 * ours / len(rows),
        "t0_at": begins,
        "t1_at": ends,
        "begins_at": max(begins, flow.at(flow.after_init["ns"][0])),
        "ends_at": min(ends, flow.ends),
        "others_count": max(len(sizes) for _, sizes in rows),
        "rivals": [100 * one for one in sorted(each, reverse=True)],
        "halves": [100 * one for one in parts],
        "trend": [100 * one for one in parts] if moving else [],
        "srtt_us": flow.spans.filter(kind="M")["srtt"].mean(),
        "base_us": flow.base_us,
        "lost_packets": flow.total("tp.lost"),
        **priced(flow, lacking),
    }


PAUSES = ("rate-limited", "on-off")


def _kinds(of: Recording) -> list[str]:
    """What the lab planned of each sender without rows; nothing where there is no plan."""
    recorded = {flow.spec.get("flow_no") for flow in of.flows} if of.lab else set()
    planned = [one["kind"] for one in of.lab.get("flows", []) if one["flow_no"] not in recorded]
    return planned or [""] * len(others(of))


def seesaw(flow: Flow) -> Numbers | None:
    """Three changes or more of min_rtt, of a tenth over the path's and back, outside of PROBE_RTT;
    and a tenth more of what all carried while it was high."""
    of, mine, there = flow.of, of_flow(flow), whole_seconds(flow.of)
    if not others(of):
        return None
    begin, end = window(of)
    left = pl.col("bbr.min_rtt_us").shift(-1).fill_null(pl.col("bbr.min_rtt_us"))
    rows = flow.after_init.select(
        "ns",
        us=left,
        probing=(pl.col("bbr.mode").shift(-1).fill_null(pl.col("bbr.mode"))) == PROBE_RTT,
    ).filter(pl.col("ns").is_between(begin, end) & ~pl.col("probing"))
    ratio = pl.col("us") / flow.base_us
    high = pl.when(ratio > HIGH).then(1).when(ratio < LOW).then(0)
    rows = rows.with_columns(high=high).drop_nulls("high")
    switches = rows.filter(pl.col("high") != pl.col("high").shift(1))["ns"]
    mean = rows.group_by(second=(pl.col("ns") - flow.zero) // SECOND).agg(pl.col("high").mean())
    state = {int(second): part for second, part in mean.iter_rows()}
    theirs = [{n: sums[n] for n in sums} for sums in others(of)]
    seconds = [
        n for n in there if n in mine and mine[n].covered > 0.99 and any(n in s for s in theirs)
    ]
    shares = {
        n: mine[n].bytes / (mine[n].bytes + sum(s.get(n, 0) for s in theirs)) for n in seconds
    }
    both = [
        [shares[n] for n in seconds if n in state and (state[n] > 0.5) == up]
        for up in (True, False)
    ]
    if len(switches) < 3 or not all(both):
        return None
    high_share, low_share = (statistics.fmean(some) for some in both)
    if high_share - low_share < 0.1:
        return None
    return {
        "base_us": flow.base_us,
        "inflated_us": rows.filter(high=1)["us"].median(),
        "switches_count": len(switches),
        "switches_at": [flow.at(ns) for ns in switches],
        "high_share": high_share,
        "low_share": low_share,
        "t0_at": seconds[0],
        "t1_at": seconds[-1] + 1,
        "begins_at": max(seconds[0], flow.at(flow.after_init["ns"][0])),
        "ends_at": min(seconds[-1] + 1, flow.ends),
        **priced(flow, sum(mine[n].short for n in seconds)),
    }


READERS = {"starves_others": starves_others, "seesaw": seesaw}
