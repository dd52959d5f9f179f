"""CE marks that a recording's ACKs echo: what drew them, and how its receivers echo them.

tcp_ecn_check_ce() asks the receiver's own congestion control, which a sender's recording does not
have. But the ACKs tell: a classic receiver repeats ECE until data with CWR arrive, a round trip
later at least; dctcp_ece_ack_update() ends it with the first packet that has no mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .recorded_acks import Array, Columns, recorded_acks, rtts_us

if TYPE_CHECKING:
    import duckdb

# So many echoes must have ended to tell.
_LEAST_ECHOES = 10


def echoes_until_cwr(con: duckdb.DuckDBPyConnection, run_id: int, flow: int) -> bool:
    """Whether a flow's receiver repeats a mark until CWR; False also where too few marks tell."""
    every = recorded_acks(con, run_id, (flow,), 0)
    lasted = _echoes_us(every)
    if len(lasted) < _LEAST_ECHOES:
        return False
    return bool(np.median(lasted) >= rtts_us(every).min())


def _echoes_us(every: Columns) -> Array:
    """How long each echo lasted, from the first ACK with it to the first without [us]."""
    begins = np.flatnonzero(_first_of_echoes(every))
    without = np.flatnonzero(~(every["marked"] > 0))
    ends = np.searchsorted(without, begins)
    ended = ends < len(without)
    lasted: Array = every["t_us"][without[ends[ended]]] - every["t_us"][begins[ended]]
    return lasted


def _first_of_echoes(every: Columns) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which ACKs are the first to echo a mark: what they acknowledge was marked."""
    marked = every["marked"] > 0
    return marked & ~np.concatenate(([False], marked[:-1]))


def marks_us(every: Columns, base_us: float) -> int:
    """The time in the queue that draws a CE mark: as many lie below with as above without one.

    Of an echo only the first ACK tells of its own packets.
    """
    there = every["rtt_us"] > 0
    queue, echoed = (every["rtt_us"] - base_us)[there], every["marked"][there] > 0
    marked = _first_of_echoes(every)[there]
    if not marked.any():
        return 0
    tried = np.quantile(queue, np.linspace(0, 1, 201))
    wrong = [abs(np.sum(marked & (queue < t)) - np.sum(~echoed & (queue >= t))) for t in tried]
    return max(1, round(float(tried[int(np.argmin(wrong))])))
