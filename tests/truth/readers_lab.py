"""Numbers of findings that no kernel's recording here has, but simulated paths of the lab.

Written from what the findings say, and from the catalogue.
"""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from tests.truth import raw
from tests.truth.facts import PROBE_RTT, Flow, Numbers
from tests.truth.limits import held_by
from tests.truth.readers_shares import together
from tests.truth.seconds import SECOND, missing, missing_by_second, number, of_flow, of_run

STARTUP = 0
RECOVERY = 3


def unequal_shares(flow: Flow) -> Numbers:
    """Of runs all of whose senders were recorded: of the whole time, else of its second half."""
    _, a, b = together(flow)
    place = flow.of.flows.index(flow)
    half = a + (b - a + 2) // 2  # of an odd number of seconds the middle one is the first half's
    carried = [
        {n: of_it[n].bytes if n in of_it else 0 for n in range(a, b + 1)}
        for of_it in of_run(flow.of)
    ]

    def sums(first: int, last: int) -> list[int]:
        return [sum(those[n] for n in range(first, last)) for those in carried]

    def share(first: int, last: int) -> float:
        return sums(first, last)[place] / sum(sums(first, last))

    count, late = len(carried), share(a, b + 1) * len(carried) >= 0.8
    first = half if late else a
    mine, whole = sums(first, b + 1)[place], sum(sums(first, b + 1))
    parts = b + 1 - first
    return {
        "senders_count": count,
        "part_share": mine * count / whole,
        "ours_bps": 8 * mine / parts,
        "theirs_bps": 8 * (whole - mine) / (count - 1) / parts,
        "t0_at": first,
        "t1_at": b + 1,
        "begins_at": max(first, flow.begins),
        "ends_at": min(b + 1, flow.ends),
        "jain_ratio": whole**2 / (count * sum(each**2 for each in sums(first, b + 1))),
        "first_share": share(a, half),
        "second_share": share(half, b + 1),
        "rivals_count": 0,
        "base_us": flow.base_us,
        "loss_share": flow.loss_share,
        "cost_bytes": whole / count - mine,
        "cost_s": (whole / count - mine) / flow.rate,
        "trend": [100 * share(a, half), 100 * share(half, b + 1)],
    }


def startup_never_left(flow: Flow) -> Numbers:
    rows = flow.spans.filter((pl.col("bbr.mode") == STARTUP) & (pl.col("d") > 0))
    found = flow.after_init.with_columns(
        begins=pl.col("bbr.round_start").shift(-1),
        # What the last event did is in no row: STARTUP went on.
        after=pl.col("bbr.mode").shift(-1).fill_null(pl.col("bbr.mode")),
        bw=flow.believed_after,
    )
    acks = found.filter((pl.col("kind") == "M") & (pl.col("after") == STARTUP))
    lasted = int(rows["d"].sum()) / SECOND
    begins, ends = int(rows["ns"][0]), int((rows["ns"] + rows["d"])[-1])
    return {
        "startup_s": lasted,
        "startup_share": lasted / flow.seconds,
        "t0_at": flow.at(begins),
        "t1_at": flow.at(ends),
        "begins_at": flow.at(begins),
        "ends_at": flow.at(ends),
        "rounds_count": int((acks["begins"] == 1).sum()),
        "limited_share": float((acks["rs.is_app_limited"] != 0).mean()),  # type: ignore[arg-type]
        "bw_bps": 8 * acks["bw"][-1],
        "cost_s": lasted,
    }


def spurious_loss(flow: Flow) -> Numbers:
    rows = flow.after_init.filter((pl.col("kind") == "U") & (pl.col("icsk_ca_state") == RECOVERY))
    undone = [flow.at(ns) for ns in rows["ns"]]
    seconds = {int(at) - back for at in undone for back in (0, 1)}
    # By a recovery and its short-term bounds, as far as what was marked lost in these seconds had
    # come.
    held = missing_by_second(flow, "recovery", "inflight_lo", "pacing_bw_lo")
    told = flow.spans.filter(number(flow.of).is_in(sorted(seconds)))
    marked, late = int(told["lost"].sum()), _late(flow)
    came = min(1.0, late / marked) if marked and late else 1.0
    short = came * sum(size for second, size in held.items() if second in seconds)
    return {
        "undone_count": len(undone),
        "undone_at": undone,
        "lost_packets": flow.total("tp.lost"),
        "begins_at": undone[0],
        "ends_at": undone[-1],
        "cost_bytes": short,
        "cost_s": short / flow.rate,
    }


def _late(flow: Flow) -> int:
    """Packets that were marked lost in recoveries that an undo took back."""
    ns = pl.col("ns")
    within = pl.any_horizontal([(ns > begin) & (ns < end) for begin, end in flow.undone])
    return int(flow.spans.filter(within)["lost"].sum())


