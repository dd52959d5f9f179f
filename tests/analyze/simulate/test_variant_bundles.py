"""A simulated variant's bundle is replayed by the variant's own rules, and explained by them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.bbr.variants.catalogue import VARIANTS
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.world.worlds import with_control
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.probes.base.errors import ScenarioError

# Simulates and replays in one process, as plain Python: to compile them all takes minutes.
SCRIPT = """
import json, sys
from dataclasses import replace
from pathlib import Path
from bbrscope.analyze.bbr.codes import CODES
from bbrscope.analyze.replay.flow_replay import whole_flows
from bbrscope.analyze.replay.flow_rows import rows_at_hand
from bbrscope.analyze.replay.load_events import load_flow
from bbrscope.analyze.replay.replay_flow import replay_flow
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.analyze.replay.run_params import of_run
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from tests.analyze.simulate.test_variant_bundles import OWN, setup
folder = Path(sys.argv[1])
with open_store(folder / "s.duckdb") as store:
    for name in sys.argv[2:]:
        write_bundle(setup(name), folder / name)
        ingest(store, folder / name)
        info = run_info(store.con, store.run_id(name))
        rows = rows_at_hand(1, load_flow(store.con, info.run_id, 1))
        values = of_run(store.con, info.run_id, info.flavour)
        (found,) = whole_flows(replay_flow(info, rows, values))
        passes = [found]
        if name in OWN:
            passes += whole_flows(replay_flow(replace(info, rules=info.version), rows, values))
        counts = [
            [one.count, *(each.compared - each.exact for each in one.passes.values())]
            for one in passes
        ]
        decided = {CODES[code].name for code in found.decisions[0].rows[:, 1].tolist()}
        print(json.dumps([name, counts, sorted(decided)]))
"""
# What a what-if takes for a bundle's own rules, and for others.
AGAIN = """
import json
from pathlib import Path
from bbrscope.analyze.bbr import params
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.analyze.simulate.closed_loop import under
from bbrscope.analyze.simulate.recorded_world import recorded_world
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.probes.base.errors import BbrscopeError
from tests.analyze.simulate.test_variant_bundles import MINE, setup
mine = Path("mine.py")
mine.write_text(MINE)
with open_store(Path("s.duckdb")) as store:
    def world(run):
        return recorded_world(store.con, run_info(store.con, store.run_id(run)))
    for rules, run in (("bbr-plus-0.5", "named"), ("./mine.py", "own")):
        write_bundle(setup(rules, seconds=1), Path(run))
        ingest(store, Path(run))
        own = world(run)
        (flow,) = own.setup.flows
        print(json.dumps([own.rules, flow.slot, flow.cc, flow.parameters["pacing_gain"]]))
        (flow,) = under(own.setup, "v1", {}).flows
        usual = params.DEFAULTS["v1"]["pacing_gain"]
        print(json.dumps([flow.slot, list(flow.parameters["pacing_gain"]) == list(usual)]))
        (flow,) = under(own.setup, None, {"high_gain": 700}).flows
        print(json.dumps([flow.slot, flow.parameters["high_gain"]]))
    said = run_info(store.con, store.run_id("own")).decoded_as
    print(json.dumps(said.rpartition(": ")[2]))
    for change in (lambda: mine.write_text(MINE + "# other"), mine.unlink):
        change()
        try:
            world("own")
        except BbrscopeError as error:
            print(json.dumps(error.fact))
    store.con.execute("UPDATE host_facts SET value = '../mine.py' WHERE value = 'mine.py'")
    print(json.dumps(run_info(store.con, store.run_id("own")).own_file))
"""
MINE = """
from bbrscope.analyze.bbr.versions.v1 import bbr_init, dispatch
BASE = "v1"
PARAMS = {"pacing_gain": [300, 200, 256, 256, 256, 256, 256, 256]}
"""
# What tells the variant's decisions from its version's.
OWN = {
    "bbr-plus-0.5": "RTPROP_WITH_DEVIATION",
    "bbrplus": "CYC_BEGIN_RANDOM_LENGTH",
    "delay-bbr": "PRTT_ENTER_DELAY",
}


def setup(*rules: str, seconds: int = 3) -> Setup:
    """A flow by each of these rules on one path."""
    flow = FlowSetup("v1", 0, seconds * 10**6)
    path = PathSetup(4_000_000, 20_000, limit_bytes=20_000, loss=0.005)
    return Setup(path, tuple(with_control(flow, one) for one in rules), seconds * 10**6, 1)


def test_every_variants_replay_is_exact_by_its_own_rules(tmp_path: Path) -> None:
    environment = {**os.environ, "BBRSCOPE_PLAIN": "1"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), *VARIANTS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines: list[list[Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == list(VARIANTS)
    for name, ((count, *differ), *usual), decided in lines:
        assert count > 500
        assert differ == [0, 0], name
        if name in OWN:
            assert OWN[name] in decided
            assert all(usual[0][1:]), "the version's own rules do as well"


def test_a_variants_bundle_is_simulated_again_under_its_own_rules(tmp_path: Path) -> None:
    environment = {**os.environ, "BBRSCOPE_PLAIN": "1"}
    command = [sys.executable, "-c", AGAIN]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    plus, as_v1, changed, own, own_as_v1, own_changed, way, *refused, elsewhere = map(
        json.loads, done.stdout.splitlines()
    )
    assert plus[:3] == ["bbr-plus-0.5", "bbr-plus-0.5", "v1"]
    assert plus[3][:2] == [384, 128]
    assert own[:3] == ["mine.py", "mine.py", "v1"]
    assert own[3][:2] == [300, 200]
    assert as_v1 == own_as_v1 == ["v1", True]
    assert (changed, own_changed) == (["bbr-plus-0.5", 700], ["mine.py", 700])
    assert way == "bbrscope replay --as ./mine.py goes by them"
    assert [text.partition(":")[0] for text in refused] == [
        f"own was simulated by the rules of mine.py, which {lack}"
        for lack in ("is not the one that ran", "is not in this folder")
    ]
    assert elsewhere == [], "a bundle chose a file outside the folder"


def test_a_bundle_has_one_bbr(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="flows of bbr-prime and v1 together"):
        write_bundle(setup("v1", "bbr-prime"), tmp_path / "two")
