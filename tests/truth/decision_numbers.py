"""Numbers of decisions' evidence by raw rows: by their name, or by their code and name.

Each is a field of the kernel's, or worked out by the formulas of tcp_bbr.c, tcp_bbr2.c and
tcp_rate.c, which are written anew here and in `kernel_volumes`.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.truth.decision_event import Event, Evidence
from tests.truth.kernel_volumes import BW_SCALE, LOSS_THRESH, UNIT, Path, headroom, until_too_high

Found = set[int | None]
Value = Callable[[Event, Evidence], Found]

FULL_BW_THRESH = 320  # 1.25 of 256
_MOST_ROUNDS = 63
_NOT_RECORDED = -1


def _rate(delivered: int, interval_us: int, rounds_up: bool) -> int:
    """Packets over us as BBR keeps them; v2 and v3 round a sample up."""
    return ((delivered << BW_SCALE) + (interval_us - 1) * rounds_up) // interval_us


def _sample(event: Event, _: Evidence) -> Found:
    """The bandwidth sample: rs->delivered over rs->interval_us."""
    delivered, interval = event["rs.delivered"], event["rs.interval_us"]
    if not delivered or not interval or delivered < 0 or interval < 0:
        return {0}
    return {_rate(delivered, interval, event.version > 1)}


def _max_bw(event: Event, _: Evidence) -> Found:
    return {event.max_bw}


def _bw(event: Event, _: Evidence) -> Found:
    return {event.bw}


def _in_flight(event: Event, _: Evidence) -> Found:
    """tcp_packets_in_flight()."""
    return {event.sums("tp.packets_out", "-tp.sacked_out", "-tp.lost_out", "tp.retrans_out")}


def _elapsed(event: Event, _: Evidence) -> Found:
    """Since the phase began: v1 by the last delivery, v2 and v3 by the stack's clock."""
    clock = event["tp.delivered_mstamp" if event.version == 1 else "tp.tcp_mstamp"]
    begun = (event["bbr.cycle_mstamp"], event.after("bbr.cycle_mstamp"))
    return {max(clock - at, 0) for at in begun if at is not None and clock is not None}


def _expected(event: Event, _: Evidence) -> Found:
    """bbr_update_ack_aggregation(): what the bandwidth brings in an epoch."""
    epoch_us = event.sums("tp.delivered_mstamp", "-bbr.ack_epoch_mstamp")
    return set() if epoch_us is None else {event.bw * max(epoch_us, 0) >> BW_SCALE}


def _full_pipe(event: Event, said: Evidence) -> Found:
    """What the full pipe is judged by: the largest bandwidth, in v3 the sample."""
    return _sample(event, said) if event.version == 3 else _max_bw(event, said)


