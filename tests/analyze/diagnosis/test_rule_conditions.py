"""Rules at the edge of their conditions: where they fire, where they just do not, and the numbers.

Rows of a shipped recording are changed as a kernel would have left them; what a finding says is
worked out of the same rows by plain polars, without the rules' queries and tables.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path

import polars as pl
import pytest
from bbrscope.analyze.diagnosis.engine import Finding, diagnose
from bbrscope.analyze.views.materialize import forget
from bbrscope.analyze.views.store_with_views import open_store

from tests.analyze.diagnosis.test_diagnosis_fires import (
    HEALTHY,
    NO_LINK,
    RULES,
    SECOND,
    clone,
    slower,
)

WRAP = 1 << 32
UNSET = WRAP - 1
# HEALTHY: one flow of v2 on 10 Mbit/s and 40 ms, frames of 1448 bytes of payload and 66 of headers.
PAYLOAD = 1448 / 1514
Rows = Mapping[str, pl.DataFrame]
Ask = Callable[..., tuple[list[Finding], Rows]]


@pytest.fixture
def asked(shipped_path: Path, tmp_path: Path) -> Ask:
    """Change a new copy of HEALTHY, ask rules of it, and return the findings and the raw rows."""
    numbers = count()

    def ask(names: Sequence[str], *statements: str) -> tuple[list[Finding], Rows]:
        path = tmp_path / f"{next(numbers)}.duckdb"
        shutil.copy(shipped_path, path)
        with open_store(path) as store:
            run_id = store.run_id(HEALTHY)
            ((zero,),) = store.con.execute(
                "SELECT min(first_ns) FROM flows WHERE run_id = ?", [run_id]
            ).fetchall()
            forget(store.con, [run_id])
            for each in statements:
                store.con.execute(each.format(run=f"run_id = {run_id}", id=run_id, zero=zero))
            made = diagnose(store.con, run_id, [RULES[name] for name in names])
            rows = {
                table: store.con.sql(f"FROM {table} WHERE run_id = {run_id}").pl()
                for table in ("events", "queue_samples")
            }
        assert not made.outcomes("not checked"), made.checks
        return list(made.findings), rows

    return ask


def of_flow(rows: Rows, flow: int = 1) -> pl.DataFrame:
    """A flow's events in their order: `ns` from the first one on, and what state held after each.

    A row has the state that the callback found: what it left is in the next one.
    """
    mine = rows["events"].filter(pl.col("flow") == flow).sort("seq")
    zero = int(rows["events"]["ns"].min())  # type: ignore[arg-type]
    acked = pl.col("tp_snd_una").cast(pl.Int64).diff().fill_null(0) % WRAP
    return mine.with_columns(
        ns=pl.col("ns").cast(pl.Int64) - zero,
        held=(pl.col("ns").shift(-1).cast(pl.Int64) - pl.col("ns").cast(pl.Int64)).fill_null(0),
        acked=pl.when(acked < WRAP // 2).then(acked).otherwise(0),
        max_bw=pl.max_horizontal("bbr_bw_hi_0", "bbr_bw_hi_1").shift(-1).cast(pl.Float64)
        * (1448 * 1e6 / (1 << 24)),
    ).with_columns(second=pl.col("ns") // SECOND)


def zero_of(rows: Rows) -> int:
    return int(rows["events"]["ns"].min())  # type: ignore[arg-type]


# A link that falls to a half after 10 s, and packets that wait 20 ms in its queue from then on.
FALLS = (
    "INSERT INTO host_facts SELECT {id}, 'changes', '0', json_object('rate', '5mbit',"
    " 'uptime_s', ({zero} + 10000000000 + (SELECT min(boottime_ns::BIGINT - monotonic_ns)"
    " FROM clocks WHERE {run} AND point = 'start')) / 1e9)",
    "UPDATE events SET tp_srtt_us = 8 * 60000 WHERE {run} AND ns > {zero} + 10000000000",
)


def halved(after_ms: int) -> str:
    """The filter forgets the old maximum so long after the fall."""
    return (
        "UPDATE events SET bbr_bw_hi_0 = bbr_bw_hi_0 // 2, bbr_bw_hi_1 = bbr_bw_hi_1 // 2"
        f" WHERE {{run}} AND ns > {{zero}} + 10000000000 + {after_ms}000000"
    )


def test_a_descent_ends_where_max_bw_comes_down(asked: Ask) -> None:
    (finding,), rows = asked(["slow_descent"], *FALLS, halved(1300))
    events = of_flow(rows).filter(pl.col("ns") >= 10 * SECOND)
    came = events.filter(pl.col("max_bw") <= 1.1 * 5e6 / 8 * PAYLOAD)["ns"][0]
    assert finding.values["slow_s"] == pytest.approx(came / 1e9 - 10, abs=1e-6)
    assert 1.2 < finding.values["slow_s"] < 1.5
    assert finding.values["came"] == "max_bw came down to the new rate at"
    assert finding.values["srtt_us"] == pytest.approx(60_000)


def test_a_descent_that_does_not_end_is_said_to_last_as_long_as_the_flow(asked: Ask) -> None:
    (finding,), rows = asked(["slow_descent"], *FALLS)
    last = of_flow(rows)["ns"][-1]
    assert finding.values["slow_s"] == pytest.approx(last / 1e9 - 10, abs=1e-6)
    assert finding.t1_ns == last + zero_of(rows)
    assert finding.values["came"] == "max_bw had not come down to the new rate by"


def test_a_descent_is_laid_to_the_bounds_of_a_bbr_that_has_some(asked: Ask) -> None:
    (finding,), _ = asked(["slow_descent"], *FALLS)
    assert finding.values["bounds"].startswith("Limited by inflight_lo or bw_lo for 0.0 s")
    (finding,), _ = asked(["slow_descent"], *FALLS, "UPDATE runs SET version = 'v1' WHERE {run}")
    assert finding.values["bounds"].startswith("This BBR has no short-term bounds")


def test_a_descent_within_a_second_is_not_slow(asked: Ask) -> None:
    """Twenty round trips of 40 ms are less than the second that is asked for."""
    assert asked(["slow_descent"], *FALLS, halved(850))[0] == []


# All packets wait 25 ms, and the queue's samples have the bytes for it, from 8 s on; flow 9 did the
# same as flow 1, and ends at 12 s.
STANDING = (
    "UPDATE events SET rs_rtt_us = rs_rtt_us + 25000 WHERE {run} AND rs_rtt_us > 0"
    " AND ns > {zero} + 8000000000",
    "UPDATE queue_samples SET backlog_bytes = 31250 WHERE {run} AND ns > {zero} + 8000000000",
)
TWO = (*clone(9), "DELETE FROM events WHERE {run} AND flow = 9 AND ns > {zero} + 12000000000")


def test_estimates_of_flows_add_up_while_both_are_there(asked: Ask) -> None:
    ends = "UPDATE flows SET last_ns = {zero} + 12000000000 WHERE {run} AND flow = 9"
    findings, rows = asked(["standing_queue"], *TWO, ends, *STANDING)
    (finding,) = (each for each in findings if each.flow == 1)
    sums = (
        pl.concat([of_flow(rows, 1), of_flow(rows, 9)], how="diagonal")
        .with_columns(pl.col("max_bw").fill_null(strategy="forward"))
        .group_by("second", "flow")
        .agg(pl.col("max_bw").mean())
        .group_by("second")
        .agg(pl.col("max_bw").sum())
    )
    least = of_flow(rows).filter((pl.col("kind") == "main") & (pl.col("rs_rtt_us") > 0))
    lows = dict(least.group_by("second").agg(pl.col("rs_rtt_us").min()).iter_rows())
    standing = [
        second
        for second in lows
        if min(lows[near] for near in range(second - 2, second + 3) if near in lows) > 50_000
    ]
    believed = sums.filter(pl.col("second").is_in(standing))["max_bw"].median()
    assert finding.values["believed_bps"] == pytest.approx(8 * believed, rel=1e-3)  # type: ignore[operator]
    # Most of those seconds flow 1 was alone: two flows' estimates never add up in them.
    assert finding.values["believed_bps"] < 12e6
    assert finding.values["t0_at"] - zero_of(rows) == min(standing) * SECOND
    assert finding.values["rate_bps"] == pytest.approx(10e6 * PAYLOAD)


def test_nothing_waits_in_a_queue_that_stands_while_nothing_is_in_flight(asked: Ask) -> None:
    rests = (
        "UPDATE events SET tp_packets_out = 0, tp_sacked_out = 0, tp_lost_out = 0,"
        " tp_retrans_out = 0 WHERE {run} AND kind <> 'cwnd_event'"
        " AND ns BETWEEN {zero} + 10000000000 AND {zero} + 11000000000"
    )
    (busy,), rows = asked(["standing_queue"], *STANDING)
    (resting,), _ = asked(["standing_queue"], *STANDING, rests)
    idle = of_flow(rows).filter(
        (pl.col("kind") != "cwnd_event") & pl.col("ns").is_between(10 * SECOND, 11 * SECOND)
    )
    # The smoothed RTT, in eighths, is the recording's own.
    waited = ((1 - busy.values["base_us"] * 8 / idle["tp_srtt_us"]).clip(0) * idle["held"]).sum()
    assert busy.cost_s is not None
    assert resting.cost_s is not None
    assert waited > 0
    assert busy.cost_s - resting.cost_s == pytest.approx(waited / SECOND, rel=1e-6)


def test_senders_are_those_of_the_seconds_in_which_the_queue_stood(asked: Ask) -> None:
    """Flow 9 ends at 4 s; the queue stands from 8 s on, with what 2 s before and after it hide."""
    ended = "DELETE FROM events WHERE {run} AND flow = 9 AND ns > {zero} + 4000000000"
    gone = "UPDATE flows SET last_ns = {zero} + 4000000000 WHERE {run} AND flow = 9"
    findings, _ = asked(["standing_queue"], *TWO, ended, gone, *STANDING)
    assert [each.values["senders"] for each in findings] == ["It was alone on the path."]


def unsampled(probe_us: int, around_us: int) -> tuple[str, ...]:
    """Nobody sampled the queue or captured packets; the flow saw these RTTs from 4 s on."""
    seen = (
        "UPDATE events SET rs_rtt_us = {us} WHERE {{run}} AND rs_rtt_us > 0"
        " AND ns > {{zero}} + 4000000000 AND seq + 1 {among}"
        " (SELECT seq FROM events WHERE {{run}} AND bbr_mode = 3)"
    )
    return (
        *NO_LINK,
        "DELETE FROM packets WHERE {run}",
        "DELETE FROM lab_flows WHERE {run}",
        "DELETE FROM streams WHERE {run}",
        "DELETE FROM lab_intervals WHERE {run}",
        seen.format(us=around_us, among="NOT IN"),
        seen.format(us=probe_us, among="IN"),
    )


def test_a_drain_that_saw_no_less_than_others_before_and_after_saw_the_path(asked: Ask) -> None:
    """Others' queues do not vanish with a flow's own PROBE_RTT and its drains alike."""
    assert asked(["standing_queue"], *unsampled(65_000, 66_000))[0] == []
    (finding,), _ = asked(["standing_queue"], *unsampled(65_000, 72_000))
    assert finding.confidence == "low"
    assert "is not known" in finding.values["queue"]


# Sixty packets lost at 1 s, and samples of the queue: the first 200 ms after the first event,
# by which it had sent and dropped so much, or one before that event, too.
def sampled_late(sent: int, dropped: int, earlier: bool) -> tuple[str, ...]:
    first = "(SELECT min(ns) FROM queue_samples WHERE {run} AND ns >= {zero} + 200000000)"
    before = (
        "INSERT INTO queue_samples BY NAME SELECT * REPLACE ({zero} - 1000000 AS ns, 0 AS dropped,"
        " 0 AS sent_pkts, 0 AS backlog_bytes, 0 AS backlog_pkts) FROM queue_samples WHERE {run}"
        f" AND ns = {first} LIMIT 1"
    )
    return (
        "UPDATE events SET tp_lost = tp_lost + 60 WHERE {run} AND ns > {zero} + 1000000000",
        "DELETE FROM queue_samples WHERE {run} AND ns < {zero} + 200000000",
        f"UPDATE queue_samples SET dropped = {dropped}, sent_pkts = {sent} WHERE {{run}}",
        *([before] if earlier else []),
    )


def test_what_a_queue_dropped_before_its_first_sample_is_counted_if_the_run_can_have_done_it(
    asked: Ask,
) -> None:
    """By 200 ms the flow had some twenty packets on their way, and not ten thousand."""
    of_rule = ["loss_outside_bottleneck"]
    (finding,), _ = asked(of_rule, *sampled_late(3, 0, earlier=False))
    lost = finding.values["lost_packets"]
    assert finding.values["dropped_packets"] == 0
    assert finding.values["first"] == "The queue had dropped nothing by its first sample."
    (finding,), _ = asked(of_rule, *sampled_late(3, 5, earlier=False))
    assert (finding.values["lost_packets"], finding.values["dropped_packets"]) == (lost, 5)
    assert finding.values["first"].endswith("by then it had dropped 5, which are counted.")
    (finding,), _ = asked(of_rule, *sampled_late(10_000, 5, earlier=False))
    assert finding.values["dropped_packets"] == 0
    assert finding.values["first"].endswith("nothing tells when: they are not counted.")
    (finding,), _ = asked(of_rule, *sampled_late(10_000, 5, earlier=True))
    assert finding.values["dropped_packets"] == 5
    assert "before the first event" in finding.values["first"]


def test_what_was_marked_lost_after_the_queues_last_sample_is_not_said_to_be_lost_elsewhere(
    asked: Ask,
) -> None:
    """Nothing tells what the queue dropped then."""
    of_rule = ["loss_outside_bottleneck"]
    lost = "UPDATE events SET tp_lost = tp_lost + 60 WHERE {run} AND ns > {zero} + 3000000000"
    until = "DELETE FROM queue_samples WHERE {run} AND ns > {zero} + "
    assert asked(of_rule, lost, until + "2900000000")[0] == []
    (finding,), _ = asked(of_rule, lost, until + "3200000000")
    assert finding.values["came"] == " until the queue was last sampled"


def test_a_queue_of_large_skbs_has_to_lack_most_of_what_was_lost(asked: Ask) -> None:
    """It counts one drop for all segments of an skb: a third of the losses may be such."""
    of_rule = ["loss_outside_bottleneck"]
    lost = (
        "UPDATE events SET tp_lost = tp_lost + 300 WHERE {run} AND ns > {zero} + 1000000000",
        "UPDATE queue_samples SET dropped = CASE WHEN ns > {zero} + 1000000000 THEN 200 ELSE 0 END"
        " WHERE {run}",
    )
    large = ("UPDATE queue_samples SET backlog_bytes = 2 * 1514 * backlog_pkts WHERE {run}",)
    (finding,), _ = asked(of_rule, *lost)
    assert finding.values["elsewhere_packets"] < finding.values["dropped_packets"]
    assert asked(of_rule, *lost, *large)[0] == []


def timer_at(seq: int) -> str:
    """Event `seq` is the timer's: tcp_enter_loss() has marked what is in flight, and says so."""
    return (
        "UPDATE events SET kind = 'set_state', new_state = 4 WHERE {run} AND flow = 1"
        f" AND seq = {seq}"
    )


