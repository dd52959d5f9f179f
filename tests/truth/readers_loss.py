"""Numbers of findings about losses, timeouts and reordering, by raw rows."""

from __future__ import annotations

import statistics
from itertools import pairwise

import polars as pl

from tests.truth import raw, wire
from tests.truth.facts import LEAST_SILENCE_S, PROBE_BW, UNSET, Flow, Numbers, Recording
from tests.truth.limits import in_flight
from tests.truth.readers_bounds import probes_up
from tests.truth.seconds import SECOND, missing, missing_by_second, number, of_flow

DISORDER, OPEN = 1, 0
# bbr_pacing_gain[] of a probe, 1.25 in 1/256.
PROBE_GAIN = 320


def resent(flow: Flow, packets: int) -> Numbers:
    """The price of sending packets again: their bytes, and the time that these take."""
    size = packets * max(flow.segment_sizes)
    return {"cost_bytes": size, "cost_s": size / flow.rate}


def span(flow: Flow, rows: pl.DataFrame) -> Numbers:
    return {"begins_at": flow.at(rows["ns"][0]), "ends_at": flow.at(rows["ns"][-1])}


def outage(flow: Flow) -> Numbers:
    outages = flow.outages
    total = sum(lasted for _, lasted in outages)
    silence_at, silence_s = max(outages, key=lambda outage: outage[1])
    return {
        "timeouts_count": len(flow.timeouts),
        "timeouts_at": flow.timeouts,
        "silences_count": len(outages),
        "total_s": total,
        "silence_s": silence_s,
        "silence_at": silence_at,
        "undone_count": flow.undone_timeouts,
        "srtt_us": flow.usual_us,
        "limit_s": max(LEAST_SILENCE_S, 4e-6 * flow.usual_us),
        "beside": _went_on(flow),
        "begins_at": outages[0][0],
        "ends_at": sum(outages[-1]),
        "cost_s": total,
    }


def _went_on(flow: Flow) -> list[int]:
    """In how many of its silences others were heard without a pause as long; where not in all."""
    limit = 1e9 * max(LEAST_SILENCE_S, 4e-6 * flow.usual_us)
    times = sorted(
        ns for one in flow.of.flows for ns in one.acks.filter(pl.col("rs.acked_sacked") > 0)["ns"]
    )
    longest = []
    for at, lasted in flow.outages:
        a, b = flow.zero + round(1e9 * at), flow.zero + round(1e9 * (at + lasted))
        inside = [a, *(ns for ns in times if a + 1000 < ns < b - 1000), b]
        longest.append(max(y - x for x, y in pairwise(inside)))
    count = sum(pause <= limit for pause in longest)
    return [count] if 0 < count < len(longest) else []


def heavy_loss(flow: Flow) -> Numbers:
    marked_lost, delivered = flow.without_timeouts()
    late = min(flow.came_twice, marked_lost)
    lost = marked_lost - late
    rows = flow.spans.with_columns(second=number(flow.of))
    marked, others = flow.marked_lost, rows.filter(lost=0, kind="M")
    by_second = marked.group_by(second=number(flow.of)).agg(pl.col("lost").sum())
    seconds = (
        rows.group_by("second")
        .agg(pl.col("ns").min(), pl.col("delivered").sum())
        .join(by_second, on="second")
        .with_columns(part=pl.col("lost") / (pl.col("lost") + pl.col("delivered")))
    )
    worst = seconds.filter(pl.col("part").is_not_nan()).sort("part", "second").tail(1)
    return {
        "lost_packets": lost,
        "part_share": lost / (lost + delivered),
        "base_us": statistics.median_low(
            flow.path_then(ns) for ns in marked.filter(pl.col("lost") > 0)["ns"]
        ),
        "t0_at": flow.at(marked["ns"][0]),
        "t1_at": flow.at(marked["ns"][-1]),
        "worst_at": flow.at(worst["ns"][0]),
        "worst_share": worst["part"][0],
        "came": [late] if late else [],
        "undone": [flow.undo_count],
        "lost_us": marked["srtt"].median(),
        **burst(flow),
        "rtt_us": others["srtt"].median(),
        **span(flow, marked),
        **resent(flow, lost),
    }


