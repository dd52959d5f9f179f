"""The events of a simulated run as the recorder writes them: lines of events.csv.

Which columns a row has follows from the table of fields (probes/fields.csv), as for a recording.
"""

from __future__ import annotations

from collections import Counter
from typing import IO, Any

import numpy as np
import polars as pl

from ...probes.fields import Field, recorded_in
from ..bbr.records import (
    CONTROL,
    CWND_EVENT,
    INIT,
    MAIN,
    SET_STATE,
    SKB_MARKED_LOST,
    SSTHRESH,
    STATE_FIELDS,
    UNDO_CWND,
)
from .world.world_records import COOKIE

Array = np.ndarray[Any, Any]
CONTROL_NAMES = frozenset(CONTROL.names or ())

TAGS = {MAIN: "M0", SET_STATE: "S0", CWND_EVENT: "E0", SSTHRESH: "H0"} | {
    UNDO_CWND: "U0",
    SKB_MARKED_LOST: "L0",
    INIT: "I",
}
_ISS, _GSO_MAX = 1_000_000, 65_215
_U32 = 0xFFFFFFFF
SERVER_PORT = 5201


def local_port(flow: int) -> int:
    """The sender's port of a flow."""
    return 40_000 + flow


def network_order(port: int) -> int:
    """A port as the kernel stores it."""
    return (port & 0xFF) << 8 | port >> 8


def _sequence(segments: Array, mss: Array) -> Array:
    """Sequence numbers in bytes of those that count segments: the first segment is short."""
    return (_ISS + np.where(segments > 0, COOKIE + (segments - 1) * mss, 0)) & _U32


class EventWriter:
    """Turns the engine's rows into lines, in pieces."""

    def __init__(self, out: IO[bytes], version: str, parameters: dict[str, Any]) -> None:
        self.out = out
        self.version = version
        self.parameters = parameters
        self.rows: Counter[str] = Counter()
        self.first_ns = 0
        self.last_ns = 0
        # Places of flows in the set-up, in the order in which ingest numbers them.
        self.began: list[int] = []
        self._entry = self._fields("entry")
        self._main = self._fields("main")
        self._init = self._fields("init")
        self._skb = self._fields("skb") if version != "v1" else []
        self._exit = self._fields("exit")
        self._state = [one for one in STATE_FIELDS if version in one.versions]
        self._params = [one for one in recorded_in("params") if version in one.versions]
        self._write_header()

    def _fields(self, place: str) -> list[Field]:
        """What a version's rows have at a place, of it what the simulated kernel can tell."""
        return [
            one
            for one in recorded_in(place)
            if self.version in one.versions and (one.roles != ("context",) or one.name in SIMULATED)
        ]

    def _columns(self, tag: str) -> list[str]:
        head, state = ["ns", "sk"], [one.name for one in self._state]
        entry = [one.name for one in self._entry]
        named = {
            "M0": [one.name for one in self._main] + entry + state,
            "S0": ["new_state", *entry, *state],
            "E0": ["event", *entry, *state],
            "H0": entry + state,
            "U0": entry + state,
            "L0": [one.name for one in self._skb] + entry + state,
            "I": ["sport", "dport", "daddr", *entry],
            "IX0": entry + state,
            "X": [one.name for one in self._exit],
            "P": [one.name for one in self._params],
        }
        return head + named[tag]

    def _write_header(self) -> None:
        tags = ["M0", "X", "I", "IX0", "S0", "E0", "H0", "U0"]
        tags += ["L0"] * (self.version != "v1") + ["P"] * bool(self._params)
        lines = [f"#{tag}," + ",".join(self._columns(tag)) for tag in tags]
        self.out.write(("\n".join(lines) + "\n").encode())

    def take(self, events: Array, states: Array, rows: Array) -> None:
        """Write rows: the inputs, the state before each callback (after it for init), and more."""
        ns = self._distinct(rows["ns"])
        kind = events["ctl"]["kind"]
        order, lines = [], []
        for each, tag in TAGS.items():
            index = np.flatnonzero(kind == each)
            if not len(index):
                continue
            part = _Part(events[index], states[index], rows[index], ns[index])
            order.append(index)
            lines.append(self._lines(tag, part))
        where, text = np.concatenate(order), pl.concat(lines)
        self.out.write(("\n".join(text.gather(np.argsort(where)).to_list()) + "\n").encode())

    def _distinct(self, ns: Array) -> Array:
        """Times that grow by 4 ns at least from row to row: some callbacks run at one instant."""
        steps = 4 * np.arange(1, len(ns) + 1)
        grown = np.maximum.accumulate(np.maximum(ns, self.last_ns + 4) - steps) + steps
        self.first_ns = self.first_ns or int(grown[0])
        self.last_ns = int(grown[-1])
        return grown

    def _lines(self, tag: str, part: _Part) -> pl.Series:
        self.rows[tag] += len(part.ns)
        text = self._line(tag, part, 0)
        if tag == "M0":
            self.rows["X"] += len(part.ns)
            text = text + "\n" + self._line("X", part, 1)
        elif tag == "I":
            self.began += part.rows["flow"].tolist()
            self.rows["IX0"] += len(part.ns)
            text = text + "\n" + self._line("IX0", part, 1)
            if self._params:
                self.rows["P"] += len(part.ns)
                text = text + "\n" + self._line("P", part, 2)
        return text

    def _line(self, tag: str, part: _Part, later: int) -> pl.Series:
        columns: dict[str, Any] = {"ns": part.ns + later}
        is_exit = tag in ("X", "IX0")
        for name in self._columns(tag)[2:]:
            columns[name] = self._value(name, part, is_exit)
        frame = pl.DataFrame({name: np.ascontiguousarray(one) for name, one in columns.items()})
        sk = pl.Series("sk", [f"ffff8880{flow + 1:08x}" for flow in part.rows["flow"]])
        frame = frame.insert_column(1, sk).select(
            pl.concat_str(pl.lit(tag), *columns_of(frame), separator=",").alias("line")
        )
        return frame["line"]

    def _value(self, name: str, part: _Part, is_exit: bool) -> Array:
        """The values of one column."""
        group, _, member = name.partition(".")
        place, index = FIELD_PLACES.get(name, (member or name, -1))
        if is_exit and f"exit_{place}" in CONTROL_NAMES:
            return part.events["ctl"][f"exit_{place}"]
        known = part.known(name)
        if known is not None:
            return known
        if group == "params":
            value = self.parameters.get(place, 0)
            return np.full(len(part.ns), value if index < 0 else value[index], np.int64)
        if group == "bbr":
            column = part.states[place]
            return column if index < 0 else column[:, index]
        source = {"rs": "rs", "skb": "skb"}.get(group, "tp")
        return part.events[source][place]


