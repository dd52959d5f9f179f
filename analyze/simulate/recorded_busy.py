"""How often and how long a recording's hosts were busy: seen in ACKs that come late.

While the bottleneck has a queue, packets leave it one by one, and so do ACKs come. One that is
late although the next come as the link sent them waited for a CPU: at the router or the receiver,
which are one step here, or at the sender. How late ACKs are is near an exponential distribution
in the recordings, so that two numbers describe it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..story.completeness import simulated_of_many
from .world.world_setup import PathSetup

if TYPE_CHECKING:
    import duckdb

Array = np.ndarray[Any, Any]
# An ACK may come so late by timers and caches alone; the next is on time within half of it [us].
_ON_TIME_US = 100
# How many of the next ACKs say when one was due, and packets that make a queue.
_AHEAD, _QUEUE = 8, 4
# ACKs that are needed to say anything, and late ones to say how long.
_LEAST, _LEAST_LATE = 1000, 10
# Late ACKs at most: hosts that are always busy would have no rate.
_MOST = 0.9
# Steps of a round trip in which a busy host delays an ACK.
_STEPS = 2
# What it is in the median of the recordings, and a time after the longest run [us].
_EVERY_US, _BUSY_US, _NEVER_US = 60_000, 400, 7200 * 10**6
# After a change of rate what is on its way is not judged [us].
_SETTLE_US = 1_000_000
_SQL = """
SELECT (ns::BIGINT - ?) // 1000 AS t_us, tp_delivered AS delivered, rs_rtt_us AS rtt_us,
  tp_sacked_out AS sacked, tp_mss_cache AS mss, coalesce(tp_delivered_ce, 0) AS marked
FROM events WHERE run_id = ? AND flow = ? AND kind = 'main' ORDER BY ns, seq
"""

# How long the CPU works on an ACK in most recordings [us]: taken where a recording has fewer calls
# than these that tell its own.
_ACK_US, _LEAST_CALLS = 51, 20
# Calls further apart [us] say nothing of that. Of the others many an ACK came later than the CPU
# was free: the shortest times count.
_APART_US, _SHARE = 200, 0.1
_CALLS = """
SELECT (next - ns) / 1000 AS apart_us FROM (
  SELECT ns::BIGINT AS ns, lead(ns::BIGINT) OVER w AS next, rs_acked_sacked AS acked,
    tp_snd_nxt AS nxt, lead(tp_snd_nxt) OVER w AS next_nxt, tp_sacked_out AS sacked,
    greatest(icsk_ca_state, lead(icsk_ca_state) OVER w) AS state
  FROM events WHERE run_id = ? AND list_contains(?, flow::INTEGER) AND kind = 'main'
  WINDOW w AS (PARTITION BY flow ORDER BY ns, seq))
