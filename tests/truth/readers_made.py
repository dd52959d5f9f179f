"""What rules say of troubles that no recording here has, by raw rows: numbers, or none.

`test_made_troubles` makes the recordings: simulated paths, and rows that were changed. A reader
returns None where the trouble is not there.
"""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from tests.truth import raw
from tests.truth.facts import LOSS, PROBE_BW, PROBE_RTT, UNSET, Flow, Numbers
from tests.truth.limits import TX_START, held_by
from tests.truth.readers_bounds import UP, priced
from tests.truth.seconds import SECOND, missing_by_second
from tests.truth.slices import begun

# What holds a flow back that is neither congestion control nor the path.
OUTSIDE = ("application", "receive_window", "max_pacing_rate")
# net.ipv4.tcp_plb_cong_thresh [1/256], tcp_plb_rehash_rounds, tcp_plb_idle_rehash_rounds.
PLB = {"plb_cong_thresh": 128, "plb_rehash_rounds": 12, "plb_idle_rehash_rounds": 3}


def mss_drop(flow: Flow) -> Numbers | None:
    """The first segment size of 95 % or less of the one before, until 90 % of the rate is back."""
    rows = flow.after_init
    fields = ("bbr.bw.s[0].v", "bbr.bw_hi[0]", "bbr.bw_hi[1]")
    most = pl.max_horizontal(*(name for name in fields if name in rows.columns)).shift(-1)
    sizes = rows["tp.mss_cache"].to_list()
    # What an event left, in bytes of its own segments; the last one shows none.
    left = (rows.select(most * pl.col("tp.mss_cache") * 1e6 / (1 << 24))).to_series().to_list()
    times = rows["ns"].to_list()
    places = (n for n in range(1, len(sizes)) if sizes[n] <= 0.95 * sizes[n - 1])
    place = next(places, None)
    if place is None:
        return None
    at, old, new = times[place], left[place - 1], left[place]
    back = next(
        (n for n in range(place + 1, len(sizes) - 1) if left[n] >= 0.9 * old),
        None,
    )
    ends = times[-1] if back is None else times[back]
    near = flow.spans.filter(pl.col("ns").is_between(at, at + SECOND))
    rtts = flow.acks.filter(pl.col("rs.rtt_us") > 0).select("ns", "rs.rtt_us")
    before = rtts.filter((pl.col("ns") >= at - 2 * SECOND) & (pl.col("ns") < at))["rs.rtt_us"]
    after = rtts.filter((pl.col("ns") >= at + SECOND) & (pl.col("ns") < at + 3 * SECOND))
    found = {
        "old_mss": sizes[place - 1],
        "new_mss": sizes[place],
        "drop_at": flow.at(at),
        "before_bps": 8 * old,
        "after_bps": 8 * new,
        "least_mss": min(sizes),
        "changes_count": sum(a != b for a, b in pairwise(sizes)),
        "lost_packets": int(near["lost"].sum()),
        "delivered_bytes": int(near["acked"].sum()),
        "recovery": [] if back is None else [(ends - at) / 1e9],
        "before_us": before.median(),
        "after_us": after["rs.rtt_us"].median(),
        "begins_at": flow.at(at),
        "ends_at": flow.at(ends),
    }
    return found if back is None else {**found, **priced(flow, _missing_between(flow, at, ends))}


def _missing_between(flow: Flow, begin: int, end: int) -> float:
    """What was missing [bytes] of the seconds in a time, under BBR's own limits and the path's."""
    found = 0.0
    own = set(held_by(flow)["by"]) - set(OUTSIDE)
    for second, short in missing_by_second(flow, *own).items():
        starts = flow.zero + second * SECOND
        inside = min(end, starts + SECOND) - max(begin, starts)
        found += short * max(0, inside) / SECOND
    return found


