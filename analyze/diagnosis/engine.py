"""Run the rules over a run: findings by cost, and what became of every rule."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...collect.store.arrow import registered
from ...collect.store.limits import READING_MEMORY, limited, memory_for
from ...collect.store.query import Row
from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from ..story.completeness import RunCompleteness, completeness_of_many
from ..views.runs_together import together
from .needs import NEEDS, lacking
from .ranking import both_ways, ranked
from .rule import COLUMNS, CONFIDENCE, Rule, RuleLine, rules
from .tables import SMALL, Prepared, prepare

if TYPE_CHECKING:
    import duckdb

# Shares of a flow's time from which on a cost is called severe or moderate; below: minor.
SEVERE, MODERATE = 0.2, 0.05
# Smaller groups, for more CPUs, cost more than that saves. Planning all rules takes a second for
# each group; the tables of the largest take 400 MB.
FEWEST_TOGETHER, MOST_TOGETHER, MOST_EVENTS_TOGETHER = 8, 96, 1_040_000


@dataclass(frozen=True)
class Finding:
    """What a rule found about a flow (None: the run).

    Attributes:
        t0_ns, t1_ns: where, on CLOCK_MONOTONIC.
        cost_s: time lost; cost_bytes: payload that could have been carried; None: unknown.
        severity: severe, moderate or minor by the share of the flow's time; unknown without cost.
        values: the numbers that the rule's sentences name.
        evidence, causes, remedies: the rule's that fit this BBR version and what was found.
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
    evidence: tuple[str, ...]
    causes: tuple[str, ...]
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
            and that of the sender's own, else the most that it ever believed in; goodput: what it
            carried.
        used: its goodput as a share of its equal part of that rate; 1 is all of it, or more.
        own_link: rate of the sender's own link [bit/s], where it ever was the slower one.
    """

    number: int
    first_ns: int
    last_ns: int
    duration_s: float
    rate: float | None
    rate_is_known: bool
    goodput: float | None
    used: float | None
    own_link: float | None


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
        small: flows too small to count as senders, and the bytes that all of these carried, where
            that is enough to count: no rule looks at them.
        sampled: it has no calls of BBR's functions, but samples of the state when packets arrived
            (rung tcp_probe): its findings are of medium confidence at most.
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
    small: tuple[int, int] = (0, 0)
    sampled: bool = False

    @property
    def duration_s(self) -> float:
        """From the first event of a flow that carries data to the last."""
        ends = [flow.last_ns for flow in self.flows.values()]
        return (max(ends) - self.zero_ns) / 1e9 if ends else 0.0

    def outcomes(self, outcome: str) -> list[Check]:
        """Return the checks with this outcome, one of the words of `Check`."""
        return [check for check in self.checks if check.outcome == outcome]


def diagnose(
    con: duckdb.DuckDBPyConnection, run_id: int, chosen: Sequence[Rule] | None = None
) -> Diagnosis:
    """Run rules (None: all) over a run.

    Findings on a flow that another finding on it explains are left out.
    """
    return diagnose_together(con, [run_id], chosen)[0]


def diagnose_many(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> list[Diagnosis]:
    """Run all rules over several runs, as many groups of them at a time as there are CPUs."""
    cpus = len(os.sched_getaffinity(0))
    # As many groups for each CPU, of one size; as few as that takes.
    rounds = max(1, -(-len(run_ids) // (cpus * MOST_TOGETHER)))
    most = max(FEWEST_TOGETHER, -(-len(run_ids) // (cpus * rounds)))
    groups = list(together(con, run_ids, min(most, MOST_TOGETHER), MOST_EVENTS_TOGETHER))
    workers = 1 if has_own_views(con) else max(1, min(len(groups), cpus))
    found = _within_memory(con, groups, workers)
    # What needs more memory than that gets all that DuckDB takes, by itself.
    return [
        diagnosis
        for group, some in zip(groups, found, strict=True)
        for diagnosis in (diagnose_together(con, group) if some is None else some)
    ]


def _within_memory(
    con: duckdb.DuckDBPyConnection, groups: Sequence[Sequence[int]], workers: int
) -> list[list[Diagnosis] | None]:
    """Diagnose groups of runs, so many at a time; None: a group that needs more memory.

    Groups share the CPUs: DuckDB is to divide none of their queries further.
    """
    import duckdb

    def task(group: Sequence[int]) -> list[Diagnosis] | None:
        try:
            if workers == 1:
                return diagnose_together(con, group)
            with con.cursor() as cursor:
                return diagnose_together(cursor, group)
        except duckdb.OutOfMemoryException:
            return None

    sizes = dict(con.execute("SELECT run_id, coalesce(events, 0) FROM runs").fetchall())
    largest = max((sum(sizes[run_id] for run_id in group) for group in groups), default=0)
    settings = {"threads": 1} if workers > 1 else {}
    with (
        limited(con, memory_limit=memory_for(largest * workers, READING_MEMORY), **settings),
        ThreadPoolExecutor(workers) as pool,
    ):
        return list(pool.map(task, groups))


def has_own_views(con: duckdb.DuckDBPyConnection) -> bool:
    """Tell whether there are views that a second connection to the same store would not have.

    A store of another bbrscope gets this one's views as temporary ones.
    """
    # DuckDB counts views of its own among them, which every connection has.
    query = (
        "SELECT count(*) FROM duckdb_views() WHERE temporary AND NOT internal"
        " AND view_name NOT LIKE 'these_%'"
    )
    (own,) = con.execute(query).fetchall()[0]
    return bool(own)


def diagnose_together(
    con: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    chosen: Sequence[Rule] | None = None,
    at_tables: Callable[[], object] = lambda: None,
) -> list[Diagnosis]:
    """Run rules (None: all) over runs, each rule over all of them at once.

    Flows that send in opposite directions share nothing: where a run has them, its ways are
    diagnosed one by one. `at_tables` is called for each way, while the tables of `tables.TABLES`
    are about its flows.
    """
    asked = rules() if chosen is None else tuple(chosen)
    codes = sorted({code for rule in asked for code in rule.codes})
    diagnoses: dict[int, Diagnosis] = {}
    tables = prepare(con, run_ids, codes)
    ways = {**tables.ways, 1: run_ids}
    for way in sorted(ways):
        if way > 1:
            tables = prepare(con, ways[way], codes, way)
        for run_id, made in _of_way(tables, asked).items():
            told = diagnoses.get(run_id)
            diagnoses[run_id] = both_ways(told, made) if told else made
        at_tables()
    return [diagnoses[run_id] for run_id in run_ids]


def _of_way(tables: Prepared, asked: Sequence[Rule]) -> dict[int, Diagnosis]:
    """Run rules over those flows of runs that tables are about."""
    subjects = _subjects(tables.con, tables.run_ids)
    missing = lacking(tables)
    findings: dict[int, list[Finding]] = {run_id: [] for run_id in subjects}
    for run_id, diagnosis in subjects.items():
        diagnosis.sampled = "callbacks" in missing[run_id]
    for rule in asked:
        applies = {}
        for run_id, diagnosis in subjects.items():
            why = _not_asked(rule, diagnosis, missing[run_id])
            if why:
                diagnosis.checks.append(Check(rule, *why))
            else:
                applies[run_id] = diagnosis
        for run_id, new in _ask(tables, rule, applies).items():
            findings[run_id] += new
            applies[run_id].checks.append(Check(rule, "found" if new else "clear"))
    _count_codes(tables.con, findings)
    for run_id, diagnosis in subjects.items():
        diagnosis.findings = ranked(findings[run_id])
    return subjects


def _subjects(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> dict[int, Diagnosis]:
    """Return what is known of runs before any rule was asked."""
    listed = list(run_ids)
    runs = con.execute(
        "SELECT run_id, run, coalesce(version, ''), coalesce(zero_ns, 0)::BIGINT, rung, compared,"
        " exact FROM (SELECT run_id, run, version, rung FROM runs WHERE run_id IN (SELECT"
        " unnest($runs))) LEFT JOIN (SELECT run_id, zero_ns FROM these_run) USING (run_id)"
        " LEFT JOIN (SELECT run_id, sum(events)::BIGINT AS compared, sum(exact)::BIGINT AS exact"
        " FROM replays WHERE mode = 'step' AND run_id IN (SELECT unnest($runs)) GROUP BY run_id)"
        " USING (run_id)",
        {"runs": listed},
    ).fetchall()
    flows: dict[int, dict[int, Flow]] = {run_id: {} for run_id in run_ids}
    for run_id, *flow in con.execute(_SUBJECT_FLOWS).fetchall():
        flows[run_id][flow[0]] = Flow(*flow)
    complete = completeness_of_many(con, run_ids)
    small = {run_id: (count, size) for run_id, count, size in con.execute(SMALL).fetchall()}
    return {
        run_id: Diagnosis(
            *(name, version, zero_ns, rung, flows[run_id]),
            *(compared or 0, exact or 0, complete[run_id]),
            small=small.get(run_id, (0, 0)),
        )
        for run_id, name, version, zero_ns, rung, compared, exact in runs
    }


_SUBJECT_FLOWS = """
SELECT run_id, f.flow, first_ns, last_ns, duration_s, rate, capacity IS NOT NULL, goodput, used,
  CASE WHEN narrower THEN bits_per_s END
