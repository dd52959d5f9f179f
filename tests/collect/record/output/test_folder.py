"""A recording's folder: nothing in it is lost, nothing of others removed, nobody else reads it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from bbrscope.collect.record.output.folder import RecordingFolder, is_locked
from bbrscope.probes.base.errors import HostError

from tests.collect.record.test_record_host import (
    Traffic,
    collect,
    needs_bbr,
    needs_bpftrace,
    needs_btf,
    needs_root,
    ran,
)


@pytest.mark.parametrize("output", ["my run", ".", "", "/", "..", "a" * 101, "run\n", "r;s"])
def test_a_name_that_ingest_would_refuse_is_refused_before_recording(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HostError, match="does not end in a name"):
        RecordingFolder(Path(output))
    done = ran("--rung", "inet_diag", "-d", "1", "-o", output)
    assert done.returncode == 1
    assert "internal error" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_is_never_touched(tmp_path: Path) -> None:
    left = tmp_path / "data.partial"
    left.mkdir()
    (left / "events.csv.zst").write_text("what a killed recording left")
    with pytest.raises(HostError, match=r"data\.partial exists") as refused:
        RecordingFolder(tmp_path / "data")
    assert "--salvage" in refused.value.way_out
    assert (left / "events.csv.zst").read_text() == "what a killed recording left"


@pytest.mark.parametrize("name", ["run", "run.partial"])
def test_a_planted_link_is_not_followed(name: str, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (tmp_path / name).symlink_to(target)
    with pytest.raises(HostError, match="exists"):
        RecordingFolder(tmp_path / "run")
    assert list(target.iterdir()) == []
    assert (tmp_path / name).is_symlink()


def test_two_collectors_do_not_share_a_folder(tmp_path: Path) -> None:
    first = RecordingFolder(tmp_path / "run")
    assert is_locked(first.path)
    with pytest.raises(HostError, match="another collect is recording"):
        RecordingFolder(tmp_path / "run")
    first.close()
    assert not is_locked(first.path)


def test_what_another_put_in_the_way_meanwhile_stays(tmp_path: Path) -> None:
    folder = RecordingFolder(tmp_path / "run")
    (tmp_path / "run").mkdir()
    with pytest.raises(HostError, match="cannot name the bundle") as refused:
        folder.publish()
    assert refused.value.way_out == f"it is {folder.path}"
    assert folder.path.is_dir()


def test_nobody_but_the_owner_reads_a_recording(tmp_path: Path) -> None:
    with Traffic() as traffic:
        words = ("--rung", "inet_diag", "-d", "1.5", "--port", str(traffic.port))
        done = ran(*words, "-i", "lo", "-o", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    files = list((tmp_path / "run").iterdir())
    assert {path.name for path in files} >= {"manifest.json", "ss.txt.zst"}
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


@needs_root
@needs_bpftrace
@needs_bbr
@needs_btf
def test_what_sigkill_leaves_says_what_it_is_and_holds_the_events(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with Traffic() as traffic:
        words = ("--rung", "tcp_probe", "-i", "lo", "--port", str(traffic.port), "-o", str(out))
        running = subprocess.Popen(collect(*words), stderr=subprocess.PIPE, text=True)
        assert running.stderr is not None
        while "recording" not in running.stderr.readline():
            assert running.poll() is None
        time.sleep(5)
        children = descendants(running.pid)
        running.send_signal(signal.SIGKILL)
        running.communicate(timeout=100)
        left = out.with_name("run.partial")
        document = json.loads((left / "manifest.json").read_text())
        assert document["unfinished"]
        assert document["events"] is None
        assert (document["name"], document["rung"]) == ("run", "tcp_probe")
        assert document["clocks"]["end"]["monotonic_ns"] > 0
        assert text_so_far(left / "events.csv.zst").count("\nT,") > 50
        again = ran("--rung", "inet_diag", "-d", "1", "-o", str(out))
        assert again.returncode == 1
        assert "ingest --salvage" in again.stderr
        assert (left / "events.csv.zst").stat().st_size > 0
    gone_by = time.monotonic() + 60
    while alive := [pid for pid in children if Path(f"/proc/{pid}/exe").exists()]:
        assert time.monotonic() < gone_by, alive
        time.sleep(0.1)


def descendants(pid: int) -> list[int]:
    """The children of a process: bpftrace, tcpdump and what watches over it."""
    done = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def text_so_far(path: Path) -> str:
    """What can be decompressed of a stream that has no end."""
    import zstandard

    reader = zstandard.ZstdDecompressor().decompressobj()
    return reader.decompress(path.read_bytes()).decode()


@needs_root
def test_tcpdump_ends_with_its_collector_though_no_packet_comes(tmp_path: Path) -> None:
    words = collect("--rung", "inet_diag", "-i", "lo", "--port", "9", "-o", str(tmp_path / "run"))
    running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    while "recording" not in running.stderr.readline():
        assert running.poll() is None
    find = ["pgrep", "-P", str(running.pid), "-x", "tcpdump"]
    (tcpdump,) = subprocess.run(find, capture_output=True, text=True, check=True).stdout.split()
    running.send_signal(signal.SIGKILL)
    running.communicate(timeout=100)
    gone_by = time.monotonic() + 20
    while Path(f"/proc/{tcpdump}/exe").exists():
        assert time.monotonic() < gone_by
        time.sleep(0.1)


def test_no_program_is_left_in_the_temporary_folder(tmp_path: Path) -> None:
    """bpftrace reads it from the recording itself."""
    folder = RecordingFolder(tmp_path / "run")
    folder.write_probe("BEGIN { exit(); }")
    assert folder.probe.parent == folder.path
    assert stat.S_IMODE(folder.probe.stat().st_mode) == 0o600
    folder.discard()
    assert not folder.path.exists()


def test_a_manifest_is_whole_at_every_moment(tmp_path: Path) -> None:
    folder = RecordingFolder(tmp_path / "run")
    folder.write_manifest({"name": "first"})
    before = os.stat(folder.path / "manifest.json").st_ino
    folder.write_manifest({"name": "second"})
    assert json.loads((folder.path / "manifest.json").read_text()) == {"name": "second"}
    assert os.stat(folder.path / "manifest.json").st_ino != before
    folder.discard()


def test_a_full_disk_is_told_before_a_recording_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(HostError, match=r"cannot keep 2 MB free .* No space left") as told:
        RecordingFolder(tmp_path / "run")
    assert "make room there" in told.value.way_out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spare", [0, 1])
def test_a_limit_of_open_files_is_told_and_leaves_no_folder(spare: int, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 8, hard))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(taken[0]))
        for _ in range(spare):
            os.close(taken.pop())
        with pytest.raises(HostError) as told:
            RecordingFolder(tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
    assert "Too many open files" in str(told.value)
    assert "ulimit -n" in told.value.way_out
    assert list(tmp_path.iterdir()) == []
