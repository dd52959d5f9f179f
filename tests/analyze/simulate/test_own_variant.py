"""A user's own variant: what the file must have, and that its rules are the ones that run."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.analyze.bbr import params
from bbrscope.analyze.bbr.variants.own_variant import own_variant
from bbrscope.analyze.simulate.closed_loop import under
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.probes.base.errors import BbrscopeError

GOOD = """
from bbrscope.analyze.bbr.versions.v2 import bbr_init, dispatch
BASE = "v2"
PARAMS = {"beta": 51}
"""


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("BASE = 'v9'", "BASE must be"),
        ("BASE = 'v3'", "no functions"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        (GOOD + "PARAMS = {'alpha': 1}", "PARAMS must be"),
    ],
)
def test_a_file_that_lacks_something_is_refused(tmp_path: Path, text: str, fact: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(BbrscopeError, match=fact):
        own_variant(str(path))


def test_flows_with_bbr_get_the_variant_and_its_parameters(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GOOD)
    flows = (
        FlowSetup("v3", 0, 1000, parameters=params.V3 | {"HZ": 250}),
        FlowSetup("cubic", 0, 1000),
    )
    world = Setup(PathSetup(10_000_000, 40_000, limit_packets=33), flows, 1000)
    bbr, cubic = under(world, str(path), {}).flows
    assert bbr.slot == str(path)
    assert bbr.version == "v2"
    assert (bbr.parameters["beta"], bbr.parameters["HZ"]) == (51, 250)
    assert cubic.slot is None
