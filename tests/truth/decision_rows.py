"""The numbers of decisions against raw rows: every link from an old to a new value, and fields.

What a field of the kernel was before an event is in its row, what it is after it in the next row's
(struct bbr) or in its exit's (cwnd, pacing rate). Decisions that change a field must lead from one
to the other without a break, and no field may change without one. Other numbers of evidence are
named as the kernel names a field, or are computed from raw rows by the formulas here, which are
those of tcp_bbr.c, tcp_bbr2.c and tcp_rate.c.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import polars as pl
from bbrscope.analyze.bbr.codes import CODES, Code

Evidence = dict[str, int]
Found = set[int | None]
Value = Callable[["Event", Evidence], Found]

BW_SCALE = 24
LOSS_THRESH = 5  # 2 % of 256
FULL_BW_THRESH = 320  # 1.25 of 256

# Fields that decisions lead from an old to a new value: what codes are about, by their field.
_LINKED = {
    "inflight_hi": "bbr.inflight_hi",
    "inflight_lo": "bbr.inflight_lo",
    "bw_lo": "bbr.bw_lo",
    "min_rtt": "bbr.min_rtt_us",
    "probe_rtt_min": "bbr.probe_rtt_min_us",
    "ecn": "bbr.ecn_alpha",
    "cwnd": "tp.snd_cwnd",
    "pacing": "sk.sk_pacing_rate",
}
_LINKS = {
    "bw_lo": ("old_bw", "new_bw"),
    "min_rtt": ("old_us", "new_us"),
    "probe_rtt_min": ("old_us", "new_us"),
    "pacing": ("old_rate", "new_rate"),
}
_OLD_OR_NEW = frozenset("old new old_bw new_bw old_us new_us old_rate new_rate".split())
# Evidence that has another name than its field of struct bbr.
_FIELDS = {
    "cwnd": "tp.snd_cwnd",
    "bw_hi_0": "bbr.bw_hi[0]",
    "bw_hi_1": "bbr.bw_hi[1]",
    "round": "bbr.bw_probe_up_rounds",
    "cnt": "bbr.bw_probe_up_cnt",
    "acks": "bbr.bw_probe_up_acks",
    "jiffies": "jiffies32",
    "loss_events": "bbr.loss_events_in_round",
}


class Event:
    """One raw row: fields before the event and after it, and what decisions say in between."""

    def __init__(self, row: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        self.row, self._after = row, after
        self.meanwhile: dict[str, set[int]] = {}
        self.was_reset = False  # the latest signals were, earlier in this event

    def __getitem__(self, name: str) -> int | None:
        value: int | None = self.row.get(name)
        return value

    def after(self, name: str) -> int | None:
        """What the field was after the event; None: no row says it."""
        if name.startswith("bbr."):
            return self._after.get(name)
        return self[f"out.{name}"]

    def sums(self, *terms: str) -> int | None:
        """Fields added up, those with a minus taken away."""
        found = [self[term.removeprefix("-")] for term in terms]
        if None in found:
            return None
        signs = [-1 if term.startswith("-") else 1 for term in terms]
        return sum(sign * (value or 0) for sign, value in zip(signs, found, strict=True))


def _is_v1(event: Event) -> bool:
    return "bbr.lt_bw" in event.row


def _rate(delivered: int, interval_us: int, rounds_up: bool) -> int:
    """Packets over us as BBR keeps them; v2 and v3 round a sample up."""
    return ((delivered << BW_SCALE) + (interval_us - 1) * rounds_up) // interval_us


def _sample(event: Event, _: Evidence) -> Found:
    """The bandwidth sample: rs->delivered over rs->interval_us."""
    delivered, interval = event["rs.delivered"], event["rs.interval_us"]
    if not delivered or not interval or delivered < 0 or interval < 0:
        return {0}
    return {_rate(delivered, interval, not _is_v1(event))}


def _max_bw(event: Event, _: Evidence) -> Found:
    """bbr_max_bw(): before the event, or after it."""
    names = ("bbr.bw.s[0].v",) if _is_v1(event) else ("bbr.bw_hi[0]", "bbr.bw_hi[1]")
    found = [[event[name] for name in names], [event.after(name) for name in names]]
    return {max(values) for values in found if None not in values}


def _bw(event: Event, _: Evidence) -> Found:
    """bbr_bw(), what is paced by, after the event."""
    if event.after("bbr.lt_use_bw"):
        return {event.after("bbr.lt_bw")}
    low = event.after("bbr.bw_lo")
    names = ("bbr.bw.s[0].v", "bbr.bw_hi[0]", "bbr.bw_hi[1]")
    best = max(event.after(name) or 0 for name in names)
    return {best if low is None else min(best, low)}


def _in_flight(event: Event, _: Evidence) -> Found:
    """tcp_packets_in_flight()."""
    return {event.sums("tp.packets_out", "-tp.sacked_out", "-tp.lost_out", "tp.retrans_out")}


def _elapsed(event: Event, _: Evidence) -> Found:
    """Since the phase began: v1 by the last delivery, v2 and v3 by the stack's clock."""
    clock = event["tp.delivered_mstamp" if _is_v1(event) else "tp.tcp_mstamp"]
    begun = (event["bbr.cycle_mstamp"], event.after("bbr.cycle_mstamp"))
    return {max(clock - at, 0) for at in begun if at is not None and clock is not None}


