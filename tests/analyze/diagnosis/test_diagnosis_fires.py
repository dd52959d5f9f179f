"""Each rule fires where its trouble is, and is clear in a recording where it is not.

Troubles that happened in a recording are in `test_diagnosis.EXPECTED`. Here are the others: copies
of a shipped recording in which the trouble was put, in the rows that a kernel would have left.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.analyze.diagnosis.engine import Finding, diagnose
from bbrscope.analyze.diagnosis.rule import rules
from bbrscope.analyze.diagnosis.tables import prepare
from bbrscope.analyze.views.materialize import forget
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store
from bbrscope.reports.text.findings.finding_text import sentence, text

from tests.analyze.diagnosis.test_diagnosis import EXPECTED

RULES = {rule.name: rule for rule in rules()}
SECOND = 1_000_000_000

Alter = Callable[[str, Sequence[str]], Store]


@pytest.fixture
def alter(shipped_path: Path, tmp_path: Path) -> Alter:
    """Change a copy of the shipped store by statements about events `e` of one run."""
    path = tmp_path / "altered.duckdb"
    shutil.copy(shipped_path, path)

    def altered(run: str, statements: Sequence[str]) -> Store:
        store = open_store(path)
        run_id = store.run_id(run)
        (zero,) = store.con.execute(
            "SELECT first_ns FROM flows WHERE run_id = ? ORDER BY events DESC LIMIT 1", [run_id]
        ).fetchall()[0]
        forget(store.con, [run_id])
        for statement in statements:
            store.con.execute(statement.format(run=f"run_id = {run_id}", id=run_id, zero=zero))
        return store

    return altered


def ask(store: Store, run: str, name: str) -> Finding:
    """Run one rule; it must fire, on one flow."""
    with store:
        made = diagnose(store.con, store.run_id(run), [RULES[name]])
        assert [check.outcome for check in made.checks] == ["found"], made.checks
        return made.findings[0]


def clone(flow: int) -> tuple[str, str]:
    """Another flow that did the same as flow 1, at the same time."""
    return tuple(
        f"INSERT INTO {table} SELECT * REPLACE ({flow} AS flow) FROM {table}"
        " WHERE {run} AND flow = 1"
        for table in ("flows", "events")
    )  # type: ignore[return-value]


def slower(flow: int, times: int) -> str:
    """That flow carried so many times less, in a window that has room for what is left."""
    first = f"(SELECT min(tp_snd_una) FROM events x WHERE x.{{run}} AND x.flow = {flow})"
    return (
        "UPDATE events SET tp_snd_wnd = 1000000000,"
        f" tp_snd_una = {first} + (tp_snd_una - {first}) // {times}"
        f" WHERE {{run}} AND flow = {flow}"
    )


def link(rate: str) -> str:
    """The set-up states this rate."""
    return f"""UPDATE runs SET setup = '{{{{"rate": "{rate}", "delay": "40"}}}}' WHERE {{run}}"""


# Another sender, known by its packets only: `size` bytes every 50 ms, an expression over k.
def stranger(size: str) -> tuple[str, str]:
    return (
        "INSERT INTO packets BY NAME SELECT {id} AS run_id, (1000000 + k)::UINTEGER AS packet,"
        " ({zero} + k * 50000000)::UBIGINT AS ns, 99::UINTEGER AS stream, 'data' AS direction,"
        f" ({size})::UINTEGER AS len FROM range(500) t(k)",
        "INSERT INTO streams BY NAME SELECT {id} AS run_id, 99::UINTEGER AS stream,"
        " 'data' AS direction, 100000000 AS payload_bytes",
    )


HEALTHY = "v2_single_1bdp"
FLIGHT = "(tp_snd_nxt::BIGINT - tp_snd_una + 4294967296) % 4294967296"
IN_FLIGHT = "tp_packets_out::BIGINT - tp_sacked_out - tp_lost_out + tp_retrans_out"
INFLATED = "((ns - {zero}) // 5000000000) % 2 = 1"

# Rule -> the recording and what was done to it.
PUT: dict[str, tuple[str, Sequence[str]]] = {
    "receive_window_limited": (
        HEALTHY,
        [f"UPDATE events SET tp_snd_wnd = {FLIGHT} WHERE {{run}}"],
    ),
    "spurious_loss": (
        "v2_x_spur",
        ["UPDATE events SET icsk_ca_state = 3 WHERE {run} AND kind = 'undo_cwnd'"],
    ),
    "min_rtt_stale": (
        HEALTHY,
        [
            "UPDATE events SET rs_rtt_us = rs_rtt_us + 80000 WHERE {run} AND rs_rtt_us > 0"
            " AND ns > {zero} + 8000000000"
        ],
    ),
    "startup_never_left": (HEALTHY, ["UPDATE events SET bbr_mode = 0 WHERE {run}"]),
    "probe_rtt_missing": (
        HEALTHY,
        [
            "UPDATE events SET bbr_probe_rtt_min_stamp = (SELECT min(jiffies32) FROM events"
            " WHERE {run} AND jiffies32 > 0), bbr_mode = least(bbr_mode, 2) WHERE {run}"
        ],
    ),
    "probe_rtt_synchronised": (HEALTHY, [*clone(9), link("40mbit")]),
    "four_packets_each": (
        HEALTHY,
        [
            "UPDATE events SET rs_rtt_us = rs_rtt_us + 10000 WHERE {run} AND rs_rtt_us > 0",
            *(statement for flow in range(11, 20) for statement in clone(flow)),
        ],
    ),
    "plb_rehash": (
        "v3_x_tlp5",
        [
            "INSERT INTO decisions BY NAME SELECT run_id, flow, seq, 99 AS ord, ns, 252 AS code,"
            " 12 AS e0 FROM events WHERE {run} AND flow = 1 AND seq IN (500, 900)"
        ],
    ),
    "ecn_without_marks": (
        HEALTHY,
        ["UPDATE events SET tp_ecn_flags = 1, bbr_ecn_eligible = 1 WHERE {run}"],
    ),
    "overruns_shallow_buffer": (
        "v1_x_lt",
        [
            """UPDATE runs SET setup = '{{"rate": "10mbit", "delay": "20"}}' WHERE {run}""",
            "INSERT INTO queue_samples BY NAME SELECT run_id, ns, 'tbf' AS kind,"
            " 9000 AS backlog_bytes, 6 AS backlog_pkts, tp_lost AS dropped FROM events"
            " WHERE {run} AND flow = 1 AND seq % 20 = 0 AND kind = 'main'",
        ],
    ),
    "unfair_with_loss": ("v1_x_lt", [*clone(8), *clone(9), slower(9, 4)]),
    "rtt_unfairness": (
        HEALTHY,
        [
            *clone(9),
            slower(1, 2),
            "UPDATE events SET rs_rtt_us = 2 * rs_rtt_us WHERE {run} AND flow = 9"
            " AND rs_rtt_us > 0",
            "UPDATE events SET bbr_min_rtt_us = 2 * bbr_min_rtt_us WHERE {run} AND flow = 9"
            " AND bbr_min_rtt_us < unset()",
        ],
    ),
    "starves_others": (HEALTHY, stranger("1448")),
    "seesaw": (
        HEALTHY,
        [
            *stranger("CASE WHEN (k // 100) % 2 = 1 THEN 5000 ELSE 60000 END"),
            f"UPDATE events SET bbr_min_rtt_us = 60000 WHERE {{run}} AND {INFLATED}",
        ],
    ),
    "slow_ramp": (
        HEALTHY,
        [
            "INSERT INTO host_facts SELECT {id}, 'changes', '0', json_object('rate', '20mbit',"
            " 'uptime_s', ({zero} + 10000000000 + (SELECT min(boottime_ns::BIGINT - monotonic_ns)"
            " FROM clocks WHERE {run} AND point = 'start')) / 1e9)"
        ],
    ),
    "gso_through_bottleneck": (
        HEALTHY,
        ["UPDATE queue_samples SET backlog_bytes = 8 * backlog_bytes WHERE {run}"],
    ),
    "pacing_capped": (
        HEALTHY,
        [
            "UPDATE events SET sk_max_pacing_rate = 600000,"
            " sk_pacing_rate = least(sk_pacing_rate, 600000),"
            " exit_sk_pacing_rate = least(exit_sk_pacing_rate, 600000) WHERE {run}"
        ],
    ),
    "mss_drop": (
        HEALTHY,
        ["UPDATE events SET tp_mss_cache = 1000 WHERE {run} AND ns > {zero} + 10000000000"],
    ),
    "stalled_start": (
        HEALTHY,
        [
            "UPDATE events SET ns = ns + 2000000000, exit_ns = exit_ns + 2000000000"
            " WHERE {run} AND flow = 1 AND ns > {zero} + 100000000",
            "UPDATE decisions SET ns = ns + 2000000000"
            " WHERE {run} AND flow = 1 AND ns > {zero} + 100000000",
            "UPDATE flows SET last_ns = last_ns + 2000000000 WHERE {run} AND flow = 1",
        ],
    ),
    "bufferbloat": (
        HEALTHY,
        [
            "UPDATE events SET rs_rtt_us = rs_rtt_us + 60000 WHERE {run} AND rs_rtt_us > 0"
            " AND ns > {zero} + 10000000000 AND bbr_mode <> 3",
            "UPDATE queue_samples SET backlog_bytes = backlog_bytes + 75000"
            " WHERE {run} AND ns > {zero} + 10000000000",
        ],
    ),
    "heavy_loss": (
        HEALTHY,
        ["UPDATE events SET tp_lost = tp_lost + tp_delivered // 30 WHERE {run}"],
    ),
    "reordering": (
        HEALTHY,
        [
            "UPDATE events SET kind = 'set_state', new_state = (seq // 100) % 2,"
            " icsk_ca_state = 1 - (seq // 100) % 2 WHERE {run} AND flow = 1 AND seq % 100 = 50"
        ],
    ),
    "unequal_shares": (HEALTHY, [*clone(9), slower(9, 2)]),
    "send_buffer_limited": (
        HEALTHY,
        [
            f"UPDATE events SET tp_app_limited = tp_delivered + {IN_FLIGHT} WHERE {{run}}",
            "INSERT INTO host_facts VALUES"
            " ({id}, 'sysctls', 'net.ipv4.tcp_wmem', '4096 16384 131072')",
        ],
    ),
}


@pytest.mark.parametrize("name", PUT)
def test_a_rule_fires_where_its_trouble_was_put_and_tells_a_cause(name: str, alter: Alter) -> None:
    run, statements = PUT[name]
    finding = ask(alter(run, statements), run, name)
    assert finding.t0_ns < finding.t1_ns
    assert finding.causes


def test_a_send_buffer_is_named_where_its_rounds_never_end_startup(alter: Alter) -> None:
    run, statements = PUT["send_buffer_limited"]
    changed = alter(run, [*statements, "UPDATE events SET bbr_mode = 0 WHERE {run}"])
    finding = ask(changed, run, "send_buffer_limited")
    assert finding.t0_ns < finding.t1_ns


@pytest.mark.parametrize(("least", "outcome"), [(20, "found"), (0, "clear")])
def test_a_send_buffer_is_filled_again_by_thirds(least: int, outcome: str, alter: Alter) -> None:
    """What is left of it then is small skbs, so that flights go down to half of the largest."""
    run, statements = PUT["send_buffer_limited"]
    flights = (
        f"UPDATE events SET tp_packets_out = {least} + seq % {40 - least}, tp_sacked_out = 0,"
        " tp_lost_out = 0, tp_retrans_out = 0 WHERE {run}"
    )
    with alter(run, [flights, *statements]) as store:
        made = diagnose(store.con, store.run_id(run), [RULES["send_buffer_limited"]])
    assert [check.outcome for check in made.checks] == [outcome]


@pytest.mark.parametrize("name", PUT)
def test_and_not_where_it_was_not(name: str, shipped: Store) -> None:
    run, _ = PUT[name]
    made = diagnose(shipped.con, shipped.run_id(run), [RULES[name]])
    assert made.findings == []


def test_flows_that_lost_nothing_any_more_are_not_unfair_by_loss(alter: Alter) -> None:
    """An eighth of what was delivered until the middle was lost before it, and nothing after."""
    run, put = PUT["unfair_with_loss"]
    half = "(SELECT (min(tp_delivered) + max(tp_delivered)) // 2 FROM events WHERE {run})"
    until = f"UPDATE events SET tp_lost = least(tp_delivered, {half}) // 8 WHERE {{run}}"
    with alter(run, [*put, until]) as store:
        made = diagnose(store.con, store.run_id(run), [RULES["unfair_with_loss"]])
    assert [check.outcome for check in made.checks] == ["clear"]


def test_bursts_of_acks_cost_nothing_while_a_sender_has_nothing_on_the_way(alter: Alter) -> None:
    burst = "UPDATE events SET bbr_extra_acked_0 = 1000 WHERE {run}"
    ask(alter(HEALTHY, [burst]), HEALTHY, "ack_aggregation")
    silent = (
        "UPDATE events SET tp_packets_out = 0, tp_sacked_out = 0, tp_lost_out = 0,"
        " tp_retrans_out = 0, icsk_ca_state = 0 WHERE {run}"
    )
    store = alter(HEALTHY, [burst, silent])
    with store:
        made = diagnose(store.con, store.run_id(HEALTHY), [RULES["ack_aggregation"]])
    assert made.findings == []


def test_probes_that_end_by_loss_and_leave_the_bound_are_told_so(
    shipped: Store, alter: Alter
) -> None:
    """Near its floor inflight_hi is set to what it was."""
    run, name = "v3_x_tlp5", "loss_above_threshold"
    cut = diagnose(shipped.con, shipped.run_id(run), [RULES[name]]).findings[0].values
    assert 0 < cut["lowered_count"] <= cut["cut_count"]
    stays = "UPDATE events SET bbr_inflight_hi = 4 WHERE {run}"
    values = ask(alter(run, [stays]), run, name).values
    assert (values["cut_count"], values["lowered_count"]) == (cut["cut_count"], 0)


def test_a_labs_other_flows_are_senders_though_their_packets_were_not_captured(
    alter: Alter,
) -> None:
    """Half a megabit a second beside ours, as the lab's iperf3 received it."""
    store = alter(
        HEALTHY,
        [
            "DELETE FROM packets WHERE {run}",
            "DELETE FROM streams WHERE {run}",
            "UPDATE runs SET traffic_start_ns = {zero} WHERE {run}",
            "INSERT INTO lab_flows BY NAME SELECT {id} AS run_id, 2 AS flow_no",
            "INSERT INTO lab_intervals BY NAME SELECT {id} AS run_id, 2 AS flow_no, k / 2 AS t_s,"
            " 0.5 AS seconds, 500000 AS goodput_bps FROM range(50) t(k)",
        ],
    )
    finding = ask(store, HEALTHY, "starves_others")
    assert finding.values["theirs_bps"] == pytest.approx(500_000, rel=0.05)
    assert finding.values["others_count"] == 1


