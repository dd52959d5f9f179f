"""The wheel holds the tree, and the tree holds nothing that the wheel lacks."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("probes", "collect", "analyze", "reports", "fixtures")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from this tree without the network."""
    pytest.importorskip("hatchling", reason="needs hatchling: pip install 'bbrscope[test]'")
    return build("wheel", tmp_path_factory.mktemp("wheel"))


def build(target: str, folder: Path) -> zipfile.ZipFile:
    """Build this tree into `folder`; returns the wheel."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


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
    assert "bbrscope/collect/bundle/BUNDLE.md" in names
    assert not [name for name in names if name.startswith(("bbrscope/tests", "tests"))]


def test_an_editable_install_holds_a_path_to_the_tree_and_no_file_of_it(tmp_path: Path) -> None:
    """A copy of bbrscope/__init__.py in front of that path would hide every subpackage."""
    pytest.importorskip("hatchling", reason="needs hatchling: pip install 'bbrscope[test]'")
    editable = build("wheel:editable", tmp_path)
    (path,) = [name for name in editable.namelist() if ".dist-info/" not in name]
    assert path.endswith(".pth")
    assert (Path(editable.read(path).decode().strip()) / "bbrscope" / "analyze").samefile(
        ROOT / "analyze"
    )


def test_the_wheel_installs_into_a_fresh_environment_and_opens_a_store(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    """Its dependencies are taken from this environment: no registry is asked."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel.filename)], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    places = [place for place in sys.path if place.endswith("-packages")]
    (site / "dependencies.pth").write_text("\n".join(places))
    program = (
        "import bbrscope\n"
        "from bbrscope import fixtures\n"
        "lab = bbrscope.ingest(fixtures.path('v2_x_spur'), packets=False)\n"
        "print(bbrscope.__file__, bbrscope.open().names, lab.runs().height)"
    )
    done = subprocess.run([python, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == [str(site / "bbrscope/__init__.py"), "['v2_x_spur']", "1"], done


def test_the_source_archive_makes_the_same_wheel(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run([*build, "-t", "sdist"], cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    (source,) = (path for path in tmp_path.iterdir() if path.is_dir())
    subprocess.run([*build, "-t", "wheel"], cwd=source, check=True, capture_output=True)
    (again,) = tmp_path.glob("*.whl")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(wheel.namelist())


def test_the_shipped_recordings_are_the_kernels_own(traces: Path) -> None:
    from bbrscope import fixtures

    for name in fixtures.names():
        shipped, original = fixtures.path(name), traces / name
        files = {path.name for path in shipped.iterdir()}
        assert files == {path.name for path in original.iterdir()}
        for file in files:
            assert (shipped / file).read_bytes() == (original / file).read_bytes()