def plb_rehash(flow: Flow) -> Numbers | None:
    """By the counts of each round: half of its packets or more with CE, twelve times in a row."""
    if "bbr.plb.consec_cong_rounds" not in flow.rows.columns:
        return None
    said = raw.manifest(flow.of.folder)
    # A simulation states what is not the kernel's.
    own = {f"net.ipv4.tcp_{name}": value for name, value in (said.get("rules") or {}).items()}
    stated = own | (said.get("sysctls") or {})
    asked = {name: int(stated.get(f"net.ipv4.tcp_{name}", usual)) for name, usual in PLB.items()}
    ce = pl.col("tp.delivered_ce") - pl.col("bbr.alpha_last_delivered_ce")
    rows = flow.after_init.select(
        "ns",
        "kind",
        rounds="bbr.plb.consec_cong_rounds",
        after=pl.col("bbr.plb.consec_cong_rounds").shift(-1),
        begins=pl.col("bbr.round_start").shift(-1) == 1,
        marked=ce * 256 // (pl.col("tp.delivered") - pl.col("bbr.alpha_last_delivered")),
        out="tp.packets_out",
    )
    found = []
    for ns, kind, rounds, after, begins, marked, out in rows.iter_rows():
        congested = marked is not None and marked >= asked["plb_cong_thresh"]
        if kind != "M" or after != 0 or (begins and not congested):
            continue
        count = min(rounds + bool(begins), asked["plb_rehash_rounds"])
        idle = out == 0 and count >= asked["plb_idle_rehash_rounds"] > 0
        if count >= asked["plb_rehash_rounds"] or idle:
            found.append((ns, count))
    if not found:
        return None
    acks = flow.after_init.select("ns", srtt=pl.col("tp.srtt_us") / 8)
    first, last = found[0][0], found[-1][0]
    return {
        "times_count": len(found),
        "times_at": [flow.at(ns) for ns, _ in found],
        "rounds_count": max(count for _, count in found),
        "least_share": asked["plb_cong_thresh"] / 256,
        "ce_share": flow.marked,
        "before_us": acks.filter(pl.col("ns") < first)["srtt"].mean(),
        "after_us": acks.filter(pl.col("ns") > first)["srtt"].mean(),
        "label": [4] if ":" not in str(flow.rows.filter(kind="I")["daddr"][0]) else [],
        "begins_at": flow.at(first),
        "ends_at": flow.at(last),
    }