def marked_from(seq: int) -> str:
    """400 packets are marked lost at event `seq`."""
    return f"UPDATE events SET tp_lost = tp_lost + 400 WHERE {{run}} AND seq >= {seq}"


@pytest.mark.parametrize("rule", ["heavy_loss", "loss_outside_bottleneck"])
def test_what_a_timeout_marked_is_no_loss_until_all_of_it_is_acknowledged(
    asked: Ask, rule: str
) -> None:
    fired = 3000
    _, rows = asked([rule], timer_at(fired))
    at = {row["seq"]: row for row in of_flow(rows).iter_rows(named=True)}
    sent = at[fired]["tp_snd_nxt"]
    over = min(
        seq for seq in at if seq > fired and (at[seq]["tp_snd_una"] - sent) % WRAP < WRAP // 2
    )
    assert over - fired > 10
    for seq in (fired, fired + 1, over - 1):
        assert asked([rule], timer_at(fired), marked_from(seq))[0] == [], seq
    for seq in (fired - 1, over):
        (finding,), _ = asked([rule], timer_at(fired), marked_from(seq))
        assert finding.values["lost_packets"] >= 400


def test_undone_recoveries_make_what_was_marked_lost_less_sure(asked: Ask) -> None:
    (finding,), _ = asked(["heavy_loss"], marked_from(2000))
    assert (finding.confidence, finding.values["undone"]) == ("high", "No recovery was undone.")
    before = "UPDATE events SET kind = 'undo_cwnd' WHERE {run} AND seq = 1000"
    (finding,), _ = asked(["heavy_loss"], marked_from(2000), before)
    assert finding.confidence == "medium"
    assert finding.values["undone"].startswith("Recoveries undone, whose packets are not counted: ")