def burst(*flows: Flow) -> Numbers:
    """The most that one of the flows marked lost within a round trip, and the longest pause of its
    ACKs that ended then or a round trip before, where it is longer than one."""
    most: tuple[int, int, int, float] | None = None
    whose = flows[0]
    for flow in flows:
        marks = flow.marked_lost.filter(pl.col("lost") > 0).select("ns", "lost", "srtt").rows()
        for place, (begin, _, srtt) in enumerate(marks):
            within = [row for row in marks[place:] if row[0] <= begin + round(1000 * srtt)]
            packets = sum(lost for _, lost, _ in within)
            if most is None or packets > most[0]:
                most, whose = (packets, begin, within[-1][0], srtt), flow
    assert most is not None
    packets, begin, end, srtt = most
    heard = whose.acks.filter(pl.col("rs.acked_sacked") > 0)["ns"].to_list()
    since = begin - 1000 * round(srtt)
    pause = max((b - a for a, b in pairwise(heard) if a < begin and b >= since), default=0) / 1e3
    return {
        "burst_packets": packets,
        "burst_share": packets / int(whose.marked_lost["lost"].sum()),
        "burst_us": (end - begin) / 1e3,
        "burst_at": whose.at(begin),
        "silence": [pause / 1e3] if pause > srtt else [],
    }


def loss_near_gain_cliff(flow: Flow) -> Numbers:
    """The maximum of bandwidth, from the event that began PROBE_BW to the last in it."""
    after = flow.spans.with_columns(bw=flow.believed_after)
    rows = after.filter(pl.col("bbr.mode").fill_null(PROBE_BW) == PROBE_BW)
    short = sum(it.short for it in of_flow(flow).values())
    ends = span(flow, rows)
    return {
        "loss_share": flow.loss_share,
        "carried_bps": flow.goodput,
        "cliff_share": 1 - 1 / 1.25,
        "first_bps": 8 * rows["bw"][0],
        "last_bps": 8 * rows["bw"][-1],
        "t0_at": ends["begins_at"],
        "t1_at": ends["ends_at"],
        **ends,
        "cost_bytes": short,
        "cost_s": short / flow.rate,
    }


def loss_outside_bottleneck(flow: Flow) -> Numbers:
    """Of all flows together: one queue drops for all."""
    flows = flow.of.flows
    # What a queue drops after its last sample, no count of it has.
    last = max(round(at * 1e9) for at, _ in raw.queue(flow.of.folder)) - flow.of.ahead_ns
    marked = pl.concat(one.marked_lost for one in flows).sort("ns").filter(pl.col("ns") <= last)
    lost, dropped = int(marked["lost"].sum()), flow.of.dropped() or 0
    others = pl.concat(one.spans.filter(lost=0, kind="M") for one in flows)
    sent = sum(one.total("tp.lost") + one.total("tp.delivered") for one in flows)
    late = min(came_twice(flow.of), lost)
    elsewhere = lost - late - dropped
    return {
        "lost_packets": lost,
        "came": [late] if late else [],
        "dropped_packets": dropped,
        "elsewhere_packets": elsewhere,
        "elsewhere_share": elsewhere / sent,
        "undone_count": sum(one.undo_count for one in flows),
        "first": _first_drops(flow),
        "closed_count": sum(one.reordered for one in flows),
        "where": [policed] if 2 * (policed := flow.of.policed) >= elsewhere else [],
        "srtt_lost_us": marked["srtt"].mean(),
        **burst(*flows),
        "srtt_us": others["srtt"].mean(),
        **span(flow, marked),
        **resent(flow, elsewhere),
    }


