"""What all tests share: where recordings lie, and a store that holds the shipped ones."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.analyze import results, session
from bbrscope.collect.ingest import ingest
from bbrscope.collect.store import Store, open_store
from hypothesis import settings

# The first call of a compiled function takes as long as its compilation: no deadlines.
settings.register_profile("bbrscope", deadline=None)
settings.load_profile("bbrscope")

_ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of all recordings, beside the repository or where BBRSCOPE_TRACES says."""
    folder = Path(os.environ.get("BBRSCOPE_TRACES", _ROOT.parent / "shared" / "traces"))
    if not (folder / "v2_single_1bdp" / "manifest.json").is_file():
        pytest.skip(f"no recordings in {folder}: put the run bundles there or set BBRSCOPE_TRACES")
    return folder


@pytest.fixture(scope="session")
def shipped_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the shipped recordings, ingested and replayed; open it read-only or copy it."""
    path = tmp_path_factory.mktemp("shipped") / "shipped.duckdb"
    with open_store(path) as store:
        for name in fixtures.names():
            ingest(store, fixtures.path(name))
        ids = [store.run_id(name) for name in store.runs()]
        for flows in session.replay_runs(store.con, ids):
            results.keep(store, flows)
    return path


@pytest.fixture
def shipped(shipped_path: Path) -> Iterator[Store]:
    """The shipped recordings' store, read-only."""
    with open_store(shipped_path, read_only=True) as store:
        yield store


@pytest.fixture(scope="session")
def all_path(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every recording, ingested and replayed."""
    path = tmp_path_factory.mktemp("all") / "all.duckdb"
    with open_store(path) as store:
        for manifest in sorted(traces.glob("*/manifest.json")):
            ingest(store, manifest.parent, packets=False)
        ids = [store.run_id(name) for name in store.runs()]
        for flows in session.replay_runs(store.con, ids):
            results.keep(store, flows)
    return path


@pytest.fixture(scope="session")
def all_packets_path(
    traces: Path, all_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same store with the packets, where there are any."""
    path = tmp_path_factory.mktemp("packets") / "all.duckdb"
    shutil.copy(all_path, path)
    with open_store(path) as store:
        for manifest in sorted(traces.glob("*/manifest.json")):
            ingest(store, manifest.parent)
    return path


@pytest.fixture
def all_packets(all_packets_path: Path) -> Iterator[Store]:
    """Every recording's store with packets, read-only."""
    with open_store(all_packets_path, read_only=True) as store:
        yield store


@pytest.fixture
def all_runs(all_path: Path) -> Iterator[Store]:
    """Every recording's store, read-only."""
    with open_store(all_path, read_only=True) as store:
        yield store
