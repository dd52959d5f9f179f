"""The parameters that rules ask for are those by which the replay ran each flow."""

from __future__ import annotations

import shutil
from pathlib import Path

from bbrscope.analyze.bbr.params import DEFAULTS
from bbrscope.analyze.diagnosis.param_tables import ASKED
from bbrscope.analyze.diagnosis.tables import prepare
from bbrscope.analyze.replay import run_params
from bbrscope.analyze.replay.run_info import run_infos
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.query import rows
from bbrscope.collect.store.rowsets import insert
from bbrscope.collect.store.store import Store


def test_flows_have_the_parameters_that_the_replay_takes(shipped: Store) -> None:
    ids = [shipped.run_id(run) for run in ("v1_x_lt", "v2_single_1bdp", "v3_x_tlp5")]
    con = shipped.con
    infos = {info.run_id: info for info in run_infos(con, ids)}
    of_flow = run_params.of_flows(con, ids)
    prepare(con, ids, [])
    found = list(rows(con, "FROM these_params"))
    assert {row["run_id"] for row in found} == set(ids)
    for row in found:
        info = infos[row["run_id"]]
        common = run_params.of_run(con, info.run_id, info.flavour)
        own = of_flow(info.run_id, row["flow"], common)
        assert {name: row[name] for name in ASKED if name in own} == {
            name: own[name] for name in ASKED if name in own
        }


def test_what_a_simulation_and_a_host_state_is_taken(shipped_path: Path, tmp_path: Path) -> None:
    shutil.copy(shipped_path, tmp_path / "s.duckdb")
    with open_store(tmp_path / "s.duckdb") as store:
        run_id = store.run_id("v3_x_tlp5")
        for scope, name, value in (
            ("rules", "loss_thresh", "13"),
            ("sysctls", "net.ipv4.tcp_plb_cong_thresh", "99"),
            ("sysctls", "net.ipv4.tcp_ecn_max_rtt_us", "1"),
        ):
            store.con.execute("DELETE FROM host_facts WHERE name = ?", [name])
            fact = {"run_id": run_id, "scope": scope, "name": name, "value": value}
            insert(store.con, "host_facts", [fact])
        prepare(store.con, [run_id], [])
        (row,) = rows(store.con, "FROM this_params")
    assert row["loss_thresh"] == 13
    assert row["plb_cong_thresh"] == 99
    assert row["ecn_max_rtt_us"] == 5000


def test_versions_agree_on_the_defaults() -> None:
    for name in ASKED:
        assert len({params[name] for params in DEFAULTS.values() if name in params}) == 1
