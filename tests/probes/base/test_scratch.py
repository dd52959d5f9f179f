"""Scratch folders: gone at the end, and gone after kill -9 when the next one is made."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from bbrscope.probes.base.scratch import ScratchFolder

HOLD = """
import sys, time
from pathlib import Path
from bbrscope.probes.base.scratch import ScratchFolder
with ScratchFolder(Path(sys.argv[1])) as scratch:
    (scratch.path / "content").write_text("x")
    print(scratch.path, flush=True)
    time.sleep(600)
"""


def holder(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that has a scratch folder."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_folder_and_its_content_are_gone_at_the_end(tmp_path: Path) -> None:
    with ScratchFolder(tmp_path) as scratch:
        (scratch.path / "content").write_text("x")
        assert scratch.path.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_killed_process_goes_and_that_of_a_living_one_stays(
    tmp_path: Path,
) -> None:
    (killed, left), (living, held) = holder(tmp_path), holder(tmp_path)
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert left.is_dir()
        with ScratchFolder(tmp_path) as scratch:
            assert sorted(tmp_path.iterdir()) == sorted([held, scratch.path])
        assert (held / "content").read_text() == "x"
    finally:
        living.kill()
        living.wait()


def test_a_link_of_such_a_name_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "content").write_text("x")
    (tmp_path / ".bbrscope-scratch-link").symlink_to(other)
    ScratchFolder(tmp_path).close()
    assert (other / "content").read_text() == "x"


def test_the_systems_folder_is_found_without_a_file_that_a_kill_would_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: pytest.fail("it writes a file"))
    with ScratchFolder() as scratch:
        assert scratch.path.parent == tmp_path
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    with ScratchFolder() as scratch:
        assert scratch.path.parent == Path("/tmp")