WHERE next - ns < 1000 * ? AND nxt = next_nxt AND acked > 0 AND sacked = 0 AND state = 0
"""


def with_busy_hosts(
    con: duckdb.DuckDBPyConnection, run_id: int, path: PathSetup, origin: int, flows: Iterable[int]
) -> PathSetup:
    """The path with hosts as busy as these flows' ACKs show; too few ACKs: as in most recordings.

    Where something recorded them, their receivers' applications are late readers.

    `origin` is when the path's times begin [ns, CLOCK_MONOTONIC].
    """
    if run_id not in simulated_of_many(con, [run_id]):
        path = replace(path, late_readers=True, ack_us=_ack_us(con, run_id, path, list(flows)))
    pieces = [np.zeros(0)]
    for flow in flows:
        columns = con.execute(_SQL, [origin, run_id, flow]).fetchnumpy()
        filled = {
            name: np.ma.filled(np.ma.asarray(one).astype(float), -1.0)
            for name, one in columns.items()
        }
        pieces.append(lateness_us(filled, path))
    return with_lateness(path, np.concatenate(pieces))


def _ack_us(con: duckdb.DuckDBPyConnection, run_id: int, path: PathSetup, flows: list[int]) -> int:
    """How long one CPU works on an ACK: what lies between calls that let nothing go.

    0 where one CPU could not do that for all that the path carries: then there are several. A
    packet takes up to an ACK's time: half of it by itself (world/processor.py), and half of the ACK
    that is sent for two.
    """
    rows = con.execute(_CALLS, [run_id, flows, _APART_US]).fetchnumpy()["apart_us"]
    told = np.ma.filled(np.ma.asarray(rows).astype(float), np.nan)
    enough = len(told) >= _LEAST_CALLS
    ack_us = round(float(np.quantile(told, _SHARE))) if enough else _ACK_US
    rates = [path.rate_bps, *(value for _, what, value in path.changes if what == "rate")]
    packet_us = (path.mss + path.headers) * 8e6 / max(rates)
    return ack_us if ack_us < packet_us else 0


def with_lateness(path: PathSetup, late_us: Array) -> PathSetup:
    """The path with busy hosts, from how late each ACK was [us]; too few: as in most recordings."""
    if len(late_us) < _LEAST:
        return replace(path, busy_every_us=_EVERY_US, busy_us=_BUSY_US)
    late = late_us[late_us > _ON_TIME_US]
    # Exponential times have no memory: what lies beyond a limit is as long as all of it.
    mean = float(np.mean(late - _ON_TIME_US)) if len(late) >= _LEAST_LATE else _BUSY_US
    share = len(late) / len(late_us) * math.exp(_ON_TIME_US / max(mean, _ON_TIME_US))
    each = -math.log(1 - min(share, _MOST)) / _STEPS
    return replace(
        path, busy_every_us=round(mean / each) if each else _NEVER_US, busy_us=round(mean)
    )


def lateness_us(columns: Mapping[str, Array], path: PathSetup) -> Array:
    """By how much a flow's ACKs were late, of those that came while the bottleneck had a queue.

    `columns` are t_us, delivered, rtt_us, sacked, mss and how many marks were echoed so far, of
    each ACK that BBR saw.
    """
    t, delivered, mss = columns["t_us"], columns["delivered"], columns["mss"]
    if len(t) <= _AHEAD:
        return np.zeros(0)
    packet_us, base_us, settled = _link(path, t, mss)
    queued = columns["rtt_us"] > base_us + _QUEUE * packet_us
    good = settled & queued & (columns["sacked"] == 0)
    due = t - np.cumsum(np.diff(delivered, prepend=delivered[0]) * packet_us)
    n = len(t) - _AHEAD
    following = np.stack([due[k : n + k] for k in range(1, _AHEAD + 1)])
    # dctcp_ece_ack_update() sends a delayed ACK when the next packet's mark is another: by that
    # packet's time later than it was due, whatever the hosts do.
    echoed = np.diff(columns["marked"], prepend=columns["marked"][0]) > 0
    judged = good[:n] & (echoed[:n] == echoed[1 : n + 1])
    for k in range(1, _AHEAD + 1):
        judged &= good[k : n + k]
    # Packets of others between two of its own are no lateness.
    judged &= following[0] <= due[:n] + _ON_TIME_US / 2
    late: Array = np.maximum(due[:n] - following.min(axis=0), 0)[judged]
    return late


def _link(path: PathSetup, t: Array, mss: Array) -> tuple[Array, Array, Array]:
    """The link's time for a packet at each time, the round trip, and whether both have settled."""
    rate, settled = np.full(len(t), float(path.rate_bps)), np.full(len(t), True)
    round_trip = np.full(len(t), float(path.rtt_us))
    for at, what, value in path.changes:
        if what in ("rate", "rtt"):
            (rate if what == "rate" else round_trip)[t >= at] = value
            settled &= (t < at) | (t >= at + _SETTLE_US)
    return (mss + path.headers) * 8e6 / rate, round_trip, settled