def columns_of(frame: pl.DataFrame) -> list[pl.Expr]:
    """Expressions that turn all columns of the frame into text."""
    return [pl.col(name).cast(pl.String) for name in frame.columns]


FIELD_PLACES = {
    one.name: one.record_place
    for place in ("entry", "main", "exit", "skb", "params", "init")
    for one in recorded_in(place)
} | {one.name: one.record_place for one in STATE_FIELDS}


class _Part:
    """Rows of one kind."""

    def __init__(self, events: Array, states: Array, rows: Array, ns: Array) -> None:
        self.events = events
        self.states = states
        self.rows = rows
        self.ns = ns

    def known(self, name: str) -> Array | None:
        """Columns that are in no record of the estimator's."""
        rows, tp = self.rows, self.events["tp"]
        mss = tp["mss_cache"].astype(np.int64)
        own = _OUT.get(name)
        if own:
            counted = own in ("una", "nxt", "high", "seq")
            return _sequence(rows[own], mss) if counted else rows[own]
        if name == "skb.end_seq":
            return _sequence(rows["seq"] + self.events["skb"]["gso_segs"], mss)
        if name == "tp.snd_wnd":
            return rows["wnd"] * mss
        if name == "tp.rtt_min":
            return self.events["ctl"]["arg"]
        if name in ("new_state", "event"):
            return self.events["ctl"]["arg"]
        if name == "sport":
            return np.array([network_order(local_port(flow)) for flow in rows["flow"]])
        constant = _CONSTANT.get(name)
        return None if constant is None else np.full(len(tp), constant, np.int64)


_OUT = {
    "rs.prior_mstamp": "prior_mstamp",
    "rs.is_retrans": "is_retrans",
    "rs.snd_interval_us": "snd_us",
    "rs.rcv_interval_us": "rcv_us",
    "rs.prior_lost": "prior_lost",
    "rs.prior_delivered_ce": "prior_ce",
    "tp.snd_una": "una",
    "tp.snd_nxt": "nxt",
    "tp.high_seq": "high",
    "skb.seq": "seq",
}
_CONSTANT = {
    "dport": network_order(SERVER_PORT),
    "daddr": 0x0200090A,
    "sk.sk_gso_max_size": _GSO_MAX,
    "tp.fast_ack_mode": 0,
}
# Fields that BBR does not read, and that `_Part.known` gives all the same. A bundle lacks others.
SIMULATED = frozenset({*_OUT, *_CONSTANT, "skb.end_seq", "tp.snd_wnd", "tp.rtt_min"})
