"""What a flow did and why: its phase changes and bounds, each with the decision that made it.

Everything here is read from the store: the events are the kernel's own, the decisions are those of
the replay, which agrees with the kernel bit for bit or says where it does not. Nothing is guessed:
a change without a recorded decision is told as such.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..collect.errors import BbrscopeError
from ..collect.query import rows
from ..collect.rungs import RUNGS, Rung
from .bbr.codes import BY_NAME, CODES, Code
from .sentences import evidence_of, fill

if TYPE_CHECKING:
    import duckdb

BOUNDS = ("inflight_hi", "inflight_lo", "bw_lo")
# Why TCP's own answer to a loss, or the return from it, belongs to the story.
_CWND_STORY = ("CORE_RTO_COLLAPSE", "CWND_UNDO")
_POLICER_STORY = ("LT_USE_RATIO", "LT_USE_DIFF", "LT_END_48R")
_FULL_PIPE = ("FULLBW_REACHED_PLATEAU", "FULLBW_REACHED_LOSS", "FULLBW_REACHED_ECN")
# What a line about a phase is explained by; a policer's rate in use is a phase of its own.
_PHASE_ABOUT = ("mode", "phase", "policer")
_ASIDE = ("PRTT_DWELL_START", "LT_SAMPLE_START", "LT_RESET_APPLIMITED", "LT_INTERVAL_FIRST")

# Told one by one they would take minutes and gigabytes, and nobody would read them.
MOST_DECISIONS = 500_000

# A flow below this many ACKs carries no data worth telling, like iperf3's control connection.
TINY_ACKS = 50


@dataclass(frozen=True)
class Reason:
    """One decision, with its evidence in kernel units and in words (the kernel's names)."""

    code: Code
    evidence: dict[str, int]
    sentence: str


@dataclass(frozen=True)
class Line:
    """One line of the story.

    Attributes:
        seq: the event; t_ns: its time since the flow's first event.
        about: phase, inflight_hi, inflight_lo, bw_lo, or what the decision is about.
        old, new: phase names, or values in kernel units; None where there is none.
        name: decisive decision, GAP, MID_FLOW, or None if no decision is known.
        reasons: decisions of the event about it, the decisive one first.
        doubt: what keeps one from being sure; empty if nothing does.
        count, until_ns, last: more than one if later lines were folded into this one.
    """

    seq: int
    t_ns: int
    about: str
    old: str | int | None
    new: str | int | None
    name: str | None
    reasons: tuple[Reason, ...]
    mss: int
    doubt: str = ""
    count: int = 1
    until_ns: int = 0
    last: Line | None = None


@dataclass
class Flow:
    """Facts of a flow that the story begins and ends with."""

    run_id: int
    run: str
    flow: int
    version: str
    decoded_as: str
    hz: int
    summary: dict[str, Any]
    gaps: list[tuple[int, int, int, str]]  # seq, ns, next_ns, detail
    first_divergence: dict[str, Any] | None
    missing: str | None
    note: str | None
    rung: str | None
    lost: str
    binding: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tiny(self) -> bool:
        """Too little data to have a story."""
        return bool(self.summary["delivered" if self.sampled else "main"] < TINY_ACKS)

    @property
    def sampled(self) -> Rung | None:
        """The rung, if it sees states but no decisions."""
        rung = RUNGS.get(self.rung or "")
        return rung if rung and not rung.replays else None


def is_told(con: duckdb.DuckDBPyConnection, run_id: int) -> bool:
    """Are the run's decisions in the store, or does its rung have none to find?"""
    found = con.execute("SELECT rung FROM runs WHERE run_id = ?", [run_id]).fetchone()
    rung = RUNGS.get(found[0] or "") if found else None
    if rung and not rung.replays:
        return True
    row = con.execute(
        "SELECT (SELECT count(*) FROM flows WHERE run_id = $1),"
        " (SELECT count(DISTINCT flow) FROM replays WHERE run_id = $1),"
        " EXISTS (FROM decisions WHERE run_id = $1)",
        [run_id],
    ).fetchone()
    assert row is not None
    return bool(row[1] == row[0] and row[2])


def flows_of(con: duckdb.DuckDBPyConnection, run_id: int) -> list[Flow]:
    """The run's flows, the one with the most ACKs first."""
    run = con.execute(
        "SELECT run, version, decoded_as, hz, rung,"
        " greatest(coalesce(lost_declared, 0), coalesce(lost_reported, 0)) FROM runs"
        " WHERE run_id = ?",
        [run_id],
    ).fetchone()
    assert run is not None
    told = rows(
        con,
        "SELECT s.*, f.main, f.note, f.retransmits, f.first_ns, f.last_ns, p.first_divergence,"
        " p.missing"
        " FROM flow_summary s JOIN flows f USING (run_id, flow) LEFT JOIN replays p"
        " ON p.run_id = s.run_id AND p.flow = s.flow AND p.mode = 'step'"
        " WHERE s.run_id = ? ORDER BY f.main DESC, f.events DESC, s.flow",
        run_id,
    )
    found = []
    for facts in told:
        divergence = facts.pop("first_divergence")
        found.append(
            Flow(
                run_id,
                run[0],
                facts["flow"],
                run[1],
                run[2] or "",
                int(run[3] or 0),
                facts,
                _gaps(con, run_id, facts["flow"]),
                json.loads(divergence) if divergence else None,
                facts.pop("missing"),
                facts.pop("note"),
                run[4],
                f"{run[5]:,} rows were lost while recording" if run[5] else "",
            )
        )
    return found


def _gaps(
    con: duckdb.DuckDBPyConnection, run_id: int, flow: int
) -> list[tuple[int, int, int, str]]:
    return con.execute(
        "SELECT seq, ns, next_ns, kind || ': ' || detail FROM gaps WHERE run_id = ? AND flow = ?"
        " ORDER BY seq",
        [run_id, flow],
    ).fetchall()


def binding_of(con: duckdb.DuckDBPyConnection, flow: Flow) -> list[dict[str, Any]]:
    """Rows of binding_summary, the whole flow (phase ALL) first."""
    return rows(
        con,
        "SELECT phase, binding, duration_ns, share FROM binding_summary"
        " WHERE run = ? AND run_id = ? AND flow = ?"
        " ORDER BY phase <> 'ALL', phase, duration_ns DESC, binding",
        *(flow.run, flow.run_id, flow.flow),
    )


def story(con: duckdb.DuckDBPyConnection, flow: Flow) -> list[Line]:
    """Every phase change and every change of a bound, of time-outs and their undoing, in order."""
    events = _Events(con, flow)
    chosen = [code for code in CODES.values() if code.change and code.about in _PHASE_ABOUT]
    chosen += [code for code in CODES.values() if code.change and code.about in BOUNDS]
    chosen += [BY_NAME[name] for name in (*_CWND_STORY, *_FULL_PIPE)]
    decisions = _decisions(con, flow, chosen)
    lines = [*_phase_lines(con, flow, decisions), *_bound_lines(con, flow, decisions)]
    phased = {line.seq for line in lines if line.about == "phase"}
    for code, old_new in (*((c, True) for c in _CWND_STORY), *((c, False) for c in _POLICER_STORY)):
        for seq, found in decisions.items():
            for number, evidence in found:
                if CODES[number].name == code and (old_new or seq not in phased):
                    lines.append(_event_line(seq, number, evidence))
    lines.sort(key=lambda line: (line.seq, line.about != "phase", line.about))
    return [_finish(line, flow, events) for line in events.attach(lines)]


def decisions_of(
    con: duckdb.DuckDBPyConnection,
    flow: Flow,
    only: str | None,
    keep: bool,
    between: tuple[int, int] | None = None,
) -> list[Line]:
    """Every decision, one line each; those to keep things as they are only if asked for.

    Args:
        only: what they are about, or a code's name; None: all.
        keep: include decisions that changed nothing.
        between: from and to [ns since the flow's first event]; None: the whole flow.

    Raises:
        BbrscopeError: more than MOST_DECISIONS.
    """
    codes = matching(only)
    chosen = [code for code in codes if keep or code.change]
    events = _Events(con, flow)
    lines = [
        _event_line(seq, number, evidence)
        for seq, found in _decisions(con, flow, chosen, between).items()
        for number, evidence in found
    ]
    return [_finish(line, flow, events) for line in events.attach(lines)]


def matching(only: str | None) -> list[Code]:
    """The codes that `only` names: a code, or what codes are about; empty if nothing."""
    if only is None:
        return list(CODES.values())
    if only.upper() in BY_NAME:
        return [BY_NAME[only.upper()]]
    about = {"phase": ("mode", "phase")}.get(only, (only,))
    return [code for code in CODES.values() if code.about in about]


Found = dict[int, list[tuple[int, tuple[int, ...]]]]


def _decisions(
    con: duckdb.DuckDBPyConnection,
    flow: Flow,
    chosen: Iterable[Code],
    between: tuple[int, int] | None = None,
) -> Found:
    """Decisions with the chosen codes, by event, in their order."""
    first, last = flow.summary["first_ns"], flow.summary["last_ns"]
    if between is not None:
        first, last = first + between[0], min(first + between[1], last)
    where = (
        "FROM decisions WHERE run_id = ? AND flow = ? AND code IN (SELECT unnest(?))"
        " AND ns BETWEEN ? AND ?"
    )
    values = [flow.run_id, flow.flow, sorted({code.number for code in chosen}), first, last]
    (count,) = con.execute(f"SELECT count(*) {where}", values).fetchone() or (0,)
    if count > MOST_DECISIONS:
        raise BbrscopeError(
            f"flow {flow.flow} of {flow.run} has {count:,} such decisions, too many to tell",
            "narrow them with --between and --only, or bbrscope sql 'FROM decision_log ...'",
        )
    rows = con.execute(
        f"SELECT seq, code, e0, e1, e2, e3 {where} ORDER BY seq, ord", values
    ).fetchall()
    found: Found = defaultdict(list)
    for seq, code, *evidence in rows:
        found[seq].append((code, tuple(evidence)))
    return found


def _reason(number: int, evidence: Sequence[int]) -> Reason:
    code = CODES[number]
    return Reason(code, evidence_of(code, evidence), "")


def _event_line(seq: int, number: int, evidence: Sequence[int]) -> Line:
    reason = _reason(number, evidence)
    return Line(
        seq,
        0,
        reason.code.about,
        reason.evidence.get("old"),
        reason.evidence.get("new"),
        reason.code.name,
        (reason,),
        0,
    )


def _phase_lines(con: duckdb.DuckDBPyConnection, flow: Flow, decisions: Found) -> list[Line]:
    rows = con.execute(
        "SELECT seq, from_phase, to_phase, code, name, uncertain_ns FROM transitions"
        " WHERE run = ? AND run_id = ? AND flow = ? ORDER BY seq, from_phase NULLS FIRST",
        [flow.run, flow.run_id, flow.flow],
    ).fetchall()
    lines = []
    for seq, old, new, code, name, uncertain_ns in rows:
        found = [] if name == "GAP" else decisions.get(seq, [])
        reasons = [
            _reason(number, evidence)
            for number, evidence in found
            if CODES[number].about in _PHASE_ABOUT and CODES[number].name not in _ASIDE
        ]
        reasons = [r for r in reasons if r.code.number == code] + [
            r for r in reasons if r.code.number != code
        ]
        if new == "PROBE_BW_LT" and name != "GAP":  # the gain cycle runs on, but has no effect
            reasons = [reason for reason in reasons if reason.code.about != "phase"] or reasons
        if name == "DRAIN_ENTER":
            reasons = [*_why_full(seq, decisions), *reasons]
        doubt = ""
        if name == "GAP":
            doubt = f"not recorded: up to {uncertain_ns / 1e6:.1f} ms earlier"
        elif name == "SAMPLED" and old is not None:
            doubt = f"up to {uncertain_ns / 1e6:.1f} ms later"
        lines.append(Line(seq, 0, "phase", old, new, name, tuple(reasons), 0, doubt))
    return lines


def _why_full(seq: int, decisions: Found) -> list[Reason]:
    """The latest verdict, up to this event, that the pipe is full."""
    for earlier in sorted((s for s in decisions if s <= seq), reverse=True):
        for number, evidence in reversed(decisions[earlier]):
            if CODES[number].name in _FULL_PIPE:
                return [_reason(number, evidence)]
    return []


def _bound_lines(con: duckdb.DuckDBPyConnection, flow: Flow, decisions: Found) -> list[Line]:
    rows = con.execute(
        "SELECT seq, bound, old, new, code, name FROM bounds_history"
        " WHERE run = ? AND run_id = ? AND flow = ? ORDER BY seq, bound",
        [flow.run, flow.run_id, flow.flow],
    ).fetchall()
    lines = []
    for seq, bound, old, new, _, name in rows:
        reasons = tuple(
            _reason(number, evidence)
            for number, evidence in decisions.get(seq, [])
            if CODES[number].about == bound and name != "GAP"
        )
        doubt = "not recorded: it changed in the gap before" if name == "GAP" else ""
        lines.append(Line(seq, 0, bound, old, new, name, reasons, 0, doubt))
    return lines


class _Events:
    """Time, segment size and clock of the events that the lines are about."""

    def __init__(self, con: duckdb.DuckDBPyConnection, flow: Flow) -> None:
        self.con, self.flow = con, flow
        self.jiffies: dict[int, int] = {}

    def attach(self, lines: Sequence[Line]) -> list[Line]:
        """Fill in t_ns and mss."""
        rows = self.con.execute(
            "SELECT seq, (ns - ?)::BIGINT, tp_mss_cache, jiffies32 FROM events"
            " WHERE run_id = ? AND flow = ? AND seq IN (SELECT unnest(?))",
            [
                self.flow.summary["first_ns"],
                self.flow.run_id,
                self.flow.flow,
                sorted({line.seq for line in lines}),
            ],
        ).fetchall()
        facts = {seq: (t_ns, mss) for seq, t_ns, mss, _ in rows}
        self.jiffies = {seq: jiffies for seq, _, _, jiffies in rows}
        return [
            replace(
                line, t_ns=facts[line.seq][0], mss=facts[line.seq][1], until_ns=facts[line.seq][0]
            )
            for line in lines
        ]


def _finish(line: Line, flow: Flow, events: _Events) -> Line:
    """Put the reasons into words, and say whether the replay may be believed here."""
    reasons = tuple(
        replace(
            reason,
            sentence=fill(
                reason.code,
                list(reason.evidence.values()),
                line.mss,
                flow.hz,
                events.jiffies[line.seq],
            ),
        )
        for reason in line.reasons
    )
    doubt = line.doubt
    if not doubt and flow.first_divergence and flow.first_divergence["seq"] <= line.seq:
        doubt = f"the replay differs from the kernel from event {flow.first_divergence['seq']} on"
    return replace(line, reasons=reasons, doubt=doubt)
