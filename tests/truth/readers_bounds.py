"""Numbers of findings about what held a flow back, by raw rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from tests.truth.facts import PROBE_BW, UNSET, Flow, Numbers
from tests.truth.limits import greeting_us, held_by, in_flight
from tests.truth.seconds import SECOND, everyone, held, missing, number, of_flow
from tests.truth.slices import begun

# bbr_ecn_factor, in 1/256.
ECN_FACTOR = 85
SHORT_TERM = ("inflight_lo", "pacing_bw_lo")
UP = 0
# What a probe of a gain of 1.25 shows, as the catalogue's F-01 has it.
LEAST_GROWTH, MOST_GROWTH = 1.1, 1.35


def priced(flow: Flow, size: float) -> Numbers:
    """The price of what was not carried: bytes, and the time that they take."""
    return {"cost_bytes": size, "cost_s": size / flow.rate}


def application_limited(flow: Flow) -> Numbers:
    """Spells of nothing to send, but the first words of a connection and the answer to them."""
    rows = held_by(flow).with_columns(other=pl.col("by") != "application")
    rows = rows.with_columns(spell=pl.col("other").cum_sum()).filter(
        (~pl.col("other")) & (pl.col("d") > 0)
    )
    spells = rows.group_by("spell").agg(pl.col("ns").min(), pl.col("d").sum()).sort("ns")
    greeting = (pl.col("spell") == 0) & (pl.col("d") <= 2000 * greeting_us(flow))
    spells = spells.filter(~greeting)
    limited = int(spells["d"].sum()) / SECOND
    longest = spells.sort(-pl.col("d"), "ns").row(0, named=True)
    last = spells.row(-1, named=True)
    found = {
        "limited_s": limited,
        "limited_share": limited / flow.seconds,
        "times_count": spells.height,
        "longest_s": longest["d"] / SECOND,
        "longest_at": flow.at(longest["ns"]),
        "goodput_bps": flow.goodput,
        "rate_bps": 8 * flow.rate,
        "startup": _long_in_startup(flow),
        "begins_at": flow.at(spells["ns"][0]),
        "ends_at": flow.at(last["ns"] + last["d"]),
    }
    if not flow.of.rates:
        return {**found, "cost_s": limited}
    return {**found, **priced(flow, min(flow.rate * limited, missing(flow, "application")))}


def _long_in_startup(flow: Flow) -> list[int]:
    """For which part of its time [%], where that is a fifth or more."""
    starts, labels = begun(flow, "phase")
    ends = [*starts[1:], int(flow.rows["ns"][-1])]
    spans = zip(starts, ends, labels, strict=True)
    part = sum(b - a for a, b, label in spans if label == "STARTUP") / SECOND / flow.seconds
    return [round(100 * part)] if part >= 0.2 else []


def inflight_cap(flow: Flow) -> Numbers:
    """In the seconds in which others were there, too."""
    seconds = [n for n, second in of_flow(flow).items() if second.senders > 1]
    a, b = min(seconds), max(seconds)
    within = held_by(flow).with_columns(second=number(flow.of))
    within = within.filter(pl.col("second").is_in(seconds))
    full = int(within.filter(by="cwnd_target")["d"].sum()) / SECOND
    rows = flow.between(flow.zero + a * SECOND, flow.zero + (b + 1) * SECOND)
    lasted = int(rows["d"].sum())
    return {
        "held_s": full,
        "held_share": full / (int(within["d"].sum()) / SECOND),
        "t0_at": max(a, flow.at(flow.after_init["ns"][0])),
        "begins_at": max(a, flow.at(flow.after_init["ns"][0])),
        "ends_at": min(b + 1, flow.ends),
        "base_us": flow.base_us,
        "srtt_us": rows["srtt"].mean(),
        "pacing_bps": 8 * float((rows["pacing"] * rows["d"]).sum()) / lasted,
        "goodput_bps": 8e9 * int(rows["acked"].sum()) / lasted,
        "cost_s": flow.waited(rows),
    }


def stuck_at_lower_bounds(flow: Flow) -> Numbers:
    lo, bw = (held(flow, limit) for limit in SHORT_TERM)
    whole = sum(second.full for second in of_flow(flow).values())
    cuts = sorted(ns for field in ("inflight_lo", "bw_lo") for ns in lowered(flow, field))
    longest = max(stretches(flow), key=lambda it: it[1] - it[0])
    return {
        "held_s": lo + bw,
        "lo_s": lo,
        "bw_s": bw,
        "held_share": (lo + bw) / flow.seconds,
        "loss_share": flow.loss_share,
        "goodput_bps": flow.goodput,
        "rate_bps": 8 * whole / flow.seconds,
        "cuts_count": len(cuts),
        "cuts_at": [flow.at(ns) for ns in cuts],
        "for_marks": [len(lowered(flow, "inflight_lo", by_marks=True))],
        "longest_s": (longest[1] - longest[0]) / SECOND,
        "longest_at": flow.at(longest[0]),
        "begins_at": flow.at(cuts[0]),
        "ends_at": flow.ends,
        **priced(flow, missing(flow, *SHORT_TERM)),
    }


def lowered(flow: Flow, field: str, by_marks: bool = False) -> list[int]:
    """When [ns] loss or marks set or lowered a short-term bound: bbr_adapt_lower_bounds(), after a
    round with either, which the row found or brings. Or when marks alone did, or cut deeper.

    The same function raises one that the latest sample is above; that is no cut.
    bbr_start_bw_probe_cruise() moves one at other times, too, to inflight_hi.
    """
    bound = pl.col(f"bbr.{field}")
    before = pl.when(bound == UNSET).then("tp.snd_cwnd").otherwise(bound)
    rows = flow.after_init.select(
        "ns",
        "kind",
        bound=bound,
        after=bound.shift(-1),
        ended=pl.col("bbr.loss_round_start").shift(-1) == 1,
        lost=(pl.col("bbr.loss_in_round") == 1) | (pl.col("rs.losses") > 0),
        marked=(pl.col("bbr.ecn_in_round") == 1) | (pl.col("rs.is_ece") == 1),
        # What an alpha that the same ACK made leaves of it.
        before=before,
        cut=before * (256 - pl.col("bbr.ecn_alpha").shift(-1) * ECN_FACTOR // 256) // 256,
    )
    # UNSET is above each value: the first one is a cut, too. A timeout sets one to the window that
    # was there (bbr_set_state()), and cuts nothing.
    rows = rows.filter(
        (pl.col("kind") != "S") & (pl.col("after") < pl.col("bound")) & pl.col("ended")
    )
    by_ecn = pl.col("marked") & (~pl.col("lost") | (pl.col("after") == pl.col("cut")))
    # An alpha of nothing sets the bound to the window, and cuts nothing.
    lower = pl.col("after") < pl.col("before")
    wanted = by_ecn & lower if by_marks else pl.col("lost") | (pl.col("marked") & lower)
    return [int(ns) for ns in rows.filter(wanted)["ns"]]


def in_buffer(flow: Flow) -> float:
    """Packets that a lab's queue holds, by how long its bytes take to leave at the first rate."""
    lab = flow.of.lab
    waits = lab["buffer_bytes"] * 8 / flow.of.rates[0][1]
    return float(waits * flow.rate / max(flow.segment_sizes))


