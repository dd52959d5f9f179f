"""A flow at one instant: its state, what limits it, and what it waits for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from ...collect.store.query import first_row, rows
from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from ..bbr.codes import BY_NAME, CODES
from ..bbr.kernel_units import U32_MAX
from ..bbr.records import BBR_PROBE_RTT, CA_STATES
from .changes import BOUNDS
from .event_flows import EventFlow
from .sentences import bound_unit, evidence_of, fill, gain, mbps, milliseconds, rate, value

if TYPE_CHECKING:
    import duckdb

# Decisions to stay as things are: each says what would end the wait.
WAITS = (
    "FULLBW_STALL_ROUND STARTUP_LOSS_EVENT STARTUP_ECN_ROUND DRAIN_STAY PRTT_WAIT_INFLIGHT"
    " PRTT_WAIT_ROUND PRTT_WAIT_TIME PRTT_DWELL_START CYC_STAY_UP_WAIT_INFLIGHT CYC_STAY_TIME"
    " LT_WAIT_ROUNDS LT_WAIT_LOSS LT_WAIT_RATE LT_IN_USE DOWN_STAY_HEADROOM DOWN_STAY_BDP UP_STAY"
    " REFILL_STAY CRUISE_STAY"
).split()

# What ends a phase. Sources: tcp_bbr.c (v1) bbr_check_drain(), bbr_is_next_cycle_phase(),
# bbr_lt_bw_sampling(); tcp_bbr2.c bbr2_update_cycle_phase(), bbr2_check_time_to_probe_bw(),
# bbr2_adapt_upper_bounds(); v3 tcp_bbr.c bbr_update_cycle_phase().
_RISK = "too much loss or too many CE marks, or inflight_hi if the last probe went too high"
ENDS = {
    ("", "STARTUP"): "{full_bw_cnt} of 3 rounds without 25% bandwidth growth so far",
    ("", "DRAIN"): "fewer packets in the network than the BDP",
    ("v1", "PROBE_BW_1.25"): "a min_rtt at 1.25x with loss or 1.25 x BDP in flight",
    ("v1", "PROBE_BW_0.75"): "a min_rtt at 0.75x, or a BDP in flight before that",
    ("v1", "PROBE_BW_1.0"): "the last of the phases at 1.0x: a min_rtt each",
    ("v1", "PROBE_BW_LT"): "round 48 with the policer's rate; this is round {lt_rtt_cnt}",
    ("v2", "PROBE_BW_UP"): f"1.25 BDP in flight after a min_rtt; {_RISK}",
    ("v3", "PROBE_BW_UP"): f"rounds without 25% bandwidth growth, {{full_bw_cnt}} of 3; {_RISK}",
    ("", "PROBE_BW_DOWN"): "in flight within inflight_hi less headroom and the BDP",
    ("", "PROBE_BW_CRUISE"): "the next bandwidth probe, by clock or rounds",
    ("", "PROBE_BW_REFILL"): "one packet-timed round of sending at 1.0x",
    ("", "PROBE_RTT"): "low inflight, then the dwell time and one round",
}

_STATE = (
    "bbr_mode bbr_pacing_gain bbr_cwnd_gain bbr_bw_lo bbr_bw_latest bbr_bw_hi_0 bbr_bw_hi_1"
    " bbr_bw_s_0_v bbr_inflight_hi bbr_inflight_lo bbr_inflight_latest bbr_min_rtt_us"
    " bbr_min_rtt_stamp bbr_probe_rtt_min_us bbr_probe_rtt_min_stamp bbr_probe_rtt_done_stamp"
    " bbr_extra_acked_0 bbr_extra_acked_1 bbr_lt_bw bbr_lt_use_bw bbr_lt_rtt_cnt"
    " bbr_full_bw_reached bbr_full_bw_cnt bbr_packet_conservation bbr_prior_cwnd bbr_probe_wait_us"
    " bbr_rounds_since_probe bbr_prev_probe_too_high bbr_stopped_risky_probe bbr_ecn_alpha"
    " bbr_loss_in_round bbr_ecn_in_round bbr_ack_phase bbr_next_rtt_delivered bbr_cycle_mstamp"
).split()
_U32 = 1 << 32


@dataclass(frozen=True)
class Instant:
    """A flow's state after the last event at or before a time.

    Attributes:
        ns: the time asked for; event_ns: that event's; phase_since_ns: when the phase began; all
            CLOCK_MONOTONIC.
        after: the state is that after the event; False: only the one before it is known.
        state: fields of struct bbr without their prefix, and snd_cwnd, pacing rate, in flight ...,
            in kernel units.
        binding: what limits sending, see the view binding.
        waits: what the flow waits for, in words.
        rows: everything again in words: (label, text).
    """

    ns: int
    event_ns: int
    seq: int
    kind: str
    after: bool
    phase: str
    phase_since_ns: int
    state: dict[str, Any]
    binding: str
    waits: list[str]
    rows: list[tuple[str, str]]


def at(con: duckdb.DuckDBPyConnection, flow: EventFlow, ns: int) -> Instant:
    """Return the flow at a time [ns, CLOCK_MONOTONIC].

    Raises:
        BbrscopeError: the flow had not begun, or was over.
    """
    _require_recorded(flow, ns)
    row = _event(con, flow, ns)
    phase, phase_since_ns, phase_seq = _phase(con, flow, row["seq"], ns)
    state = _State()
    state |= {name.removeprefix("bbr_"): row[name] for name in _STATE if row[name] is not None}
    state |= {name: row[name] for name in _OUTSIDE}
    rows = [
        ("phase", f"{phase} since {_seconds(flow, phase_since_ns)} s, {_gains(state)}"),
        ("bandwidth", _bandwidth(flow, state)),
        ("volume", _volume(state)),
        *_bounds(con, flow, state, row["seq"]),
        ("RTT", _rtt(con, flow, state)),
        ("recovery", _recovery(flow, state)),
    ]
    return Instant(
        ns=ns,
        event_ns=int(row["ns"]),
        seq=row["seq"],
        kind=row["kind"],
        after=bool(row["after"]),
        phase=phase,
        phase_since_ns=phase_since_ns,
        state=state,
        binding=row["binding"],
        waits=[_end(flow.version, phase, state), *_waits(con, flow, row, phase_seq)],
        rows=rows,
    )


def _require_recorded(flow: EventFlow, ns: int) -> None:
    """Raise BbrscopeError if the flow was not recorded at that time."""
    if not flow.first_ns <= ns <= flow.last_ns:
        first, last, asked = (
            (time - flow.zero_ns) / 1e9 for time in (flow.first_ns, flow.last_ns, ns)
        )
        raise BbrscopeError(
            f"flow {flow.flow} of {flow.run} was recorded from {first:.4g} s to {last:.3f} s of"
            f" the run, not at {asked:.3f} s",
            "choose a time in between",
        )


def _phase(
    con: duckdb.DuckDBPyConnection, flow: EventFlow, seq: int, ns: int
) -> tuple[str, int, int]:
    """Return the phase of an event, when it began, and the event that began it."""
    phase = first_row(
        con,
        "SELECT max_by(phase, seq), max_by(start_ns, seq)::BIGINT, max(seq) FROM phases"
        " WHERE run = ? AND run_id = ? AND flow = ? AND seq <= ?",
        flow.run,
        flow.run_id,
        flow.flow,
        seq,
    )
    assert phase is not None
    if phase[0] is None:
        raise BbrscopeError(
            f"the recording does not tell the phase of flow {flow.flow} of {flow.run} at"
            f" {_seconds(flow, ns)} s",
            "choose a later time, or see what it tells: bbrscope sql 'FROM capture_quality'",
        )
    return phase


_OUTSIDE = "snd_cwnd sk_pacing_rate inflight mss srtt_us icsk_ca_state jiffies32".split()


class _State(dict[str, Any]):
    """The state at an instant, of which a recording may lack fields."""

    def __missing__(self, name: str) -> NoReturn:
        raise BbrscopeError(
            f"the recording lacks {name} of struct bbr at this instant",
            "see what else it lacks: bbrscope sql 'FROM capture_quality'",
        )


def _seconds(flow: EventFlow, ns: int) -> str:
    """A time on the run's clock."""
    return f"{(ns - flow.zero_ns) / 1e9:.3f}"


