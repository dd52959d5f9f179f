"""Bundles are recognised, checked and unpacked; foreign and hostile ones are refused."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.collect.bundle.bundle import open_bundle
from bbrscope.probes.base.errors import BundleError

Make = Callable[..., Path]
ROW = ["#M,ns,sk,bbr.lt_bw", "M,1,a,1"]


def refusal(path: Path) -> BundleError:
    with pytest.raises(BundleError) as caught, open_bundle(path):
        pass
    assert caught.value.way_out
    return caught.value


def pack(target: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    target.write_bytes(zstandard.compress(plain.getvalue()))
    return target


def bundle_members(folder: Path, prefix: str) -> list[tuple[tarfile.TarInfo, bytes]]:
    return [(tarfile.TarInfo(prefix + path.name), path.read_bytes()) for path in folder.iterdir()]


def test_a_shipped_bundle_opens_with_its_facts() -> None:
    with open_bundle(fixtures.path("v2_single_1bdp")) as bundle:
        manifest = bundle.manifest
        assert (manifest.name, manifest.hz, manifest.lost) == ("v2_single_1bdp", 1000, 0)
        assert [clock.point for clock in manifest.clocks] == ["start", "end"]
        assert manifest.rows is not None
        assert manifest.rows["M0"] == 10517
        assert [path.name for path in bundle.attachments()] == ["iperf1.json"]
    with open_bundle(fixtures.path("v2_x_spur")) as bundle:
        assert bundle.manifest.clocks == ()
        assert bundle.optional("queue.csv.zst") is None


@pytest.mark.parametrize("prefix", ["", "./", "run/", "./run/"])
def test_a_packed_bundle_is_the_same_bundle(prefix: str, tmp_path: Path) -> None:
    folder = fixtures.path("v2_x_spur")
    packed = pack(tmp_path / "run.tar.zst", bundle_members(folder, prefix))
    with open_bundle(folder) as plain, open_bundle(packed) as unpacked:
        assert unpacked.digest == plain.digest
        assert unpacked.manifest == plain.manifest
        assert unpacked.events.read_bytes() == plain.events.read_bytes()
        inside = unpacked.folder
    assert not inside.exists()


def test_the_digest_follows_every_file(make_bundle: Make) -> None:
    folder = make_bundle(ROW)
    digests = set()
    for name, content in (("notes.txt", "ignored"), ("iperf1.json", "{}"), ("iperf1.json", "[]")):
        with open_bundle(folder) as bundle:
            digests.add(bundle.digest)
        (folder / name).write_text(content)
    with open_bundle(folder) as bundle:
        digests.add(bundle.digest)
    assert len(digests) == 3


def hostile(kind: str, folder: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    good = bundle_members(folder, "run/")
    member = tarfile.TarInfo("run/iperf1.json")
    if kind == "absolute":
        member.name = "/etc/iperf1.json"
    elif kind == "parent":
        member.name = "run/../../iperf1.json"
    elif kind == "deep":
        member.name = "run/a/b/iperf1.json"
    elif kind == "symlink":
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    elif kind == "hardlink":
        member.type, member.linkname = tarfile.LNKTYPE, "run/manifest.json"
    elif kind == "device":
        member.type = tarfile.CHRTYPE
    elif kind == "twice":
        return [*good, *good]
    return [*good, (member, b"")]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("absolute", "a path outside a bundle"),
        ("parent", "a path outside a bundle"),
        ("deep", "a path outside a bundle"),
        ("symlink", "is not a plain file"),
        ("hardlink", "is not a plain file"),
        ("device", "is not a plain file"),
        ("twice", "twice"),
    ],
)
def test_a_hostile_archive_is_refused(
    kind: str, words: str, make_bundle: Make, tmp_path: Path
) -> None:
    packed = pack(tmp_path / "run.tar.zst", hostile(kind, make_bundle(ROW)))
    assert words in refusal(packed).fact
    assert not (tmp_path.parent / "iperf1.json").exists()


def test_an_archive_bomb_is_refused_before_it_fills_the_disk(
    make_bundle: Make, tmp_path: Path
) -> None:
    zeros = bytes(200_000_000)
    bomb = bundle_members(make_bundle(ROW), "")
    packed = pack(tmp_path / "run.tar.zst", [*bomb, (tarfile.TarInfo("iperf1.json"), zeros)])
    assert "grows more than 20 times" in refusal(packed).fact


@pytest.mark.parametrize("cut", [10, 500, -20])
def test_a_cut_off_archive_is_refused(cut: int, tmp_path: Path) -> None:
    packed = pack(tmp_path / "whole.tar.zst", bundle_members(fixtures.path("v2_x_spur"), ""))
    part = tmp_path / "part.tar.zst"
    part.write_bytes(packed.read_bytes()[:cut])
    assert "damaged or not a .tar.zst" in refusal(part).fact


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    empty, folder, foreign = tmp_path / "empty", tmp_path / "folder", tmp_path / "foreign"
    empty.write_bytes(b"")
    folder.mkdir()
    foreign.write_bytes(b"PK\3\4 something else")
    zipped = tmp_path / "text.zst"
    zipped.write_bytes(zstandard.compress(b"just text"))
    assert refusal(tmp_path / "none").fact.startswith("there is no bundle at")
    assert refusal(empty).fact.endswith("is empty")
    assert "has no manifest.json" in refusal(folder).fact
    assert "neither a folder nor a zstd file" in refusal(foreign).fact
    assert "damaged or not a .tar.zst" in refusal(zipped).fact


MANIFESTS: list[tuple[dict[str, Any] | str, str]] = [
    ("", "is not JSON"),
    ("{", "is not JSON"),
    ("[" * 100_000, "is not JSON"),
    ("[]", "is not of format \"bbrscope-bundle\" (found 'list')"),
    ({"format": "qlog"}, "is not of format"),
    ({"version": 2}, "has format version 2; this bbrscope reads 1"),
    ({"version": None}, "has format version None"),
    ({"name": None}, "name must be 1 to 100 letters"),
    ({"name": "../../etc"}, "name must be 1 to 100 letters"),
    ({"name": "a\nb"}, "name must be 1 to 100 letters"),
    ({"constants": None}, "constants must be an object"),
    ({"constants": {"HZ": 0}}, "constants.HZ must be a whole number"),
    ({"constants": {"HZ": "250"}}, "constants.HZ must be a whole number"),
    ({"constants": {"HZ": True}}, "constants.HZ must be a whole number"),
    ({"events": []}, "events must be an object"),
    ({"events": {"M0": -1}}, "events.M0 must be a whole number"),
    ({"events_lost": 1.5}, "events_lost must be a whole number"),
    ({"clocks": {"start": 5, "end": {}}}, "clocks.start must be an object"),
    ({"clocks": {"start": {}, "end": {}}}, "clocks.start.realtime_ns must be a whole number"),
]


@pytest.mark.parametrize(("change", "words"), MANIFESTS)
def test_an_impossible_manifest_is_refused(
    change: dict[str, Any] | str, words: str, make_bundle: Make
) -> None:
    folder = make_bundle(ROW)
    path = folder / "manifest.json"
    if isinstance(change, str):
        path.write_text(change)
    else:
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    found = refusal(folder)
    assert words in found.fact
    assert str(path) in found.fact


def test_a_huge_manifest_is_refused(make_bundle: Make) -> None:
    folder = make_bundle(ROW, note="x" * (5 << 20))
    assert "larger than 4 MiB" in refusal(folder).fact


def test_a_collector_that_knows_neither_hz_nor_clocks_may_say_so(make_bundle: Make) -> None:
    clocks = {"start": None, "end": None}
    with open_bundle(make_bundle(ROW, constants={"HZ": None}, clocks=clocks)) as bundle:
        assert bundle.manifest.hz is None
        assert bundle.manifest.clocks == ()


@pytest.mark.parametrize(
    ("where", "reader"), [(Path, "read_text"), (hashlib, "file_digest")], ids=["manifest", "events"]
)
def test_a_file_that_cannot_be_read_is_named(
    where: Any, reader: str, make_bundle: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails: the file is there, and its content is not."""
    folder = make_bundle(ROW)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "Input/output error", str(folder))

    monkeypatch.setattr(where, reader, fail)
    assert refusal(folder).fact.startswith(f"cannot read {folder}: ")
