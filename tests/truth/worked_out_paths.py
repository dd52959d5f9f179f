"""What is true of a simulated flow on a path that changes or is shared: see `worked_out`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import polars as pl

from tests.truth import raw
from tests.truth.facts import PROBE_RTT, RECOVERY, UNSET, Flow
from tests.truth.limits import LEAST_CWND
from tests.truth.readers_bounds import extra_acked, idle_in_probe_rtt, in_buffer, used
from tests.truth.seconds import SECOND, held, missing, of_flow, of_run

Note = str | None
# A quarter of the path's product, BBR's own probe, is in and out of the queue by design.
BEYOND_PROBES = 1.25
# bbr_min_rtt_win_sec of v1, bbr_probe_rtt_win_ms of v2 and v3.
WINDOW_S = {"v1": 10, "later": 5}
# bbr_probe_rtt_mode_ms.
DWELL_S = 0.2


def stalled_start(flow: Flow) -> Note:
    """No ACK for half a second and five round trips, within its first three seconds; no timer fired
    meanwhile, and it does not stand still again and again."""
    came = (pl.col("kind") == "IX") | ((pl.col("kind") == "M") & (pl.col("rs.acked_sacked") > 0))
    times = [flow.at(ns) for ns in flow.after_init.filter(came)["ns"]]
    limit = max(0.5, 5e-6 * flow.base_us)
    found = [
        (a, b - a)
        for a, b in pairwise(times)
        if a - flow.begins < 3
        and b - a > limit
        and not any(a <= fired <= b for fired in flow.timeouts)
        and sum(2 * (d - c) >= b - a for c, d in pairwise(times)) <= 2
    ]
    return f"{found[0][1]:.2f} s from {found[0][0]:.2f} s on" if found else None


def changed_trips(flow: Flow) -> list[tuple[int, int, int, float, float]]:
    """Since when [ns] the path's round trip was one, until when another and until when that, and
    how many us each was."""
    changes = [(int(flow.rows["ns"][0]), flow.base_us)]
    changes += [(ns, us + flow.extra_us) for ns, us in flow.of.changed("rtt")]
    ends = [*(ns for ns, _ in changes[1:]), int(flow.rows["ns"][-1])]
    return [
        (since, ns, until, before, after)
        for (since, before), (ns, after), until in zip(changes, changes[1:], ends[1:], strict=False)
    ]


def shorter_path(flow: Flow) -> Note:
    """Three seconds before and after it has to be seen."""
    for since, ns, until, before, after in changed_trips(flow):
        seen = since <= ns - 3 * SECOND and ns + 3 * SECOND <= until
        if after <= 0.8 * before and seen:
            return f"from {before / 1e3:.0f} to {after / 1e3:.0f} ms at {flow.at(ns):.2f} s"
    return None


def stale_min_rtt(flow: Flow) -> Note:
    """Of the time in which nothing came back, nobody can say what min_rtt should be."""
    for _, ns, until, before, after in changed_trips(flow):
        rows = flow.spans.filter((pl.col("ns") >= ns) & (pl.col("ns") < until))
        rows = rows.filter(pl.col("bbr.min_rtt_us") > 0)
        old = rows.filter(pl.col("bbr.min_rtt_us") * BEYOND_PROBES < after)
        lasted = int(old["d"].clip(upper_bound=round(2000 * after)).sum()) / SECOND
        if after > before and lasted >= 2:
            return f"{lasted:.1f} s after {flow.at(ns):.2f} s, path {after / 1e3:.0f} ms"
    return None


def overdue_probe_rtt(flow: Flow) -> Note:
    """Age of the least RTT by the jiffies of its stamp, while ACKs came."""
    later = "bbr.probe_rtt_min_stamp" in flow.rows.columns
    stamp = "bbr.probe_rtt_min_stamp" if later else "bbr.min_rtt_stamp"
    window = WINDOW_S["later" if later else "v1"]
    hz = raw.manifest(flow.of.folder)["constants"]["HZ"]
    rows = flow.acks.with_columns(
        age=((pl.col("jiffies32") - pl.col(stamp)) % raw.WRAP) / hz,
        gap=pl.col("ns").diff().fill_null(0) / 1e9,
    ).filter((pl.col("bbr.mode") != PROBE_RTT) & (pl.col("bbr.min_rtt_us") < UNSET))
    rows = rows.filter((pl.col("age") >= window + 1) & (pl.col("age") < 1e6))
    usual = 4e-6 * pl.col("tp.srtt_us") / 8
    lasted = float(rows.filter(pl.col("gap") <= pl.max_horizontal(pl.lit(0.2), usual))["gap"].sum())
    return f"{lasted:.1f} s, up to {rows['age'].max():.1f} s old" if lasted >= 1 else None


def spurious_recovery(flow: Flow) -> Note:
    """Two or more: one happens to any flow that meets a timeout."""
    undone = flow.after_init.filter((pl.col("kind") == "U") & (pl.col("icsk_ca_state") == RECOVERY))
    return f"{undone.height} undone" if undone.height >= 2 else None


def standing_queue(flow: Flow) -> Note:
    """Seconds around which five in a row had no RTT near the path's."""
    lows = {
        int(second): (int(least), float(base))
        for second, least, base in flow.by_second.select("second", "least", "base").iter_rows()
    }
    waits = flow.waited_in
    lasted = 0.0
    for second in lows:
        five = [lows[n] for n in range(second - 2, second + 3) if n in lows]
        stands = all(least > BEYOND_PROBES * base for least, base in five)
        seen = [waits[n] for n in range(second - 2, second + 3) if n in waits]
        excess = min(least - base for least, base in five)
        if stands and (not seen or max(seen) >= excess / 2):
            lasted += flow.covered(second)
    return f"{lasted:.1f} s" if lasted >= 5 else None