def probe_rtt_missing(flow: Flow) -> Numbers | None:
    """By the jiffies of the stamp: a second beyond the window in which ACKs came, or more."""
    later = "bbr.probe_rtt_min_stamp" in flow.rows.columns
    window = 5 if later else 10
    hz = int(raw.manifest(flow.of.folder)["constants"]["HZ"])
    stamp = pl.col("bbr.probe_rtt_min_stamp" if later else "bbr.min_rtt_stamp")
    rows = flow.acks.with_columns(
        jiffies=(pl.col("jiffies32") - stamp) % raw.WRAP,
        gap=pl.col("ns").diff().fill_null(0) / 1e9,
        srtt=pl.col("tp.srtt_us") / 8,
    ).filter(pl.col("bbr.mode") != PROBE_RTT)
    due = (pl.col("jiffies") > window * hz) & (pl.col("jiffies") < raw.WRAP // 2)
    skipped = rows.filter(due & (pl.col("bbr.idle_restart") == 1)).height
    rows = rows.filter(
        (pl.col("bbr.min_rtt_us") < UNSET) & (pl.col("jiffies") / hz).is_between(window + 1, 1e6)
    )
    heard = rows.filter(pl.col("gap") <= pl.max_horizontal(pl.lit(0.2), pl.col("srtt") * 4e-6))
    lasted = float(heard["gap"].sum())
    if lasted < 1:
        return None
    oldest = rows.filter(pl.col("jiffies") == pl.col("jiffies").max()).row(0, named=True)
    return {
        "age_s": oldest["jiffies"] / hz,
        "over_s": oldest["jiffies"] / hz - window,
        "oldest_at": flow.at(oldest["ns"]),
        "probes_count": len(flow.probe_rtt_spans),
        "duration_s": flow.seconds,
        "skipped_count": skipped,
        "believed_us": oldest["bbr.min_rtt_us"],
        "srtt_us": oldest["srtt"],
        "begins_at": flow.at(rows["ns"][0]),
        "ends_at": flow.at(rows["ns"][-1]),
        "cost_s": lasted,
    }


def slow_ramp(flow: Flow) -> Numbers | None:
    """A flow that is alone, and the rise after which it took longest to believe in 95 %."""
    of, last = flow.of, int(flow.rows["ns"][-1])
    if len(of.flows) > 1 or of.unrecorded or len(of.lab.get("flows", [0])) > 1:
        return None
    rows = flow.spans.with_columns(believed=flow.believed_after, carries=flow.carries)
    slow: list[tuple[int, int, bool, float, float]] = []
    for n, ((_, old), (since, new)) in enumerate(pairwise(of.rates)):
        if new < 1.2 * old or not flow.zero < since <= last:
            continue
        until = min([last, *(ns for ns, _ in of.rates[n + 2 : n + 3])])
        inside = rows.filter(pl.col("ns").is_between(since, until))
        came = inside.filter(pl.col("believed") >= 0.95 * pl.col("carries"))["ns"]
        slow.append((since, int(came[0]) if len(came) else until, len(came) > 0, old, new))
    if not slow:
        return None
    since, until, _, old, new = max(slow, key=lambda it: it[1] - it[0])
    its = rows.filter(pl.col("ns").is_between(since, until))
    got = int(its["acked"].sum())
    full = float((its["carries"] * its["d"]).sum()) / SECOND
    by = held_by(flow).filter((pl.col("ns") >= since) & (pl.col("ns") < until))
    outside = by.filter(pl.col("by").is_in(OUTSIDE))["d"].sum() / by["d"].sum()
    if until - since <= 3 * SECOND or got >= 0.95 * full or outside > 0.05:
        return None
    lasted, by_queue = _probes(flow, since, until)
    return {
        "old_bps": old,
        "new_bps": new,
        "rise_at": flow.at(since),
        "slow_s": (until - since) / SECOND,
        "t1_at": flow.at(until),
        "used_share": got / full,
        "probes_count": len(lasted),
        "queue_count": by_queue,
        **({"probe_s": pl.Series(lasted).median()} if lasted else {}),
        "lost_packets": int(its["lost"].sum()),
        "begins_at": flow.at(since),
        "ends_at": flow.at(until),
        **priced(flow, full - got),
    }


def _probes(flow: Flow, since: int, until: int) -> tuple[list[float], int]:
    """How long [s] each probe for bandwidth lasted that began in a time; how many of them v2 ended
    then for the packets in flight: neither loss nor marks did, nor an inflight_hi too high."""
    starts, labels = begun(flow, "phase")
    ends = [*starts[1:], int(flow.rows["ns"][-1])]
    names = ("PROBE_BW_UP", "PROBE_BW_1.25")
    probes = [
        (int(a), int(b))
        for a, b, label in zip(starts, ends, labels, strict=True)
        if label in names and since <= a <= until
    ]
    lasted = [(b - a) / SECOND for a, b in probes]
    if "bbr.stopped_risky_probe" not in flow.rows.columns or "bbr.plb.pause_until" in (
        flow.rows.columns
    ):
        return lasted, 0
    after = flow.after_init.select(
        "ns",
        own=(pl.col("bbr.prev_probe_too_high") == 0) & (pl.col("bbr.stopped_risky_probe") == 0),
        goes_on=(pl.col("bbr.mode") == PROBE_BW) & (pl.col("bbr.cycle_idx") != UP),
    ).with_columns(pl.col("own", "goes_on").shift(-1))
    ended = after.filter(pl.col("own") & pl.col("goes_on"))["ns"].to_list()
    return lasted, sum(b in ended and b <= until for _, b in probes)


def stalled_start(flow: Flow) -> Numbers | None:
    """No ACK for half a second and five round trips, within its first three seconds."""
    rows = flow.spans.with_columns(
        place=pl.int_range(pl.len()),
        cwnd=pl.col("cwnd").fill_null(pl.col("tp.snd_cwnd")),
        sofar=pl.col("acked").cum_sum(),
    )
    heard = (pl.col("kind") == "IX") | ((pl.col("kind") == "M") & (pl.col("rs.acked_sacked") > 0))
    acks = rows.filter(heard).to_dicts()
    spans = [(a, b, b["ns"] - a["ns"]) for a, b in pairwise(acks)]
    first = int(flow.after_init["ns"][0])
    fired = rows.filter((pl.col("kind") == "S") & (pl.col("new_state") == LOSS))["ns"].to_list()
    limit = max(0.5 * SECOND, 5e3 * flow.base_us)
    stalls = [
        (a, b, lasted)
        for a, b, lasted in spans
        if lasted > limit
        and a["ns"] - first < 3 * SECOND
        and not any(a["ns"] <= ns <= b["ns"] for ns in fired)
        and sum(2 * other >= lasted for _, _, other in spans) <= 2
    ]
    if not stalls:
        return None
    a, b, lasted = max(stalls, key=lambda it: it[2])
    between = rows.filter((pl.col("place") > a["place"]) & (pl.col("place") < b["place"]))
    begins = (between["kind"] == "E") & (between["event"] == TX_START)
    return {
        "stall_s": lasted / SECOND,
        "stall_at": flow.at(a["ns"]),
        "since_s": (a["ns"] - first) / SECOND,
        "carried_bytes": a["sofar"],
        "inflight_packets": 0 if begins.any() else b["rs.prior_in_flight"],
        "cwnd_packets": a["cwnd"],
        "base_us": flow.base_us,
        "begins_at": flow.at(a["ns"]),
        "ends_at": flow.at(b["ns"]),
        "cost_s": lasted / SECOND,
    }


READERS = {
    "mss_drop": mss_drop,
    "plb_rehash": plb_rehash,
    "probe_rtt_missing": probe_rtt_missing,
    "slow_ramp": slow_ramp,
    "stalled_start": stalled_start,
}