FROM these_flows f LEFT JOIN (
  SELECT run_id, flow, 1 - sum(short_bytes) / nullif(sum(full_bytes), 0) AS used,
    bool_or(full_rate < link_rate) AS narrower
  FROM these_seconds GROUP BY run_id, flow) s USING (run_id, flow)
LEFT JOIN these_own_links USING (run_id, flow)
ORDER BY run_id, flow
"""


def _not_asked(rule: Rule, diagnosis: Diagnosis, missing: set[str]) -> tuple[str, str] | None:
    """Return why a rule is not asked of a run, as `Check` says it; None: it is."""
    if not diagnosis.flows:
        return "not applicable", "no flow has data"
    if diagnosis.version.removeprefix("v") not in rule.versions:
        versions = " and ".join(f"v{digit}" for digit in rule.versions)
        return "not applicable", f"is about BBR {versions}"
    if len(diagnosis.flows) < rule.flows:
        return "not applicable", f"takes {plural(rule.flows, 'flow')}"
    # Without callbacks no replay makes decisions.
    needs = ["callbacks" if diagnosis.sampled and n == "decisions" else n for n in rule.needs]
    lacks = [NEEDS[name].words for name in dict.fromkeys(needs) if name in missing]
    return ("not checked", f"needs {' and '.join(lacks)}") if lacks else None


def _ask(
    tables: Prepared, rule: Rule, subjects: Mapping[int, Diagnosis]
) -> dict[int, list[Finding]]:
    """Return a rule's findings in each of several runs."""
    import duckdb

    findings: dict[int, list[Finding]] = {run_id: [] for run_id in subjects}
    try:
        answer = list(tables.ask(rule.sql, list(subjects), **rule.thresholds))
    except (duckdb.ProgrammingError, duckdb.DataError) as error:
        text = " ".join(str(error).split())
        raise BbrscopeError(
            f"the rule {rule.name} cannot be asked: {text[:400]}",
            f"mend its sql: analyze/diagnosis/rules/{rule.name}.toml",
        ) from error
    for run_id, row in answer:
        findings[run_id].append(_finding(rule, row, subjects[run_id]))
    return findings