# Set-up mistakes: facts about the host, as `bbrscope collect` writes them into the manifest.
HOSTS: dict[str, dict[str, object]] = {
    "netem_on_sender": {"host": {"qdiscs": ["eth0 fq 8001:", "eth1 netem 8002:"]}},
    "missing_fq": {"kernel": "4.9.0-19-amd64", "host": {"qdiscs": ["eth0 fq_codel 0:"]}},
    "tiny_tcp_wmem": {"sysctls": {"net.ipv4.tcp_wmem": "4096 16384 131072"}},
}
SOUND: dict[str, object] = {
    "kernel": "6.1.0-42-amd64",
    "host": {"qdiscs": ["eth0 fq 8001:", "eth1 fq_codel 0:"]},
    "sysctls": {"net.ipv4.tcp_wmem": "4096 16384 4194304"},
}


@pytest.mark.parametrize("name", HOSTS)
def test_a_set_up_mistake_is_seen_and_a_sound_set_up_is_none(name: str, tmp_path: Path) -> None:
    outcomes = []
    for facts in (HOSTS[name], SOUND):
        bundle = tmp_path / f"bundle{len(outcomes)}"
        shutil.copytree(fixtures.path(HEALTHY), bundle)
        manifest = json.loads((bundle / "manifest.json").read_text())
        (bundle / "manifest.json").write_text(json.dumps(manifest | facts))
        with open_store(tmp_path / f"{bundle.name}.duckdb") as store:
            ingest(store, bundle, packets=False)
            made = diagnose(store.con, store.run_id(HEALTHY), [RULES[name]])
            outcomes += [check.outcome for check in made.checks]
    assert outcomes == ["found", "clear"]