def used(flow: Flow) -> float:
    """The part of what its link carries that a flow did, by its seconds."""
    its = of_flow(flow).values()
    return sum(it.bytes for it in its) / sum(it.full for it in its)


def extra_acked(flow: Flow) -> float:
    """What BBR remembers of bursts of ACKs [packets], on average over its time in PROBE_BW."""
    rows = flow.spans.filter(pl.col("bbr.mode") == PROBE_BW)
    most = pl.max_horizontal("bbr.extra_acked[0]", "bbr.extra_acked[1]")
    return float(rows.select((most * pl.col("d")).sum() / pl.col("d").sum()).item())


def underuse_of_shallow_buffer(flow: Flow) -> Numbers:
    """Of a lab, which says how much its queue holds."""
    names = ["inflight_hi", "inflight_hi_headroom", *SHORT_TERM]
    steps = flow.after_init.select("ns", "bbr.inflight_hi", "bbr.inflight_lo", "bbr.bw_lo").rows()
    fell = {
        field: {a[0] for a, b in pairwise(steps) if b[n] < a[n]}
        for n, field in enumerate(("inflight_hi", "inflight_lo", "bw_lo"), 1)
    }
    cuts = [*fell["inflight_hi"]]
    cuts += [
        ns for field in ("inflight_lo", "bw_lo") for ns in lowered(flow, field) if ns in fell[field]
    ]
    cuts.sort()
    return {
        "used_share": used(flow),
        "buffer_share": in_buffer(flow) / flow.bdp,
        "cuts_count": len(cuts),
        "cuts_at": [flow.at(ns) for ns in cuts],
        "bound_s": held(flow, *names),
        "hi_packets": flow.spans["bbr.inflight_hi"].median(),
        "bdp_packets": flow.bdp,
        "buffer_packets": in_buffer(flow),
        "burst_packets": extra_acked(flow),
        "beyond_packets": 0.25 * flow.bdp + extra_acked(flow),
        "begins_at": flow.at(cuts[0]),
        "ends_at": flow.at(cuts[-1]),
        **priced(flow, missing(flow, *names)),
    }


