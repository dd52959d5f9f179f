"""The charts say what the path can do, what caps pacing, and where segments change their size."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from bbrscope.reports.html.data.narrowed_views import run_views
from bbrscope.reports.html.data.select import UNSET, load_flow, load_run
from bbrscope.reports.html.data.shares import load
from bbrscope.reports.html.pages import page
from bbrscope.reports.html.panels.flow_panels import RATES, RTT, SEGMENT_SIZE, VOLUMES
from bbrscope.reports.html.panels.path_panels import WIRE

RUN = "v2_single_1bdp"


def points(store: Store, key: str) -> list[tuple[int, int]]:
    """When a signal had which value."""
    run = load_run(store.con, store.run_id(RUN))
    (flow,) = run.main
    with run_views(store.con, run.row):
        load_flow(store.con, run, flow, None, (WIRE,))
    drawn = flow.signals[key]
    return [(int(t), int(v)) for t, v in zip(drawn.t, drawn.v, strict=True)]


def signals(store: Store) -> dict[str, set[int]]:
    """The values of each signal in whole steps."""
    run = load_run(store.con, store.run_id(RUN))
    (flow,) = run.main
    with run_views(store.con, run.row):
        load_flow(store.con, run, flow, None, (RATES, RTT, SEGMENT_SIZE, WIRE))
    return {key: {int(v) for v in points.v} for key, points in flow.signals.items()}


def test_the_link_and_the_path_are_drawn_as_the_set_up_says(shipped: Store) -> None:
    drawn = signals(shipped)
    assert drawn["link_rate"] == {round(10_000 * 1448 / 1514)}
    assert drawn["base_rtt"] == {40_000}
    assert not {"pacing_cap", "mss"} & set(drawn)


def test_a_cap_is_drawn_and_a_change_of_segments(shipped_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        store.con.execute(
            "UPDATE events SET sk_max_pacing_rate = 600000, tp_mss_cache ="
            " CASE WHEN seq > 5000 THEN 1000 ELSE 1448 END WHERE run_id = ?",
            [store.run_id(RUN)],
        )
        drawn = signals(store)
    assert drawn["pacing_cap"] == {4_800}
    assert drawn["mss"] == {1448, 1000}


def test_no_measurement_is_drawn_through_a_silence(shipped_path: Path, tmp_path: Path) -> None:
    """Three seconds in which no event came: neither rates, nor data in flight, nor round trips."""
    path = tmp_path / "silent.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run = load_run(store.con, store.run_id(RUN))
        (flow,) = run.main
        place = [store.run_id(RUN), flow.number]
        store.con.execute(
            "UPDATE events SET ns = ns + 3000000000 WHERE run_id = ? AND flow = ? AND seq > 5000",
            place,
        )
        before, after = store.con.execute(
            "SELECT max(ns) FILTER (seq <= 5000), min(ns) FILTER (seq > 5000) FROM events"
            " WHERE run_id = ? AND flow = ?",
            place,
        ).fetchall()[0]
        with run_views(store.con, run.row):
            load_flow(store.con, run, flow, None, (RATES, VOLUMES, RTT))
        # What is half way through is seen at neither end of the line that would cross it.
        between = (run.us(before) + run.us(after)) // 2
    for key in ("sample", "inflight", "rtt"):
        points = flow.signals[key]
        at = int(np.searchsorted(points.t, between))
        assert points.v[at - 1 : at + 1].tolist() == [UNSET, UNSET], key


def test_goodput_is_never_more_than_the_link_carries(shipped: Store) -> None:
    """STARTUP loses 81 packets here: ACKs advance by 32 Mbit/s while the holes are filled."""
    assert 9_000 < max(signals(shipped)["wire_goodput"]) <= 10_000
    run = load_run(shipped.con, shipped.run_id(RUN))
    shares = load(shipped.con, run, least=1)
    assert shares is not None
    flow = max(shares.flows, key=lambda share: sum(share.bytes.values()))
    assert max(flow.good.values()) * 8e9 / shares.bin_ns <= 10e6
    assert sum(flow.good.values()) >= sum(flow.bytes.values())


def test_a_capture_that_ended_early_is_reported(shipped_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "early.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id(RUN)
        assert "the capture ended" not in page.build(store.con, run_id)
        store.con.execute(
            "UPDATE streams SET last_ns = last_ns - 1000000000 WHERE run_id = ?", [run_id]
        )
        assert re.search(r"the capture ended [\d.]+ m?s before", page.build(store.con, run_id))


def test_of_the_bin_in_which_a_capture_ended_goodput_is_not_known(
    shipped_path: Path, tmp_path: Path
) -> None:
    """Half a bin of packets is no dip of the flow's."""
    path = tmp_path / "half.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run = load_run(store.con, store.run_id(RUN))
        size = 1_000_000_000
        store.con.execute(
            "DELETE FROM packets WHERE run_id = ? AND ns > ?",
            [store.run_id(RUN), run.zero_ns + 12.5 * size],
        )
        shares = load(store.con, run, least=1, size_ns=size)
        assert shares is not None
        drawn = shares.points(run)["together"]
        assert {v for t, v in zip(drawn.t, drawn.v, strict=True) if t >= 12e6} == {UNSET}
        (flow,) = [share for share in shares.flows if len(share.good) > 5]
        assert len(shares.whole_bins(flow, (2, 25))) == 10
        last = max(drawn for drawn in points(store, "wire_goodput") if drawn[1] != UNSET)
        assert last[1] > 9_000
