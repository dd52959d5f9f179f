"""What the reports' tests share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bbrscope.collect.store import open_store

HOSTILE = "<script>alert(1)</script>' OR 1=1; --\" </table> &amp;"


@pytest.fixture
def hostile() -> str:
    """What a stranger may have put where a name or an address belongs."""
    return HOSTILE


@pytest.fixture
def hostile_path(shipped_path: Path, tmp_path: Path) -> Path:
    """The shipped store, with such names in the run v2_x_spur."""
    path = tmp_path / "hostile.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id("v2_x_spur")
        store.con.execute(
            "UPDATE runs SET kernel = $1, description = $1, decoded_as = $1 WHERE run_id = $2",
            [HOSTILE, run_id],
        )
        store.con.execute(
            "UPDATE flows SET local_address = $1, note = $1 WHERE run_id = $2", [HOSTILE, run_id]
        )
        store.con.execute("INSERT INTO host_facts VALUES ($2, $1, $1, $1)", [HOSTILE, run_id])
        store.con.execute(
            "INSERT INTO capture_quality BY NAME SELECT $2 AS run_id, $1 AS kind, $1 AS detail",
            [HOSTILE, run_id],
        )
    return path
