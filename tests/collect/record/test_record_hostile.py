"""Hosts that lack something or get in the way: one clear message, status 1, nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.collect.record.test_record_host import (
    MAIN,
    SELF_TALK,
    Traffic,
    collect,
    left_behind,
    manifest,
    needs_bbr,
    needs_bpftrace,
    needs_btf,
    needs_root,
    ran,
    rows,
    traced,
)

QUICK = ("-d", "1", "--no-packets")
TOOLS = ("ss", "ip", "tc", "sh", "sleep", "true")


def tools_in(folder: Path, fake_bpftrace: str) -> dict[str, str]:
    """An environment whose PATH has a few real tools, and a bpftrace that is a script."""
    folder.mkdir()
    for tool in TOOLS:
        if path := shutil.which(tool):
            (folder / tool).symlink_to(path)
    script = folder / "bpftrace"
    script.write_text("#!/bin/sh\n" + fake_bpftrace)
    script.chmod(0o755)
    return {**os.environ, "PATH": str(folder)}


def failed(words: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert "Traceback" not in done.stderr
    return done


def children_of(pid: int) -> list[str]:
    """Children that are there or were not waited for, by their state and name."""
    done = subprocess.run(
        ["ps", "-o", "stat=,comm=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines()


# A bpftrace of long ago: asked for its version it answers, what it does not know it refuses.
OLD = """
case "$1" in
--version) echo "bpftrace v0.9.4"; exit 0;;
--info) echo "Kernel: 5.4"; echo "  kfunc: no"; echo "  kprobe: yes"; exit 0;;
*) echo "stdin:1:1-9: ERROR: syntax error, unexpected struct" >&2; exit 1;;
esac
"""


def able(version: str, info: str, program: str) -> str:
    """A bpftrace that says what it is, takes what it is tried with, and then runs this."""
    return f"""