def _interval(event: Event, _: Evidence) -> Found:
    """bbr_lt_bw_interval_done(): delivered over an interval of whole milliseconds."""
    delivered = event.sums("tp.delivered", "-bbr.lt_last_delivered")
    now, begun = event["tp.delivered_mstamp"], event["bbr.lt_last_stamp"]
    if delivered is None or now is None or begun is None:
        return set()
    return {_rate(delivered, (now // 1000 - begun) * 1000, False)}


def _gain(event: Event, _: Evidence) -> Found:
    """A restart from idle paces at 1.0, whatever the gain; else by the gain of the new phase."""
    return {UNIT if event.row["kind"] == "E" else event.after("bbr.pacing_gain")}


def _old_state(event: Event, _: Evidence) -> Found:
    """set_state() finds the old state in icsk_ca_state, main() keeps it in prev_ca_state."""
    return {event["icsk_ca_state" if event.row["kind"] == "S" else "bbr.prev_ca_state"]}


def _latest(name: str, sample: Value) -> Value:
    """A signal of the round: the larger one of what it was and this event's sample.

    Before the sample went into it, after, or begun with it; nothing once it was reset. Nobody
    recorded what it was before init.
    """

    def found(event: Event, said: Evidence) -> Found:
        if event.row["kind"] == "I":
            return {_NOT_RECORDED}
        if event.was_reset:
            return {0}
        new = sample(event, said)
        return new | {event[name]} | {max(event[name] or 0, value or 0) for value in new}

    return found


def _one_more(name: str) -> Value:
    return lambda event, _: {(event[name] or 0) + 1}


def _ce_ratio(event: Event, _: Evidence) -> Found:
    """bbr_update_ecn_alpha(): marks of what was delivered since the last time."""
    marked = event.sums("tp.delivered_ce", "-bbr.alpha_last_delivered_ce")
    delivered = event.sums("tp.delivered", "-bbr.alpha_last_delivered")
    return {(marked << 8) // delivered} if marked is not None and delivered else set()


def _of(*names: str) -> Value:
    """The first of these fields that the row has."""
    return lambda event, _: {next((event[n] for n in names if event[n] is not None), None)}


def _after(name: str) -> Value:
    return lambda event, _: {event.after(name)}


def _sum(*terms: str) -> Value:
    return lambda event, _: {event.sums(*terms)}


def _always(value: int) -> Value:
    return lambda event, _: {value}


def _model(volume: Callable[[Path, Event], int]) -> Value:
    """A volume that the model asks for: the phase is still the one before the event."""
    return lambda event, _: {volume(event.path(controls=False), event)}


def _bdp_of_cwnd(path: Path, event: Event) -> int:
    """The part of bbr_set_cwnd()'s target that is the BDP."""
    return path.bdp(path.bw, event.after("bbr.cwnd_gain") or 0)


def _aggregation(path: Path, event: Event) -> int:
    """v1 adds none before the pipe is full."""
    if event.version == 1 and not event.after("bbr.full_bw_reached"):
        return 0
    extra = (event.after(f"bbr.extra_acked[{slot}]") or 0 for slot in (0, 1))
    return path.aggregation(max(extra))


def _target_cwnd(path: Path, event: Event) -> int:
    return path.quantized(_bdp_of_cwnd(path, event) + _aggregation(path, event))


def _control(volume: Callable[[Path, Event], int]) -> Value:
    """A volume that bbr_set_cwnd() asks for: gains and phase are those after the event."""
    return lambda event, _: {volume(event.path(controls=True), event)}


def _in_net(event: Event, said: Evidence) -> Found:
    """Of what is in flight in DRAIN, of what was before this ACK in the other phases."""
    draining = "target" in said and event["bbr.full_bw_reached"] is not None and _drains(event)
    (flight,) = _in_flight(event, said) if draining else (event["rs.prior_in_flight"],)
    now, departs = event["tp.tcp_clock_cache"], event["tp.tcp_wstamp_ns"]
    return {event.path(controls=False).in_net(flight or 0, now or 0, departs or 0)}


def _drains(event: Event) -> bool:
    return event["bbr.mode"] in (0, 1)


def _reno_rounds(event: Event, _: Evidence) -> Found:
    """bbr_is_reno_coexistence_probe_time()."""
    target = event.path(controls=False).target_inflight(event.now["cwnd"] or 0)
    return {min(_MOST_ROUNDS, target)}


def _target_inflight(path: Path, event: Event) -> int:
    return path.target_inflight(event.now["cwnd"] or 0)


def _bdp(path: Path, _: Event) -> int:
    return path.inflight(path.max_bw, UNIT)


def _lt_rounds(event: Event, _: Evidence) -> Found:
    """bbr_lt_bw_sampling() counts a round that begins with this event."""
    return {(event["bbr.lt_rtt_cnt"] or 0) + (event.after("bbr.round_start") or 0)}


def _prefix(event: Event, said: Evidence) -> Found:
    (lost,), (flight,) = _lost(event, said), _flight(event, said)
    return {until_too_high(flight or 0, lost or 0, event["skb.gso_segs"] or 1)}


def _is_tlp(event: Event) -> bool:
    return event.row["kind"] == "E"


def _lost(event: Event, _: Evidence) -> Found:
    """rs->lost; of a packet marked lost, what was since it was sent; 1 that a TLP repaired."""
    if event["skb.lost"] is not None:
        return {event.sums("tp.lost", "-skb.lost")}
    return {1 if _is_tlp(event) else event["rs.lost"]}


def _flight(event: Event, _: Evidence) -> Found:
    """What was in flight when it was sent; a TLP stands for one more than the last round's."""
    if _is_tlp(event):
        return {(event["bbr.inflight_latest"] or 0) + 1}
    return {next(event[n] for n in ("rs.tx_in_flight", "skb.in_flight") if event[n] is not None)}


def _rate_wanted(event: Event, said: Evidence) -> Found:
    (gain,) = _gain(event, said)
    path, most = event.path(controls=True), event["sk.sk_max_pacing_rate"]
    return {path.rate(path.bw, gain or 0, most or 0)}


def _agg_slot(event: Event) -> tuple[str, bool]:
    """The slot of extra_acked that a sample goes into, and whether it was emptied before."""
    slot = event.after("bbr.extra_acked_win_idx")
    return f"bbr.extra_acked[{slot}]", slot != event["bbr.extra_acked_win_idx"]


def _agg_before(event: Event, _: Evidence) -> Found:
    name, emptied = _agg_slot(event)
    return {0 if emptied else event[name]}


def _ecn_rounds(event: Event, said: Evidence) -> Found:
    """bbr_check_ecn_too_high_in_startup(): rounds in a row with half of all marked."""
    return {(event["bbr.startup_ecn_rounds"] or 0) + 1 if said["ce_ratio"] >= UNIT // 2 else 0}


# Numbers by name, and where one name means different things, by code and name.
FORMULAS: dict[str, Value] = {
    "acked": _of("rs.acked_sacked"),
    "agg": _control(_aggregation),
    "bdp": _model(_bdp),
    "bw": _sample,
    "bw_hi_0": lambda event, _: {event.now["hi_0"]},
    "bw_hi_1": lambda event, _: {event.now["hi_1"]},
    "bw_thresh": lambda event, _: {(event["bbr.full_bw"] or 0) * FULL_BW_THRESH >> 8},
    "ce_ratio": _ce_ratio,
    "delivered": _of("tp.delivered"),
    "delivered_ce": _of("rs.delivered_ce"),
    "draw": lambda event, _: {(8 - (event.after("bbr.cycle_idx") or 0)) & 7},
    "ecn_in_round": lambda event, _: {
        event["bbr.ecn_in_round"],
        int(bool(event["rs.delivered_ce"])),
    },
    "ecn_limit": lambda event, _: {(event["rs.delivered"] or 0) * 128 >> 8},
    "elapsed_us": _elapsed,
    "expected": _expected,
    "full_bw_cnt_limit": _always(3),
    "gain": _gain,
    "headroom": lambda event, _: {headroom(event.now["inflight_hi"] or 0)},
    "in_net": _in_net,
    "inflight": _in_flight,
    "loss_events_limit": lambda event, _: {8 if event.version == 2 else 6},
    "loss_limit": lambda _, said: {said["tx_in_flight"] * LOSS_THRESH >> 8},
    "losses": lambda event, _: {1 if event.row["kind"] == "S" else event["rs.losses"]},
    "lost": _lost,
    "max_bw": _max_bw,
    "new_cwnd": lambda event, _: {max(event.now["cwnd"] or 0, event["bbr.prior_cwnd"] or 0)},
    "new_lt_bw": _after("bbr.lt_bw"),
    "new_state": _of("new_state", "icsk_ca_state"),
    "old_state": _old_state,
    "prefix": _prefix,
    "probe_rtt_cwnd": _model(lambda path, _: path.probe_rtt_cwnd()),
    "rate": _rate_wanted,
    "rtt_us": _of("rs.rtt_us"),
    # bbr_check_time_to_probe_bw(): half of inflight_hi, as a power of two.
    "slope": lambda event, _: {((event.now["inflight_hi"] or 0) * 128 >> 8).bit_length() - 1},
    "target": _model(_target_inflight),
    "tx_in_flight": _flight,
    "window_ms": lambda event, _: {10_000 if event.version == 1 else 5_000},
}
_TARGETS: dict[str, Value] = {
    **dict.fromkeys(("DRAIN_ENTER", "DRAIN_EXIT_DRAINED", "DRAIN_STAY"), _model(_bdp)),
    **dict.fromkeys(
        ("CYC_NEXT_UP_INFLIGHT", "CYC_STAY_UP_WAIT_INFLIGHT"),
        _model(lambda path, _: path.inflight(path.max_bw, path.pacing_gain)),
    ),
    "CYC_NEXT_DOWN_DRAINED": _model(_bdp),
    "DOWN_BY_QUEUE": _model(lambda path, _: path.inflight(path.max_bw, 320)),
    **dict.fromkeys(("CWND_GROW", "CWND_HOLD"), _control(_target_cwnd)),
}
_ROUNDS: dict[str, Value] = {
    **dict.fromkeys(("CRUISE_STAY", "REFILL_BY_RENO_ROUNDS"), _reno_rounds),
    **dict.fromkeys(("FULLBW_REACHED_ECN", "STARTUP_ECN_ROUND"), _ecn_rounds),
    "LT_RESET_APPLIMITED": _of("bbr.lt_rtt_cnt"),
    **{
        f"LT_{name}": _lt_rounds
        for name in ("RESET_TOO_LONG", "WAIT_ROUNDS", "WAIT_LOSS", "END_48R", "IN_USE")
    },
    "AGG_WINDOW_FLIP": _one_more("bbr.extra_acked_win_rtts"),
}
# What the TCP core or the application did between two events.
_CORE: dict[tuple[str, str], Value] = {
    (f"CORE_{code}", name): value
    for code in ("RTO_COLLAPSE", "MTU_PROBE", "OTHER")
    for name, value in (
        ("old", lambda event, _: {event.earlier.get("cwnd")}),
        ("new", _of("tp.snd_cwnd")),
    )
}
BY_CODE: dict[tuple[str, str], Value] = {
    **_CORE,
    ("INIT", "min_rtt_us"): _after("bbr.min_rtt_us"),
    ("INIT", "pacing_rate"): lambda event, _: {event.following["sk.sk_pacing_rate"]},
    ("CORE_PACING", "old_rate"): lambda event, _: {event.earlier.get("pacing")},
    ("CORE_PACING", "new_rate"): _of("sk.sk_pacing_rate"),
    # v1 returns the cwnd that it finds, and so takes nothing back.
    ("CORE_UNDO", "old"): _of("tp.snd_cwnd"),
    ("CORE_UNDO", "new"): lambda event, _: {
        event["tp.snd_cwnd" if event.version == 1 else "bbr.prior_cwnd"]
    },
    ("PACE_HOLD_STARTUP", "old_rate"): lambda event, _: {event.now["pacing"]},
    ("PACE_FIRST_RTT", "rtt_us"): lambda event, _: {max((event["tp.srtt_us"] or 0) >> 3, 1)},
    ("HI_CUT_SAME", "old"): lambda event, _: {event.now["inflight_hi"]},
    ("AGG_NEW_MAX", "old"): _agg_before,
    ("AGG_NEW_MAX", "new"): lambda event, _: {event.after(_agg_slot(event)[0])},
    ("AGG_WINDOW_FLIP", "old"): lambda event, _: {event[_agg_slot(event)[0]]},
    **{(f"PRIORCWND_{code}", "old"): _of("bbr.prior_cwnd") for code in ("SAVE", "MAX")},
    ("PRIORCWND_SAVE", "new"): lambda event, _: {event.now["cwnd"]},
    **{(code, "target"): value for code, value in _TARGETS.items()},
    **{(code, "rounds"): value for code, value in _ROUNDS.items()},
    ("CWND_TO_TARGET", "bdp"): _control(_bdp_of_cwnd),
    ("FULLBW_GREW", "bw"): _full_pipe,
    ("FULLBW_REACHED_PLATEAU", "bw"): _full_pipe,
    ("FULLBW_REACHED_PLATEAU", "full_bw_cnt"): _one_more("bbr.full_bw_cnt"),
    ("FULLBW_SKIP_APPLIMITED", "bw"): _full_pipe,
    ("FULLBW_STALL_ROUND", "bw"): _full_pipe,
    ("FULLBW_STALL_ROUND", "full_bw_cnt"): _one_more("bbr.full_bw_cnt"),
    ("HI_SET_STARTUP_EXIT", "inflight_latest"): _latest("bbr.inflight_latest", _of("rs.delivered")),
    ("HI_RAISE_SLOPE", "acks"): _sum("bbr.bw_probe_up_acks", "rs.acked_sacked"),
    # bbr_raise_inflight_hi_slope()
    ("HI_SLOPE_DOUBLE", "cnt"): lambda event, said: {
        max((event.now["cwnd"] or 0) >> said["round"] - 1, 1)
    },
    ("IDLE_RESTART", "bw"): _bw,
    ("IDLE_RESTART_END", "delivered"): _of("rs.delivered"),
    ("DOWN_BY_ECN", "delivered"): _of("rs.delivered"),
    ("LT_INTERVAL_FIRST", "bw"): _interval,
    ("LT_USE_DIFF", "bw"): _interval,
    ("LT_USE_RATIO", "bw"): _interval,
    ("LT_WAIT_RATE", "delivered"): _sum("tp.delivered", "-bbr.lt_last_delivered"),
    ("LT_WAIT_RATE", "lost"): _sum("tp.lost", "-bbr.lt_last_lost"),
    ("LT_WAIT_ROUNDS", "limit"): _always(4),
    ("LT_RESET_TOO_LONG", "limit"): _always(16),
    ("PACE_SET", "bw"): _bw,
    # The minimum that was not renewed: this event's own sample takes its place.
    ("PRTT_ENTER_EXPIRED", "probe_rtt_min_us"): _of("bbr.probe_rtt_min_us", "bbr.min_rtt_us"),
    ("SIGNALS_RESET", "bw_latest"): _latest("bbr.bw_latest", _sample),
    ("SIGNALS_RESET", "inflight_latest"): _latest("bbr.inflight_latest", _of("rs.delivered")),
    ("STARTUP_LOSS_EVENT", "loss_events"): _one_more("bbr.loss_events_in_round"),
    # bbr_update_congestion_signals(): an ACK that ends a round counts with it what it marked.
    ("LOSSROUND_START", "loss_in_round"): lambda event, _: {
        int(bool(event["bbr.loss_in_round"] or event["rs.losses"]))
    },
}
