"""The guest runner's own decisions, without booting: which kernel, which modules, in what order."""

from __future__ import annotations

import importlib.util
import lzma
from pathlib import Path
from types import ModuleType

import pytest

RUN = Path(__file__).with_name("run.py")


@pytest.fixture(scope="module")
def run() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bbrscope_guest_run", RUN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_newest_kernel_is_found_by_number_not_by_letter(
    run: ModuleType, tmp_path: Path
) -> None:
    for release in ("6.1.0-9-amd64", "6.1.0-50-amd64", "6.1.0-10-amd64"):
        (tmp_path / "lib/modules" / release).mkdir(parents=True)
    assert run.newest_kernel(tmp_path) == "6.1.0-50-amd64"


def test_modules_load_after_what_they_need_and_only_once(run: ModuleType, tmp_path: Path) -> None:
    lines = ["v/virtio_pci.ko: v/virtio.ko", "n/9pnet_virtio.ko: n/9pnet.ko v/virtio.ko"]
    lines += ["f/9p.ko.xz: n/9pnet.ko f/netfs.ko", "v/virtio.ko:", "n/9pnet.ko:", "f/netfs.ko:"]
    (tmp_path / "modules.dep").write_text("\n".join(lines))
    order = [path.name for path in run.module_order(tmp_path)]
    assert len(order) == len(set(order)) == 6
    for before, after in (("virtio.ko", "virtio_pci.ko"), ("9pnet.ko", "9p.ko.xz")):
        assert order.index(before) < order.index(after)


def test_compressed_modules_are_unpacked(run: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "9p.ko.xz"
    path.write_bytes(lzma.compress(b"module"))
    assert run.decompressed(path) == b"module"


def test_a_missing_tool_is_named_as_a_package(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "TOOLS", {"no-such-tool-here": "some-package"})
    assert run.missing_tools() == ["some-package"]
    with pytest.raises(run.GuestError, match="apt-get install some-package"):
        run.run("bookworm", "true", tmp_path)
