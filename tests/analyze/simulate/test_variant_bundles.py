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
from bbrscope.analyze.replay.load_events import load_flow
from bbrscope.analyze.replay.replay_runs import replay_flow
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.analyze.replay.run_params import of_run
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from tests.analyze.simulate.test_variant_bundles import setup
folder = Path(sys.argv[1])
with open_store(folder / "s.duckdb") as store:
    for name in sys.argv[2:]:
        write_bundle(setup(name), folder / name)
        ingest(store, folder / name)
        info = run_info(store.con, store.run_id(name))
        columns = load_flow(store.con, info.run_id, 1)
        values = of_run(store.con, info.run_id, info.flavour)
        found = replay_flow(info, 1, columns, values)
        usual = replay_flow(replace(info, rules=info.version), 1, columns, values)
        counts = [
            [one.count, *(each.compared - each.exact for each in one.passes.values())]
            for one in (found, usual)
        ]
        decided = {CODES[code].name for code in found.passes["step"].decisions[:, 1].tolist()}
        print(json.dumps([name, *counts, sorted(decided)]))
"""
# What tells the variant's decisions from its version's.
OWN = {
    "bbr-plus-0.5": "RTPROP_WITH_DEVIATION",
    "bbrplus": "CYC_BEGIN_RANDOM_LENGTH",
    "delay-bbr": "PRTT_ENTER_DELAY",
}


def setup(*rules: str, seconds: int = 4) -> Setup:
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
    for name, (count, *differ), usual, decided in lines:
        assert count > 500
        assert differ == [0, 0], name
        if name in OWN:
            assert OWN[name] in decided
            assert all(usual[1:]), "the version's own rules do as well"


def test_a_bundle_has_one_bbr(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="flows of bbr-prime and v1 together"):
        write_bundle(setup("v1", "bbr-prime"), tmp_path / "two")
