"""What all tests share: where recordings lie, and a store that holds the shipped ones."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.analyze import results, session
from bbrscope.collect.ingest import ingest
from bbrscope.collect.store import Store, open_store
from hypothesis import settings

# The first call of a compiled function takes as long as its compilation: no deadlines.
settings.register_profile("bbrscope", deadline=None)
settings.load_profile("bbrscope")

_ROOT = Path(__file__).resolve().parents[1]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under `--dist loadgroup`, what shares the store of every recording shares a worker."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("recordings"))


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


def as_samples(lines: list[str]) -> list[str]:
    """What rung tcp_probe would have recorded at the main() calls of a recording: T for M rows."""
    kept: dict[str, list[int]] = {}
    numbers: dict[str, int] = {}
    made = []
    for line in lines:
        tag, *values = line.split(",")
        if tag.startswith("#M"):
            kept[tag[1:]] = [i for i, name in enumerate(values) if not name.startswith("rs.")]
            extra = ["seqno"] if tag == "#M0" else []
            made.append(",".join(["#T" + tag[2:], *(values[i] for i in kept[tag[1:]]), *extra]))
        elif tag in kept:
            extra = [str(numbers.setdefault(values[1], 0))] if tag == "M0" else []
            numbers[values[1]] += tag == "M0"
            made.append(",".join(["T" + tag[1:], *(values[i] for i in kept[tag]), *extra]))
    return made


def write_bundle(folder: Path, lines: list[str] | None, **manifest: Any) -> Path:
    """Write a bundle with these event lines, or without any."""
    folder.mkdir(parents=True)
    document = {"format": "bbrscope-bundle", "version": 1, "name": folder.name}
    document |= {"constants": {"HZ": 1000}}
    (folder / "manifest.json").write_text(json.dumps({**document, **manifest}))
    if lines is not None:
        text = "".join(f"{line}\n" for line in lines)
        (folder / "events.csv.zst").write_bytes(zstandard.compress(text.encode()))
    return folder


@pytest.fixture(scope="session")
def sampled_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with shipped recordings, and each again as rung tcp_probe would have made it."""
    path = tmp_path_factory.mktemp("sampled") / "sampled.duckdb"
    with open_store(path) as store:
        for name in ("v1_x_lt", "v3_x_tlp5"):
            ingest(store, fixtures.path(name))
            raw = (fixtures.path(name) / "events.csv.zst").read_bytes()
            reader = zstandard.ZstdDecompressor().stream_reader(raw)
            lines = as_samples(reader.read().decode().splitlines())
            made = write_bundle(path.parent / f"{name}_sampled", lines, probe="tcp_probe")
            ingest(store, made)
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