def stretches(flow: Flow) -> list[tuple[int, int]]:
    """From the first short-term bound that is set to where none is any more, or the flow's end."""
    rows = flow.after_init.select(
        "ns", on=(pl.col("bbr.inflight_lo") != UNSET) | (pl.col("bbr.bw_lo") != UNSET)
    ).rows()
    found: list[tuple[int, int]] = []
    since = None
    for (ns, was), (_, now) in pairwise(rows):
        if now and not was:
            since = ns
        elif was and not now and since is not None:
            found, since = [*found, (since, ns)], None
    return found if since is None else [*found, (since, rows[-1][0])]


@dataclass
class Probe:
    """A PROBE_BW_UP of v2 or v3.

    Attributes:
        begins, ends: the events that began and ended it [ns]; place: the row of the first.
        too_high: bbr_handle_inflight_too_high() ended it, for loss; lowered: and cut inflight_hi.
    """

    begins: int
    place: int
    ends: int
    too_high: bool = False
    lowered: bool = False


def by_marks() -> pl.Expr:
    """Whether an ACK's sample has marks on half of its packets, and no more lost than may be: what
    bbr_is_inflight_too_high() then goes by."""
    lost = pl.col("rs.lost") * 256 > 5 * pl.col("rs.tx_in_flight")
    # The kernel rounds the half down.
    marked = (pl.col("rs.delivered_ce") > 0) & (
        pl.col("rs.delivered_ce") >= pl.col("rs.delivered") // 2
    )
    return (pl.col("kind") == "M") & marked & ~lost


def probes_up(flow: Flow) -> list[Probe]:
    rows = flow.after_init.select(
        "ns",
        "bbr.inflight_hi",
        # bbr_handle_inflight_too_high() ends the sampling; another end goes on with it.
        stopped=(pl.col("bbr.bw_probe_samples") == 0) & (pl.col("bbr.mode") == PROBE_BW),
        by_marks=by_marks(),
        up=(pl.col("bbr.mode") == PROBE_BW) & (pl.col("bbr.cycle_idx") == UP),
    ).rows()
    found: list[Probe] = []
    for place, (row, (_, new_hi, stopped, _, now)) in enumerate(pairwise(rows)):
        ns, hi, _, marked, was = row
        if now and not was:
            found.append(Probe(ns, place, rows[-1][0]))
        elif was and not now:
            found[-1].ends, found[-1].lowered = ns, new_hi < hi
            found[-1].too_high = stopped and not marked
    return found


def has_room(flow: Flow, probe: Probe) -> bool:
    """Whether more than it believed in, by what a probe can show at least, was left by the others
    in the second in which it began."""
    number = int(flow.at(probe.begins))
    mine, believed = of_flow(flow)[number], float(flow.believed[probe.place + 1])
    theirs = everyone(flow)[number] - mine.bytes
    return believed * mine.covered < mine.full and (
        LEAST_GROWTH * believed * mine.covered + theirs <= mine.full * mine.senders
    )