def test_a_mistake_of_the_set_up_comes_first(tmp_path: Path, shipped_path: Path) -> None:
    path = tmp_path / "set-up.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id("v1_x_lt")
        store.con.execute(
            "INSERT INTO host_facts VALUES (?, 'host', 'qdiscs', '[\"eth0 netem 1:\"]')", [run_id]
        )
        made = diagnose(store.con, run_id)
    assert made.findings[0].rule.name == "netem_on_sender"
    # netem_enqueue() orphans what it delays: through 30 ms of it a flow filled 99 % of its link.
    assert "TSQ" not in made.findings[0].rule.sentence
    assert len(made.findings) == 1 + len(EXPECTED["v1_x_lt"])


def test_a_run_without_events_is_not_called_healthy(tmp_path: Path, shipped_path: Path) -> None:
    path = tmp_path / "empty.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id("v1_x_lt")
        store.con.execute("DELETE FROM events WHERE run_id = ?", [run_id])
        made = diagnose(store.con, run_id)
    assert made.flows == {}
    assert {check.outcome for check in made.checks} == {"not applicable"}


@pytest.mark.parametrize(
    ("missing", "unchecked"),
    [
        ("bbr_mode = NULL, bbr_min_rtt_us = NULL", "min_rtt_inflated"),
        ("rs_rtt_us = NULL", "bufferbloat"),
        ("rs_delivered = NULL", "startup_never_left"),
        ("tp_lost = NULL", "heavy_loss"),
    ],
)
def test_a_recording_that_lacks_fields_fails_no_rule(
    missing: str, unchecked: str, alter: Alter
) -> None:
    said = "UPDATE replays SET missing = 'rs_lost, tp_lost' WHERE {run}"
    store = alter(HEALTHY, [f"UPDATE events SET {missing} WHERE {{run}}", said])
    with store:
        made = diagnose(store.con, store.run_id(HEALTHY))
    assert made.findings == []
    assert made.completeness.columns == ("rs_lost", "tp_lost")
    assert unchecked in {check.rule.name for check in made.outcomes("not checked")}