def spans_in_probe_rtt(flows: list[Flow]) -> list[tuple[int, int, int]]:
    """When [ns] all flows that were there, at least two, were in PROBE_RTT, and how many."""
    probes = [_probes(flow) for flow in flows]
    ends = sorted({at for those in probes for span in those for at in span})
    found = []
    for a, b in pairwise(ends):
        inside = sum(any(c <= a and b <= d for c, d in those) for those in probes)
        there = sum(
            int(flow.after_init["ns"][0]) <= a <= int(flow.rows["ns"][-1]) for flow in flows
        )
        if inside >= 2 and inside == there:
            found.append((a, b, there))
    return found


def probe_rtt_synchronised(first: Flow) -> Numbers:
    """What the link carried while all flows that were there were in PROBE_RTT."""
    flows = first.of.flows
    together, any_ns = spans_in_probe_rtt(flows), _any_in_probe_rtt(flows)
    rate = max(float(flow.carries.max() or 0) for flow in flows)  # type: ignore[arg-type]
    if not rate:
        best: dict[int, int] = {}
        for flow in flows:
            for second, its in of_flow(flow).items():
                best[second] = best.get(second, 0) + its.bytes
        rate = max(best.values())
    idle = 0.0
    for a, b, _ in together:
        carried = sum(
            int(rows.select(pl.col("delivered") * pl.col("tp.mss_cache")).sum().item())
            for flow in flows
            for late in (round(1e3 * flow.base_us),)
            for rows in (flow.between(a + late, b + late + 1),)
        )
        idle += max(0.0, (b - a) / SECOND - carried / rate)
    lasted = sum(b - a for a, b, _ in together)
    return {
        "flows_count": max(there for _, _, there in together),
        "times_count": len(together),
        "times_at": [first.at(a) for a, _, _ in together],
        "together_s": lasted / SECOND,
        "idle_s": idle,
        "together_share": lasted / any_ns,
        "limit_s": 0.2,
        "begins_at": first.at(together[0][0]),
        "ends_at": first.at(together[-1][1]),
        "cost_s": idle,
    }


def _any_in_probe_rtt(flows: list[Flow]) -> int:
    """For how long [ns] one flow or more was in PROBE_RTT."""
    lasted = until = 0
    for a, b in sorted(span for flow in flows for span in _probes(flow)):
        lasted += max(0, b - max(a, until))
        until = max(until, b)
    return lasted


def _probes(flow: Flow) -> list[tuple[int, int]]:
    """From when to when [ns] a flow was in PROBE_RTT."""
    found: list[tuple[int, int]] = []
    spans = flow.spans.with_columns(end=pl.col("ns") + pl.col("d"))
    for begin, end, mode in spans.select("ns", "end", "bbr.mode").iter_rows():
        if mode != PROBE_RTT:
            continue
        if found and found[-1][1] == begin:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return [(begin, end) for begin, end in found if end > begin]


def receive_window_limited(flow: Flow) -> Numbers:
    """How long the window was full, and how large it was: half the time no larger than a size."""
    rows = flow.after_init.select("ns", wnd="tp.snd_wnd", srtt=pl.col("tp.srtt_us") / 8)
    held = held_by(flow).filter(by="receive_window")
    held = held.filter(pl.col("d") > 0).join(rows.unique("ns", keep="last"), on="ns").sort("wnd")
    whole = int(held["d"].sum())
    window = int(held.filter(2 * pl.col("d").cum_sum() >= whole)["wnd"][0])
    srtt = whole / float((held["d"] / held["srtt"]).sum())
    begins, short = int(held["ns"].min()), missing(flow, "receive_window")  # type: ignore[arg-type]
    # A full window that carries all of the link misses nothing: by what the next row acknowledges.
    una = flow.after_init["tp.snd_una"]
    then = (una.shift(-1) - una).head(una.len() - 1) % raw.WRAP
    full = held_by(flow).with_columns(then=then).filter(by="receive_window")
    most = flow.rate * int(full["d"].sum()) / SECOND - int(full["then"].sum())
    short = min(short, max(0.0, most))
    ends = int((held["ns"] + held["d"]).max())  # type: ignore[arg-type]
    return {
        "limited_s": whole / SECOND,
        "limited_share": whole / SECOND / flow.seconds,
        "window_bytes": window,
        "least_bytes": held["wnd"].min(),
        "most_bytes": held["wnd"].max(),
        "rtt_us": srtt,
        "window_bps": 8e6 * window / srtt,
        "goodput_bps": flow.goodput,
        "rate_bps": 8 * flow.rate,
        "wanted_bytes": 2 * flow.rate * flow.base_us / 1e6,
        "t0_at": flow.at(begins),
        "begins_at": flow.at(begins),
        "ends_at": flow.at(ends),
        "cost_bytes": short,
        "cost_s": short / flow.rate,
    }


READERS = {
    "unequal_shares": unequal_shares,
    "startup_never_left": startup_never_left,
    "spurious_loss": spurious_loss,
    "probe_rtt_synchronised": probe_rtt_synchronised,
    "receive_window_limited": receive_window_limited,
}