def test_a_least_round_trip_is_the_paths_only_where_its_set_up_says_so(asked: Ask) -> None:
    lost = marked_from(2000)
    (finding,), _ = asked(["heavy_loss"], lost)
    assert finding.values["least"] == "without a queue"
    unstated = "UPDATE runs SET setup = replace(setup, 'delay', 'unknown') WHERE {run}"
    (finding,), rows = asked(["heavy_loss"], lost, unstated)
    assert finding.values["least"] == "at least"
    rtts = of_flow(rows).filter(pl.col("rs_rtt_us") > 0)["rs_rtt_us"]
    # Those of whole milliseconds are by timestamps, and up to one short.
    assert finding.values["base_us"] <= rtts.filter(rtts % 1000 > 0).min()


# Flow 9's path takes twice as long; flow 1 carries a half of it. A third one comes at 8 s: until
# then flow 1 carried nothing at all.
LONGER = (
    *clone(9),
    "UPDATE events SET rs_rtt_us = 2 * rs_rtt_us WHERE {run} AND flow = 9 AND rs_rtt_us > 0",
    "UPDATE events SET bbr_min_rtt_us = 2 * bbr_min_rtt_us WHERE {run} AND flow = 9"
    " AND bbr_min_rtt_us < unset()",
)
THIRD = (
    *clone(8),
    "DELETE FROM events WHERE {run} AND flow = 8 AND kind <> 'init' AND ns < {zero} + 8000000000",
    "UPDATE events SET ns = {zero} + 7900000000 WHERE {run} AND flow = 8 AND kind = 'init'",
    "UPDATE flows SET first_ns = {zero} + 7900000000 WHERE {run} AND flow = 8",
)


