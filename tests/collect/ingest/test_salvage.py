"""What a killed recorder left is read when that is asked for, and it says what it lacks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.collect.ingest.ingest import Outcome, ingest
from bbrscope.collect.store.store import open_store
from bbrscope.probes.base.errors import BundleError


def partial(folder: Path, manifest: bool) -> Path:
    """A recording whose recorder was killed after half of its rows; ss was cut off as well."""
    source, target = fixtures.path("v2_x_spur"), folder / "lab 1.partial"
    target.mkdir()
    whole = (source / "events.csv.zst").read_bytes()
    (target / "events.csv.zst").write_bytes(whole[: len(whole) // 2])
    looks = "".join(f"# monotonic_ns {n}\n" for n in range(200_000)).encode()
    (target / "ss.txt.zst").write_bytes(zstandard.compress(looks)[:-100])
    # A sampler may not have written anything yet when its recorder is killed.
    queue = zstandard.compress(b"uptime_s,dropped\n" + b"1.5,7\n" * 200_000)[:-5]
    (target / "queue.csv.zst").write_bytes(queue if manifest else b"")
    if manifest:
        document = json.loads((source / "manifest.json").read_text())
        document |= {"unfinished": True, "events": None}
        (target / "manifest.json").write_text(json.dumps(document))
    return target


def load(bundle: Path, salvage: bool) -> Outcome:
    with open_store(bundle.parent / "s.duckdb") as store:
        return ingest(store, bundle, salvage=salvage, packets=False)


@pytest.mark.parametrize("manifest", [True, False])
def test_what_sigkill_left_is_salvaged_with_its_gaps_on_record(
    manifest: bool, tmp_path: Path
) -> None:
    loaded = load(partial(tmp_path, manifest), salvage=True)
    assert loaded.run == ("v2_x_spur" if manifest else "lab_1")
    assert 1000 < loaded.events < 8000
    assert {"unfinished", "cut_off"} <= loaded.notes.keys()
    assert ("no_manifest" in loaded.notes) is not manifest


@pytest.mark.parametrize("manifest", [True, False])
def test_without_salvage_it_is_refused_and_the_way_out_is_reported(
    manifest: bool, tmp_path: Path
) -> None:
    with pytest.raises(BundleError) as refused:
        load(partial(tmp_path, manifest), salvage=False)
    assert "--salvage" in refused.value.way_out


def test_a_whole_recording_is_not_called_unfinished(tmp_path: Path) -> None:
    shutil.copytree(fixtures.path("v2_x_spur"), tmp_path / "spur")
    assert "unfinished" not in load(tmp_path / "spur", salvage=True).notes
