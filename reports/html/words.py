"""What happened, in words: a flow's story out of the store's views, with places in the charts."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ...collect.query import Row, rows
from ..story import BINDING_WORDS
from .listing import Line, Listing, Listings
from .prose import At, Prose, plural, quantity, seconds, share, times
from .select import Flow, Run

if TYPE_CHECKING:
    import duckdb

# What limited sending for less than this share of the time is not worth a line.
LEAST_SHARE = 0.002
_PROBES = ("PROBE_BW_UP", "PROBE_BW_1.25")


def story(con: duckdb.DuckDBPyConnection, run: Run, flow: Flow, listings: Listings) -> list[Prose]:
    """Return a flow's story: what it carried, what is missing, its phases, its bounds."""
    told = [
        _totals(flow),
        _gaps(flow),
        _startup(con, run, flow, listings.phases),
        _probing(con, run, flow, listings.phases),
        _probe_rtt(con, run, flow),
        *_bounds(run, listings.bounds),
    ]
    return [paragraph for paragraph in told if paragraph]


def _totals(flow: Flow) -> Prose:
    row = flow.row
    duration = row["duration_ns"] / 1e9
    # What was not recorded cannot be counted.
    least = "at least " if flow.gaps else ""
    if not row["delivered"]:
        return [f"It delivered nothing in the {seconds(duration)} that were recorded."]
    text = (
        f"It delivered {least}{quantity(row['delivered_bytes'], 'B')} in {seconds(duration)}: "
        f"{least}{quantity(row['throughput_mbps'] * 1e6, 'bit/s')} on average; max_bw reached "
        f"{quantity(row['max_bw_mbps'] * 1e6, 'bit/s')}."
    )
    if row["rtt_min_us"] is not None:
        text += (
            f" The RTT was {row['rtt_min_us'] / 1e3:.1f} ms at best; smoothed, it was "
            f"{row['srtt_mean_us'] / 1e3:.1f} ms on average and at most "
            f"{row['srtt_p95_us'] / 1e3:.1f} ms on 95 % of the ACKs."
        )
    lost = row["lost"]
    part = share(lost / (row["delivered"] + lost))
    text += (
        f" {plural(lost, 'packet')} ({part}) were marked lost." if lost else " Nothing was lost."
    )
    if row["retransmits"]:
        text += f" {plural(row['retransmits'], 'packet')} were sent again."
    return [text]


def _gaps(flow: Flow) -> Prose:
    if not flow.gaps:
        return []
    missing = sum(b - a for a, b in flow.gaps) / 1e6
    a, b = flow.gaps[0]
    pad = max(0.05, (b - a) / 1e6)
    return [
        f"The recording lacks events in {plural(len(flow.gaps), 'place')}, "
        f"{seconds(missing)} in all (grey in the charts, first ",
        At(f"at {a / 1e6:.3f} s", a / 1e6 - pad, b / 1e6 + pad),
        "). What BBR decided there is not known; everything outside is complete.",
    ]


def _phases(con: duckdb.DuckDBPyConnection, *names: str) -> list[Row]:
    return rows(
        con, "SELECT * FROM flow_phases WHERE list_contains(?, phase) ORDER BY seq", list(names)
    )


def _place(run: Run, row: Row, text: str) -> At:
    """A place that shows a phase with a little around it."""
    a, b = run.us(row["start_ns"]) / 1e6, run.us(row["end_ns"]) / 1e6
    pad = max(0.02, 0.15 * (b - a))
    return At(text, a - pad, b + pad)


def _startup(con: duckdb.DuckDBPyConnection, run: Run, flow: Flow, listing: Listing) -> Prose:
    found = _phases(con, "STARTUP")
    if not found:
        return []
    first = found[0]
    lasted = first["duration_ns"] / 1e9
    if first["end_name"] is None:
        return ["It was in ", _place(run, first, "STARTUP"), " to the end of the recording."]
    told: Prose = [_place(run, first, "STARTUP"), f" lasted {seconds(lasted)}."]
    ended = _line_at(listing, run.us(first["end_ns"]) / 1e6, first["end_name"])
    if ended:
        told.append(f" {ended.why}")
    drain = _phases(con, "DRAIN")
    if drain:
        told += [" ", _place(run, drain[0], "DRAIN")]
        told.append(f" took {seconds(drain[0]['duration_ns'] / 1e9)}.")
    if len(found) > 1:
        told.append(f" It was in STARTUP {times(len(found))}.")
    return told


