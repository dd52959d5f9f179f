"""Decisions of a flow, read from the store, each as a change with its evidence and its sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...collect.store.query import first_row
from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from ..bbr.codes import BY_NAME, CODES, Code
from .changes import Change, Reason
from .event_flows import EventFlow
from .sentences import evidence_of, fill

if TYPE_CHECKING:
    import duckdb

# Listed one by one they would take minutes and gigabytes, and nobody would read them.
MOST_DECISIONS = 500_000

# By event: the number of each decision's code and its evidence, in the order they were taken.
Decisions = dict[int, list[tuple[int, tuple[int, ...]]]]


def decisions_of(
    con: duckdb.DuckDBPyConnection,
    flow: EventFlow,
    only: str | None,
    keep: bool,
    between: tuple[int, int] | None = None,
) -> list[Change]:
    """Return every decision; those to keep things as they are only if asked for.

    Args:
        only: what they are about, or a code's name; None: all.
        keep: include decisions that changed nothing.
        between: from and to [ns, CLOCK_MONOTONIC]; None: the whole flow.

    Raises:
        BbrscopeError: more than MOST_DECISIONS.
    """
    chosen = [code for code in matching(only) if keep or code.change]
    changes = [
        decision_change(seq, number, evidence)
        for seq, taken in decisions_at(con, flow, chosen, between).items()
        for number, evidence in taken
    ]
    facts = EventFacts.of(con, flow, [change.seq for change in changes])
    return [facts.attach(change) for change in changes]


def matching(only: str | None) -> list[Code]:
    """Return the codes that `only` names: a code, or what codes are about; empty if nothing."""
    if only is None:
        return list(CODES.values())
    if only.upper() in BY_NAME:
        return [BY_NAME[only.upper()]]
    about = {"phase": ("mode", "phase")}.get(only, (only,))
    return [code for code in CODES.values() if code.about in about]


def decisions_at(
    con: duckdb.DuckDBPyConnection,
    flow: EventFlow,
    chosen: Iterable[Code],
    between: tuple[int, int] | None = None,
) -> Decisions:
    """Return the decisions with the chosen codes, by event, in their order.

    Raises:
        BbrscopeError: more than MOST_DECISIONS.
    """
    first, last = flow.first_ns, flow.last_ns
    if between is not None:
        first, last = max(between[0], 0), min(max(between[1], 0), last)
    where = (
        "FROM decisions WHERE run_id = ? AND flow = ? AND code IN (SELECT unnest(?))"
        " AND ns BETWEEN ? AND ?"
    )
    values = [flow.run_id, flow.flow, sorted({code.number for code in chosen}), first, last]
    (count,) = first_row(con, f"SELECT count(*) {where}", *values) or (0,)
    if count > MOST_DECISIONS:
        raise BbrscopeError(
            f"flow {flow.flow} of {flow.run} has {plural(count, 'such decision')}, too many to"
            " tell",
            "narrow them with --between and --only, or bbrscope sql 'FROM decision_log ...'",
        )
    rows = con.execute(
        f"SELECT seq, code, e0, e1, e2, e3 {where} ORDER BY seq, ord", values
    ).fetchall()
    decisions: Decisions = defaultdict(list)
    for seq, code, *evidence in rows:
        decisions[seq].append((code, tuple(evidence)))
    return decisions


def reason_of(number: int, evidence: Sequence[int]) -> Reason:
    """Return a decision with its evidence, not yet in words."""
    code = CODES[number]
    return Reason(code, evidence_of(code, evidence), "")


def decision_change(seq: int, number: int, evidence: Sequence[int]) -> Change:
    """Return a decision as a change that `EventFacts` completes."""
    reason = reason_of(number, evidence)
    old, new = reason.evidence.get("old"), reason.evidence.get("new")
    about, name = reason.code.about, reason.code.name
    return Change(seq, 0, about, old, new, name, (reason,), 0, is_decision=True)


@dataclass(frozen=True)
class EventFacts:
    """Time, segment size, clock and phase of the events that changes are about.

    Attributes:
        at: by event: its time [ns, CLOCK_MONOTONIC], tp.mss_cache [bytes], the low 32 bits of
            jiffies, snd_cwnd at its exit [packets], and the event that began the phase.
    """

    flow: EventFlow
    at: dict[int, tuple[int, int, int, int | None, int]]

    @classmethod
    def of(cls, con: duckdb.DuckDBPyConnection, flow: EventFlow, seqs: Iterable[int]) -> EventFacts:
        """Read them from the store for the events `seqs` of a flow."""
        rows = con.execute(
            "SELECT e.seq, e.ns::BIGINT, e.tp_mss_cache, e.jiffies32, e.exit_snd_cwnd,"
            " coalesce(t.seq, -1)"
            " FROM (FROM events WHERE run_id = $1 AND flow = $2 AND seq IN (SELECT unnest($3))) e"
            " ASOF LEFT JOIN (SELECT seq FROM transitions WHERE run = $4 AND run_id = $1"
            " AND flow = $2) t ON e.seq >= t.seq",
            [flow.run_id, flow.flow, sorted(set(seqs)), flow.run],
        ).fetchall()
        return cls(flow, {row[0]: row[1:] for row in rows})

    def attach(self, change: Change) -> Change:
        """Complete a change: when it was, in which phase, its sentences, and any doubt."""
        if change.seq not in self.at:
            raise BbrscopeError(
                f"{self.flow.run}: the store has a decision of event {change.seq} of flow"
                f" {self.flow.flow}, but not the event",
                "ingest the recording again, into a new store",
            )
        ns, mss, jiffies, cwnd, phase_seq = self.at[change.seq]
        reasons = tuple(
            reason
            if reason.sentence
            else replace(
                reason,
                sentence=fill(
                    *(reason.code, list(reason.evidence.values()), mss),
                    *(self.flow.hz, jiffies, cwnd),
                ),
            )
            for reason in change.reasons
        )
        return replace(
            change,
            ns=ns,
            until_ns=ns,
            mss=mss,
            phase_seq=phase_seq,
            reasons=reasons,
            doubt=change.doubt or self._doubt(change.seq),
        )

    def _doubt(self, seq: int) -> str:
        """Say whether the replay may be believed at this event; empty: it may."""
        first = self.flow.first_divergence
        if first is None or first["seq"] > seq:
            return ""
        return f"the replay differs from the kernel from event {first['seq']} on"
