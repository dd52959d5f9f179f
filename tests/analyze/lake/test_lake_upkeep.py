"""Compact and remove may be killed at any step: no run is lost, half there, or there again."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bbrscope.analyze.lake.load_runs import AddOptions, file_bundles
from bbrscope.collect.lake import lake_upkeep
from bbrscope.collect.lake.lake_manifest import read_rows
from bbrscope.collect.lake.lake_place import LakePlace, open_place
from bbrscope.probes.base.errors import StoreError

from tests.fuzz.inputs import bundle_of

GONE, STAYS = "v1_x_lt", "v2_x_spur"
Content = dict[str, dict[str, int]]


class Killed(BaseException):
    """The process ended here."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    bundles = [bundle_of(folder / name, name, 200) for name in (GONE, STAYS)]
    open_place(folder / "lake", create=True)
    filed = file_bundles(str(folder / "lake"), bundles, AddOptions(salvage=True))
    assert [one.refused for one in filed] == [None, None]
    return folder / "lake"


@pytest.fixture(scope="module")
def merged(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copied = shutil.copytree(lake, tmp_path_factory.mktemp("merged") / "lake")
    compact(copied)
    return copied


def compact(lake: Path) -> None:
    list(lake_upkeep.compact(open_place(lake)))


def remove(lake: Path) -> None:
    lake_upkeep.remove(open_place(lake), [GONE])


def content(lake: Path) -> Content:
    """Rows of each run in each table."""
    return {
        row["run"]: dict(zip(row["tables"], row["rows_in"], strict=True))
        for row in read_rows(open_place(lake))
    }


def faults(lake: Path) -> list[str]:
    return [fault.what for fault in lake_upkeep.check(open_place(lake), read=True)]


@contextmanager
def steps(end: int, names: list[str]) -> Iterator[None]:
    """Note each file that is put or deleted, and end the work at the `end`-th as a kill would."""

    def counted(method: Callable[..., None]) -> Callable[..., None]:
        def step(place: LakePlace, what: object, *name: str) -> None:
            if len(names) == end:
                raise Killed
            names.append(name[0] if name else str(what))
            return method(place, what, *name)

        return step

    with pytest.MonkeyPatch.context() as patch:
        for method in ("publish", "_drop_empty"):
            patch.setattr(LakePlace, method, counted(getattr(LakePlace, method)))
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # the lock's file stays
        yield


def killed(before: Path, folder: Path, job: Callable[[Path], None]) -> Iterable[Path]:
    """Yield copies of a lake in which a job was killed: around the manifest's changes, and else."""
    names: list[str] = []
    with steps(-1, names):
        job(shutil.copytree(before, folder / "whole"))
    turns = {
        number + after
        for number, name in enumerate(names)
        if Path(name).name == "manifest" or name.startswith("manifest/")
        for after in (0, 1, 2)
    }
    for end in sorted((turns | set(range(0, len(names), 15))) - {len(names), len(names) + 1}):
        place = shutil.copytree(before, folder / str(end))
        with steps(end, []), pytest.raises(Killed):
            job(place)
        assert (place / lake_upkeep.LOCK).exists()
        yield place


def let_an_hour_pass(lake: Path) -> None:
    before = time.time() - lake_upkeep.LEFT_OVER_S - 1
    for path in lake.rglob("*"):
        os.utime(path, (before, before))


def test_a_killed_compact_loses_nothing_and_the_next_completes_it(
    lake: Path, tmp_path: Path
) -> None:
    tried = 0
    for place in killed(lake, tmp_path, compact):
        tried += 1
        assert content(place) == content(lake)
        assert not [fault for fault in faults(place) if "belongs to no run" not in fault]
        compact(place)
        assert content(place) == content(lake)
        assert len(list(place.glob("events/**/run=merged/*.parquet"))) == 1
        let_an_hour_pass(place)
        compact(place)
        assert faults(place) == []
    assert tried > 6


def test_what_is_removed_after_a_killed_compact_does_not_come_back(
    lake: Path, tmp_path: Path
) -> None:
    for place in killed(lake, tmp_path, compact):
        remove(place)
        assert content(place).keys() == {STAYS}


@pytest.mark.parametrize("kind", ["single", "merged"])
def test_a_killed_remove_leaves_whole_runs_and_the_next_completes_it(
    lake: Path, merged: Path, tmp_path: Path, kind: str
) -> None:
    tried = 0
    for place in killed(lake if kind == "single" else merged, tmp_path, remove):
        tried += 1
        found = content(place)
        assert found in (content(lake), {STAYS: content(lake)[STAYS]})
        assert not [fault for fault in faults(place) if "belongs to no run" not in fault]
        if GONE in found:
            remove(place)
        let_an_hour_pass(place)
        compact(place)
        assert content(place) == {STAYS: content(lake)[STAYS]}
        assert faults(place) == []
    assert tried >= 3


def test_of_two_that_tend_a_lake_one_is_refused(lake: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(lake, tmp_path / "lake")
    merging = iter(lake_upkeep.compact(open_place(copied)))
    next(merging)
    with pytest.raises(StoreError, match=f"process {os.getpid()}"):
        remove(copied)
    assert not list(merging)
    assert not (copied / lake_upkeep.LOCK).exists()
    remove(copied)


def test_a_lock_that_is_a_link_is_not_followed(lake: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(lake, tmp_path / "lake")
    (tmp_path / "own").write_text("mine")
    (copied / lake_upkeep.LOCK).symlink_to(tmp_path / "own")
    with pytest.raises(StoreError, match="cannot be locked"):
        compact(copied)
    assert (tmp_path / "own").read_text() == "mine"