@pytest.mark.slow
def test_a_buffer_of_a_tenth_of_the_path_is_too_small(traces: Path, tmp_path: Path) -> None:
    """v2_shallow_0.2bdp as if the link had been faster by a fifth than the flow managed."""
    from bbrscope.analyze.replay import keep_results as results
    from bbrscope.analyze.replay import replay_runs as session

    with open_store(tmp_path / "shallow.duckdb") as store:
        ingest(store, traces / "v2_shallow_0.2bdp", packets=False)
        run_id = store.run_id("v2_shallow_0.2bdp")
        for flows in session.replay_runs(store.con, [run_id]):
            results.keep(store, flows)
        rule = [RULES["underuse_of_shallow_buffer"]]
        assert diagnose(store.con, run_id, rule).findings == []
        store.con.execute("UPDATE runs SET setup = replace(setup, '10mbit', '12mbit')")
        (finding,) = diagnose(store.con, run_id, rule).findings
        assert finding.values["used_share"] < 0.9


@pytest.mark.slow
def test_flows_that_do_not_converge_are_reported_where_nothing_explains_it(
    all_compared: Store,
) -> None:
    rule = [RULES["unfair_without_loss"]]
    made = diagnose(all_compared.con, all_compared.run_id("v2_latecomer_2bdp"), rule)
    assert [finding.flow for finding in made.findings] == [3]
    made = diagnose(all_compared.con, all_compared.run_id("v3_latecomer_2bdp"), rule)
    assert made.findings == []


def test_the_catalogue_is_covered_whole() -> None:
    from bbrscope.analyze.diagnosis import NOT_RULES

    covered = {name for rule in RULES.values() for name in rule.catalogue}
    assert covered | set(NOT_RULES) == {f"F-{number:02}" for number in range(1, 38)}
    assert not covered & set(NOT_RULES)


def test_a_longer_path_of_ones_own_is_no_inflated_min_rtt(alter: Alter) -> None:
    """Flow 9 is 80 ms farther away than the setup's delay says; flow 1 sees that delay."""
    farther = [
        "UPDATE events SET rs_rtt_us = rs_rtt_us + 80000"
        " WHERE {run} AND flow = 9 AND rs_rtt_us > 0",
        "UPDATE events SET bbr_min_rtt_us = bbr_min_rtt_us + 80000,"
        " tp_srtt_us = tp_srtt_us + 640000"
        " WHERE {run} AND flow = 9 AND bbr_min_rtt_us < unset()",
    ]
    with alter(HEALTHY, [*clone(9), *farther]) as store:
        chosen = [RULES["min_rtt_inflated"], RULES["standing_queue"]]
        made = diagnose(store.con, store.run_id(HEALTHY), chosen)
    assert [check.outcome for check in made.checks] == ["clear", "clear"]


