"""`bbrscope model`: the papers' numbers from the command line, and runs compared with them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.packets.tshark import GET_TSHARK
from bbrscope.reports.cli import cli
from click.testing import CliRunner

SCENARIO = "' OR 1=1; --<script>"


def run(*args: str, store: Path | None = None) -> str:
    more = [] if store is None else ["--store", str(store)]
    done = CliRunner().invoke(cli, ["model", *args, *more], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def rows(*args: str, store: Path | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(*args, "--format", "json", store=store))
    return found


@pytest.fixture
def lab_path(tmp_path: Path) -> Path:
    """A store in which a run of the lab has 3 + 1 Mbit/s from 10 s on, and one swept its loss."""
    path = tmp_path / "lab.duckdb"
    with open_store(path) as store, store.transaction() as con:
        con.execute(
            "INSERT INTO runs BY NAME FROM (VALUES (1, 'both', 'v1'), (2, 'other', 'v2'),"
            " (101, 'a', 'v1'), (102, 'b', 'v1'), (103, 'c', 'v1')) v(run_id, run, version)"
        )
        con.execute(
            "INSERT INTO lab_runs BY NAME SELECT 1 AS run_id, 's' AS scenario, true AS valid,"
            " 4000000 AS rate_bps, 40000 AS rtt_us, 160000 AS buffer_bytes, 0 AS loss"
        )
        for flow, cc, first, then in ((1, "bbr", 1e6, 3e6), (2, "cubic", 3e6, 1e6)):
            con.execute(
                "INSERT INTO lab_flows BY NAME SELECT 1 AS run_id, $1 AS flow_no, $2 AS cc",
                [flow, cc],
            )
            con.execute(
                "INSERT INTO lab_intervals SELECT 1, $1, t, 1, CASE WHEN t < 10 THEN $2 ELSE $3"
                " END FROM range(20) r(t)",
                [flow, first, then],
            )
        for run_id, (loss, goodput) in enumerate(((0.0, 90e6), (0.1, 80e6), (0.2, 9e6)), 101):
            con.execute(
                "INSERT INTO lab_runs BY NAME SELECT $1 AS run_id, $2 AS scenario, true AS valid,"
                " $3 AS loss, 1 AS rate_bps, 1 AS rtt_us, 1 AS buffer_bytes",
                [run_id, SCENARIO, loss],
            )
            con.execute(
                "INSERT INTO lab_flows BY NAME SELECT $1 AS run_id, 1 AS flow_no, 'bbr' AS cc,"
                " 'v1' AS bbr_version, $2 AS goodput_bps, $1 AS retransmits",
                [run_id, goodput],
            )
    return path


def test_ware_prints_the_vectors_of_the_equations() -> None:
    (row,) = rows(*"ware --capacity 15mbit --rtt 40ms --buffer 64bdp --flows 13".split())
    assert row["bbr_share"] == pytest.approx(0.377325, abs=2e-6)
    assert row["inflight_cap_packets"] == pytest.approx(1703.2031, abs=1e-3)
    (row,) = rows(*"ware --capacity 10mbit --rtt 40ms --buffer 1024pkt".split())
    assert row["p_raw"] == pytest.approx(0.479818, abs=2e-6)
    (row,) = rows(*"ware --capacity 15mbit --rtt 40ms --buffer 64bdp --flows 32 --alone".split())
    assert (row["rtt_est_ms"], row["inflight_cap_packets"]) == pytest.approx((102.4, 256))


def test_ware_without_buffer_and_with_several_flows_is_a_table_of_depths() -> None:
    found = rows(*"ware --capacity 10mbit --rtt 40ms --flows 1 --flows 5".split())
    assert [(row["buffer_bdp"], row["flows"]) for row in found][:4] == [
        *((1, 1), (1, 5), (2, 1), (2, 5))
    ]
    assert len(found) == 14


def test_a_run_is_compared_over_the_second_half_with_both_errors(lab_path: Path) -> None:
    (row,) = rows("ware", "both", store=lab_path)
    assert row["measured_share"] == pytest.approx(0.75)
    assert (row["seconds"], row["buffer_bdp"]) == pytest.approx((10, 8))
    # Equation 9 with X = 8, N = 1; (10), (11) over the ten seconds that were measured.
    p = 1 / 2 - 1 / 16 - 4 / (160_000 / 1500)
    expected = (1 - p) * (1 - (0.32 + 0.2 + 0.04) / 10)
    assert row["predicted_share"] == pytest.approx(expected)
    assert row["error_points"] == pytest.approx(100 * abs(expected - 0.75))
    assert row["error_relative"] == pytest.approx(abs(expected - 0.75) / 0.75)
    output = run("ware", "--all", store=lab_path)
    assert f"BBRv1: median error {row['error_points']:.1f} percentage points" in output
    assert "n = 1" in output


@pytest.mark.parametrize(
    "size", ['"limit": "50"', '"limit": "0", "limit_bytes": "75000"'], ids=["packets", "bytes"]
)
def test_a_link_that_the_set_up_states_is_known(size: str, lab_path: Path) -> None:
    """Of a run of nobody's lab; and of one whose rate changed no one link is known."""
    setup = f'{{"rate": "4mbit", "delay": "40", {size}}}'
    with open_store(lab_path) as store, store.transaction() as con:
        con.execute("UPDATE runs SET setup = ? WHERE run_id = 2", [setup])
        con.execute(
            "INSERT INTO lab_flows FROM (SELECT * REPLACE (2 AS run_id) FROM lab_flows"
            " WHERE run_id = 1)"
        )
        con.execute("UPDATE lab_intervals SET run_id = 2 WHERE run_id = 1")
    options = "--capacity 4mbit --rtt 40ms --buffer 50pkt".split()
    assert rows("ware", "other", store=lab_path) == rows("ware", "other", *options, store=lab_path)
    assert [row["run"] for row in rows("ware", "--all", store=lab_path)] == ["other"]
    with open_store(lab_path) as store:
        change = '{"uptime_s": 5, "rate": "8mbit"}'
        store.con.execute(
            "INSERT INTO host_facts BY NAME SELECT 2 AS run_id, 'changes' AS scope,"
            " '0' AS name, ? AS value",
            [change],
        )
        store.con.execute(
            "INSERT INTO clocks BY NAME SELECT 2 AS run_id, 'start' AS point,"
            " 0 AS boottime_ns, 0 AS monotonic_ns, 0 AS realtime_ns"
        )
    done = CliRunner().invoke(cli, ["model", "ware", "other", "--store", str(lab_path)])
    assert "one rate" in getattr(done.exception, "fact", "")


