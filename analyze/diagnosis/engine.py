"""Run the rules over a run: findings by cost, and what became of every rule."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...collect.store.query import rows
from ..story.completeness import RunCompleteness, completeness_of
from .needs import NEEDS, lacking
from .rule import COLUMNS, CONFIDENCE, Rule, rules
from .tables import prepare

if TYPE_CHECKING:
    import duckdb

# Shares of a flow's time from which on a cost is called severe or moderate; below: minor.
SEVERE, MODERATE = 0.2, 0.05


@dataclass(frozen=True)
class Finding:
    """What a rule found about a flow (None: the run).

    Attributes:
        t0_ns, t1_ns: where, on CLOCK_MONOTONIC.
        cost_s: time lost; cost_bytes: payload that could have been carried; None: unknown.
        severity: severe, moderate or minor by the share of the flow's time; unknown without cost.
        values: the numbers that the rule's sentences name.
        remedies: those of the rule that fit this BBR version and what was found.
        codes: decisions of `Rule.codes` that the flow took there, and how often, most first.
    """

    rule: Rule
    flow: int | None
    t0_ns: int
    t1_ns: int
    cost_s: float | None
    cost_bytes: float | None
    severity: str
    confidence: str
    values: dict[str, Any]
    remedies: tuple[str, ...]
    codes: dict[str, int]


@dataclass(frozen=True)
class Check:
    """What became of a rule: found, clear, not applicable or not checked, and why."""

    rule: Rule
    outcome: str
    why: str = ""


@dataclass(frozen=True)
class Flow:
    """A flow that was looked at.

    Attributes:
        rate: what it could carry alone [bytes/s of payload], by the link's rate if `rate_is_known`,
            else the most that it ever believed in; goodput: what it carried.
        used: its goodput as a share of its equal part of that rate; 1 is all of it, or more.
    """

    number: int
    first_ns: int
    last_ns: int
    duration_s: float
    rate: float | None
    rate_is_known: bool
    goodput: float | None
    used: float | None


@dataclass
class Diagnosis:
    """The findings of a run and what became of each rule.

    Mistakes of the set-up come first, then the costliest.

    Attributes:
        version: v1, v2 or v3; empty: no event tells.
        zero_ns: zero of the run's clock, see view senders.
        rung: how it was recorded; None: not known.
        compared, exact: events that the replay compared with the kernel, and that agreed.
        completeness: what the recording lacks.
    """

    run: str
    version: str
    zero_ns: int
    rung: str | None
    flows: dict[int, Flow]
    compared: int
    exact: int
    completeness: RunCompleteness
    findings: list[Finding] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    @property
    def duration_s(self) -> float:
        """From the first event of a flow that carries data to the last."""
        ends = [flow.last_ns for flow in self.flows.values()]
        return (max(ends) - self.zero_ns) / 1e9 if ends else 0.0

    def outcomes(self, outcome: str) -> list[Check]:
        """Return the checks that ended so."""
        return [check for check in self.checks if check.outcome == outcome]


def diagnose(
    con: duckdb.DuckDBPyConnection, run_id: int, chosen: Sequence[Rule] | None = None
) -> Diagnosis:
    """Run rules (None: all) over a run.

    Findings on a flow that another finding on it explains are left out.
    """
    asked = rules() if chosen is None else tuple(chosen)
    prepare(con, run_id, sorted({code for rule in asked for code in rule.codes}))
    diagnosis = _subject(con, run_id)
    missing = lacking(con)
    findings: list[Finding] = []
    for rule in asked:
        why = (
            _not_applicable(rule, diagnosis)
            if diagnosis.flows
            else ("not applicable", "no flow has data")
        )
        why = why or _not_checked(rule, missing)
        if why:
            diagnosis.checks.append(Check(rule, *why))
            continue
        new = _ask(con, rule, diagnosis)
        findings += new
        diagnosis.checks.append(Check(rule, "found" if new else "clear"))
    explained = {(name, finding.flow) for finding in findings for name in finding.rule.explains}
    diagnosis.findings = sorted(
        (finding for finding in findings if (finding.rule.name, finding.flow) not in explained),
        key=_rank,
    )
    return diagnosis


def diagnose_many(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> list[Diagnosis]:
    """Run all rules over several runs, as many at a time as there are CPUs.

    Most of the time goes into planning queries, which DuckDB does on one CPU each.
    """
    workers = min(len(run_ids), len(os.sched_getaffinity(0)))
    # Temporary views, which a store of another bbrscope gets, are this connection's alone.
    (own,) = con.execute("SELECT count(*) FROM duckdb_views() WHERE temporary").fetchall()[0]
    if workers < 2 or own:
        return [diagnose(con, run_id) for run_id in run_ids]

    def task(run_id: int) -> Diagnosis:
        with con.cursor() as cursor:
            return diagnose(cursor, run_id)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(task, run_ids))


def _rank(finding: Finding) -> tuple[bool, bool, float, int]:
    cost_s = finding.cost_s
    return not finding.rule.setup, cost_s is None, -(cost_s or 0), finding.t0_ns


def _subject(con: duckdb.DuckDBPyConnection, run_id: int) -> Diagnosis:
    run = con.execute(
        "SELECT run, coalesce(version, ''), rung FROM runs WHERE run_id = ?", [run_id]
    ).fetchall()[0]
    zero = con.execute("SELECT zero_ns FROM this_run").fetchall()
    flows = con.execute(
        "SELECT flow, first_ns, last_ns, duration_s, rate, capacity IS NOT NULL, goodput,"
        " (SELECT 1 - sum(short_bytes) / nullif(sum(full_bytes), 0) FROM this_seconds s"
        " WHERE s.flow = this_flows.flow) FROM this_flows"
    ).fetchall()
    compared, exact = con.execute(
        "SELECT coalesce(sum(events), 0)::BIGINT, coalesce(sum(exact), 0)::BIGINT FROM replays"
        " WHERE run_id = ? AND mode = 'step'",
        [run_id],
    ).fetchall()[0]
    return Diagnosis(
        run[0],
        run[1],
        int(zero[0][0]) if zero else 0,
        run[2],
        {row[0]: Flow(*row) for row in flows},
        compared,
        exact,
        completeness_of(con, run_id),
    )


def _not_applicable(rule: Rule, diagnosis: Diagnosis) -> tuple[str, str] | None:
    if diagnosis.version.removeprefix("v") not in rule.versions:
        versions = " and ".join(f"v{digit}" for digit in rule.versions)
        return "not applicable", f"is about BBR {versions}"
    if len(diagnosis.flows) < rule.flows:
        return "not applicable", f"takes {rule.flows} flows"
    return None


def _not_checked(rule: Rule, missing: set[str]) -> tuple[str, str] | None:
    lacks = [NEEDS[name].words for name in rule.needs if name in missing]
    return ("not checked", f"needs {' and '.join(lacks)}") if lacks else None


def _ask(con: duckdb.DuckDBPyConnection, rule: Rule, diagnosis: Diagnosis) -> list[Finding]:
    return [_finding(con, rule, row, diagnosis) for row in rows(con, rule.sql, **rule.thresholds)]


def _finding(
    con: duckdb.DuckDBPyConnection, rule: Rule, row: dict[str, Any], diagnosis: Diagnosis
) -> Finding:
    flow, t0_ns, t1_ns, cost_s, cost_bytes = (row.pop(column.name) for column in COLUMNS)
    subject = diagnosis.flows.get(flow)
    if cost_s is None and cost_bytes is not None and subject and subject.rate:
        cost_s = cost_bytes / subject.rate
    if subject:  # rules that count in whole seconds reach beyond
        t0_ns, t1_ns = max(t0_ns, subject.first_ns), min(t1_ns, subject.last_ns)
    confidence = row.pop(CONFIDENCE.name, rule.confidence)
    return Finding(
        rule,
        flow,
        t0_ns,
        t1_ns,
        cost_s,
        cost_bytes,
        _severity(cost_s, subject.duration_s if subject else diagnosis.duration_s),
        confidence,
        row,
        _remedies(rule, diagnosis.version, row),
        _codes(con, rule, flow, t0_ns, t1_ns),
    )


def _remedies(rule: Rule, version: str, row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        remedy.text
        for remedy in rule.remedies
        if version.removeprefix("v") in remedy.versions and (not remedy.when or row[remedy.when])
    )


def _codes(
    con: duckdb.DuckDBPyConnection, rule: Rule, flow: int | None, t0_ns: int, t1_ns: int
) -> dict[str, int]:
    taken = con.execute(
        "SELECT name, count(*) AS n FROM this_decisions WHERE list_contains(?, name)"
        " AND flow IS NOT DISTINCT FROM coalesce(?, flow) AND ns BETWEEN ? AND ?"
        " GROUP BY name ORDER BY n DESC, name",
        [list(rule.codes), flow, t0_ns, t1_ns],
    )
    return dict(taken.fetchall())


def _severity(cost_s: float | None, duration_s: float) -> str:
    """Return how much of the flow's time (of the run's, if it concerns the run) it costs."""
    if cost_s is None or duration_s <= 0:
        return "unknown"
    share = cost_s / duration_s
    return "severe" if share >= SEVERE else "moderate" if share >= MODERATE else "minor"
