"""One instant: the state that is printed is the kernel's, after the last event before it."""

from __future__ import annotations

import pytest
from bbrscope.analyze.story import event_flows, instant
from bbrscope.analyze.story.event_flows import EventFlow
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BbrscopeError

RUNS = ("v1_x_lt", "v2_single_1bdp", "v2_x_spur", "v3_x_tlp5")


def the_flow(store: Store, run: str) -> EventFlow:
    return event_flows.flows_of(store.con, store.run_id(run))[0]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.77, 0.999])
def test_the_state_is_what_the_next_event_found(shipped: Store, run: str, share: float) -> None:
    flow = the_flow(shipped, run)
    t_ns = int(flow.summary["duration_ns"] * share)
    found = instant.at(shipped.con, flow, flow.first_ns + t_ns)
    seqs = shipped.con.execute(
        "SELECT seq FROM events WHERE run_id = ? AND flow = ? AND ns - ? <= ?",
        [flow.run_id, flow.flow, flow.summary["first_ns"], t_ns],
    ).fetchall()
    assert found.seq == max(seq for (seq,) in seqs)
    fields = ["cwnd_gain", "pacing_gain", "min_rtt_us", "mode"]
    fields += ["lt_bw"] if flow.version == "v1" else ["inflight_hi", "inflight_lo", "bw_lo"]
    columns = ", ".join(f"bbr_{field}" for field in fields)
    kernel = shipped.con.execute(
        f"SELECT {columns} FROM events WHERE run_id = ? AND flow = ? AND seq = ?",
        [flow.run_id, flow.flow, found.seq + (found.kind != "init")],
    ).fetchone()
    assert kernel == tuple(found.state[field] for field in fields)


@pytest.mark.parametrize("run", RUNS)
def test_phase_limit_and_wait_agree_with_the_views(shipped: Store, run: str) -> None:
    flow = the_flow(shipped, run)
    for share in (0.2, 0.6, 0.9):
        t_ns = int(flow.summary["duration_ns"] * share)
        found = instant.at(shipped.con, flow, flow.first_ns + t_ns)
        row = shipped.con.execute(
            "SELECT phase, binding FROM binding WHERE run = ? AND flow = ? AND seq = ?",
            [flow.run, flow.flow, found.seq],
        ).fetchone()
        assert row == (found.phase, found.binding)
        assert found.phase_since_ns <= found.event_ns <= flow.first_ns + t_ns
        assert found.waits
        assert all("{" not in text for text in found.waits)


def test_before_and_after_the_flow_there_is_no_state(shipped: Store) -> None:
    flow = the_flow(shipped, "v2_single_1bdp")
    with pytest.raises(BbrscopeError, match="was recorded from 0 s to"):
        instant.at(shipped.con, flow, flow.last_ns + 1)


def test_the_last_event_tells_the_state_before_it(shipped: Store) -> None:
    flow = the_flow(shipped, "v2_single_1bdp")
    found = instant.at(shipped.con, flow, flow.last_ns)
    assert not found.after
    assert found.binding == "unknown"


def test_probe_wait_remaining_is_counted_down(shipped: Store) -> None:
    """What --at says is left of the wait is probe_wait_us less the time since DOWN began."""
    flow = the_flow(shipped, "v2_single_1bdp")
    phases = shipped.con.execute(
        "SELECT t_ns, duration_ns FROM phases WHERE run = ? AND flow = ?"
        " AND phase = 'PROBE_BW_CRUISE' AND duration_ns > 10**9 LIMIT 1",
        [flow.run, flow.flow],
    ).fetchone()
    assert phases is not None
    found = instant.at(shipped.con, flow, flow.zero_ns + phases[0] + phases[1] // 2)
    assert found.phase == "PROBE_BW_CRUISE"
    assert any("Whichever comes first" in text for text in found.waits)


@pytest.mark.parametrize(
    ("run", "renews"),
    [
        ("v1_x_lt", "unless an RTT below"),
        ("v2_single_1bdp", "or less is seen"),
        ("v3_x_tlp5", "unless an RTT below"),
    ],
)
def test_what_puts_probe_rtt_off_is_the_kernels_test(run: str, renews: str, shipped: Store) -> None:
    """bbr_update_min_rtt(): v2alpha takes an equal RTT, too; v1 and v3 only a lower one."""
    flow = the_flow(shipped, run)
    found = instant.at(shipped.con, flow, flow.first_ns + 2 * 10**9)
    assert renews in dict(found.rows)["RTT"]


def test_one_instant_of_the_run_is_the_same_event_by_either_clock(shipped: Store) -> None:
    flow = the_flow(shipped, "v2_single_1bdp")
    found = instant.at(shipped.con, flow, flow.zero_ns + 12 * 10**9)
    (seq,) = shipped.con.execute(
        "SELECT max(seq) FROM states WHERE run = ? AND flow = ? AND t_ns <= ?",
        [flow.run, flow.flow, 12 * 10**9],
    ).fetchall()[0]
    assert found.seq == seq