def test_a_min_rtt_is_of_the_time_when_its_packet_was_sent_not_of_when_it_was_adopted(
    alter: Alter,
) -> None:
    """v3 takes the least sample of the PROBE_RTT before: of 3 s here, from 8 s on."""
    store = alter(
        HEALTHY,
        [
            "UPDATE events SET bbr_min_rtt_us = 120000 WHERE {run} AND ns > {zero} + 8000000000",
            "UPDATE events SET rs_rtt_us = 120000 WHERE {run} AND seq = (SELECT min(seq)"
            " FROM events WHERE {run} AND rs_rtt_us > 0 AND ns > {zero} + 3000000000)",
            "UPDATE queue_samples SET backlog_bytes = CASE WHEN ns BETWEEN {zero} + 2500000000"
            " AND {zero} + 3500000000 THEN 100000 ELSE 0 END WHERE {run}",
        ],
    )
    finding = ask(store, HEALTHY, "min_rtt_inflated")
    assert finding.values["queue"].endswith("show a wait of 80.0 ms or more.")


def test_what_a_packet_takes_to_be_sent_is_no_longer_path(alter: Alter) -> None:
    """60.5 ms, of which 40 are the path's, 19.3 the queue's, and 1.2 the packet's own."""
    waits = [
        "UPDATE events SET rs_rtt_us = 60500 WHERE {run} AND rs_rtt_us > 0",
        "UPDATE queue_samples SET backlog_bytes = 24125 WHERE {run}",
    ]
    finding = ask(alter(HEALTHY, waits), HEALTHY, "bufferbloat")
    assert "held 19.3 ms on average" in finding.values["queue"]


def test_a_second_of_pauses_is_none_in_a_queue(alter: Alter) -> None:
    """A burst a second that fills a queue for 0.2 s: two seconds in ten, not ten."""
    run, put = PUT["bufferbloat"]
    pauses = (
        "DELETE FROM events WHERE {run} AND kind = 'main' AND ns > {zero} + 10000000000"
        " AND (ns - {zero}) % 1000000000 > 200000000"
    )
    with alter(run, [*put, pauses]) as store:
        made = diagnose(store.con, store.run_id(run), [RULES["bufferbloat"]])
    assert [check.outcome for check in made.checks] == ["clear"]


def test_a_timeout_is_a_tails_only_if_nothing_later_was_heard_of(alter: Alter) -> None:
    """Before either timeout, at 35.866 and 40.826 s, one of three packets was sacked and the others
    marked lost: these were not the last, and what the timer waited for were their repairs."""
    run = "v3_x_tlp5"
    values = ask(alter(run, []), run, "tail_loss").values
    assert (values["probes_count"], values["timeouts_count"], values["also"]) == (7, 0, "")
    heard = "ns BETWEEN {zero} + 35600000000 AND {zero} + 35700000000"
    tail = f"UPDATE events SET tp_sacked_out = 0, tp_lost_out = 0 WHERE {{run}} AND {heard}"
    values = ask(alter(run, [tail]), run, "tail_loss").values
    assert (values["probes_count"], values["timeouts_count"]) == (7, 1)
    assert values["also"] == "; by a timeout at "


def test_what_a_policer_drops_no_queue_dropped(alter: Alter) -> None:
    """And the rate that was stated is then the link's, not the path's."""
    samples = (
        "INSERT INTO queue_samples BY NAME SELECT run_id, ns, '{kind}' AS kind, 0 AS backlog_bytes,"
        " 0 AS backlog_pkts, {dropped} AS dropped FROM events"
        " WHERE {{run}} AND flow = 1 AND seq % 20 = 0 AND kind = 'main'"
    )
    policed = [
        """UPDATE runs SET setup = '{{"rate": "60mbit", "delay": "20"}}' WHERE {run}""",
        samples.format(kind="tbf", dropped="0"),
        samples.format(kind="clsact", dropped="tp_lost"),
    ]
    with alter("v1_x_lt", policed) as store:
        run_id = store.run_id("v1_x_lt")
        (dropped,) = store.con.execute(
            "SELECT max(dropped) - min(dropped) FROM queue_samples WHERE kind = 'clsact'"
        ).fetchall()[0]
        names = ("loss_outside_bottleneck", "startup_too_early", "policer")
        made = diagnose(store.con, run_id, [RULES[name] for name in names])
        assert [check.outcome for check in made.checks] == ["found", "not checked", "found"]
        values = {each.rule.name: each.values for each in made.findings}
        assert values[names[0]]["dropped_packets"] == 0
        assert values[names[0]]["where"].endswith(f"dropped {dropped:,}")
        assert values[names[2]]["verdict"].endswith(f"it dropped {dropped:,} packets in all.")
        store.con.execute("DELETE FROM queue_samples WHERE kind = 'clsact'")
        forget(store.con, [run_id])
        made = diagnose(store.con, run_id, [RULES[names[1]]])
        assert made.outcomes("not checked") == []


