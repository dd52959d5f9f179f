"""What a killed recorder left is read when that is asked for, and it says what it lacks."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.ingest.outcome import Outcome
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


def load(bundle: Path, salvage: bool, store_in: Path | None = None) -> Outcome:
    with open_store((store_in or bundle.parent) / "s.duckdb") as store:
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


@pytest.mark.parametrize("name", ["raw", "events.csv", "events.csv.gz"])
def test_what_the_script_left_has_every_row_that_was_printed_whole(
    name: str, tmp_path: Path
) -> None:
    """bpftrace's lines of a script that was killed, and the files of one that has no zstd."""
    source, target = fixtures.path("v2_x_spur"), tmp_path / "spur"
    target.mkdir()
    with (source / "events.csv.zst").open("rb") as packed:
        rows = zstandard.ZstdDecompressor().stream_reader(packed).read()
    document = json.loads((source / "manifest.json").read_text())
    if name == "raw":
        document |= {"unfinished": True, "events": None}
        rows = b"Attaching 12 probes...\n+first\n+last\n" + rows + b"M0,99,1,2"
    (target / "manifest.json").write_text(json.dumps(document))
    (target / name).write_bytes(gzip.compress(rows, 1) if name.endswith("gz") else rows)
    loaded = load(target, salvage=name == "raw")
    whole = load(source, salvage=False, store_in=target)
    assert loaded.events == whole.events > 0
    assert ("unfinished" in loaded.notes) is (name == "raw")
    assert "cut_off" not in loaded.notes


def test_a_last_line_that_was_cut_is_left_out_of_what_samplers_wrote(tmp_path: Path) -> None:
    """What is there of a line can look like a whole one whose last number lacks digits."""
    bundle = tmp_path / "spur"
    shutil.copytree(fixtures.path("v2_x_spur"), bundle)
    for text in (b"uptime_s,dropped\n1.5,7\n2.5", b"uptime_s,dropped\n1.5,7\n2.5,1"):
        (bundle / "queue.csv.zst").write_bytes(zstandard.compress(text))
        load(bundle, salvage=True)
        with open_store(tmp_path / "s.duckdb") as store:
            drops = store.con.execute("SELECT dropped FROM queue_samples").fetchall()
            notes = store.con.execute("SELECT detail FROM capture_quality WHERE kind = 'cut_off'")
            assert "its last line is cut off: read up to here" in str(notes.fetchall())
        assert drops == [(7,)]
        (tmp_path / "s.duckdb").unlink()
    (bundle / "queue.csv.zst").write_bytes(zstandard.compress(b"uptime_s,dropped\n1.5,7"))
    assert "cut_off" not in load(bundle, salvage=False).notes


def test_a_text_that_was_made_to_fill_the_disk_is_refused(tmp_path: Path) -> None:
    bundle = tmp_path / "bomb"
    shutil.copytree(fixtures.path("v2_x_spur"), bundle)
    (bundle / "events.csv.zst").unlink()
    (bundle / "events.csv.gz").write_bytes(gzip.compress(b"M0,1\n" * (8 << 20), 9))
    with pytest.raises(BundleError, match="grows more than"):
        load(bundle, salvage=False)
