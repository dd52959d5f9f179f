"""What the rules find in recordings, against what is known to have happened there."""

from __future__ import annotations

import pytest
from bbrscope.analyze.diagnosis.engine import Diagnosis, diagnose
from bbrscope.collect.store.store import Store

# Recording -> findings (with the flow where there are several), by cost. What happened is in the
# recordings' README and manifests; every line was read against them.
EXPECTED: dict[str, list[str]] = {
    # One flow that fills its link: nothing to find. One call of main that no probe saw is no news.
    "v1_single_1bdp": [],
    "v2_single_1bdp": [],
    "v3_single_1bdp": [],
    "lossy_v2_one_silent_miss": [],
    # The application writes 4 Mbit/s into a link of 10.
    "v1_applimited": ["application_limited"],
    "v2_applimited": ["application_limited"],
    "v3_applimited": ["application_limited"],
    # 25 % random loss; at the end it hears nothing more.
    "v1_x_lt": ["loss_near_gain_cliff", "policer", "outage", "probe_rtt_long"],
    # The link is down for 1.5 s.
    "v1_outage_rto": ["outage"],
    "v2_outage_rto": ["outage"],
    "v3_outage_rto": ["outage"],
    # ACK outages and delay spikes: timeouts, undone, and then the ACKs in one burst.
    "v1_x_spur": ["outage", "ack_aggregation"],
    "v2_x_spur": ["outage", "ack_aggregation"],
    "v3_x_spur": ["outage", "ack_aggregation"],
    # On and off; tail losses, 5.8 % of the packets.
    "v3_x_tlp5": ["application_limited", "loss_above_threshold", "outage"],
    # v3 without the route feature ecn_low; the others may use ECN and do.
    "v3_ecn_codel": ["ecn_ignored"],
    "lossy_v3_ecn": ["ecn_ignored"],
    "v2_ecn_codel": [],
    "v2_x_ecn": [],
    "v3_x_ecn_low": [],
    # 1 % random loss before the bottleneck: v1 does not mind, v2 and v3 hold back.
    "v1_loss_1pct": ["loss_outside_bottleneck"],
    "v2_loss_1pct": ["stuck_at_lower_bounds", "loss_outside_bottleneck"],
    "v3_loss_1pct": ["stuck_at_lower_bounds", "loss_outside_bottleneck"],
    # The rate is doubled, then halved: v1 takes the overflow for a policer, v2 and v3 keep the old
    # rate in their filters for 3 and 4 s.
    "v1_bwchange": ["policer"],
    "v2_bwchange": ["slow_descent"],
    "v3_bwchange": ["slow_descent"],
    # A second flow joins after 4 s.
    "v1_latecomer_4bdp": [
        "inflight_cap 3",
        "inflight_cap 1",
        "min_rtt_inflated 3",
        "startup_too_early 3",
    ],
    "v2_latecomer_2bdp": [
        "startup_hi_starves 3",
        "probe_up_cut_short 3",  # when the first flow ends
        "min_rtt_inflated 3",
    ],
    # While both are active, its share is 61 % in the first half and 57 % in all.
    "v3_latecomer_2bdp": ["startup_too_early 4"],
    # CUBIC joins after 2 s and fills the buffer of 2 BDP.
    "v1_vs_cubic_2bdp": ["standing_queue", "min_rtt_inflated"],
    "v2_vs_cubic_2bdp": [
        "standing_queue",
        "min_rtt_inflated",
        "inflight_hi_ratchet",
        "not_converged",
    ],
    # 59 % in the first half and 57 % in all; v2 has 68 % and 62 %, which is still moving.
    "v3_vs_cubic_2bdp": ["standing_queue", "min_rtt_inflated", "inflight_hi_ratchet"],
    # A buffer of 0.2 BDP: only v1 overflows it with every probe.
    "v1_shallow_0.2bdp": ["probes_overflow"],
    "v2_shallow_0.2bdp": [],
    "v3_shallow_0.2bdp": [],
    # Reordering by 8 ms: the path is longer then, not its queue; nothing was undone.
    "v1_reorder": [],
    "v2_reorder": [],
    "v3_reorder": [],
    # GSO bursts into a small queue: losses all the time.
    "v2_x_gso2": ["stuck_at_lower_bounds"],
    "v3_x_gso2": ["stuck_at_lower_bounds"],
    # On and off, but 96 % of the time on.
    "v3_x_idle": [],
}


def found(made: Diagnosis) -> list[str]:
    several = len(made.flows) > 1
    return [
        finding.rule.name + (f" {finding.flow}" if several and finding.flow else "")
        for finding in made.findings
    ]


def test_the_shipped_recordings_have_what_happened_to_them(shipped: Store) -> None:
    for run in shipped.runs():
        assert found(diagnose(shipped.con, shipped.run_id(run))) == EXPECTED[run], run


@pytest.mark.slow
def test_every_recording_has_what_happened_to_it(all_packets: Store) -> None:
    runs = all_packets.runs()
    assert set(runs) == set(EXPECTED)
    told = {run: found(diagnose(all_packets.con, all_packets.run_id(run))) for run in runs}
    assert told == EXPECTED


def test_costs_rank_the_findings(shipped: Store) -> None:
    made = diagnose(shipped.con, shipped.run_id("v1_x_lt"))
    costs = [finding.cost_s or 0 for finding in made.findings]
    assert costs == sorted(costs, reverse=True)
    assert min(costs) > 0


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