def _event(con: duckdb.DuckDBPyConnection, flow: EventFlow, ns: int) -> dict[str, Any]:
    """The last event at or before the time, with the state after it if that is known."""
    chosen = ", ".join(
        f"CASE WHEN s.phase IS NOT NULL AND e.kind <> 'init' THEN n.{name} ELSE e.{name} END"
        f" AS {name}"
        for name in _STATE
    )
    records = rows(
        con,
        "WITH s AS (SELECT * FROM states WHERE run = $1 AND run_id = $2 AND flow = $3"
        " AND ns <= $4 ORDER BY seq DESC LIMIT 1)"
        " SELECT s.seq, s.ns, s.kind, s.phase IS NOT NULL AS after,"
        " coalesce(s.snd_cwnd, e.tp_snd_cwnd) AS snd_cwnd,"
        " coalesce(s.sk_pacing_rate, e.sk_pacing_rate) AS sk_pacing_rate, s.inflight,"
        " e.tp_mss_cache AS mss, e.tp_srtt_us >> 3 AS srtt_us,"
        " coalesce(e.new_state, e.icsk_ca_state) AS icsk_ca_state, e.jiffies32,"
        f" (SELECT binding FROM binding b WHERE b.run = $1 AND b.run_id = $2 AND b.flow = $3"
        f" AND b.seq = s.seq) AS binding, {chosen}"
        " FROM s JOIN events e USING (run_id, flow, seq) LEFT JOIN events n"
        " ON n.run_id = $2 AND n.flow = $3 AND n.seq = s.seq + 1",
        *(flow.run, flow.run_id, flow.flow, ns),
    )
    if not records:
        raise BbrscopeError(
            f"flow {flow.flow} of {flow.run} had not been initialised at {_seconds(flow, ns)} s",
            "choose a later time",
        )
    return records[0]


