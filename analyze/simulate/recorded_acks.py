"""What each ACK of a recording shows, in columns, as fits of its path read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

Array = np.ndarray[Any, Any]
Columns = dict[str, Array]

# The longest RTT and queue, but for one sample in a thousand.
LONGEST = 0.999
# The unit of timestamps, TCP_TS_HZ.
_TIMESTAMP_US = 1000

_SQL = """
SELECT (ns::BIGINT - ?) // 1000 AS t_us, rs_rtt_us AS rtt_us, rs_acked_sacked AS acked,
  rs_delivered AS delivered, rs_interval_us AS interval_us,
  coalesce(rs_is_app_limited, false)::INT AS app_limited,
  tp_lost::BIGINT - lag(tp_lost) OVER of_flow AS lost,
  coalesce(tp_delivered_ce::BIGINT - lag(tp_delivered_ce) OVER of_flow, 0) AS marked,
  tp_sacked_out AS sacked,
  (tp_sacked_out > 0 AND lag(tp_sacked_out) OVER of_flow = 0)::INT AS hole,
  median(rs_rtt_us) FILTER (rs_rtt_us > 0) OVER (
    PARTITION BY flow ORDER BY seq ROWS BETWEEN 4 PRECEDING AND 4 FOLLOWING) AS near_us,
  ns::BIGINT // 1000 - lag(ns::BIGINT // 1000) OVER of_flow AS silent_us,
  lag(tp_packets_out) OVER of_flow AS out
FROM events WHERE run_id = ? AND flow = ? AND kind = 'main'
WINDOW of_flow AS (PARTITION BY flow ORDER BY seq) ORDER BY seq
"""


def recorded_acks(
    con: duckdb.DuckDBPyConnection, run_id: int, flows: Sequence[int], origin: int
) -> Columns:
    """Return the columns of these flows' ACKs together, in the order of time.

    `t_us` counts from `origin` [ns, CLOCK_MONOTONIC]. What is not known is NaN.
    """
    pieces = [_of_flow(con, run_id, flow, origin) for flow in flows]
    every = {name: np.concatenate([one[name] for one in pieces]) for name in pieces[0]}
    order = np.argsort(every["t_us"], kind="stable")
    return {name: values[order] for name, values in every.items()}


def _of_flow(con: duckdb.DuckDBPyConnection, run_id: int, flow: int, origin: int) -> Columns:
    columns = con.execute(_SQL, [origin, run_id, flow]).fetchnumpy()
    return {
        name: np.ma.filled(np.ma.asarray(one).astype(float), np.nan)
        for name, one in columns.items()
    }


def exact_rtts(every: Columns) -> Array:
    """Whether each ACK has an RTT in microseconds.

    Those of retransmissions come from timestamps, in whole milliseconds (tcp_rtt_tsopt_us()), and
    are up to one too short. Where there are no others, all count.
    """
    there: Array = every["rtt_us"] > 0
    exact = there & (every["rtt_us"] % _TIMESTAMP_US != 0)
    return exact if exact.any() else there


def rtts_us(every: Columns) -> Array:
    """Return the RTTs of the ACKs that have an exact one."""
    return every["rtt_us"][exact_rtts(every)]


def longest_rtt_us(every: Columns) -> float:
    """Return the longest RTT, but for one sample in a thousand."""
    return float(np.quantile(rtts_us(every), LONGEST))