def marks_unanswered(flow: Flow) -> Note:
    """Ten or more: of v1, spells of CWR, in which TCP answers for it; else what ACKs told of, a
    hundredth of all that was delivered, while BBR held itself not to be allowed to answer."""
    if "bbr.lt_use_bw" in flow.rows.columns:
        spells = len(flow.window_reductions)
        return f"{spells} spells of CWR" if spells >= 10 else None
    told = flow.total("tp.delivered_ce")
    there = told >= 10 and flow.marked >= 0.01 and not flow.answers_marks
    return f"{told} marks, {flow.marked:.2f} of all" if there else None


def unmarked(flow: Flow) -> Note:
    """Without what timeouts marked, and what came after all."""
    lost = flow.without_timeouts()[0] - flow.came_twice
    there = flow.answers_marks and not flow.total("tp.delivered_ce") and lost >= 10
    return f"{lost} lost, no mark" if there else None


def underused(flow: Flow) -> Note:
    """Alone, and its bounds held it back while most of that was missing; nothing was lost but in
    the queue, which holds less than a probe puts in flight beyond the path's product."""
    if "bbr.inflight_hi" not in flow.rows.columns or len(flow.of.lab["flows"]) > 1:
        return None
    if in_buffer(flow) >= 0.25 * flow.bdp + extra_acked(flow):
        return None
    part = missing(flow, "inflight_hi", "inflight_hi_headroom", "inflight_lo", "pacing_bw_lo")
    part /= sum(it.full for it in of_flow(flow).values())
    unused = 1 - used(flow)
    own = 2 * (flow.of.dropped() or 0) >= flow.total("tp.lost")
    there = unused > 0.1 and part >= 0.05 and own
    return f"{unused:.2f} unused, {part:.2f} of the link under its bounds" if there else None


def held_by_bounds(flow: Flow) -> Note:
    unseen = len(flow.of.lab["flows"]) > len(flow.of.flows)  # what they left of a part, no row says
    if "bbr.inflight_lo" not in flow.rows.columns or unseen:
        return None
    limits = ("inflight_lo", "pacing_bw_lo")
    part = held(flow, *limits) / flow.seconds
    seconds = of_flow(flow).values()
    whole = sum(it.full for it in seconds)
    lacking = whole - sum(it.bytes for it in seconds)
    cost = min(missing(flow, *limits), lacking) / whole
    found = f"{part:.2f} of its time, {cost:.3f} of its part missing"
    return found if cost >= (0.02 if part >= 1 / 3 else 0.05) else None