def _waits(
    con: duckdb.DuckDBPyConnection, flow: EventFlow, row: dict[str, Any], phase_seq: int
) -> list[str]:
    """What the latest decisions to stay say, within the current phase."""
    waits = []
    for number, *numbers in _latest_waits(con, flow, phase_seq, row["seq"]):
        code = CODES[number]
        text = fill(code, numbers, row["mss"], flow.hz, row["jiffies32"])
        if code.name == "CRUISE_STAY":
            text += _next_probe(evidence_of(code, numbers))
        waits.append(text)
    return waits


def _latest_waits(
    con: duckdb.DuckDBPyConnection, flow: EventFlow, first_seq: int, last_seq: int
) -> list[tuple[int, ...]]:
    """Code and evidence of the decisions to stay of the last event that has any."""
    return con.execute(
        "SELECT code, e0, e1, e2, e3 FROM decisions WHERE run_id = $1 AND flow = $2 AND seq = ("
        " SELECT max(seq) FROM decisions WHERE run_id = $1 AND flow = $2 AND seq BETWEEN $3 AND $4"
        " AND code IN (SELECT unnest($5))) AND code IN (SELECT unnest($5)) ORDER BY ord",
        [flow.run_id, flow.flow, first_seq, last_seq, [BY_NAME[name].number for name in WAITS]],
    ).fetchall()


def _next_probe(evidence: Mapping[str, int]) -> str:
    """How much of each limit of CRUISE is left."""
    left = evidence["probe_wait_us"] - evidence["elapsed_us"]
    rounds = evidence["rounds"] - evidence["rounds_since_probe"]
    counted = f"{rounds} round{'' if rounds == 1 else 's'}"
    return f" Whichever comes first: {milliseconds(max(left, 0))} or {counted}."


def _end(version: str, phase: str, state: dict[str, Any]) -> str:
    """What ends the phase."""
    text = ENDS.get((version, phase)) or ENDS["", phase]
    return text.format_map(state)


def _gains(state: dict[str, Any]) -> str:
    return (
        f"pacing gain {gain(state['pacing_gain'])}, cwnd gain {gain(state['cwnd_gain'])},"
        f" full_bw_reached {'yes' if state['full_bw_reached'] else 'no'}"
    )


def _bandwidth(flow: EventFlow, state: dict[str, Any]) -> str:
    mss = state["mss"]
    text = f"max_bw {mbps(max_bw(state), mss)}"
    if flow.version == "v1":
        if state["lt_use_bw"]:
            text += f", policer's lt_bw {mbps(state['lt_bw'], mss)} in use"
    else:
        text += f" (previous and current cycle {mbps(state['bw_hi_0'], mss)},"
        text += f" {mbps(state['bw_hi_1'], mss)}), latest {mbps(state['bw_latest'], mss)}"
    if state["sk_pacing_rate"] is None:
        return text + "; pacing not recorded"
    return text + f"; pacing {rate(state['sk_pacing_rate'])}"


