"""A disk that is full, or only to be read: nothing is left behind, and what is told is the fact."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.analyze.lake.load_runs import AddOptions, file_bundles
from bbrscope.collect.lake import lake_upkeep
from bbrscope.collect.lake.lake_place import LakePlace, open_place

from tests.fuzz.commands import run


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    open_place(tmp_path / "lake", create=True)
    bundles = [fixtures.path("v1_x_lt"), fixtures.path("v2_x_spur")]
    file_bundles(str(tmp_path / "lake"), bundles, AddOptions())
    return tmp_path / "lake"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The disk takes three more files, whose names are listed, and is full then."""
    names: list[str] = []
    publish = LakePlace.publish

    def few(self: LakePlace, written: Path, name: str) -> None:
        if len(names) == 3:
            raise OSError(errno.ENOSPC, "Error writing bytes")
        names.append(name)
        publish(self, written, name)

    with monkeypatch.context() as patch:
        patch.setattr(LakePlace, "publish", few)
        yield names


def files(lake: Path) -> set[Path]:
    return {path for path in lake.rglob("*") if path.is_file()}


@pytest.mark.parametrize("job", ["add", "compact"])
def test_what_fails_on_a_full_disk_leaves_nothing(lake: Path, full: list[str], job: str) -> None:
    """It was "a fault in bbrscope", and the files stayed for an hour on the disk that was full."""
    before = files(lake)
    more = (fixtures.path("v3_x_tlp5"),) if job == "add" else ()
    done = run("lake", job, lake, *more)
    assert (done.status, done.failure, len(full)) == (1, "", 3)
    assert f"the lake {lake} cannot be written: No space left on device" in done.err
    assert "lake remove" in done.err
    assert files(lake) == before
    assert list(lake_upkeep.check(open_place(lake), read=True)) == []


def test_runs_are_removed_from_a_full_disk(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even who holds the lock can be written there."""

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(lake_upkeep.os, "write", refuse)
        lake_upkeep.remove(open_place(lake), ["v1_x_lt"])
    assert list(lake_upkeep.check(open_place(lake), read=True)) == []
    assert len(list(lake.glob("manifest/*"))) == 1


def test_a_folder_that_goes_while_a_file_is_put_into_it_is_made_again(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing the last run of a day removes its folder, too."""
    folder = lake / "events" / "day=2030-01-01"
    replace, gone = Path.replace, []

    def late(self: Path, target: Path) -> Path:
        if not gone:
            gone.append(target.parent)
            target.parent.rmdir()
        return replace(self, target)

    written = tmp_path / "x"
    written.write_text("x")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", late)
        open_place(lake).publish(written, "events/day=2030-01-01/x.parquet")
    assert gone == [folder]
    assert (folder / "x.parquet").read_text() == "x"
