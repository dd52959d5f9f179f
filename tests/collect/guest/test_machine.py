"""The guest runner's own decisions: which kernel, which modules, what an unpacked Debian lacks."""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from importlib import metadata
from pathlib import Path

import pytest
from bbrscope.collect.guest import GuestError, kernel, machine, root
from bbrscope.collect.guest.board import BOARDS

NOBODY = 65534


def make_kernel(folder: Path, release: str) -> None:
    (folder / "boot").mkdir(exist_ok=True)
    (folder / f"boot/vmlinuz-{release}").touch()
    (folder / "lib/modules" / release).mkdir(parents=True)


def test_a_root_that_two_ask_for_at_once_is_built_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BBRSCOPE_GUESTS", str(tmp_path / "guests"))
    begun, go_on = threading.Event(), threading.Event()
    built = []

    def unpack(suite: str, folder: Path, architecture: str) -> None:
        begun.set()
        assert go_on.wait(20)
        folder.mkdir()
        built.append(suite)

    monkeypatch.setattr(root, "unpack", unpack)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(root.build_root, "bookworm")
        assert begun.wait(20)
        second = pool.submit(root.build_root, "bookworm")
        assert not wait([second], timeout=0.3).done
        go_on.set()
        assert first.result() == second.result() == tmp_path / "guests/bookworm"
    assert built == ["bookworm"]


def test_the_newest_kernel_is_found_by_number_not_by_letter(tmp_path: Path) -> None:
    for release in ("6.1.0-9-amd64", "6.1.0-50-amd64", "6.1.0-10-amd64"):
        make_kernel(tmp_path, release)
    assert kernel.newest_kernel(tmp_path).release == "6.1.0-50-amd64"


def test_a_kernel_is_an_image_with_its_modules(tmp_path: Path) -> None:
    make_kernel(tmp_path, "6.1.0-9-amd64")
    (tmp_path / "boot/vmlinuz-6.9.0-1-amd64").touch()
    assert kernel.newest_kernel(tmp_path).image == tmp_path / "boot/vmlinuz-6.1.0-9-amd64"
    (tmp_path / "boot/vmlinuz-6.1.0-9-amd64").unlink()
    with pytest.raises(GuestError, match="holds no kernel"):
        kernel.newest_kernel(tmp_path)
    # Where Debian's newer packages have them.
    late = tmp_path / "usr/lib/modules/7.2.13-amd64"
    late.mkdir(parents=True)
    (late / "vmlinuz").touch()
    assert kernel.newest_kernel(tmp_path).image == late / "vmlinuz"


def test_modules_load_after_what_they_need_and_only_once(tmp_path: Path) -> None:
    lines = ["v/virtio_pci.ko: v/virtio.ko", "n/9pnet_virtio.ko: n/9pnet.ko v/virtio.ko"]
    lines += ["f/9p.ko.xz: n/9pnet.ko f/netfs.ko", "v/virtio.ko:", "n/9pnet.ko:", "f/netfs.ko:"]
    (tmp_path / "modules.dep").write_text("\n".join(lines))
    order = [path.name for path in kernel.module_order(tmp_path)]
    assert len(order) == len(set(order)) == 6
    for before, after in (("virtio.ko", "virtio_pci.ko"), ("9pnet.ko", "9p.ko.xz")):
        assert order.index(before) < order.index(after)


def test_compressed_modules_are_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "9p.ko.xz"
    path.write_bytes(lzma.compress(b"module"))
    assert kernel.decompressed(path) == b"module"


def test_a_missing_tool_is_named_as_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root, "TOOLS", {"no-such-tool-here": "some-package"})
    assert root.missing_tools() == ["some-package"]
    with pytest.raises(GuestError) as caught:
        machine.run("bookworm", "true", tmp_path)
    assert caught.value.way_out == "apt-get install some-package"


def test_packages_that_are_not_there_are_told_before_anything_is_booted(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match="nowhere is no folder of packages"):
        machine.run("bookworm", "true", tmp_path, packages=tmp_path / "nowhere")


def test_what_packages_scripts_would_have_made_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("etc", "usr/bin", "usr/share/base-passwd", "usr/lib/modules/6.1.0-9-amd64"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("passwd", "group"):
        (tmp_path / f"usr/share/base-passwd/{name}.master").write_text("root:*:0:\n")
    called: list[list[str]] = []
    monkeypatch.setattr(root, "checked", called.append)
    root.finish(tmp_path)
    assert (tmp_path / "etc/passwd").read_text().splitlines()[1].startswith("tcpdump:")
    assert os.readlink(tmp_path / "usr/bin/sh") == "dash"
    assert called == [["depmod", "-b", str(tmp_path), "6.1.0-9-amd64"]]


def test_no_mirror_is_reported_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text("#!/bin/sh\necho Ubuntu http://ubuntu.example/\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("BBRSCOPE_MIRROR", raising=False)
    with pytest.raises(GuestError) as caught:
        root.mirror()
    assert "BBRSCOPE_MIRROR" in caught.value.way_out
    apt.write_text(
        "#!/bin/sh\necho Debian-Security http://a.example/\necho Debian http://b.example/\n"
    )
    assert root.mirror() == "http://b.example/"


@pytest.fixture
def home_of_nobody() -> Iterator[Path]:
    """A home that belongs to nobody, outside of pytest's folders: they let nobody else in."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        for package in ("collect", "probes"):
            shutil.copytree(machine.PACKAGE / package, home / "bbrscope" / package)
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        yield home


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="not root: every guest test is this one")
def test_a_user_who_is_not_root_builds_and_boots_a_guest(home_of_nobody: Path) -> None:
    if lacking := root.missing_tools():
        pytest.skip(f"needs QEMU: apt-get install {' '.join(lacking)}")
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("needs a Python that other users can run: apt-get install python3")
    home = str(home_of_nobody)
    done = subprocess.run(
        [python, "-m", "bbrscope.collect.guest", "bookworm", "--", "sh", "-c", "uname -r; id -u"],
        cwd=home,
        env={"HOME": home, "PYTHONPATH": home, "PATH": os.environ["PATH"]},
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    release, user = done.stdout.split()
    assert release.startswith("6.1.")
    assert user == "0"
    assert (home_of_nobody / ".cache/bbrscope-guests/bookworm").stat().st_uid == NOBODY


def test_a_guest_knows_the_version_of_what_it_runs(tmp_path: Path) -> None:
    """`bbrscope --version` asks Python's metadata, which a folder of modules has not."""
    machine._write_version(tmp_path)
    asked = "from importlib.metadata import version; print(version('bbrscope'))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", asked],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == metadata.version("bbrscope")


@pytest.mark.parametrize("architecture", sorted(BOARDS))
def test_a_guest_is_what_its_board_says(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = BOARDS[architecture]
    one, command = (
        machine.Machine(
            board, tmp_path / "image", tmp_path / "initramfs", {"rootfs": (tmp_path, "")}, cpus
        ).command()
        for cpus in (1, 2)
    )
    assert command[0] == board.qemu
    assert command[command.index("-smp") + 1] == "2"
    # Several CPUs never got past the firmware in virtual time.
    assert "-icount" in one
    assert "-icount" not in command
    assert f"console={board.console} " in command[command.index("-append") + 1]
    # The package is named that has this machine's QEMU.
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(root, "SBIN", str(tmp_path))
    assert board.package in root.missing_tools(board)