def came_twice(of: Recording) -> int:
    """Packets that D-SACKs tell of in a capture; without one, by the rows."""
    if not (of.folder / "packets.pcap.zst").is_file():
        return sum(flow.came_twice for flow in of.flows)
    told = wire.packets(of.folder).filter(pl.col("twice") > 0)
    packets = 0
    for flow in of.flows:
        ours, theirs = flow.ports
        rows = flow.not_repaired(told.filter(sport=theirs, dport=ours))
        packets += sum(-(-size // max(flow.segment_sizes)) for size in rows["twice"])
    return packets


def _first_drops(flow: Flow) -> list[float]:
    """How long [ms] after the first event the queue was first sampled, and what it had dropped."""
    uptime_s, row = raw.queue(flow.of.folder)[0]
    late = uptime_s * 1e3 - (flow.of.ahead_ns + flow.of.flows[0].zero) / 1e6
    return [late, int(row["dropped"])] if late >= 0 and int(row["dropped"]) else []


def initial_window_loss(flow: Flow) -> Numbers:
    rows, first = flow.spans, flow.after_init
    window = int(first["tp.snd_cwnd"][0]) * int(first["tp.mss_cache"][0])
    acked = rows.with_columns(done=pl.col("acked").cum_sum(), flight=in_flight())
    marked = flow.not_undone(acked.filter((pl.col("lost") > 0) & (pl.col("done") < window)))
    begins = int(marked["ns"][0])
    ends = int(acked.filter(pl.col("done") >= window)["ns"][0])
    return {
        "lost_packets": flow.lost_of_initial_window,
        "window_packets": first["tp.snd_cwnd"][0],
        "base_us": flow.path_then(begins),
        "t0_at": flow.at(begins),
        "t1_at": flow.at(ends),
        "begins_at": flow.at(begins),
        "ends_at": flow.at(ends),
        "inflight_packets": marked["flight"][0],
        "cost_s": (ends - begins) / SECOND,
    }


def tail_loss(flow: Flow) -> Numbers:
    probes, timeouts = flow.tail_probes, flow.tail_timeouts
    repairs = sorted([*probes, *timeouts])
    heard = [flow.at(ns) for ns in flow.acks["ns"]]
    waits = [at - max(ack for ack in heard if ack < at) for at in repairs]
    paths = [flow.other_in(int(at), flow.base_us) for at in repairs]
    return {
        "probes_count": len(probes),
        "probes_at": probes,
        "timeouts_count": len(timeouts),
        "timeouts_at": timeouts,
        "tails_count": len(repairs),
        "base_us": min(paths),
        "begins_at": repairs[0],
        "ends_at": repairs[-1],
        "cost_s": sum(max(0.0, wait - path / 1e6) for wait, path in zip(waits, paths, strict=True)),
    }


def reordering(flow: Flow) -> Numbers:
    """Holes: from when TCP_CA_Disorder was entered to when it ended in TCP_CA_Open."""
    opened, holes = 0, []
    states = flow.after_init.filter(kind="S").select("ns", "icsk_ca_state", "new_state")
    for ns, was, now in states.iter_rows():
        if now == DISORDER:
            opened = ns
        elif (was, now) == (DISORDER, OPEN):
            holes.append((opened, ns))
    lasted = [(b - a) / 1e3 for a, b in holes]
    rows = flow.spans.filter((pl.col("bbr.min_rtt_us") > 0) & (pl.col("bbr.min_rtt_us") < UNSET))
    believed = float((rows["bbr.min_rtt_us"] * rows["d"]).sum()) / int(rows["d"].sum())
    window = 2 * believed / flow.base_us
    blind = blind_probes(flow)
    size = missing(flow, "cwnd_target") if window < 1 else None
    size = size if not blind else (size or 0) + blind.pop("missing_bytes")
    ends = flow.at(holes[0][0]), flow.at(holes[-1][1])
    return {
        "spells_count": flow.reordered,
        "lost_packets": flow.total("tp.lost"),
        "undone_count": flow.undo_count,
        "believed_us": believed,
        "base_us": flow.base_us,
        "window_ratio": window,
        **blind,
        "cost_bytes": size,
        "cost_s": None if size is None else size / flow.rate,
        "longest_us": max(lasted),
        "usual_us": statistics.median(lasted),
        **dict(zip(("t0_at", "t1_at"), ends, strict=True)),
        **dict(zip(("begins_at", "ends_at"), ends, strict=True)),
    }


def blind_probes(flow: Flow) -> dict[str, float]:
    """Of v2, the seconds in which 1.25 times min_rtt is less than the path takes, where most of the
    probes that began in them ended by what was in flight: not by loss, PROBE_RTT or inflight_hi."""
    if "bbr.lt_bw" in flow.rows.columns or "rs.is_acking_tlp_retrans_seq" in flow.rows.columns:
        return {}
    rows = flow.spans.filter(pl.col("bbr.min_rtt_us") < UNSET).with_columns(second=number(flow.of))
    most = rows.group_by("second").agg(pl.col("bbr.min_rtt_us").max())
    seconds = set(most.filter(PROBE_GAIN / 256 * pl.col("bbr.min_rtt_us") < flow.base_us)["second"])
    probes = [probe for probe in probes_up(flow) if int(flow.at(probe.begins)) in seconds]
    ended = flow.spans.filter(
        (pl.col("bbr.mode") == PROBE_BW) & (pl.col("bbr.stopped_risky_probe") == 0)
    )
    by_queue = set(ended["ns"])
    cut = sum(not probe.too_high and probe.ends in by_queue for probe in probes)
    if 2 * cut <= len(probes):
        return {}
    then = flow.spans.select(number(flow.of).is_in(list(seconds))).to_series()
    believed = flow.believed_after.filter(then)
    return {
        "blind_s": sum(flow.covered(second) for second in seconds),
        "pif_ratio": PROBE_GAIN / 256,
        "probes_count": len(probes),
        "cut_count": cut,
        "from_bps": 8 * float(believed[0]),
        "to_bps": 8 * float(believed[-1]),
        "missing_bytes": sum(
            size for n, size in missing_by_second(flow, "pacing_max_bw").items() if n in seconds
        ),
    }


def probe_spans(flow: Flow) -> list[tuple[int, int]]:
    """Each probe of v1 [ns]: from the row that began it to the one that ended it."""
    probing = (pl.col("bbr.mode") == PROBE_BW) & (pl.col("bbr.pacing_gain") == PROBE_GAIN)
    found = flow.after_init.select("ns", on=probing).rows()
    probes: list[tuple[int, int]] = []
    for (ns, was), (_, now) in pairwise(found):
        if now and not was:
            probes.append((ns, int(flow.after_init["ns"][-1])))
        elif was and not now:
            probes[-1] = (probes[-1][0], ns)
    return probes


def probes_overflow(flow: Flow) -> Numbers:
    probes = probe_spans(flow)
    # What an ACK brings, it brings in the phase that it finds.
    rows = flow.after_init.select("bbr.mode").with_columns(flow.spans.select("ns", "lost", "srtt"))
    marked = rows.filter((pl.col("lost") > 0) & (pl.col("bbr.mode") == PROBE_BW))
    lost, own, lossy = int(marked["lost"].sum()), 0, set()
    for ns, packets, srtt in marked.select("ns", "lost", "srtt").iter_rows():
        last = max(((a, b) for a, b in probes if a < ns), default=None)
        if last and ns <= last[1] + 1500 * srtt:
            own, lossy = own + packets, lossy | {last[0]}
    starts = [a for a, _ in probes]
    most = flow.after_init.filter(pl.col("bbr.mode") == PROBE_BW)["rs.rtt_us"].max()
    return {
        "lost_packets": lost,
        "aligned_share": own / lost,
        "lossy_count": len(lossy),
        "probes_count": len(probes),
        "first_at": [flow.at(ns) for ns in sorted(lossy)],
        "every_s": (starts[-1] - starts[0]) / SECOND / (len(starts) - 1),
        "loss_share": flow.loss_share,
        "rtt_us": most,
        "buffer_share": float(most) / flow.base_us - 1,  # type: ignore[arg-type]
        **span(flow, marked),
        **resent(flow, lost),
    }


def policer(flow: Flow) -> Numbers:
    """The long-term rate, by what was paced and acknowledged while it held."""
    rows = flow.after_init.with_columns(
        begins=pl.col("ns").shift(1),
        d=pl.col("ns").diff().fill_null(0),
        acked=flow.spans["acked"],
        pacing=flow.spans["pacing"].shift(1),
        carries=flow.carries.shift(1),
    )
    held = rows.filter((pl.col("bbr.lt_use_bw") == 1) & (pl.col("bbr.mode") == PROBE_BW))
    entries = [round(at * 1e9) + flow.zero for at in flow.frozen_from]
    ends = rows.filter(pl.col("ns").is_in(entries)).select(
        lost=pl.col("tp.lost") - pl.col("bbr.lt_last_lost"),
        delivered=pl.col("tp.delivered") - pl.col("bbr.lt_last_delivered"),
    )
    assert ends.height == len(entries)
    lasted = int(held["d"].sum())
    carried = int(held["acked"].sum())
    if flow.of.rates:
        rate = float((held["carries"] * held["d"]).sum()) / lasted
        short = missing(flow, "policer")
    else:
        rate = float(max(it.bytes for it in of_flow(flow).values()))
        short = max(0.0, rate * lasted / SECOND - carried)
    return {
        "rate_bps": 8 * rate,
        "verdict": [flow.of.policed] if flow.of.policed else [],
        "cost_bytes": short,
        "cost_s": short / flow.rate,
        "held_s": flow.frozen,
        "entries_at": flow.frozen_from,
        "loss_share": flow.loss_share,
        "least_share": float((ends["lost"] / ends["delivered"]).min()),
        "lt_bps": 8 * float((held["pacing"] * held["d"]).sum()) / int(held["d"].sum()),
        "carried_bps": int(held["acked"].sum()) * 8e9 / int(held["d"].sum()),
        "begins_at": flow.at(held["begins"][0]),
        "ends_at": flow.at(held["ns"][-1]),
    }


READERS = {
    "outage": outage,
    "heavy_loss": heavy_loss,
    "loss_near_gain_cliff": loss_near_gain_cliff,
    "loss_outside_bottleneck": loss_outside_bottleneck,
    "initial_window_loss": initial_window_loss,
    "tail_loss": tail_loss,
    "reordering": reordering,
    "probes_overflow": probes_overflow,
    "policer": policer,
}