def test_a_sweep_over_loss_is_compared_with_the_cliff(lab_path: Path) -> None:
    (row,) = rows("cliff", "--scenario", SCENARIO, store=lab_path)
    assert row["predicted_cliff"] == pytest.approx(0.2)
    assert (row["last_good_loss"], row["collapsed_at_loss"]) == (0.1, 0.2)
    assert row["most_retransmits_at_loss"] == 0.2


def test_cliff_predicts_by_gain() -> None:
    assert [round(row["cliff"], 4) for row in rows("cliff")] == [0.0909, 0.2, 0.3333]


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        ("ware", 2, "--capacity"),
        ("ware --capacity 3foo --rtt 4ms", 2, "20mbit"),
        ("ware --capacity 0mbit --rtt 4ms", 2, "above 0"),
        ("ware --capacity 3mbit --rtt 4ms --buffer lots", 2, "1bdp"),
        ("ware --capacity 3mbit --rtt 4ms --buffer 0bdp", 2, "above 0"),
        ("ware --capacity 3mbit --rtt 4ms --flows 0", 2, "--flows"),
        ("ware nosuch", 1, "no run called"),
        ("ware other", 1, "no set-up states its link"),
        ("ware other --capacity 3mbit --rtt 4ms", 2, "--buffer"),
        ("ware other --capacity 3mbit --rtt 4ms --buffer 2bdp", 1, "at the same time"),
        ("ware --all", 1, "at the same time"),
        ("cliff --gain 1", 2, "--gain"),
        ("cliff --scenario nosuch", 1, "no sweep"),
    ],
)
def test_mistakes_are_reported_with_a_way_out(
    args: str, status: int, words: str, lab_path: Path
) -> None:
    with open_store(lab_path) as store:
        store.con.execute("DELETE FROM lab_flows; DELETE FROM lab_intervals")
    done = CliRunner().invoke(cli, ["model", *args.split(), "--store", str(lab_path)])
    assert done.exit_code == status
    assert words in (done.output if status == 2 else getattr(done.exception, "fact", ""))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tshark") is None, reason=GET_TSHARK)
def test_packets_and_options_stand_in_for_the_lab(traces: Path, tmp_path: Path) -> None:
    """The share of a recorded flow against iperf3's own counts of both flows."""
    from bbrscope.collect.ingest.ingest import ingest

    path = tmp_path / "store.duckdb"
    with open_store(path) as store:
        ingest(store, traces / "v1_vs_cubic_2bdp")
    (row,) = rows(
        *"ware v1_vs_cubic_2bdp --capacity 10mbit --rtt 40ms --buffer 66pkt".split(), store=path
    )
    counts = []
    for number, joined in ((1, 0), (2, 2)):
        report = json.loads((traces / f"v1_vs_cubic_2bdp/iperf{number}.json").read_text())
        counts.append(
            {round(i["sum"]["start"]) + joined: i["sum"]["bytes"] for i in report["intervals"]}
        )
    late = range(14, 24)
    bbr, cubic = (sum(count[t] for t in late) for count in counts)
    # iperf3 counts what it handed to the socket, in blocks of 128 KiB.
    assert row["measured_share"] == pytest.approx(bbr / (bbr + cubic), abs=0.04)
    assert (row["version"], row["flows"], row["others"]) == ("v1", 1, 1)
