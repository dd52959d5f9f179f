"""Ware19's model against the vectors that were worked out from its equations elsewhere."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from bbrscope.analyze.models import ware

HERE = Path(__file__).parent


def vectors(name: str) -> list[dict[str, str]]:
    with open(HERE / f"ware_{name}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    return rows


def link(mbps: float, rtt_ms: float, queue: float) -> ware.Link:
    return ware.Link(mbps * 1e6 / 8 / ware.PACKET_BYTES, rtt_ms / 1e3, queue)


@pytest.mark.parametrize("row", vectors("shares"), ids=lambda row: "-".join(list(row.values())[:5]))
def test_shares_and_estimates_are_those_of_the_equations(row: dict[str, str]) -> None:
    path = link(float(row["bw_mbps"]), float(row["rtt_ms"]), float(row["q_pkts"]))
    found = ware.predict(path, int(row["N"]), float(row["g"]))
    # The vectors have four to six decimals, and q only four.
    assert found.p_raw == pytest.approx(float(row["p_raw"]), abs=2e-6)
    assert 1e3 * found.rtt_est_s == pytest.approx(float(row["rtt_est_ms"]), abs=1e-3)
    assert found.btlbw == pytest.approx(float(row["btlbw_pps"]), rel=2e-6)
    assert found.inflight_cap == pytest.approx(float(row["inflight_cap_pkts"]), rel=2e-6)
    assert found.probe_time_s == pytest.approx(float(row["probe_time_s"]), abs=1e-4)
    assert found.bbr_share == pytest.approx(float(row["bbr_frac"]), abs=2e-6)


@pytest.mark.parametrize("row", vectors("alone"), ids=lambda row: row["N"])
def test_bbr_alone_sees_its_own_packets_once_they_exceed_the_bdp(row: dict[str, str]) -> None:
    flows = int(row["N"])
    path = link(15, 40, 3200)
    assert 1e3 * ware.rtt_estimate_alone(path, flows) == pytest.approx(float(row["rtt_est_ms"]))
    cap = ware.inflight_cap_alone(path, flows)
    assert cap == pytest.approx(float(row["aggregate_cap_pkts"]))
    assert cap / flows == pytest.approx(float(row["cap_per_flow_pkts"]), abs=1e-3)


@pytest.mark.parametrize("row", vectors("probe_time"), ids=lambda row: row["X"])
@pytest.mark.parametrize("mbps", [10, 15])
def test_probe_time_grows_with_the_queue(mbps: int, row: dict[str, str]) -> None:
    exact = float(row["X"]) * link(mbps, 40, 1).bdp
    # 33.3 BDP packets make 32, 50 make 64: the buffers of that testbed were powers of two.
    rounded = float(row["X"]) * {10: 32, 15: 64}[mbps]
    for queue, column in ((exact, f"t{mbps}_exact"), (rounded, f"t{mbps}_pow2")):
        found = ware.probe_time(link(mbps, 40, queue))
        assert found == pytest.approx(float(row[column]), abs=1e-3)


@pytest.mark.parametrize("gain", [2.0, 3.0, 4.0])
def test_the_extended_model_becomes_the_simple_one_in_an_endless_buffer(gain: float) -> None:
    path = link(10, 40, 1e9)
    simple = ware.simple_loss_based_share(gain)
    assert ware.loss_based_share(path, 1, gain) == pytest.approx(simple, abs=1e-6)
    cap = ware.simple_inflight_cap(path, simple, gain)
    assert cap == pytest.approx((1 - simple) * path.queue)
    assert cap == pytest.approx(ware.inflight_cap(path, 1, simple, gain), rel=1e-6)


def test_where_the_cap_binds_it_is_what_bbr_has_in_the_queue_and_on_the_path() -> None:
    path = link(10, 40, 1000)
    found = ware.predict(path, 3)
    assert found.p == found.p_raw > 0
    held = (1 - found.p) * (path.queue + path.bdp)
    assert found.inflight_cap == pytest.approx(held)
    assert found.rtt_est_s == pytest.approx((path.queue / path.capacity + path.rtt_s) / 2)


def test_a_run_that_only_probes_leaves_bbr_nothing() -> None:
    assert ware.bbr_share(0.5, probe_time_s=30, duration_s=20) == 0