def _expected(event: Event, said: Evidence) -> Found:
    """bbr_update_ack_aggregation(): what the bandwidth brings in an epoch."""
    epoch_us = event.sums("tp.delivered_mstamp", "-bbr.ack_epoch_mstamp")
    if epoch_us is None:
        return set()
    # The filter's window may move on, and bw_lo be reset, later in the event.
    largest = _max_bw(event, said) | _sample(event, said)
    rates = _bw(event, said) | largest
    rates |= {min(bw or 0, low) for bw in largest for low in event.meanwhile["bw_lo"]}
    return {rate * max(epoch_us, 0) >> BW_SCALE for rate in rates if rate is not None}


def _full_pipe(event: Event, said: Evidence) -> Found:
    """What the full pipe is judged by: the largest bandwidth, in v3 the sample."""
    is_v3 = "rs.is_acking_tlp_retrans_seq" in event.row
    return _sample(event, said) if is_v3 else _max_bw(event, said)


def _interval(event: Event, _: Evidence) -> Found:
    """bbr_lt_bw_interval_done(): delivered over an interval of whole milliseconds."""
    delivered = event.sums("tp.delivered", "-bbr.lt_last_delivered")
    now, begun = event["tp.delivered_mstamp"], event["bbr.lt_last_stamp"]
    if delivered is None or now is None or begun is None:
        return set()
    return {_rate(delivered, (now // 1000 - begun) * 1000, False)}


def _gain(event: Event, _: Evidence) -> Found:
    """A restart from idle paces at 1.0, whatever the gain; else the gain before or after."""
    if event.row["kind"] == "E":
        return {256}
    return {event["bbr.pacing_gain"], event.after("bbr.pacing_gain")}


def _old_state(event: Event, _: Evidence) -> Found:
    """set_state() finds the old state in icsk_ca_state, main() keeps it in prev_ca_state."""
    return {event["icsk_ca_state" if event.row["kind"] == "S" else "bbr.prev_ca_state"]}


def _at_least(name: str, sample: Value) -> Value:
    """A maximum before this event's sample went into it, or after, or which began with it."""

    def found(event: Event, said: Evidence) -> Found:
        new = sample(event, said)
        return new | {event[name]} | {max(event[name] or 0, value or 0) for value in new}

    return found


def _latest(name: str, sample: Value) -> Value:
    """A signal of the round, as _at_least() has it; nothing once it was reset."""
    found = _at_least(name, sample)
    return lambda event, said: {0} if event.was_reset else found(event, said)


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


def _sum(*terms: str) -> Value:
    return lambda event, _: {event.sums(*terms)}


def _always(value: int) -> Value:
    return lambda event, _: {value}


def _none(event: Event, _: Evidence) -> Found:
    """Not worked out here: computed from targets, of which no row has a value."""
    return set()


# Numbers by name, and where one name means different things, by code and name.
FORMULAS: dict[str, Value] = {
    "acked": _of("rs.acked_sacked"),
    "bw": _sample,
    "bw_thresh": lambda event, _: {(event["bbr.full_bw"] or 0) * FULL_BW_THRESH >> 8},
    "ce_ratio": _ce_ratio,
    "delivered": _of("tp.delivered"),
    "delivered_ce": _of("rs.delivered_ce"),
    "ecn_in_round": lambda event, _: {
        event["bbr.ecn_in_round"],
        int(bool(event["rs.delivered_ce"])),
    },
    "elapsed_us": _elapsed,
    "expected": _expected,
    "full_bw_cnt_limit": _always(3),
    "gain": _gain,
    "inflight": _in_flight,
    "loss_limit": lambda _, said: {said["tx_in_flight"] * LOSS_THRESH >> 8},
    "losses": _of("rs.losses"),
    "lost": _of("rs.lost"),
    "max_bw": _max_bw,
    "new_state": _of("new_state", "icsk_ca_state"),
    "old_state": _old_state,
    "rounds": _none,
    "rtt_us": _of("rs.rtt_us"),
    "tx_in_flight": _of("rs.tx_in_flight", "skb.in_flight"),
    "window_ms": lambda event, _: {10_000 if _is_v1(event) else 5_000},
}
BY_CODE: dict[tuple[str, str], Value] = {
    ("BWHI_ADVANCE", "bw_hi_1"): _at_least("bbr.bw_hi[1]", _sample),
    ("FULLBW_GREW", "bw"): _full_pipe,
    ("FULLBW_REACHED_PLATEAU", "bw"): _full_pipe,
    ("FULLBW_REACHED_PLATEAU", "full_bw_cnt"): _one_more("bbr.full_bw_cnt"),
    ("FULLBW_SKIP_APPLIMITED", "bw"): _full_pipe,
    ("FULLBW_STALL_ROUND", "bw"): _full_pipe,
    ("FULLBW_STALL_ROUND", "full_bw_cnt"): _one_more("bbr.full_bw_cnt"),
    ("HI_SET_STARTUP_EXIT", "inflight_latest"): _at_least(
        "bbr.inflight_latest", _of("rs.delivered")
    ),
    ("HI_RAISE_SLOPE", "acks"): _sum("bbr.bw_probe_up_acks", "rs.acked_sacked"),
    # bbr_raise_inflight_hi_slope()
    ("HI_SLOPE_DOUBLE", "cnt"): lambda event, said: {
        max((event["tp.snd_cwnd"] or 0) >> said["round"] - 1, 1)
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
    ("SIGNALS_RESET", "bw_latest"): _latest("bbr.bw_latest", _sample),
    ("SIGNALS_RESET", "inflight_latest"): _latest("bbr.inflight_latest", _of("rs.delivered")),
    ("STARTUP_LOSS_EVENT", "loss_events"): _one_more("bbr.loss_events_in_round"),
}


@dataclass
class Checked:
    """How many numbers of evidence were worked out, by name, and what differs."""

    right: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def flow(self, rows: pl.DataFrame, decisions: list[tuple[int, ...]]) -> None:
        """Check a flow's decisions (ns, code and evidence, in order) against its raw rows."""
        said = {
            ns: [
                (CODES[code], dict(zip(CODES[code].units, evidence, strict=False)))
                for _, code, *evidence in of
            ]
            for ns, of in groupby(decisions, key=lambda row: row[0])
        }
        init = rows["kind"].to_list().index("I")
        for row, after in _neighbours(rows[init + 1 :]):
            event = Event(row, after)
            made = said.get(row["ns"], [])
            event.meanwhile = {about: self._links(event, about, made) for about in _LINKED}
            for code, evidence in made:
                for name in evidence.keys() - _OLD_OR_NEW:
                    self._value(event, code, evidence, name)
                event.was_reset |= code.name == "SIGNALS_RESET"

    def _links(self, event: Event, about: str, made: list[tuple[Code, Evidence]]) -> set[int]:
        """Follow a field through an event; return the values that it had meanwhile."""
        before, after = event[_LINKED[about]], event.after(_LINKED[about])
        if before is None or after is None:
            return set()
        now: int | None = before
        values, changed = {before, after}, False
        for code, evidence in made:
            link = _link(about, code, evidence)
            if link is None:
                if code.change and about in _touched(code):
                    now, changed = None, True
                continue
            old, new = link
            if old is not None and now is not None and old != now:
                self.wrong.append(f"{event['ns']}: {code.name} from {old}, it was {now}")
            self.right[f"old and new {about}"] += 1 + (old is not None)
            now, changed = new, True
            values.add(new)
        if now not in (None, after) or (not changed and before != after):
            self.wrong.append(f"{event['ns']}: {about} became {after}, said is {now}")
        return values

    def _value(self, event: Event, code: Code, said: Evidence, name: str) -> None:
        formula = BY_CODE.get((code.name, name), FORMULAS.get(name))
        column = _FIELDS.get(name, f"bbr.{name}")
        if formula is not None:
            wanted = formula(event, said) - {None}
        else:
            meanwhile = [event.meanwhile[about] for about, of in _LINKED.items() if of == column]
            wanted = {event[column], event.after(column)}.union(*meanwhile) - {None}
        if not wanted:
            self.left[name] += 1
        elif said[name] in wanted:
            self.right[name] += 1
        else:
            self.wrong.append(f"{event['ns']}: {code.name} {name} {said[name]}, rows say {wanted}")

    @property
    def share(self) -> float:
        """Of all numbers, those that were worked out."""
        return self.right.total() / (self.right.total() + self.left.total())

    def table(self) -> str:
        """How many numbers were worked out of how many, and which were not."""
        right, left = self.right.total(), self.left.total()
        rest = ", ".join(f"{name} {count:,}" for name, count in self.left.most_common())
        return f"evidence: {right:,} of {right + left:,} numbers worked out; not: {rest}"


def _neighbours(rows: pl.DataFrame) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each row with the next one; the last has none, and after it nothing is known."""
    every = rows.iter_rows(named=True)
    row = next(every)
    for after in every:
        yield row, after
        row = after


def _touched(code: Code) -> tuple[str, ...]:
    """The fields that a decision changes without saying from what to what."""
    return ("bw_lo", "inflight_lo") if code.name.startswith("LO_") else (code.about,)


def _link(about: str, code: Code, said: Evidence) -> tuple[int | None, int] | None:
    """The old value of a field (None: not said) and the new one, if the decision has them."""
    if about == "cwnd" and "new_cwnd" in said:
        return said.get("cwnd"), said["new_cwnd"]
    if about in ("min_rtt", "probe_rtt_min"):
        if (code.name == "PRTT_MIN_NEW") != (about == "probe_rtt_min"):
            return None
    elif code.about != about and not (code.name == "LO_UNDO" and about in ("bw_lo", "inflight_lo")):
        return None
    old, new = _LINKS.get(about, ("old", "new"))
    return (said.get(old), said[new]) if new in said else None
