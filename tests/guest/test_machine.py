"""The guest runner's own decisions, without booting: which kernel, which modules, in what order."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from bbrscope.collect.guest import GuestError, kernel, machine, root


def make_kernel(folder: Path, release: str) -> None:
    (folder / "boot").mkdir(exist_ok=True)
    (folder / f"boot/vmlinuz-{release}").touch()
    (folder / "lib/modules" / release).mkdir(parents=True)


def test_the_newest_kernel_is_found_by_number_not_by_letter(tmp_path: Path) -> None:
    for release in ("6.1.0-9-amd64", "6.1.0-50-amd64", "6.1.0-10-amd64"):
        make_kernel(tmp_path, release)
    assert kernel.newest_kernel(tmp_path) == "6.1.0-50-amd64"


def test_a_kernel_is_an_image_with_its_modules(tmp_path: Path) -> None:
    make_kernel(tmp_path, "6.1.0-9-amd64")
    (tmp_path / "boot/vmlinuz-6.9.0-1-amd64").touch()
    assert kernel.newest_kernel(tmp_path) == "6.1.0-9-amd64"
    (tmp_path / "boot/vmlinuz-6.1.0-9-amd64").unlink()
    with pytest.raises(GuestError, match="holds no kernel"):
        kernel.newest_kernel(tmp_path)


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
