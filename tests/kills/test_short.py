"""The campaign's short form: the first ingest, killed twice; and a replay that stores views."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .__main__ import Campaign, left_over
from .cases import CASES, STORE, do, prepare, store_content
from .victim import Victims


def test_a_killed_first_ingest_leaves_a_store_or_none(tmp_path: Path) -> None:
    campaign, victims = Campaign(tmp_path, seed=2), Victims()
    try:
        campaign.case(CASES[0], 2, victims)
    finally:
        victims.close()
    assert campaign.failures == []
    assert campaign.killed


# Ends itself when rows of the view of this number are about to be stored.
STORING = """
import os, signal, sys
from bbrscope.analyze.views import materialize
store_rows, narrow, left = materialize.materialize, materialize.narrowed, [int(sys.argv[1])]
def narrowed(*args, **options):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return narrow(*args, **options)
def storing(*args):
    materialize.narrowed = narrowed
    store_rows(*args)
materialize.materialize = storing
from bbrscope.reports.cli import main
main(sys.argv[2:])
"""


@pytest.mark.parametrize("view", [1, 8])
def test_a_replay_killed_while_it_stores_views_has_all_of_a_run_or_nothing(
    tmp_path: Path, view: int
) -> None:
    folder = tmp_path / "place"
    prepare(folder)
    replay = ("replay", *STORE)
    do(("ingest", *STORE, "--salvage", "v1_x_lt", "v2_x_spur"), folder)
    before = store_content(folder)
    words = [sys.executable, "-c", STORING, str(view), *replay]
    killed = subprocess.run(words, cwd=folder, env=_environment(folder), check=False)
    assert killed.returncode == -signal.SIGKILL
    after = store_content(folder)
    # The decisions were stored before, wholly; of views there is nothing yet.
    assert {key: rows for key, rows in after.items() if "replayed" not in key} == {
        key: rows for key, rows in before.items() if "replayed" not in key
    }
    assert all(rows for key, rows in after.items() if "replayed" in key)
    do(replay, folder)
    completed = store_content(folder)
    assert all(rows for key, rows in completed.items() if "stored views" in key)
    assert {key: rows for key, rows in completed.items() if "stored" not in key} == {
        key: rows for key, rows in after.items() if "stored" not in key
    }
    assert not list(left_over(folder))


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder / "tmp")}