case "$1" in
--version) echo "bpftrace {version}"; exit 0;;
--info) echo "  {info}"; exit 0;;
-e) exit 0;;
*) {program};;
esac
"""


# One that hangs while it is attaching, and ignores being asked to end.
HANGING = able("v0.23.0", "fentry: yes", "trap '' INT TERM; while :; do sleep 1; done")
# One that overlooks the first SIGINT, as 0.17 may, and counts its events at the second.
DEAF = able(
    "v0.17.0",
    "kfunc: no",
    """trap 'echo "+over"; echo "+over"' URG; asked=
   trap '[ -z "$asked" ] || { echo "@attempted_T: 0"; exit 0; }; asked=once' INT
   echo "+first"; echo "+last"; while :; do sleep 0.1; done""",
)
# One that stood still for so long that rows of its second CPU come after newer ones were written.
LATE = able(
    "v0.17.0",
    "kfunc: no",
    """trap 'echo "+over"; echo "+over"' URG
   trap 'echo "@attempted_T: 41"; exit 0' INT
   echo "+first"; echo "+last"; echo "#T,ns,sk,seqno"
   for n in 0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30 32 34 36 38 40
   do echo "T,$((n + 1))00000000,ff,$n"; done
   sleep 1
   for n in 1 3 5 7 9 11 13 15 17 19 21 23 25 27 29 31 33 35 37 39
   do echo "T,$((n + 1))00000000,ff,$n"; done
   while :; do sleep 0.1; done""",
)


class TestBpftraceThatDoesNotFit:
    pytestmark = traced

    def test_one_that_is_too_old_is_quoted_and_the_next_rung_is_taken(self, tmp_path: Path) -> None:
        env = tools_in(tmp_path / "bin", OLD)
        with Traffic():
            done = failed(collect(*QUICK, "-o", str(tmp_path / "run")), env=env)
        assert done.returncode == 0, done.stderr
        kept = manifest(tmp_path / "run")
        assert kept["rung"] == "inet_diag"
        ladder = kept["ladder"]
        assert isinstance(ladder, list)
        assert any("syntax error" in step["reason"] for step in ladder)
        assert left_behind(tmp_path) == []

    def test_one_that_is_too_old_for_the_only_rung_asked_for_ends_it(self, tmp_path: Path) -> None:
        env = tools_in(tmp_path / "bin", OLD)
        words = collect("--rung", "tcp_probe", *QUICK, "-o", str(tmp_path / "run"))
        done = failed(words, env=env)
        assert done.returncode == 1
        assert "nothing could be attached" in done.stderr
        assert "syntax error" in done.stderr
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]

    def test_one_of_another_machine_is_told_and_the_last_rung_is_taken(
        self, tmp_path: Path
    ) -> None:
        env = tools_in(tmp_path / "bin", "")
        (tmp_path / "bin" / "bpftrace").write_bytes(b"\x7fELF of elsewhere")
        why = "bin/bpftrace cannot run here: Exec format error"
        with Traffic():
            done = failed(collect(*QUICK, "-o", str(tmp_path / "run")), env=env)
        assert done.returncode == 0, done.stderr
        assert why in done.stderr
        assert manifest(tmp_path / "run")["rung"] == "inet_diag"
        told = failed([sys.executable, "-c", MAIN, "doctor"], env=env)
        assert why in told.stdout
        assert "architecture" in told.stdout

    def test_one_that_overlooks_the_request_to_end_is_asked_again(self, tmp_path: Path) -> None:
        env = tools_in(tmp_path / "bin", DEAF)
        with Traffic():  # an empty recording is an error; ss sees this flow
            done = failed(
                collect("--rung", "tcp_probe", *QUICK, "-o", str(tmp_path / "run")), env=env
            )
        assert done.returncode == 0, done.stderr
        accounting = manifest(tmp_path / "run")["accounting"]
        assert isinstance(accounting, dict)
        assert accounting["probes"]["T"]["attempted"] == 0
        assert accounting["complete"]
        assert "note: no event was recorded of the sockets that ss saw" in done.stderr

    def test_one_that_stood_still_leaves_rows_in_order_and_none_missing(
        self, tmp_path: Path
    ) -> None:
        env, out = tools_in(tmp_path / "bin", LATE), tmp_path / "run"
        words = ("--rung", "tcp_probe", "-d", "3", "--no-packets", "-o", str(out))
        done = failed(collect(*words), env=env)
        assert done.returncode == 0, done.stderr
        assert "putting rows in order" in done.stderr
        numbers = [int(row["seqno"]) for row in rows(out, "T")]
        assert numbers == list(range(41))
        assert sorted(path.name for path in out.glob(".*")) == []

    def test_ctrl_c_while_it_is_attaching_leaves_nothing(self, tmp_path: Path) -> None:
        """The child ignores SIGINT: it is killed in the end, and waited for."""
        env = tools_in(tmp_path / "bin", HANGING)
        words = collect("--rung", "tcp_probe", *QUICK, "-o", str(tmp_path / "run"))
        shortened = [
            *words[:2],
            f"import bbrscope.collect.record.tracer as t; t.STOP_S = 2; {words[2]}",
        ]
        running = subprocess.Popen(
            [*shortened, *words[3:]], env=env, stderr=subprocess.PIPE, text=True
        )
        assert running.stderr is not None
        while "attaching" not in running.stderr.readline():
            assert running.poll() is None
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=100)
        assert running.returncode == 1
        assert "stopped while bpftrace was attaching" in said
        assert "Traceback" not in said
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bin"]


@needs_root
@pytest.mark.parametrize("rung", ["", "tcp_probe"])
def test_a_kernel_without_btf_is_reported(rung: str, tmp_path: Path) -> None:
    """An empty folder is mounted over /sys/kernel/btf, in a mount namespace of its own."""
    if not Path("/sys/kernel/btf").is_dir() or shutil.which("bpftrace") is None:
        pytest.skip("needs /sys/kernel/btf to hide, and bpftrace: apt-get install bpftrace")
    words = collect(*(("--rung", rung) if rung else ()), *QUICK, "-o", str(tmp_path / "run"))
    script = 'mount -t tmpfs none /sys/kernel/btf || exit 77; exec "$@"'
    with Traffic():
        done = failed(["unshare", "-m", "sh", "-c", script, "sh", *words])
    if done.returncode == 77:
        pytest.skip("needs the right to mount a tmpfs")
    assert "BTF" in done.stderr
    if rung:
        assert done.returncode == 1
        assert list(tmp_path.iterdir()) == []
    else:
        assert done.returncode == 0, done.stderr
        assert manifest(tmp_path / "run")["rung"] == "inet_diag"


@pytest.mark.parametrize("rung", ["", "tcp_probe"])
@needs_root
@needs_bpftrace
@needs_bbr
@needs_btf
def test_in_a_container_the_process_that_was_meant_is_recorded_and_no_other(
    rung: str, tmp_path: Path
) -> None:
    """The host knows it by another number, and another process by this one."""
    words = collect(*(("--rung", rung) if rung else ()), *QUICK, "-o", str(tmp_path / "run"))
    talk = f"{sys.executable} {tmp_path}/talk.py"
    talking = f"{talk} > {tmp_path}/said & until [ -s {tmp_path}/said ]; do sleep 0.1; done"
    script = f'{talking}; "$@" --pid $!'
    (tmp_path / "talk.py").write_text(SELF_TALK.replace("range(300)", "range(2000)"))
    with Traffic():
        done = failed(["unshare", "-p", "-f", "--mount-proc", "sh", "-c", script, "sh", *words])
    assert done.returncode == 0, done.stderr
    document = manifest(tmp_path / "run")
    assert document["rung"] != "inet_diag"
    assert document["completeness"]["events"] > 0
    assert document["completeness"]["flows"] == 2


def test_a_command_that_is_there_but_cannot_run_ends_it(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nothing")
    broken.chmod(0o755)
    done = ran(
        "--rung", "inet_diag", "--no-packets", "-o", str(tmp_path / "run"), "--", str(broken)
    )
    assert done.returncode == 1
    assert "cannot start" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken"]


@needs_root
def test_no_space_from_the_start_is_reported_before_anything_is_attached(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    words = collect("--rung", "inet_diag", *QUICK, "-o", str(disk / "run"))
    script = f'mount -t tmpfs -o size=64k small {disk} || exit 77; "$@"; s=$?; ls {disk}; exit $s'
    done = failed(["unshare", "-m", "sh", "-c", script, "sh", *words])
    if done.returncode == 77:
        pytest.skip("needs the right to mount a tmpfs")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert done.stdout == ""


def test_no_child_outlives_a_recording_that_is_ended(tmp_path: Path) -> None:
    # Flows of other tests, which run at the same time, are not this one's: no flow has port 9.
    choice = ("--rung", "inet_diag", "--port", "9", "-o", str(tmp_path / "run"))
    words = collect(*choice, "--", "sleep", "60")
    keeper = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            "child = subprocess.Popen(sys.argv[1:], stderr=subprocess.PIPE, text=True)\n"
            "while 'recording' not in child.stderr.readline(): assert child.poll() is None\n"
            "time.sleep(1.5); child.terminate(); child.communicate(); print(child.returncode)\n"
            "sys.stdout.flush(); sys.stdin.read()",
            *words,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert keeper.stdout is not None
    assert keeper.stdout.readline() == "1\n"  # nobody sent anything: it is empty
    assert children_of(keeper.pid) == []
    keeper.communicate("", timeout=20)
    assert manifest(tmp_path / "run")["ended"] == "SIGTERM"