def probe_up_cut_short(flow: Flow) -> Numbers:
    """The longest row of probes that ended within two round trips and showed more, without loss."""
    probes, rows = probes_up(flow), flow.spans
    found: list[list[tuple[Probe, Probe]]] = [[]]
    for probe, after in pairwise(probes):
        lost = rows.filter((pl.col("ns") > probe.begins) & (pl.col("ns") <= probe.ends))["lost"]
        grew = flow.believed[after.place + 1] / flow.believed[probe.place + 1]
        short = not probe.too_high and lost.sum() == 0 and rounds(flow, probe) <= 2
        if short and LEAST_GROWTH <= grew <= MOST_GROWTH and has_room(flow, probe):
            found[-1].append((probe, after))
        else:
            found.append([])
    chain = max(found, key=len)
    a, b = chain[0][0], chain[-1][1]
    before, now = (float(flow.believed[probe.place + 1]) for probe in (a, b))
    within = [n for n in of_flow(flow) if int(flow.at(a.begins)) <= n <= int(flow.at(b.begins))]
    return {
        "probes_count": len(chain),
        "longest_rounds_ratio": max(rounds(flow, probe) for probe, _ in chain),
        "probes_at": [flow.at(probe.begins) for probe, _ in chain],
        "from_bps": 8 * before,
        "to_bps": 8 * now,
        "lasted_s": (b.begins - a.begins) / SECOND,
        "growth_ratio": (now / before) ** (1 / len(chain)),
        "begins_at": flow.at(a.begins),
        "ends_at": flow.at(b.begins),
        **priced(flow, sum(of_flow(flow)[n].short for n in within)),
    }


def rounds(flow: Flow, probe: Probe) -> float:
    """How many of BBR's least round trips a probe lasted."""
    return (probe.ends - probe.begins) / 1e3 / int(flow.spans["bbr.min_rtt_us"][probe.place])


def loss_above_threshold(flow: Flow) -> Numbers:
    names = [*SHORT_TERM, "inflight_hi", "inflight_hi_headroom", "recovery"]
    probes = probes_up(flow)
    cut = [probe for probe in probes if probe.too_high]
    within = [(pl.col("ns") > begin) & (pl.col("ns") < end) for begin, end in flow.undone]
    late_rows = flow.spans.filter(pl.any_horizontal(pl.lit(value=False), *within))
    late = int(late_rows["lost"].sum())
    sent_again = flow.total("tp.lost") * max(flow.segment_sizes)
    dropped = flow.of.dropped()
    lows = flow.spans.select("ns", "bbr.inflight_hi", carries=flow.carries.fill_null(flow.rate))
    lowest, _, carries = lows.sort("bbr.inflight_hi", "ns", nulls_last=True).row(0)
    return {
        "probes_count": len(probes),
        "cut_count": len(cut),
        "lowered_count": sum(probe.lowered for probe in cut),
        "probes_at": [flow.at(probe.ends) for probe in cut],
        "begins_at": flow.at(probes[0].begins),
        "ends_at": flow.at(probes[-1].ends),
        "loss_share": flow.loss_share,
        "threshold_share": 5 / 256,
        "undone": [packets for packets in (late, flow.came_twice) if packets],
        "lowest_packets": flow.after_init["bbr.inflight_hi"].min(),
        "bdp_packets": carries * flow.path_then(lowest) / 1e6 / max(flow.segment_sizes),
        "queue": [] if dropped is None else [dropped],
        **priced(flow, missing(flow, *names) if flow.carries.count() else sent_again),
    }


def probe_rtt_long(flow: Flow) -> Numbers:
    """An episode takes 200 ms and a round trip, of the path as it is then where a flow is alone."""
    spans, idle = flow.probe_rtt_spans, idle_in_probe_rtt(flow)
    lasted = [whole - out for whole, out in zip(flow.probe_rtts, idle, strict=True)]
    ideal = sum(0.2 + _emptied_us(flow, *span) / 1e6 for span in spans)
    flights = [flow.spans.filter(ns=begin).select(in_flight()).item() for begin, _ in spans]
    return {
        "probes_count": len(lasted),
        "total_s": sum(lasted),
        "longest_s": max(lasted),
        "longest_at": flow.at(spans[lasted.index(max(lasted))][0]),
        "total_share": sum(lasted) / flow.seconds,
        "long_ratio": sum(lasted) / ideal,
        "inflight_packets": sum(flights) / len(flights),
        "begins_at": flow.at(spans[0][0]),
        "ends_at": flow.at(spans[-1][1]),
        "idle_s": sum(idle),
        "cost_s": sum(lasted) - ideal,
    }