def _finding(rule: Rule, row: Row, diagnosis: Diagnosis) -> Finding:
    flow, t0_ns, t1_ns, cost_s, cost_bytes = (row.pop(column.name) for column in COLUMNS)
    subject = diagnosis.flows.get(flow)
    if cost_s is None and cost_bytes is not None and subject and subject.rate:
        # What a flow believed in can be far below what others show that it could have carried.
        cost_s = min(cost_bytes / subject.rate, subject.duration_s)
    if subject:  # rules that count in whole seconds reach beyond
        t0_ns, t1_ns = max(t0_ns, subject.first_ns), min(t1_ns, subject.last_ns)
    confidence = row.pop(CONFIDENCE.name, rule.confidence)
    if diagnosis.sampled and confidence == "high":
        confidence = "medium"
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
        _fitting(rule.evidence, diagnosis.version, row),
        _fitting(rule.causes, diagnosis.version, row),
        _fitting(rule.remedies, diagnosis.version, row),
        {},
    )


def _fitting(lines: Sequence[RuleLine], version: str, row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(line.text for line in lines if line.fits(version, row))


def _count_codes(con: duckdb.DuckDBPyConnection, findings: Mapping[int, Sequence[Finding]]) -> None:
    """Fill `Finding.codes` of the findings of several runs."""
    import pyarrow as pa

    named = [(run_id, one) for run_id, some in findings.items() for one in some if one.rule.codes]
    if not named:
        return
    asked = pa.table(
        {
            "number": pa.array(range(len(named)), pa.int32()),
            "run_id": pa.array([run_id for run_id, _ in named], pa.int64()),
            "of_flow": pa.array([one.flow for _, one in named], pa.int32()),
            "t0_ns": pa.array([one.t0_ns for _, one in named], pa.int64()),
            "t1_ns": pa.array([one.t1_ns for _, one in named], pa.int64()),
            "codes": pa.array([one.rule.codes for _, one in named], pa.list_(pa.string())),
        }
    )
    with registered(con, "asked_codes", asked):
        counts = con.execute(_CODES).fetchall()
    for number, name, count in counts:
        named[number][1].codes[name] = count


_CODES = """
SELECT number, name, count(*) AS n FROM asked_codes JOIN these_decisions USING (run_id)
WHERE list_contains(codes, name) AND (of_flow IS NULL OR flow = of_flow)
  AND ns BETWEEN t0_ns AND t1_ns
GROUP BY number, name ORDER BY number, n DESC, name
"""


def _severity(cost_s: float | None, duration_s: float) -> str:
    """Return how much of the flow's time (of the run's, if it concerns the run) it costs."""
    if cost_s is None or duration_s <= 0:
        return "unknown"
    share = cost_s / duration_s
    return "severe" if share >= SEVERE else "moderate" if share >= MODERATE else "minor"