def max_bw(state: dict[str, Any]) -> int:
    """The bandwidth filter's maximum [packets/us << 24]."""
    if "bw_s_0_v" in state:
        return int(state["bw_s_0_v"])
    return max(int(state["bw_hi_0"]), int(state["bw_hi_1"]))


def _volume(state: dict[str, Any]) -> str:
    text = f"cwnd {state['snd_cwnd']}, in flight {state['inflight']}"
    if state["min_rtt_us"] != U32_MAX:
        bdp = -(-max_bw(state) * state["min_rtt_us"] // (1 << 24))
        text += f", BDP {bdp} (max_bw x min_rtt)"
    extra_acked = max(state["extra_acked_0"], state["extra_acked_1"])
    return f"{text}, extra_acked {plural(extra_acked, 'packet')}"


def _bounds(
    con: duckdb.DuckDBPyConnection, flow: EventFlow, state: dict[str, Any], seq: int
) -> list[tuple[str, str]]:
    """The bounds and when which decision last moved them."""
    records = con.execute(
        "SELECT bound, max_by(ns, seq)::BIGINT, max_by(coalesce(name, 'unknown'), seq)"
        " FROM bounds_history WHERE run = ? AND run_id = ? AND flow = ? AND seq <= ?"
        " GROUP BY bound",
        [flow.run, flow.run_id, flow.flow, seq],
    ).fetchall()
    moved = {bound: (ns, name) for bound, ns, name in records}
    rows = []
    for bound in BOUNDS if flow.version != "v1" else ():
        words = value(bound_unit(bound), state[bound], state["mss"])
        if bound in moved:
            ns, name = moved[bound]
            words += f" since {_seconds(flow, ns)} s ({name})"
        rows.append((bound, words))
    return rows


def _rtt(con: duckdb.DuckDBPyConnection, flow: EventFlow, state: dict[str, Any]) -> str:
    parts = []
    if state["min_rtt_us"] != U32_MAX:
        parts.append(f"min_rtt {milliseconds(state['min_rtt_us'])}")
    if state["srtt_us"] is not None:
        parts.append(f"srtt {milliseconds(state['srtt_us'])}")
    records = first_row(
        con,
        "SELECT params FROM replays WHERE run_id = ? AND flow = ? AND mode = 'step'",
        flow.run_id,
        flow.flow,
    )
    timed = state["jiffies32"] is not None and state["mode"] != BBR_PROBE_RTT
    if records and records[0] and flow.hz and timed:
        parts.append(_next_probe_rtt(flow.version == "v1", flow.hz, json.loads(records[0]), state))
    return ", ".join(parts)


def _next_probe_rtt(v1: bool, hz: int, params: dict[str, Any], state: dict[str, Any]) -> str:
    """When PROBE_RTT is due, and which RTT puts it off."""
    window = params["min_rtt_win_sec"] if v1 else params["probe_rtt_win_ms"] / 1000
    stamp = state["min_rtt_stamp" if v1 else "probe_rtt_min_stamp"]
    least = state["min_rtt_us" if v1 else "probe_rtt_min_us"]
    age = ((state["jiffies32"] - stamp + _U32 // 2) % _U32 - _U32 // 2) / hz
    # bbr_update_min_rtt(): v2alpha takes an equal RTT, too; v1 and v3 only a lower one.
    renews = "of {} or less" if params.get("min_rtt_accepts_equal") else "below {}"
    return (
        f"PROBE_RTT is due in {max(window - age, 0):.3f} s unless an RTT"
        f" {renews.format(milliseconds(least))} is seen"
    )


def _recovery(flow: EventFlow, state: dict[str, Any]) -> str:
    number = state["icsk_ca_state"]
    known = number is not None and number < len(CA_STATES)
    text = f"congestion state {CA_STATES[number] if known else 'unknown'}"
    if state.get("packet_conservation"):
        text += ", packet conservation"
    if flow.version != "v1":
        text += f", loss in this round {'yes' if state['loss_in_round'] else 'no'}"
        text += f", the last probe went too high {'yes' if state['prev_probe_too_high'] else 'no'}"
        text += f", ecn_alpha {state['ecn_alpha']}/256"
    return text
