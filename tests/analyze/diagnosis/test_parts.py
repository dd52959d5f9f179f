"""What of a link is a flow's part in a second, beside others that send, wait or pause."""

from __future__ import annotations

from pathlib import Path

from bbrscope.analyze.diagnosis.engine import diagnose
from bbrscope.analyze.diagnosis.tables import prepare
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store

from tests.truth.simulated import loaded

MS, S = 1_000, 1_000_000
# For more than two of its seconds no event comes: the timers wait for longer each time.
DOWN = PathSetup(10_000_000, 40 * MS, limit_bytes=60_000, changes=((4 * S, "down", 6.0 * S),))
PATH = PathSetup(10_000_000, 40 * MS, limit_bytes=60_000)
BUSY = PathSetup(18_000_000, 40 * MS, limit_bytes=90_000)


def seconds(folder: Path, path: PathSetup, *flows: FlowSetup) -> list[tuple[float, ...]]:
    """Flow, second, senders, bytes, and the flow's part of what the link carries, of each row."""
    write_bundle(Setup(path, flows, flows[0].stop_us, 3), folder / "run")
    with open_store(folder / "s.duckdb") as store:
        (run_id,) = loaded(store, [folder / "run"])
        prepare(store.con, [run_id], [])
        return store.con.execute(
            "SELECT flow, second, senders, bytes, full_bytes / (full_rate * covered_s)"
            " FROM this_seconds WHERE covered_s > 0.99 ORDER BY ALL"
        ).fetchall()


def test_flows_that_wait_in_an_outage_share_the_link_as_before(tmp_path: Path) -> None:
    rows = seconds(tmp_path, DOWN, *(FlowSetup("v1", n * S, 16 * S) for n in range(3)))
    silent = [row for row in rows if 5 <= row[1] < 9]
    assert len(silent) == 3 * 4
    assert {size for *_, size, _ in silent} == {0}
    assert {(senders, round(part, 6)) for *_, senders, _, part in silent} == {(3, 0.333333)}


def test_a_flow_that_pauses_could_have_had_its_part_of_the_link(tmp_path: Path) -> None:
    pauses = FlowSetup("v1", 0, 12 * S, kind="on-off", on_us=1 * S, off_us=4 * S)
    rows = seconds(tmp_path, PATH, pauses, FlowSetup("v1", 0, 12 * S))
    paused = {second for _, second, senders, *_ in rows if senders == 1}
    assert len(paused) > 3
    for _, second, _, size, part in rows:
        alone = second in paused and size > 0
        assert round(part, 6) == (1 if alone else 0.5)


def test_short_flows_that_are_no_senders_take_their_room(tmp_path: Path) -> None:
    short = (FlowSetup("v1", n * S, 12 * S, "fixed-size", size_bytes=60_000) for n in range(3, 9))
    rows = seconds(tmp_path, PATH, FlowSetup("v1", 0, 12 * S), *short)
    assert {(flow, senders) for flow, _, senders, *_ in rows} == {(1, 1)}
    # A short flow's packets and what they wait for are within its second.
    taken = {second: 1 - part for _, second, *_, part in rows}
    assert {second for second, share in taken.items() if share > 0.01} == {*range(3, 9)}
    assert all(abs(taken[second] - 60_000 / 1_195_000) < 0.005 for second in range(3, 9))


def test_what_an_application_left_out_is_priced_once(tmp_path: Path) -> None:
    """STARTUP's losses bound flows that pause for two fifths of their time."""
    pauses = {"kind": "on-off", "on_us": 1_200 * MS, "off_us": 900 * MS}
    flows = [FlowSetup("v2", 0, 26 * S)]
    flows += [FlowSetup("v2", n * S, 26 * S, **pauses) for n in (2, 5)]  # type: ignore[arg-type]
    write_bundle(Setup(BUSY, tuple(flows), 26 * S, 2), tmp_path / "run")
    with open_store(tmp_path / "s.duckdb") as store:
        (run_id,) = loaded(store, [tmp_path / "run"])
        found = diagnose(store.con, run_id).findings
        prepare(store.con, [run_id], [])
        (missing,) = store.con.execute(
            "SELECT sum(short_bytes) FROM this_seconds WHERE flow = 2"
        ).fetchall()[0]
    costs = {each.rule.name: each.cost_bytes or 0.0 for each in found if each.flow == 2}
    assert 0.3 * missing < costs["application_limited"] < 0.7 * missing
    assert costs["application_limited"] + costs.get("startup_hi_starves", 0.0) <= missing
