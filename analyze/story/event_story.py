"""What a flow did and why: its phase changes and bounds, each with the decision that made it.

Everything here is read from the store: the events are the kernel's own, the decisions are those of
the replay, which agrees with the kernel bit for bit or says where it does not. Nothing is guessed:
a change without a recorded decision is reported as such.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..bbr.codes import BY_NAME, CODES
from .changes import BOUNDS, GAP, SAMPLED, Change, Reason
from .decision_list import Decisions, EventFacts, decision_change, decisions_at, reason_of
from .event_flows import EventFlow
from .observed import TIMEOUT, observed

if TYPE_CHECKING:
    import duckdb

# Why TCP's own answer to a loss, or the return from it, belongs to the story.
_CWND_STORY = ("CORE_RTO_COLLAPSE", "CWND_UNDO")
_POLICER_STORY = ("LT_USE_RATIO", "LT_USE_DIFF", "LT_END_48R")
_FULL_PIPE = ("FULLBW_REACHED_PLATEAU", "FULLBW_REACHED_LOSS", "FULLBW_REACHED_ECN")
# What a line about a phase is explained by; a policer's rate in use is a phase of its own.
_PHASE_ABOUT = ("mode", "phase", "policer")
_ASIDE = ("PRTT_DWELL_START", "LT_SAMPLE_START", "LT_RESET_APPLIMITED", "LT_INTERVAL_FIRST")


def story(con: duckdb.DuckDBPyConnection, flow: EventFlow) -> list[Change]:
    """Return every change of phase, bound and segment size, of time-outs and their undoing.

    They are in the order of the events; of one event, the change of phase comes first.
    """
    chosen = [code for code in CODES.values() if code.change and code.about in _PHASE_ABOUT]
    chosen += [code for code in CODES.values() if code.change and code.about in BOUNDS]
    chosen += [BY_NAME[name] for name in (*_CWND_STORY, *_FULL_PIPE)]
    decisions = decisions_at(con, flow, chosen)
    phases = _phase_changes(con, flow, decisions)
    beside = observed(con, flow)
    causes = {change.seq: change for change in beside if change.about in ("timeout", "loss_state")}
    bounds = [_with_cause(change, causes) for change in _bound_changes(con, flow, decisions)]
    changes = [*phases, *bounds, *_other_decisions(decisions, {change.seq for change in phases})]
    collapsed = {change.seq for change in changes if change.name == "CORE_RTO_COLLAPSE"}
    # The collapse of the window tells a first timeout already.
    changes += [c for c in beside if c.name != TIMEOUT.name or c.seq not in collapsed]
    changes.sort(key=lambda change: (change.seq, not change.is_phase, change.about))
    facts = EventFacts.of(con, flow, [change.seq for change in changes])
    return [facts.attach(change) for change in changes]


def _other_decisions(decisions: Decisions, phase_seqs: set[int]) -> list[Change]:
    """What TCP did to the window, and the policer's decisions that changed no phase."""
    always = {BY_NAME[name].number for name in _CWND_STORY}
    beside = {BY_NAME[name].number for name in _POLICER_STORY}
    return [
        decision_change(seq, number, evidence)
        for seq, taken in decisions.items()
        for number, evidence in taken
        if number in always or (number in beside and seq not in phase_seqs)
    ]


def _phase_changes(
    con: duckdb.DuckDBPyConnection, flow: EventFlow, decisions: Decisions
) -> list[Change]:
    rows = con.execute(
        "SELECT seq, from_phase, to_phase, code, name, uncertain_ns FROM transitions"
        " WHERE run = ? AND run_id = ? AND flow = ? ORDER BY seq, from_phase NULLS FIRST",
        [flow.run, flow.run_id, flow.flow],
    ).fetchall()
    changes = []
    for seq, old, new, code, name, uncertain_ns in rows:
        reasons = [] if name == GAP else _phase_reasons(seq, new, code, decisions)
        if name == "DRAIN_ENTER":
            reasons = [*_why_full(seq, decisions), *reasons]
        doubt = ""
        if name == GAP:
            doubt = f"not recorded: up to {uncertain_ns / 1e6:.1f} ms earlier"
        elif name == SAMPLED and old is not None:
            doubt = f"up to {uncertain_ns / 1e6:.1f} ms later"
        changes.append(Change(seq, 0, "phase", old, new, name, tuple(reasons), 0, doubt))
    return changes


def _phase_reasons(seq: int, phase: str, code: int | None, decisions: Decisions) -> list[Reason]:
    """Return the decisions of an event about its phase, the one with the number `code` first."""
    reasons = [
        reason_of(number, evidence)
        for number, evidence in decisions.get(seq, [])
        if CODES[number].about in _PHASE_ABOUT and CODES[number].name not in _ASIDE
    ]
    reasons.sort(key=lambda reason: reason.code.number != code)
    if phase == "PROBE_BW_LT":  # the gain cycle runs on, but has no effect
        return [reason for reason in reasons if reason.code.about != "phase"] or reasons
    return reasons


def _why_full(seq: int, decisions: Decisions) -> list[Reason]:
    """Return the latest verdict, up to this event, that the pipe is full."""
    for earlier in sorted((s for s in decisions if s <= seq), reverse=True):
        for number, evidence in reversed(decisions[earlier]):
            if CODES[number].name in _FULL_PIPE:
                return [reason_of(number, evidence)]
    return []


def _bound_changes(
    con: duckdb.DuckDBPyConnection, flow: EventFlow, decisions: Decisions
) -> list[Change]:
    rows = con.execute(
        "SELECT seq, bound, old, new, name FROM bounds_history"
        " WHERE run = ? AND run_id = ? AND flow = ? ORDER BY seq, bound",
        [flow.run, flow.run_id, flow.flow],
    ).fetchall()
    changes = []
    for seq, bound, old, new, name in rows:
        reasons = tuple(
            reason_of(number, evidence)
            for number, evidence in decisions.get(seq, [])
            if CODES[number].about == bound and name != GAP
        )
        doubt = "not recorded: it changed in the gap before" if name == GAP else ""
        changes.append(Change(seq, 0, bound, old, new, name, reasons, 0, doubt))
    return changes


def _with_cause(change: Change, causes: dict[int, Change]) -> Change:
    """Add why TCP entered the state Loss to what BBR did at that event."""
    cause = causes.get(change.seq)
    if cause is None or cause.name == TIMEOUT.name:
        return change
    return replace(change, reasons=(*change.reasons, *cause.reasons))