def _probing(con: duckdb.DuckDBPyConnection, run: Run, flow: Flow, listing: Listing) -> Prose:
    """How often it probed for more bandwidth, and what ended the probes, most frequent first."""
    probes = _phases(con, *_PROBES)
    if not probes:
        return []
    starts = [row["start_ns"] / 1e9 for row in probes]
    told: Prose = [f"It probed for more bandwidth {times(len(probes))}"]
    if len(probes) > 2:
        every = statistics.median(b - a for a, b in pairwise(starts))
        told.append(f", every {seconds(every)} at the median")
    told.append(". ")
    ended = Counter(row["end_name"] for row in probes if row["end_name"])
    for name, count in ended.most_common(3):
        if name in ("GAP", "SAMPLED"):
            what = "end" if name == "GAP" else "reason for the end"
            told.append(f"The {what} of {plural(count, 'probe')} was not recorded. ")
            continue
        last = next(row for row in reversed(probes) if row["end_name"] == name)
        why = _line_at(listing, run.us(last["end_ns"]) / 1e6, name)
        told += [
            f"{plural(count, 'probe')} ended with {name}, last ",
            _place(run, last, _at(run, last)),
        ]
        told.append(f": {why.why} " if why else ". ")
    return told


def _at(run: Run, row: Row) -> str:
    return f"at {run.us(row['end_ns']) / 1e6:.2f} s"


def _line_at(listing: Listing, at: float, name: str) -> Line | None:
    return next(
        (line for line in listing.lines if abs(line.at - at) < 1e-5 and line.code == name), None
    )


def _probe_rtt(con: duckdb.DuckDBPyConnection, run: Run, flow: Flow) -> Prose:
    found = _phases(con, "PROBE_RTT")
    if not found:
        return []
    total = sum(row["duration_ns"] for row in found)
    told: Prose = [
        f"It was in PROBE_RTT {times(len(found))}, {seconds(total / 1e9)} in all "
        f"({share(total / max(flow.row['duration_ns'], 1))} of the time):"
    ]
    for row in found[:6]:
        told += [" ", _place(run, row, _at(run, row))]
    told.append("." if len(found) <= 6 else " ...")
    return told


def _bounds(run: Run, listing: Listing) -> list[Prose]:
    if run.row["version"] == "v1":
        return [
            ["BBR v1 has no inflight_hi, inflight_lo or bw_lo: only its window's gain bounds it."]
        ]
    changes = [line for line in listing.lines if line.what == "inflight_hi"]
    if not changes:
        return [["inflight_hi was never set: nothing told this flow how much is too much."]]
    first, last = changes[0], changes[-1]
    told: Prose = [
        "inflight_hi was set to ",
        At(first.new, first.a, first.b),
        f" at {first.at:.2f} s. {first.why} "
        if first.old == "unset"
        else f" at {first.at:.2f} s. ",
    ]
    moved = Counter(line.code for line in changes[1:])
    if moved:
        told.append("After that it changed " + times(len(changes) - 1) + ": ")
        told.append(", ".join(f"{count}x {name}" for name, count in moved.most_common(5)) + ". ")
        told += ["The last change was ", At(f"{last.old} to {last.new}", last.a, last.b)]
        told.append(f" at {last.at:.2f} s. {last.why}")
    return [told, *_short_term(listing)]


def _short_term(listing: Listing) -> list[Prose]:
    cuts = [
        line
        for line in listing.lines
        if line.what == "inflight_lo" and line.new != "unset" and line.old != line.new
    ]
    if not cuts:
        return []
    low = min(cuts, key=lambda line: int(line.new.replace(",", "")))
    return [
        [
            f"Loss or ECN outside a probe set or cut inflight_lo {times(len(cuts))}, lowest ",
            At(f"{low.new} packets", low.a, low.b),
            f" at {low.at:.2f} s. {low.why}",
        ]
    ]


@dataclass(frozen=True)
class Limit:
    """What limited sending (view `binding`), in words, and its share of the time."""

    binding: str
    words: str
    share: float


def limits(con: duckdb.DuckDBPyConnection) -> list[Limit]:
    """Return what limited sending, the most first."""
    found = rows(
        con,
        "SELECT binding, sum(duration_ns) / greatest(sum(sum(duration_ns)) OVER (), 1) AS share"
        " FROM flow_binding GROUP BY binding ORDER BY share DESC",
    )
    return [
        Limit(row["binding"], str(BINDING_WORDS.get(row["binding"], row["binding"])), row["share"])
        for row in found
        if row["share"] >= LEAST_SHARE
    ]