def test_a_startup_that_the_receivers_window_keeps_from_ending_is_told_once(alter: Alter) -> None:
    names = ("startup_never_left", "receive_window_limited")
    (run, of_window), (other, in_startup) = (PUT[name] for name in reversed(names))
    assert run == other
    with alter(run, [*of_window, *in_startup]) as store:
        made = diagnose(store.con, store.run_id(run), [RULES[name] for name in names])
    assert [check.outcome for check in made.checks] == ["found", "found"]
    assert [finding.rule.name for finding in made.findings] == ["receive_window_limited"]


def test_a_startup_that_the_application_keeps_from_ending_is_told_once(alter: Alter) -> None:
    """Most samples are application-limited, for packets that go out as soon as they are written."""
    run = HEALTHY
    pauses = (
        "UPDATE events SET rs_is_app_limited = 1, tp_app_limited = tp_delivered + 1,"
        " bbr_mode = 0, sk_pacing_rate = 1000000000 WHERE {run}"
    )
    with alter(run, [pauses]) as store:
        names = ("startup_never_left", "application_limited")
        made = diagnose(store.con, store.run_id(run), [RULES[name] for name in names])
    assert [check.outcome for check in made.checks] == ["found", "found"]
    (finding,) = made.findings
    assert finding.rule.name == "application_limited"
    assert " It was in STARTUP for 100 % of its time" in finding.values["startup"]


def test_losses_where_packets_overtake_each_other_are_not_said_to_be_no_reordering(
    alter: Alter,
) -> None:
    run, lost = PUT["heavy_loss"]
    values = ask(alter(run, lost), run, "loss_outside_bottleneck").values
    assert values["where"] == "elsewhere"
    assert values["late"].endswith("losses and not reordering.")
    _, overtaken = PUT["reordering"]
    # The receiver told of three packets that it had got before: tp.delivered counts them again.
    told = (
        "UPDATE events SET tp_delivered = tp_delivered + (seq > 1010)::INTEGER"
        " + (seq > 2010)::INTEGER + (seq > 3010)::INTEGER WHERE {run} AND flow = 1"
    )
    proven = ", of which D-SACKs prove 3 to have come"
    for also, came, late in ((overtaken, "", 0), ([told], proven, 3)):
        finding = ask(alter(run, also), run, "loss_outside_bottleneck")
        values = finding.values
        assert values["closed_count"] >= 10
        assert values["came"] == came
        # Of what came before it was sent again, no D-SACK tells.
        assert (values["most"], values["where"]) == ("up to", "elsewhere, and the rest came late")
        assert finding.confidence == "medium"
        dropped = values["dropped_packets"]
        assert values["elsewhere_packets"] == values["lost_packets"] - dropped - late


def test_marks_without_an_answer_are_blamed_on_what_kept_it_from_answering(alter: Alter) -> None:
    """On 20 ms no v3 answers marks, whatever its route says: its limit is 5 ms."""
    marked = "UPDATE events SET tp_delivered_ce = tp_delivered // 2, tp_ecn_flags = {flags}"
    run = "v3_x_tlp5"
    answered = f"{marked}, bbr_ecn_eligible = 0 WHERE {{run}}"
    finding = ask(alter(run, [answered.replace("{flags}", "17")]), run, "ecn_ignored")
    assert "never fell below 20" in finding.values["why"]
    assert not any("ip route" in remedy for remedy in finding.remedies)
    near = "UPDATE events SET bbr_min_rtt_us = 3000 WHERE {run}"
    store = alter(run, [answered.replace("{flags}", "1"), near])
    finding = ask(store, run, "ecn_ignored")
    assert finding.values["why"] == "its route is not marked as low-latency ECN"
    assert any("ip route" in remedy for remedy in finding.remedies)


def test_an_idle_application_is_seen_where_the_links_rate_is_not_known(alter: Alter) -> None:
    """What BBR believes in is then what the application let it measure."""
    believes_little = (
        "UPDATE events SET bbr_bw_hi_0 = bbr_bw_hi_0 // 10, bbr_bw_hi_1 = bbr_bw_hi_1 // 10"
        " WHERE {run}"
    )
    finding = ask(alter("v3_x_tlp5", [believes_little]), "v3_x_tlp5", "application_limited")
    assert finding.cost_bytes is None
    assert finding.cost_s == finding.values["limited_s"] > 50


# Nobody said what the link's rate is, and no queue was sampled that shows it.
NO_LINK = ("UPDATE runs SET setup = '{{}}' WHERE {run}", "DELETE FROM queue_samples WHERE {run}")


def test_segment_sizes_are_told_to_the_byte(alter: Alter) -> None:
    run, put = PUT["mss_drop"]
    with alter(run, put) as store:
        made = diagnose(store.con, store.run_id(run), [RULES["mss_drop"]])
    said = text(sentence(made, made.findings[0]))
    assert "shrank from 1,448 bytes to 1,000 bytes" in said