def idle_in_probe_rtt(flow: Flow) -> list[float]:
    """Of each time in PROBE_RTT, how long [s] nothing could be sent: there was no data, or no room
    in the receiver's window."""
    held = held_by(flow).filter(pl.col("by").is_in(["application", "receive_window"]))
    return [
        int(held.filter((pl.col("ns") >= begin) & (pl.col("ns") < end))["d"].sum()) / SECOND
        for begin, end in flow.probe_rtt_spans
    ]


def _emptied_us(flow: Flow, begin: int, end: int) -> float:
    """The path's round trip in an episode, whose flow empties the queue unless others fill it:
    then its samples have to tell what was left."""
    rtts = flow.acks.filter(pl.col("ns").is_between(begin, end) & (pl.col("rs.rtt_us") > 0))
    waits = [us for at, us in flow.of.waits if begin <= at <= end]
    if len(flow.of.flows) > 1 and not waits:
        return flow.base_us
    least = min(rtts["rs.rtt_us"], default=0) - min(waits, default=0)
    return max(flow.base_us, float(least))


def slow_descent(flow: Flow) -> Numbers:
    """From the link's fall to the first row that leaves no more than a tenth beyond it believed."""
    (_, old), (fall, new) = flow.of.rates[-2:]
    after = flow.spans.with_columns(believed=flow.believed_after, carries=flow.carries)
    came = after.filter((pl.col("ns") >= fall) & (pl.col("believed") <= 1.1 * pl.col("carries")))
    ends = int(came["ns"][0])
    rows = flow.between(fall, ends)
    srtt = float(rows["srtt"].mean())  # type: ignore[arg-type]
    lower = held_by(flow).filter((pl.col("ns") >= fall) & (pl.col("ns") < ends))
    return {
        "old_bps": old,
        "new_bps": new,
        "fall_at": flow.at(fall),
        "slow_s": (ends - fall) / SECOND,
        "t1_at": flow.at(ends),
        "base_us": flow.base_us,
        "srtt_us": srtt,
        "rtt_ratio": srtt / flow.base_us,
        "lost_packets": rows["lost"].sum(),
        "bounds": [int(lower.filter(pl.col("by").is_in(SHORT_TERM))["d"].sum()) / SECOND],
        "begins_at": flow.at(fall),
        "ends_at": flow.at(ends),
        "cost_s": flow.waited(rows),
    }


def ack_aggregation(flow: Flow) -> Numbers:
    """While BBR's memory of a burst is beyond both limits in PROBE_BW, of a flow alone."""
    limit = max(10.0, 0.5 * flow.bdp)
    names = ("bbr.extra_acked[0]", "bbr.extra_acked[1]")
    rows = flow.spans.with_columns(extra=pl.max_horizontal(*names)).filter(
        (pl.col("extra") > limit)
        & (pl.col("bbr.mode") == PROBE_BW)
        & ((in_flight() > 0) | (pl.col("icsk_ca_state") > 0))
    )
    lasted, most = int(rows["d"].sum()), rows["extra"].max()
    cwnd = float((rows["cwnd"] * rows["d"]).sum()) / lasted
    return {
        "held_s": lasted / SECOND,
        "held_share": lasted / SECOND / flow.seconds,
        "floor_packets": 10,
        "most_packets": most,
        "most_at": flow.at(rows.filter(extra=most)["ns"][0]),
        "bdp_packets": flow.bdp,
        "cwnd_packets": cwnd,
        "cwnd_ratio": cwnd / flow.bdp,
        "t0_at": flow.at(rows["ns"][0]),
        "begins_at": flow.at(rows["ns"][0]),
        "ends_at": flow.at(rows["ns"][-1] + rows["d"][-1]),
        "cost_s": flow.waited(rows),
    }


READERS = {
    "application_limited": application_limited,
    "inflight_cap": inflight_cap,
    "stuck_at_lower_bounds": stuck_at_lower_bounds,
    "underuse_of_shallow_buffer": underuse_of_shallow_buffer,
    "loss_above_threshold": loss_above_threshold,
    "probe_up_cut_short": probe_up_cut_short,
    "probe_rtt_long": probe_rtt_long,
    "slow_descent": slow_descent,
    "ack_aggregation": ack_aggregation,
}
