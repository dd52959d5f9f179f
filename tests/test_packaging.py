"""The wheel holds the tree, and the tree holds nothing that the wheel lacks."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("probes", "collect", "analyze", "reports", "fixtures")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from this tree without the network."""
    pytest.importorskip("hatchling", reason="needs hatchling: pip install 'bbrscope[test]'")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (found,) = folder.glob("*.whl")
    return zipfile.ZipFile(found)


def tracked() -> dict[str, Path]:
    """Return the files that git knows in the packages, by their name in the wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *PACKAGES], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    return {f"bbrscope/{name}": ROOT / name for name in listed if name and (ROOT / name).is_file()}


def test_every_file_of_the_packages_is_in_the_wheel_as_it_is(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    files = tracked()
    assert len(files) > 50
    assert [name for name in files if name not in names] == []
    for name, path in files.items():
        assert wheel.read(name) == path.read_bytes(), name


def test_the_wheel_has_code_data_and_types_of_every_package(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for package in PACKAGES:
        assert {f"bbrscope/{package}/__init__.py", f"bbrscope/{package}/py.typed"} <= names
    for name in ("manifest.json", "events.csv.zst"):
        assert f"bbrscope/fixtures/v2_x_spur/{name}" in names
    assert "bbrscope/collect/BUNDLE.md" in names
    assert not [name for name in names if name.startswith(("bbrscope/tests", "tests"))]


def test_the_shipped_recordings_are_the_kernels_own(traces: Path) -> None:
    from bbrscope import fixtures

    for name in fixtures.names():
        shipped, original = fixtures.path(name), traces / name
        files = {path.name for path in shipped.iterdir()}
        assert files == {path.name for path in original.iterdir()}
        for file in files:
            assert (shipped / file).read_bytes() == (original / file).read_bytes()