def test_of_a_link_of_unknown_rate_nothing_is_said_or_priced(alter: Alter) -> None:
    """What BBR believes in is what the window let it measure: no measure of the path."""
    _, put = PUT["receive_window_limited"]
    finding = ask(alter(HEALTHY, [*put, *NO_LINK]), HEALTHY, "receive_window_limited")
    assert (finding.cost_s, finding.cost_bytes) == (None, None)
    assert "is not known" in finding.values["most"]
    assert finding.values["wanted_bytes"] is None
    believes_much = "UPDATE events SET bbr_bw_s_0_v = 10 * bbr_bw_s_0_v WHERE {run}"
    costs = [
        ask(alter("v1_x_lt", changes), "v1_x_lt", "policer").cost_bytes
        for changes in ([], [believes_much])
    ]
    # Several threads add a sum's terms in no fixed order: its last digit is not the same each time.
    assert costs[0] == pytest.approx(costs[1], rel=1e-12)


def test_echoes_of_a_mark_are_not_called_marks(alter: Alter) -> None:
    """A receiver by RFC 3168 repeats ECE until the sender answers; the capture has the marks."""
    run = "v3_x_tlp5"
    echoed = (
        "UPDATE events SET tp_delivered_ce = tp_delivered // 2, tp_ecn_flags = 17,"
        " bbr_ecn_eligible = 0 WHERE {run}"
    )
    said = ask(alter(run, [echoed]), run, "ecn_ignored")
    assert said.values["told"] == "ACKs with ECE told of congestion for"
    assert "is not recorded" in said.values["marks"]
    captured = (
        "INSERT INTO packets BY NAME SELECT {id} AS run_id, (1000000 + k)::UINTEGER AS packet,"
        " ({zero} + k)::UBIGINT AS ns, 99::UINTEGER AS stream, 'data' AS direction,"
        " 1448::UINTEGER AS len, 3 AS ecn FROM range(7) t(k)",
        "INSERT INTO streams BY NAME SELECT {id} AS run_id, 99::UINTEGER AS stream,"
        " 'data' AS direction, 1 AS flow, 10136 AS payload_bytes",
    )
    said = ask(alter(run, [echoed, *captured]), run, "ecn_ignored")
    assert "The capture shows 7 marked packets" in said.values["marks"]


def test_probing_together_is_told_where_it_leaves_the_link_idle(alter: Alter) -> None:
    """Longer than one PROBE_RTT holds: by the link's rate, and without others that use it."""

    rule = [RULES["probe_rtt_synchronised"]]

    def said(rate: str, *others: str) -> list[Finding]:
        with alter(HEALTHY, [link(rate), *others]) as store:
            return diagnose(store.con, store.run_id(HEALTHY), rule).findings

    alter(HEALTHY, clone(9)).close()
    (finding,) = said("40mbit")
    assert finding.cost_s == finding.values["idle_s"] <= finding.values["together_s"]
    # Idle is what is left beside the same payload at another rate: 0.2 s at this one.
    together = finding.values["together_s"]
    busy = together - finding.values["idle_s"]
    even = busy * 40 / (together - 0.2)
    assert len(said(f"{even * 1.01 * 1e6:.0f}")) == 1
    assert said(f"{even * 0.99 * 1e6:.0f}") == []
    # Two flows that keep half the path's product in flight each leave nothing of it unused.
    assert said("10mbit") == []
    assert said("40mbit", *stranger("1448")) == []


def test_who_starves_others_is_told_whether_shares_still_converge(alter: Alter) -> None:
    """The other one carries two hundredths all the time, or a third from the middle on."""
    there = (
        "UPDATE streams SET first_ns = {zero}, last_ns = {zero} + 24950000000"
        " WHERE {run} AND stream = 99"
    )
    store = alter(HEALTHY, [*stranger("1448"), there])
    steady = ask(store, HEALTHY, "starves_others")
    assert (steady.values["trend"], steady.confidence) == (".", "medium")
    assert "98 % and 98 %" in steady.values["halves"]
    later = "ns > {zero} + 12500000000"
    more = f"UPDATE packets SET len = 25000 WHERE {{run}} AND stream = 99 AND {later}"
    store = alter(HEALTHY, [more])
    moving = ask(store, HEALTHY, "starves_others")
    assert "still on its way to an equal one" in moving.values["trend"]
    assert "98 % and 7" in moving.values["halves"]
    assert moving.confidence == "low"


def test_advice_is_for_the_version_that_it_is_given_to() -> None:
    for rule in RULES.values():
        for version in rule.versions:
            advice = [remedy.text for remedy in rule.remedies if version in remedy.versions]
            assert advice, f"{rule.name} has nothing to try for v{version}"
            always = [each for each in rule.remedies if version in each.versions and not each.when]
            assert not always[0].text.startswith("Else"), f"{rule.name}: instead of what?"
            for each in always:
                assert "5 ms" in each.text or "ecn_low" not in each.text, rule.name
            if version == "1":
                assert not any(re.search(r"\bto v2\b", text) for text in advice), rule.name
            if version != "2":
                assert not any(re.search(r"v2alpha|tcp_bbr2", text) for text in advice), rule.name
            if version == "3":
                assert not any(re.search(r"ove to (BBR )?v3|^(BBR )?v3 ", text) for text in advice)


def test_a_queue_that_held_nothing_is_no_shallow_buffer(alter: Alter) -> None:
    """What drops packets and holds none at any sample is a policer, which has no buffer."""
    run, statements = PUT["overruns_shallow_buffer"]
    rule = RULES["overruns_shallow_buffer"]
    emptied = "UPDATE queue_samples SET backlog_bytes = 0, backlog_pkts = 0 WHERE {run}"
    with alter(run, [*statements, emptied]) as store:
        made = diagnose(store.con, store.run_id(run), [rule])
    assert [check.outcome for check in made.checks] == ["clear"], made.checks


