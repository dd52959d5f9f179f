"""What the rules find in recordings, against what is known to have happened there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

import duckdb
import pytest
from bbrscope.analyze.diagnosis import engine, ranking
from bbrscope.analyze.diagnosis.engine import (
    Diagnosis,
    diagnose,
    diagnose_many,
    diagnose_together,
)
from bbrscope.analyze.diagnosis.rule import rules
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BbrscopeError

# Shipped recording -> findings, by cost. Whether they are true is asked in tests/truth.
EXPECTED: dict[str, list[str]] = {
    "v2_single_1bdp": [],
    "v1_x_lt": [
        "loss_near_gain_cliff",
        "policer",
        "outage",
        "probe_rtt_long",
        "initial_window_loss",
    ],
    "v2_x_spur": ["outage", "ack_aggregation"],
    "v3_x_tlp5": ["application_limited", "tail_loss", "outage", "loss_above_threshold"],
}


def found(made: Diagnosis) -> list[str]:
    return [finding.rule.name for finding in made.findings]


def rounded(value: object) -> object:
    """A value with its floats to twelve digits, and its dictionaries in their order."""
    if isinstance(value, dict):
        return [(key, rounded(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def test_the_shipped_recordings_have_what_happened_to_them(shipped: Store) -> None:
    """Asked one by one, and all at once: with the same answers, but for the order of sums."""
    run_ids = [shipped.run_id(run) for run in shipped.runs()]
    alone = [diagnose(shipped.con, run_id) for run_id in run_ids]
    assert {made.run: found(made) for made in alone} == EXPECTED
    together = diagnose_together(shipped.con, run_ids)
    assert [rounded(asdict(made)) for made in together] == [rounded(asdict(made)) for made in alone]


def test_a_finding_explains_another_of_which_it_is_a_third_at_least(shipped: Store) -> None:
    """Both are priced in seconds of waiting in the queue; and they are of the same flow."""
    finding, *_ = diagnose(shipped.con, shipped.run_id("v3_x_tlp5")).findings
    named = {rule.name: rule for rule in rules()}
    cause = replace(finding, rule=named["standing_queue"], flow=1, cost_s=2.0)
    third = replace(cause, rule=named["bufferbloat"], cost_s=6.0)
    more = replace(third, cost_s=6.1)
    other = replace(third, flow=2)
    assert ranking.ranked([third, cause, other]) == [other, cause]
    assert ranking.ranked([more, cause]) == [more, cause]


def test_groups_that_share_the_cpus_have_one_thread_each(
    shipped: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were asked one after the other: DuckDB's own views were taken for the connection's."""
    threads: list[int] = []

    def setting(con: duckdb.DuckDBPyConnection) -> int:
        return int(con.execute("SELECT current_setting('threads')").fetchall()[0][0])

    def watched(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> list[Diagnosis]:
        threads.append(setting(con))
        return diagnose_together(con, run_ids)

    run_ids = [shipped.run_id(run) for run in shipped.runs()]
    monkeypatch.setattr(engine, "diagnose_together", watched)
    monkeypatch.setattr(engine, "FEWEST_TOGETHER", 1)
    monkeypatch.setattr(engine.os, "sched_getaffinity", lambda _: {0, 1})
    before = setting(shipped.con)
    made = diagnose_many(shipped.con, run_ids)
    assert {one.run: found(one) for one in made} == EXPECTED
    assert threads == [1, 1]
    assert setting(shipped.con) == before


def test_runs_that_need_more_memory_than_their_share_are_diagnosed_in_all_that_there_is(
    shipped: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a share, 1,000 runs took 2 GB: DuckDB kept what it had read of the file."""
    limits: list[str] = []

    def watched(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> list[Diagnosis]:
        limits.append(con.execute("SELECT current_setting('memory_limit')").fetchall()[0][0])
        return diagnose_together(con, run_ids)

    run_ids = [shipped.run_id(run) for run in shipped.runs()]
    monkeypatch.setattr(engine, "diagnose_together", watched)
    assert {one.run: found(one) for one in diagnose_many(shipped.con, run_ids)} == EXPECTED
    assert set(limits) == {"640.0 MiB"}
    limits.clear()
    monkeypatch.setattr(engine, "memory_for", lambda events, least: "2MB")
    assert {one.run: found(one) for one in diagnose_many(shipped.con, run_ids)} == EXPECTED
    assert limits[0] == "1.9 MiB"
    assert limits[-1].endswith("GiB")


def test_costs_rank_the_findings(shipped: Store) -> None:
    made = diagnose(shipped.con, shipped.run_id("v1_x_lt"))
    costs = [finding.cost_s or 0 for finding in made.findings]
    assert costs == sorted(costs, reverse=True)
    assert min(costs) > 0


def test_no_finding_costs_more_time_than_the_flow_lasted(shipped: Store) -> None:
    """What a flow believed in, where nothing else tells the rate, can be far too little."""
    made = diagnose(shipped.con, shipped.run_id("v1_x_lt"))
    flow = made.flows[1]
    assert flow.rate
    (rule,) = [rule for rule in rules() if rule.name == "unequal_shares"]
    for lost_s, told_s in ((2 * flow.duration_s, flow.duration_s), (1.0, 1.0)):
        row = {"flow": 1, "t0_ns": flow.first_ns, "t1_ns": flow.last_ns, "cost_s": None}
        row["cost_bytes"] = lost_s * flow.rate
        assert engine._finding(rule, row, made).cost_s == pytest.approx(told_s)


def test_rules_that_lack_data_say_so(shipped: Store) -> None:
    # This recording has events only: no queue samples, no rate of the link.
    made = diagnose(shipped.con, shipped.run_id("v2_x_spur"))
    unchecked = {check.rule.name: check.why for check in made.outcomes("not checked")}
    assert "queue" in unchecked["loss_outside_bottleneck"]
    assert {check.outcome for check in made.checks} <= {
        "found",
        "clear",
        "not applicable",
        "not checked",
    }
    policer = next(check for check in made.checks if check.rule.name == "policer")
    assert (policer.outcome, policer.why) == ("not applicable", "is about BBR v1")


def test_the_outage_is_where_the_acks_stop(shipped: Store) -> None:
    """The silence that the rule names has no ACK in it, by the events themselves."""
    made = diagnose(shipped.con, shipped.run_id("v2_x_spur"))
    (outage,) = [finding for finding in made.findings if finding.rule.name == "outage"]
    a = outage.values["silence_at"]
    b = a + round(outage.values["silence_s"] * 1e9)
    (inside,) = shipped.con.execute(
        "SELECT count(*) FROM events JOIN runs USING (run_id) WHERE run = 'v2_x_spur'"
        " AND kind = 'main' AND rs_acked_sacked > 0 AND ns > ? AND ns < ?",
        [a, b],
    ).fetchall()[0]
    assert inside == 0
    assert outage.values["silence_s"] > 1


def test_the_decisions_behind_a_finding_are_those_that_were_taken(shipped: Store) -> None:
    made = diagnose(shipped.con, shipped.run_id("v1_x_lt"))
    (policer,) = [finding for finding in made.findings if finding.rule.name == "policer"]
    taken = shipped.con.execute(
        "SELECT name, count(*) FROM decision_log WHERE run = 'v1_x_lt' AND name LIKE 'LT_USE_%'"
        " GROUP BY name"
    ).fetchall()
    assert dict(taken).items() <= policer.codes.items()
    # PROBE_RTT interrupts a rate in use: it is entered again without a decision.
    assert len(policer.values["entries_at"]) >= sum(dict(taken).values())


def test_a_query_that_fails_names_its_rule(shipped: Store) -> None:
    sql = "SELECT no_such FROM this_run"
    rule = replace(rules()[0], versions="123", flows=1, needs=(), sql=sql)
    with pytest.raises(BbrscopeError, match=f"the rule {rule.name} cannot be asked.*no_such"):
        diagnose(shipped.con, shipped.run_id("v2_x_spur"), [rule])