def scaled(flow: int, tenths: int) -> str:
    """That flow carried so many tenths of what it did; the window has room for what is left."""
    first = f"(SELECT min(tp_snd_una) FROM events x WHERE x.{{run}} AND x.flow = {flow})"
    return (
        "UPDATE events SET tp_snd_wnd = 1000000000,"
        f" tp_snd_una = {first} + (tp_snd_una - {first}) * {tenths} // 10"
        f" WHERE {{run}} AND flow = {flow}"
    )


def test_rates_of_a_longer_path_are_of_the_seconds_in_which_all_were_there(asked: Ask) -> None:
    findings, rows = asked(["rtt_unfairness"], *LONGER, *THIRD, slower(1, 2))
    (finding,) = (each for each in findings if each.values["short"] == 1)
    last = min(int(of_flow(rows, flow)["ns"][-1]) for flow in (1, 8, 9))
    seconds = range(8, last // SECOND)
    carried = {
        flow: of_flow(rows, flow).filter(pl.col("second").is_in(list(seconds)))["acked"].sum()
        for flow in (1, 9)
    }
    values = finding.values
    assert finding.flow == 9
    assert values["t0_at"] - zero_of(rows) == 8 * SECOND
    assert values["t1_at"] - zero_of(rows) == seconds[-1] * SECOND + SECOND
    assert values["long_bps"] == pytest.approx(8 * carried[9] / len(seconds))
    assert values["short_bps"] == pytest.approx(8 * carried[1] / len(seconds))
    assert values["share_ratio"] == pytest.approx(carried[9] / carried[1])


def test_what_a_flow_misses_is_priced_once_however_many_took_it(asked: Ask) -> None:
    """Two flows with twice the round trip of a third, which carries a fifth of what they do."""
    another = [each.replace("flow = 9", "flow = 8") for each in LONGER[-2:]]
    findings, rows = asked(
        ["rtt_unfairness"], *clone(8), *LONGER, *another, slower(1, 2), scaled(8, 9)
    )
    assert [(each.flow, each.values["short"]) for each in findings] == [(8, 1), (9, 1)]
    seconds = range(of_flow(rows)["ns"][-1] // SECOND)
    carried = of_flow(rows).group_by("second").agg(pl.col("acked").sum())
    bytes_of = dict(carried.iter_rows())
    # A third of 10 Mbit/s, of whose frames of 1514 bytes 1448 are payload.
    part = 10e6 / 8 * 1448 / 1514 / 3
    missed = sum(max(0, part - bytes_of.get(second, 0)) for second in seconds)
    costs = [each.cost_bytes for each in findings]
    assert None not in costs
    assert sum(costs) == pytest.approx(missed, rel=1e-3)
    assert costs[0] == pytest.approx(0.9 * costs[1], rel=1e-3)


def test_a_path_that_is_longer_at_no_time_is_none(asked: Ask) -> None:
    """One flow saw the common queue empty once, the other never; both had the same round trips."""
    longer = [*LONGER, slower(1, 2)]
    queue = "UPDATE events SET rs_rtt_us = 2 * rs_rtt_us WHERE {run} AND flow = 1 AND rs_rtt_us > 0"
    assert asked(["rtt_unfairness"], *longer)[0] != []
    assert asked(["rtt_unfairness"], *longer, queue + " AND ns > {zero} + 2000000000")[0] == []


def test_a_longer_path_that_got_a_fifth_more_got_no_more_than_a_probe(asked: Ask) -> None:
    assert asked(["rtt_unfairness"], *LONGER, scaled(9, 12))[0] == []
    more = [*LONGER, scaled(9, 13)]
    (finding,), _ = asked(["rtt_unfairness"], *more)
    assert finding.values["share_ratio"] == pytest.approx(1.3, rel=1e-3)
    findings, _ = asked(["pacing_capped", "rtt_unfairness"], *more, capped(14, 1))
    assert [(each.rule.name, each.flow) for each in findings] == [("pacing_capped", 1)]


# A path of 3 Mbit/s, by its set-up and by what the flow believes: half of its product is 5 packets.
SMALL = (
    "UPDATE runs SET setup = replace(setup, '10mbit', '3mbit') WHERE {run}",
    "UPDATE events SET bbr_bw_hi_0 = bbr_bw_hi_0 * 3 // 10, bbr_bw_hi_1 = bbr_bw_hi_1 * 3 // 10"
    " WHERE {run}",
)


def bursts(packets: int) -> str:
    return f"UPDATE events SET bbr_extra_acked_0 = {packets}, bbr_extra_acked_1 = 0 WHERE {{run}}"


def test_what_comes_at_the_links_rate_is_no_burst_though_bw_lo_is_below_it(asked: Ask) -> None:
    """extra_acked grows against bw_lo, packet by packet; the recording's ACKs come evenly."""
    even = (
        "UPDATE events SET tp_delivered = 1000 + greatest(ns::BIGINT - {zero}, 0) // 1250000"
        " WHERE {run}"
    )
    cut = "UPDATE events SET bbr_bw_lo = bbr_bw_hi_0 // 2 WHERE {run}"
    assert len(asked(["ack_aggregation"], even, bursts(20))[0]) == 1
    assert asked(["ack_aggregation"], even, bursts(20), cut)[0] == []


def test_bursts_are_those_over_half_a_product_and_over_ten_packets(asked: Ask) -> None:
    """On HEALTHY the product is 33 packets: half of it decides; on a small path the ten do."""
    assert asked(["ack_aggregation"], bursts(16))[0] == []
    assert len(asked(["ack_aggregation"], bursts(20))[0]) == 1
    assert asked(["ack_aggregation"], *SMALL, bursts(10))[0] == []
    (finding,), rows = asked(["ack_aggregation"], *SMALL, bursts(11))
    events = of_flow(rows).with_columns(
        in_flight=pl.col("tp_packets_out").cast(pl.Int64)
        - pl.col("tp_sacked_out")
        - pl.col("tp_lost_out")
        + pl.col("tp_retrans_out"),
        mode=pl.col("bbr_mode").shift(-1),
    )
    held = events.filter(
        (pl.col("mode") == 2) & ((pl.col("in_flight") > 0) | (pl.col("icsk_ca_state") > 0))
    )["held"].sum()
    assert finding.values["held_s"] == pytest.approx(held / 1e9, rel=1e-3)
    assert (finding.values["floor_packets"], finding.values["most_packets"]) == (10, 11)
    assert finding.values["bdp_packets"] == pytest.approx(3e6 * PAYLOAD / 8 * 0.04 / 1448, rel=0.02)


def capped(seconds: float, flow: int = 1) -> str:
    """SO_MAX_PACING_RATE holds a flow for so long, from 10 s on."""
    return (
        "UPDATE events SET sk_max_pacing_rate = 600000,"
        " sk_pacing_rate = least(sk_pacing_rate, 600000),"
        f" exit_sk_pacing_rate = least(exit_sk_pacing_rate, 600000) WHERE {{run}} AND flow = {flow}"
        f" AND ns BETWEEN {{zero}} + 10000000000 AND {{zero}} + {int((10 + seconds) * 1e9)}"
    )


def test_a_cap_counts_from_a_twentieth_of_the_time(asked: Ask) -> None:
    (finding,), rows = asked(["pacing_capped"], capped(2))
    events = of_flow(rows)
    life = (events["ns"][-1] - events["ns"][0]) / 1e9
    while_capped = events.filter(pl.col("sk_max_pacing_rate") == 600_000)
    held = while_capped["held"].sum() / 1e9
    inside = while_capped.with_columns(next=pl.col("acked").shift(-1)).filter(pl.col("held") > 0)
    assert 0.05 * life < finding.values["capped_s"] <= held
    assert finding.values["capped_share"] == pytest.approx(finding.values["capped_s"] / life)
    assert finding.values["cap_bps"] == 8 * 600_000
    assert finding.values["average"] == ""
    # Held in nearly all of that time: probes of 0.75 ask for less.
    assert finding.values["acked_bps"] == pytest.approx(8 * inside["next"].sum() / held, rel=0.05)
    for key, row in (("first_bps", 0), ("last_bps", -1)):
        assert finding.values[key] == pytest.approx(8 * while_capped["max_bw"][row], rel=0.02)
    assert asked(["pacing_capped"], capped(0.04 * life))[0] == []


def test_a_cap_that_was_changed_is_told_with_both_of_its_values(asked: Ask) -> None:
    """600 kB/s for two seconds, then 900 kB/s for two more, of 1.2 MB/s that the link carries."""
    later = capped(4).replace("600000", "900000").replace("+ 10000000000", "+ 12000000000")
    (finding,), _ = asked(["pacing_capped"], capped(2), later)
    assert finding.values["average"] == " on average (4.8 to 7.2 Mbit/s)"
    assert 8 * 600_000 < finding.values["cap_bps"] < 8 * 900_000


def test_a_cap_at_what_bbr_believes_in_holds_it_below_the_margin(asked: Ask) -> None:
    """At a gain of 1 BBR paces 1 % below its estimate, and never comes to the cap itself."""
    cap = "UPDATE events SET sk_max_pacing_rate = sk_pacing_rate + {} WHERE {{run}} AND flow = 1"
    (finding,), rows = asked(["pacing_capped"], cap.format(1))
    events = of_flow(rows)
    believes = events.filter(pl.col("max_bw") >= pl.col("sk_max_pacing_rate").cast(pl.Float64))
    assert 0.4 < finding.values["capped_share"] < 0.5
    assert finding.values["capped_s"] <= believes["held"].sum() / 1e9
    assert asked(["pacing_capped"], cap.format(10_000_000))[0] == []


def test_a_flow_that_its_application_caps_is_not_treated_unfairly(asked: Ask) -> None:
    """It got half of its part, and could have got more."""
    names = ["pacing_capped", "unequal_shares", "unfair_without_loss"]
    half = [*clone(9), slower(9, 3)]
    findings, _ = asked(names, *half)
    assert {finding.rule.name for finding in findings} == {"unfair_without_loss"}
    findings, _ = asked(names, *half, capped(14, 9))
    assert [(each.rule.name, each.flow) for each in findings] == [("pacing_capped", 9)]


# Packets took 40 ms more until 10 s, and no queue held them.
SHORTER = (
    "UPDATE events SET rs_rtt_us = rs_rtt_us + 40000 WHERE {run} AND rs_rtt_us > 0"
    " AND ns < {zero} + 10000000000",
    "UPDATE queue_samples SET backlog_bytes = 1000 WHERE {run}",
)
# What lay in the queue then.
QUEUED = (
    "UPDATE queue_samples SET backlog_bytes = {size} WHERE {{run}} AND ns < {{zero}} + 10000000000"
)


def test_a_path_became_shorter_where_no_queue_explains_it(asked: Ask) -> None:
    """From 80 to 40 ms: a queue of 18 ms, or of 22 ms, leaves a path that is a quarter longer than
    after it; of 37 ms, it does not."""
    (finding,), rows = asked(["path_shorter"], *SHORTER, QUEUED.format(size=22_500))
    samples = of_flow(rows).filter((pl.col("kind") == "main") & (pl.col("rs_rtt_us") > 0))
    acks = samples.select("ns", us="rs_rtt_us").sort("ns")
    queue = rows["queue_samples"].select(
        at=pl.col("ns").cast(pl.Int64) - zero_of(rows), wait=pl.col("backlog_bytes") * 8 / 10
    )
    queue = queue.with_columns(ns=pl.col("at") + (1000 * pl.col("wait")).round().cast(pl.Int64))
    trips = queue.sort("ns").join_asof(
        acks.with_columns(came=pl.col("ns")), on="ns", strategy="forward"
    )
    trips = trips.filter(pl.col("came") - pl.col("ns") <= 1000 * pl.col("us"))
    trips = trips.with_columns(path=pl.col("us") - pl.col("wait"))
    change = trips.filter((pl.col("came") > 10 * SECOND) & (pl.col("path") < 52_000))["came"][0]
    before = trips.filter(pl.col("came").is_between(change - 3 * SECOND, change - 1))
    after = trips.filter(pl.col("came").is_between(change, change + 3 * SECOND - 1))
    assert finding.values["change_at"] == change + zero_of(rows)
    assert finding.values["samples_count"] == before.height + after.height
    assert finding.values["before_us"] == before["us"].median()
    assert finding.values["after_us"] == after["us"].median()
    assert finding.values["old_us"] == pytest.approx(before["path"].median())
    assert finding.values["new_us"] == pytest.approx(after["path"].median())
    assert len(asked(["path_shorter"], *SHORTER, QUEUED.format(size=27_500))[0]) == 1
    assert asked(["path_shorter"], *SHORTER, QUEUED.format(size=46_250))[0] == []


def lost_from(place: str) -> str:
    return f"UPDATE events SET tp_lost = tp_lost + 2 WHERE {{run}} AND flow = 1 AND {place}"


# The bytes of the first window, and when an ACK covered them.
_FIRST = "SELECT min(seq) FROM events WHERE {run} AND flow = 1"
DONE = (
    "(SELECT min(seq) FROM events WHERE {run} AND flow = 1 AND tp_snd_una - (SELECT tp_snd_una FROM"
    f" events WHERE {{run}} AND flow = 1 AND seq = ({_FIRST})) >= 14480)"
)


def test_a_loss_is_the_initial_windows_until_all_of_that_is_acknowledged(asked: Ask) -> None:
    (finding,), rows = asked(["initial_window_loss"], lost_from(f"seq >= {DONE} - 1"))
    events = of_flow(rows).with_columns(
        una=pl.col("acked").cum_sum(), lost=pl.col("tp_lost").cast(pl.Int64).diff().fill_null(0)
    )
    window = int(events["tp_snd_cwnd"][0]) * int(events["tp_mss_cache"][0])
    early = events.filter((pl.col("una") < window) & (pl.col("lost") > 0))
    done = events.filter(pl.col("una") >= window)["ns"][0]
    assert finding.values["lost_packets"] == early["lost"].sum() == 2
    assert finding.values["t0_at"] - zero_of(rows) == early["ns"][0]
    assert finding.values["t1_at"] - zero_of(rows) == done
    assert finding.values["window_packets"] == events["tp_snd_cwnd"][0] == 10
    assert finding.cost_s == pytest.approx((done - early["ns"][0]) / 1e9)
    assert asked(["initial_window_loss"], lost_from(f"seq >= {DONE}"))[0] == []


# Flow 9 carried little at first, and what flow 1 did in the end: its part grows with the time.
GROWS = (
    *clone(9),
    "UPDATE events e SET tp_snd_una = g.una FROM (SELECT seq, (first + floor((tp_snd_una - first)"
    " * (ns - {zero}) / 26e9))::UINTEGER AS una FROM (SELECT seq, ns, tp_snd_una, first_value("
    "tp_snd_una) OVER (ORDER BY seq) AS first FROM events WHERE {run} AND flow = 9)) g"
    " WHERE e.{run} AND e.flow = 9 AND e.seq = g.seq",
    "UPDATE events SET tp_snd_wnd = 1000000000 WHERE {run} AND flow = 9",
)


@pytest.mark.parametrize("name", ["unequal_shares", "unfair_without_loss"])
def test_a_share_that_still_moves_is_said_to_move(asked: Ask, name: str) -> None:
    slow = [*clone(9), scaled(9, 4)]
    (finding,), _ = asked([name], *slow)
    assert finding.values["trend"] == "."
    (finding,), rows = asked([name], *GROWS, scaled(9, 3))
    seconds = range(int(of_flow(rows)["ns"][-1]) // SECOND)
    middle = (seconds[0] + seconds[-1]) / 2
    carried = {
        (flow, late): of_flow(rows, flow)
        .filter(pl.col("second").is_between(seconds[0], seconds[-1]))
        .filter((pl.col("second") > middle) == late)["acked"]
        .sum()
        for flow in (1, 9)
        for late in (False, True)
    }
    first, second = (
        carried[9, late] / (carried[1, late] + carried[9, late]) for late in (False, True)
    )
    assert f"was {100 * first:.0f} % and {100 * second:.0f} %, still" in finding.values["trend"]
    assert finding.confidence == "low"