def test_loss_based_flows_are_spoken_of_where_there_may_be_one(alter: Alter) -> None:
    """Another sender may be one where nothing states what it is; a lone flow has none beside it."""
    run, statements = PUT["overruns_shallow_buffer"]
    alone = ask(alter(run, statements), run, "overruns_shallow_buffer")
    assert not any("Loss-based" in text for text in alone.remedies)
    there = (
        "UPDATE streams SET first_ns = {zero}, last_ns = {zero} + 14900000000"
        " WHERE {run} AND stream = 99"
    )
    store = alter(run, [*statements, *stranger("1448"), there])
    beside = ask(store, run, "overruns_shallow_buffer")
    assert any("Loss-based" in text for text in beside.remedies)
    for rule in RULES.values():
        for each in rule.remedies:
            assert each.when or "oss-based" not in each.text, rule.name


@pytest.mark.parametrize(
    ("src", "dst", "why"),
    [
        ("local_address || '9'", "remote_address", None),
        ("remote_address", "local_address", "other way"),
        ("remote_address || '9'", "local_address", "other way"),
    ],
)
def test_what_a_host_receives_meanwhile_is_no_sender_beside_its_flows(
    src: str, dst: str, why: str | None, alter: Alter
) -> None:
    ends = (
        f"UPDATE streams SET src = f.{src}, dst = f.{dst}, sport = 1, dport = 2,"
        " first_ns = {zero}, last_ns = {zero} + 14900000000 FROM"
        " (FROM flows WHERE {run} ORDER BY events DESC LIMIT 1) f"
        " WHERE streams.{run} AND stream = 99"
    )
    with alter(HEALTHY, [*stranger("1448"), ends]) as store:
        prepare(store.con, [store.run_id(HEALTHY)], [])
        found = store.con.execute("SELECT why_not FROM senders WHERE stream = 99").fetchall()
        (beside,) = store.con.execute("SELECT max(senders) FROM this_seconds").fetchall()
    assert found == [(why,)]
    assert beside == (2 if why is None else 1,)


def test_what_a_socket_sends_after_it_left_bbr_is_another_sender(alter: Alter) -> None:
    """iperf3 -C cubic where BBR is the default: one event of BBR, and then packets alone."""
    one = "(FROM flows WHERE {run} ORDER BY events DESC LIMIT 1)"
    statements = (
        *stranger("1448"),
        f"INSERT INTO flows SELECT * REPLACE (77 AS flow, 1 AS events, 1 AS main) FROM {one}",
        "INSERT INTO events SELECT * REPLACE (77 AS flow) FROM events WHERE {run} AND kind = 'main'"
        " LIMIT 1",
        "UPDATE streams SET flow = 77, first_ns = {zero}, last_ns = {zero} + 14900000000"
        " WHERE {run} AND stream = 99 AND direction = 'data'",
    )
    left = (
        "INSERT INTO capture_quality (run_id, flow, kind) SELECT run_id, 77, 'left_bbr' FROM runs"
    )
    asked = "SELECT flow, why_not FROM senders WHERE stream = 99"
    with alter(HEALTHY, statements) as store:
        assert store.con.execute(asked).fetchall() == [(77, "no data")]
        store.con.execute(left)
        assert store.con.execute(asked).fetchall() == [(None, None)]
        prepare(store.con, [store.run_id(HEALTHY)], [])
        beside = store.con.execute("SELECT max(senders) FROM this_seconds").fetchall()
    assert beside == [(2,)]


def test_a_queue_that_runs_empty_in_a_silence_makes_no_path_longer(alter: Alter) -> None:
    """Its last packets waited for 40 ms; then nothing comes for 3 s but events of its own."""
    full, quiet = "{zero} + 6900000000 AND {zero} + 8100000000", "{zero} + 8100000000"
    statements = (
        "UPDATE queue_samples SET backlog_bytes = CASE WHEN ns < {zero} + 8060000000 THEN 50000"
        " ELSE 0 END WHERE {run} AND ns BETWEEN {zero} + 6800000000 AND {zero} + 11100000000",
        "UPDATE events SET rs_rtt_us = rs_rtt_us + 40000"
        f" WHERE {{run}} AND rs_rtt_us > 0 AND ns BETWEEN {full}",
        "UPDATE events SET kind = 'cwnd_event', rs_rtt_us = NULL, rs_acked_sacked = NULL"
        f" WHERE {{run}} AND ns > {quiet} AND ns < {{zero}} + 11100000000",
    )
    with alter(HEALTHY, statements) as store:
        run_id = store.run_id(HEALTHY)
        prepare(store.con, [run_id], [])
        silent = "SELECT count(*) FROM this_seconds WHERE second = 9 AND rtt_min_us IS NULL"
        assert store.con.execute(silent).fetchall() == [(1,)]
        there = (
            "SELECT count(*) > 0 FROM this_events, this_run WHERE ns - zero_ns BETWEEN 9e9 AND 1e10"
        )
        assert store.con.execute(there).fetchall() == [(True,)]
        made = diagnose(store.con, run_id, [RULES["min_rtt_stale"]])
        assert made.findings == []
