"""What flows with BBR went through, callback by callback: of recordings and simulations alike.

A course has one row per call of cong_control(), in order of time; counted from it are a run's
quantities over time (course_steps.py), so that a recording and its simulations are counted in one
way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...collect.store.query import first_row
from ...probes.base.errors import BbrscopeError
from ...probes.base.jit import jit
from ..bbr.kernel_units import BBR_UNIT, U32_MAX
from ..bbr.plain import records
from ..bbr.records import MAIN
from ..bbr.tcp import tcp_packets_in_flight
from ..replay.open_loop import busy_flows
from ..views.phase_names import CYCLE, MODES, PHASES, phase_name
from .sender.estimator import EPOCH_NS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from ..replay.run_info import RunInfo

Array = np.ndarray[Any, Any]
UNSET = -1
# t_us since the first flow began; flow: its place among the run's flows of data; volumes in
# packets, RTTs in us, UNSET: the kernel has no value; phase: place in PHASES. Of struct bbr is what
# the callback found.
_OF_TCP = ("t_us", "flow", "delivered", "lost", "rtt_us", "inflight", "cwnd")
_OF_BBR = ("inflight_hi", "inflight_lo", "phase", "too_high", "ecn_rounds")
COURSE = np.dtype([(name, "i8") for name in (*_OF_TCP, *_OF_BBR)])
_SQL = """
SELECT ((ns::BIGINT - $origin) // 1000) AS t_us,
  list_position($flows, flow::INTEGER) - 1 AS flow, tp_delivered AS delivered, tp_lost AS lost,
  rs_rtt_us AS rtt_us, tp_snd_cwnd AS cwnd,
  packets_in_flight(tp_packets_out, tp_sacked_out, tp_lost_out, tp_retrans_out) AS inflight,
  if_set(bbr_inflight_hi) AS inflight_hi, if_set(bbr_inflight_lo) AS inflight_lo,
  list_position($phases, phase_name(version, bbr_mode, bbr_cycle_idx, bbr_lt_use_bw,
    bbr_pacing_gain)) - 1 AS phase,
  bbr_prev_probe_too_high AS too_high, bbr_startup_ecn_rounds AS ecn_rounds
FROM events JOIN runs USING (run_id) JOIN flows f USING (run_id, flow)
WHERE run_id = $run_id AND kind = 'main' AND seq >= f.pre_init
  AND list_contains($flows, flow::INTEGER)
ORDER BY ns, flow, seq
"""


def recorded_course(con: duckdb.DuckDBPyConnection, info: RunInfo) -> Array:
    """The course of the flows that `busy_flows` chooses in a recording, [rows] of COURSE.

    Raises:
        BbrscopeError: none of them has kernel events.
    """
    flows = busy_flows(con, info)
    row = first_row(
        con,
        "SELECT min(ns)::BIGINT FROM events WHERE run_id = ? AND list_contains(?, flow::INTEGER)",
        info.run_id,
        flows,
    )
    if not flows or row is None or row[0] is None:
        raise BbrscopeError(f"{info.run} has no flow of data", "record a run with traffic")
    asked = {"run_id": info.run_id, "origin": row[0], "flows": flows, "phases": list(PHASES)}
    columns = con.execute(_SQL, asked).fetchnumpy()
    course = np.zeros(len(columns["t_us"]), COURSE)
    for name in COURSE.names or ():
        course[name] = np.ma.filled(np.ma.asarray(columns[name]).astype(np.int64), UNSET)
    return course


@jit
def fill_in_flight(tcp: Array, inflight: Array) -> None:
    """Packets in flight of each socket, as the kernel counts them."""
    for i in range(len(inflight)):
        inflight[i] = tcp_packets_in_flight(tcp[i])


def simulated_course(events: Array, states: Array, rows: Array, versions: list[int]) -> Array:
    """The course of what a simulation recorded in one piece; `versions` by flow: 1, 2 or 3."""
    mine = events["ctl"]["kind"] == MAIN
    ev, st, row = events[mine], states[mine], rows[mine]
    tp = ev["tp"]
    first = np.array(versions)[row["flow"]] == 1
    course = np.zeros(len(row), COURSE)
    course["t_us"] = (row["ns"] - EPOCH_NS) // 1000
    course["flow"] = row["flow"]
    course["delivered"], course["lost"] = tp["delivered"], tp["lost"]
    course["rtt_us"], course["cwnd"] = ev["rs"]["rtt_us"], tp["snd_cwnd"]
    inflight = np.zeros(len(row), np.int64)
    fill_in_flight(records(tp), inflight)
    course["inflight"] = inflight
    for name in ("inflight_hi", "inflight_lo"):
        unset = first | (st[name] == U32_MAX)
        course[name] = np.where(unset, UNSET, st[name])
    course["phase"] = phase_places(st, first)
    course["too_high"] = np.where(first, UNSET, st["prev_probe_too_high"])
    course["ecn_rounds"] = np.where(first, UNSET, st["startup_ecn_rounds"])
    return course


def phase_places(states: Array | Mapping[str, Array], first: Array) -> Array:
    """The index in PHASES of each row's phase; `first` is true for rows of BBRv1."""
    beyond = _PLACES.shape[2] - 1
    # A variant of one's own may set a mode that BBR does not have.
    mode = np.minimum(states["mode"], len(MODES) - 1)
    cycle = np.minimum(states["cycle_idx"], beyond)
    policed = (states["lt_use_bw"] == 1).astype(int)
    unit = (states["pacing_gain"] == BBR_UNIT).astype(int)
    places: Array = _PLACES[first.astype(int), mode, cycle, policed, unit]
    return places


def _places() -> Array:
    """Places in PHASES by whether it is v1, mode, cycle_idx up to beyond its last, lt_use_bw, and
    whether the pacing gain is 1."""
    places = np.empty((2, len(MODES), len(CYCLE) + 1, 2, 2), np.int64)
    for state in np.ndindex(*places.shape):
        first, mode, cycle_idx, policed, unit = state
        name = phase_name("v1" if first else "", mode, cycle_idx, policed, unit * BBR_UNIT)
        places[state] = PHASES.index(name or "")
    return places


_PLACES = _places()