def stale_rate(flow: Flow) -> Note:
    """Its maximum of bandwidth was more than a tenth over the new rate for a second and twenty
    round trips, in which the RTT was a quarter over the path's."""
    rates = flow.of.rates
    for (_, old), (ns, new) in pairwise(rates):
        until = next((at for at, _ in rates if at > ns), flow.rows["ns"][-1])
        rows = flow.spans.with_columns(
            believed=flow.believed_after, carries=flow.carries, base=flow.base_then
        )
        rows = rows.filter((pl.col("ns") >= ns) & (pl.col("ns") <= until))
        if new > 0.8 * old or rows.is_empty() or flow.rows["ns"][0] > ns:
            continue
        right = rows.filter(pl.col("believed") <= 1.1 * pl.col("carries"))
        ends = int(right["ns"][0] if right.height else rows["ns"][-1])
        meanwhile = rows.filter(pl.col("ns") < ends)
        if ends - ns > max(SECOND, 20_000 * flow.base_us):
            ratio = float((meanwhile["srtt"] / meanwhile["base"]).mean())  # type: ignore[arg-type]
            if ratio > BEYOND_PROBES:
                return f"{(ends - ns) / SECOND:.1f} s, RTT {ratio:.2f} of the path's"
    return None


def long_probe_rtt(flow: Flow) -> Note:
    """In all half as long again as 200 ms and a round trip each, and a hundredth of its time, both
    without the time in which there was nothing to send."""
    trips = flow.after_init.select("ns", base=flow.base_then)
    ideal = lasted = 0.0
    for (begin, end), idle in zip(flow.probe_rtt_spans, idle_in_probe_rtt(flow), strict=True):
        base = float(trips.filter(pl.col("ns") <= begin)["base"][-1])
        ideal += DWELL_S + base / 1e6
        lasted += (end - begin) / SECOND - idle
    count = len(flow.probe_rtt_spans)
    there = lasted > 1.5 * ideal and lasted - ideal > 0.01 * flow.seconds
    return f"{lasted:.2f} s in {count} of {ideal:.2f} s" if there else None


def tail_loss(flow: Flow) -> Note:
    probes, timeouts = len(flow.tail_probes), len(flow.tail_timeouts)
    there = probes >= 1 and probes + timeouts >= 2
    return f"{probes} found by probes, {timeouts} by timeouts" if there else None


def crowded(flow: Flow) -> Note:
    """In some second; and no packet of a PROBE_RTT then saw the path without a queue."""
    flows = flow.of.flows
    if len(flows) < 2:
        return None
    base = min(one.base_us for one in flows)
    least_base = base
    base = min([base, *(trip[-1] for one in flows for trip in changed_trips(one))])
    size = max(max(one.segment_sizes) for one in flows)
    of_all = of_run(flow.of)
    crowds = []
    for n in sorted({n for seconds in of_all for n in seconds}):
        found = [
            (one, seconds[n])
            for one, seconds in zip(flows, of_all, strict=True)
            if n in seconds and seconds[n].bytes > 0
        ]
        there = [it for _, it in found]
        rate = max((it.full / it.covered * it.senders for it in there if it.covered), default=0.0)
        floors = sum(
            LEAST_CWND * size / (one.base_us - least_base + base) * 1e6 for one, _ in found
        )
        if len(there) > 1 and floors > rate:
            crowds.append(n)
    least = min(
        (
            int(rows["rs.rtt_us"].min())  # type: ignore[arg-type]
            for one in flows
            for begin, end in one.probe_rtt_spans
            if crowds and crowds[0] <= one.at(begin) < crowds[-1] + 1
            if not (rows := _rtts(one, begin, end)).is_empty()
        ),
        default=0,
    )
    later = [
        int(rows["rs.rtt_us"].min())  # type: ignore[arg-type]
        for one in flows
        if crowds
        and not (
            rows := _rtts(one, *(one.zero + n * SECOND for n in (crowds[0] + 1, crowds[-1] + 1)))
        ).is_empty()
    ]
    there_is = min([least, *later]) > 1.1 * base
    return f"{len(crowds)} s, PROBE_RTT saw {least} us" if there_is else None


def _rtts(flow: Flow, begin: int, end: int) -> pl.DataFrame:
    rows = flow.acks.filter((pl.col("ns") > begin) & (pl.col("ns") <= end))
    return rows.filter(pl.col("rs.rtt_us") > 0)


PROBLEMS: dict[str, Callable[[Flow], Note]] = {
    "stalled_start": stalled_start,
    "shorter_path": shorter_path,
    "stale_min_rtt": stale_min_rtt,
    "overdue_probe_rtt": overdue_probe_rtt,
    "spurious_recovery": spurious_recovery,
    "standing_queue": standing_queue,
    "marks_unanswered": marks_unanswered,
    "unmarked": unmarked,
    "underused": underused,
    "held_by_bounds": held_by_bounds,
    "stale_rate": stale_rate,
    "long_probe_rtt": long_probe_rtt,
    "tail_loss": tail_loss,
    "crowded": crowded,
}
