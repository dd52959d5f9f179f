"""Numbers of findings about what a host's own settings do to a flow, by raw rows and the manifest.

No recording here has these troubles: `test_hosts` puts them into the rows of one.
"""

from __future__ import annotations

import json
import re
from typing import Any

import polars as pl

from tests.truth import raw
from tests.truth.facts import POLICERS, PROBE_BW, Flow, Numbers
from tests.truth.limits import held_by, in_flight
from tests.truth.readers_bounds import priced
from tests.truth.readers_lab import STARTUP
from tests.truth.seconds import SECOND, missing, number, of_flow

NO_CAP = (1 << 64) - 1


def _whole_run(flow: Flow) -> Numbers:
    """From the first event of a flow to the last."""
    return {"begins_at": 0.0, "ends_at": max(one.ends for one in flow.of.flows)}


def _numbers_in(words: str) -> list[float]:
    return [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?", words)]


def _qdiscs(flow: Flow) -> list[str]:
    found: list[str] = raw.manifest(flow.of.folder)["host"]["qdiscs"]
    return found


def netem_on_sender(flow: Flow) -> Numbers:
    device = next(line.split()[0] for line in _qdiscs(flow) if line.split()[1] == "netem")
    listed = _numbers_in(json.dumps(_qdiscs(flow)))
    return {"device": _numbers_in(device), "qdiscs": listed, **_whole_run(flow)}


def missing_fq(flow: Flow) -> Numbers:
    kernel: str = raw.manifest(flow.of.folder)["kernel"]
    listed = _numbers_in(json.dumps(_qdiscs(flow)))
    return {"kernel": _numbers_in(kernel), "qdiscs": listed, **_whole_run(flow)}


def _wmem(flow: Flow) -> int:
    """The most that a socket's send buffer may grow to [bytes]."""
    said: dict[str, Any] = raw.manifest(flow.of.folder)["sysctls"]
    return int(str(said["net.ipv4.tcp_wmem"]).split()[-1])


def tiny_tcp_wmem(flow: Flow) -> Numbers:
    holds = flow.rate * flow.base_us / 1e6
    flights = flow.after_init.select(in_flight() * pl.col("tp.mss_cache")).to_series()
    return {
        "wmem_bytes": _wmem(flow),
        "wanted_bytes": 4 * holds,  # two products, and twice the payload for each packet
        "bdp_bytes": holds,
        "rate_bps": 8 * flow.rate,
        "base_us": flow.base_us,
        "inflight_bytes": flights.max(),
        "begins_at": flow.at(flow.after_init["ns"][0]),
        "ends_at": flow.ends,
    }


def send_buffer_limited(flow: Flow) -> Numbers:
    """Flights of STARTUP or PROBE_BW, whichever has more ACKs."""
    limits = ("application", "unknown")
    rows = flow.spans.with_columns(flight=in_flight() * pl.col("tp.mss_cache"))
    # What the last event did is in no row: its mode goes on.
    mode = pl.col("bbr.mode").fill_null(flow.after_init["bbr.mode"][-1])
    rows = rows.filter((pl.col("kind") == "M") & mode.is_in([STARTUP, PROBE_BW]))
    by_mode = [rows.filter(mode == one) for one in (STARTUP, PROBE_BW)]
    most = max(by_mode, key=lambda those: those.height)
    held = held_by(flow).filter(pl.col("by").is_in(limits))
    limited = int(held["d"].sum()) / SECOND
    return {
        "limited_s": limited,
        "limited_share": limited / flow.seconds,
        "inflight_bytes": most["flight"].quantile(0.95, "linear"),
        "low_bytes": most["flight"].quantile(0.1, "linear"),
        "wmem_bytes": _wmem(flow),
        "goodput_bps": flow.goodput,
        "srtt_us": most["srtt"].mean(),
        "begins_at": flow.at(held["ns"].min()),
        # What the last event did not end is not known, and counts as such.
        "ends_at": flow.ends,
        **priced(flow, missing(flow, *limits)),
    }


def pacing_capped(flow: Flow) -> Numbers:
    """Where the cap holds, or BBR's own rate, a hundredth below what it believes in, is as much."""
    rows = flow.spans.with_columns(
        cap=pl.col("sk.sk_max_pacing_rate"),
        bw=flow.believed_after,
        next=pl.col("acked").shift(-1).fill_null(0),
        place=pl.int_range(pl.len()),
    )
    by = held_by(flow).with_columns(place=pl.int_range(pl.len())).select("place", "by")
    rows = rows.join(by, on="place").with_columns(second=number(flow.of))
    believes = (pl.col("by") == "pacing_max_bw") & (pl.col("bw") >= pl.col("cap").cast(pl.Float64))
    named = (pl.col("by") == "max_pacing_rate") | (believes & (pl.col("cap") < NO_CAP))
    rows = rows.with_columns(held=named)
    held = rows.filter(pl.col("held") & (pl.col("d") > 0))
    lasted = int(held["d"].sum()) / SECOND
    caps = held["cap"].cast(pl.Float64)
    several = caps.min() != caps.max()
    average = float((caps * held["d"]).sum()) / SECOND / lasted
    begins, ends = flow.at(held["ns"][0]), flow.at((held["ns"] + held["d"]).max())
    seconds, short = of_flow(flow), 0.0
    for (second,), its in rows.group_by("second"):
        whole = int(its["d"].sum()) or 1
        short += seconds[int(second)].short * int(its.filter("held")["d"].sum()) / whole  # type: ignore[call-overload]
    return {
        "capped_s": lasted,
        "capped_share": lasted / flow.seconds,
        "cap_bps": 8 * (average if several else float(caps[0])),
        "average": [8e-6 * float(one) for one in (caps.min(), caps.max())] if several else [],  # type: ignore[arg-type]
        "acked_bps": 8 * int(held["next"].sum()) / lasted,
        "first_bps": 8 * held["bw"][0],
        "last_bps": 8 * held["bw"][-1],
        "t0_at": begins,
        "t1_at": ends,
        "begins_at": begins,
        "ends_at": ends,
        **priced(flow, short),
    }


def gso_through_bottleneck(flow: Flow) -> Numbers:
    """Samples whose packets are larger than one and a half segments."""
    mss = max(max(one.segment_sizes) for one in flow.of.flows)
    last = max(int(one.rows["ns"][-1]) for one in flow.of.flows)
    found = []
    for uptime_s, row in raw.queue(flow.of.folder):
        ns = round(uptime_s * 1e9) - flow.of.ahead_ns
        size, packets = int(row["backlog_bytes"]), int(row["backlog_pkts"])
        inside = flow.of.flows[0].zero <= ns <= last and row.get("kind") not in POLICERS
        if inside and packets and size / packets > 1.5 * mss:
            found.append((ns, size, packets))
    mean = sum(each[1] for each in found) / sum(each[2] for each in found)
    return {
        "mean_bytes": mean,
        "segments_ratio": mean / mss,
        "samples_count": len(found),
        "mss_bytes": mss,
        "dropped_packets": flow.of.dropped(),
        "first_at": flow.at(found[0][0]),
        "begins_at": flow.at(found[0][0]),
        "ends_at": flow.at(found[-1][0]),
    }


READERS = {
    "netem_on_sender": netem_on_sender,
    "missing_fq": missing_fq,
    "tiny_tcp_wmem": tiny_tcp_wmem,
    "send_buffer_limited": send_buffer_limited,
    "pacing_capped": pacing_capped,
    "gso_through_bottleneck": gso_through_bottleneck,
}
