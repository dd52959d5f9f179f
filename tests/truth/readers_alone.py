"""What holds back a flow that is alone on its path, by raw rows: numbers, or None."""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from tests.truth import raw
from tests.truth.facts import POLICERS, Flow, Numbers, Recording
from tests.truth.limits import held_by
from tests.truth.readers_bounds import by_marks, priced
from tests.truth.readers_made import OUTSIDE
from tests.truth.readers_shares import HI
from tests.truth.seconds import SECOND, missing_by_second, number, of_flow, others

# bbr_loss_thresh, in 1/256.
LOSS_THRESH = 5


def drops(of: Recording) -> list[tuple[int, int, int]]:
    """Of each sample of the bottleneck's queue while flows ran: when [ns], for how long until the
    next one, and how many packets were dropped since the one before."""
    last = max(int(flow.rows["ns"][-1]) for flow in of.flows)
    at: dict[int, int] = {}
    before: dict[str, int] = {}
    first_after = True
    for uptime_s, row in raw.queue(of.folder):
        ns, kind = round(uptime_s * 1e9) - of.ahead_ns, row.get("kind", "")
        if kind in POLICERS:
            continue
        dropped = int(row["dropped"])
        grown = dropped - before.get(kind, dropped if ns <= of.flows[0].zero else 0)
        before[kind] = dropped
        if of.flows[0].zero <= ns <= last:
            at[ns] = max(at.get(ns, 0), grown)
        elif ns > last and first_after and at:
            first_after = False
            at[max(at)] += grown
    times = sorted(at)
    return [(a, b - a, at[a]) for a, b in pairwise([*times, times[-1]])] if times else []


def cuts(flow: Flow) -> list[tuple[int, int, float, int | None, int | None]]:
    """Cuts of inflight_hi for loss: when [ns], to what, the smoothed RTT [us], and how many of how
    many packets in flight had been lost (None: a tail loss probe found it)."""
    begun = flow.after_init
    # Without a loss there is no callback for one.
    absent = {"skb.lost", "skb.in_flight"} - {*begun.columns}
    begun = begun.with_columns(pl.lit(None, dtype=pl.Int64).alias(name) for name in absent)
    rows = begun.with_columns(
        new=pl.col("bbr.inflight_hi").shift(-1),
        too_high=pl.col("bbr.prev_probe_too_high").shift(-1) == 1,
        marks=by_marks(),
        lost=pl.when(pl.col("kind") == "L")
        .then((pl.col("tp.lost") - pl.col("skb.lost")) % raw.WRAP)
        .otherwise("rs.lost"),
        flight=pl.coalesce("skb.in_flight", "rs.tx_in_flight"),
        srtt=pl.col("tp.srtt_us") / 8,
    ).filter((pl.col("new") < pl.col("bbr.inflight_hi")) & pl.col("too_high") & ~pl.col("marks"))
    return rows.select("ns", "new", "srtt", "lost", "flight").rows()


def inflight_hi_alone(flow: Flow) -> Numbers | None:
    """For a twentieth of its time, at a fiftieth of its path, under cuts that mostly had no drop of
    its queue around; the window then less than the path holds."""
    of = flow.of
    if "bbr.inflight_hi" not in flow.rows.columns or len(of.flows) > 1 or others(of):
        return None
    found, dropped = cuts(flow), drops(of)
    by = held_by(flow).with_columns(cwnd=flow.after_init["tp.snd_cwnd"].shift(-1)[:-1])
    whole = int(by["d"].sum())
    outside = int(by.filter(pl.col("by").is_in(OUTSIDE))["d"].sum()) / whole
    bound = pl.col("by").is_in(HI) & (pl.col("d") > 0)
    low = by.filter(bound & (pl.col("cwnd") < int(flow.bdp)))
    held = int(low["d"].sum())
    if not found or not dropped or held < 0.05 * flow.seconds * SECOND or outside > 0.05:
        return None
    seconds = of_flow(flow).values()
    full = sum(it.full for it in seconds)
    lacking = full - sum(it.bytes for it in seconds)
    when = set(low.select(number(of)).to_series())
    cost = sum(size for n, size in missing_by_second(flow, *HI).items() if n in when)
    sizes = low.group_by("cwnd").agg(pl.col("d").sum()).sort("cwnd")
    sizes = sizes.filter(2 * pl.col("d").cum_sum() >= held)
    own = sum(
        any(n and ns - 2000 * srtt <= at <= ns + lasts for at, lasts, n in dropped)
        for ns, _, srtt, _, _ in found
    )
    much = min(cost, lacking) >= 0.02 * full and 2 * own <= len(found)
    if not much:
        return None
    at, to, _, lost, flight = min(found, key=lambda it: (it[1], it[0]))
    limit = [flight, lost, flight * LOSS_THRESH // 256] if flight is not None else []
    return {
        "held_share": held / SECOND / flow.seconds,
        "window_packets": sizes["cwnd"][0],
        "bdp_packets": flow.bdp,
        "goodput_bps": flow.goodput,
        "rate_bps": 8 * full / flow.seconds,
        "cuts_count": len(found),
        "cuts_at": [flow.at(ns) for ns, *_ in found],
        "own_count": own,
        "lowest_at": flow.at(at),
        "to_packets": to,
        "why": limit,
        "lost_packets": flow.total("tp.lost"),
        "dropped_packets": sum(n for _, _, n in dropped),
        "undone_count": flow.undo_count,
        "begins_at": flow.at(found[0][0]),
        "ends_at": flow.ends,
        **priced(flow, cost),
    }


READERS = {"inflight_hi_alone": inflight_hi_alone}
