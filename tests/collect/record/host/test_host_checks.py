"""doctor tells what this host can do, in one screen and as JSON, and changes nothing."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path
from unittest import mock

from bbrscope.collect.bundle.rungs import LADDER
from bbrscope.collect.lab import host
from bbrscope.collect.record.host import host_checks, ladder, lockdown

from tests.recordings import MAIN

TOPICS = (
    "user capabilities BTF kernel lockdown kprobes fentry tracefs bpftrace tcpdump tshark BBR "
    "qdisc HZ"
).split()


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MAIN, "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def test_every_topic_is_on_the_screen_and_every_problem_has_advice() -> None:
    answer = json.loads(ran("--json").stdout)
    topics = {check["topic"] for check in answer["checks"]}
    assert set(TOPICS) <= topics
    for check in answer["checks"]:
        assert check["state"] in ("ok", "note", "missing")
        if check["state"] == "missing":
            assert check["advice"], check


def test_the_best_rung_is_the_first_usable_one() -> None:
    answer = json.loads(ran("--json").stdout)
    assert [rung["rung"] for rung in answer["rungs"]] == [rung.name for rung in LADDER]
    usable = [rung["rung"] for rung in answer["rungs"] if rung["usable"]]
    assert answer["best"] == usable[0]


def test_the_screen_fits_a_terminal() -> None:
    lines = ran().stdout.splitlines()
    assert len(lines) < 60
    assert lines[-1].startswith("collect would use: ")


def state() -> tuple[object, ...]:
    """What a look at the host could change: mounts, modules (not their users), settings."""
    settings = sorted(Path("/proc/sys/net/ipv4").glob("tcp_*congestion*"))
    texts = [path.read_text() for path in (Path("/proc/mounts"), *settings)]
    return (*texts, host.loaded_modules())


def test_nothing_on_the_host_is_changed(host_alone: None) -> None:
    before = state()
    host_checks.diagnose(Path())
    assert state() == before


def test_bbr_is_named_by_the_size_of_its_struct() -> None:
    answer = json.loads(ran("--json").stdout)
    values = [check["value"] for check in answer["checks"] if check["topic"] == "BBR"]
    assert values
    for value in values:
        assert "struct bbr of" in value or "none among" in value or "unknown" in value


def test_lockdown_is_known_by_securityfs_or_by_an_attempt_to_open_memory(tmp_path: Path) -> None:
    """Under `ip netns exec` and in containers nothing is mounted: that does not mean none."""
    memory = tmp_path / "kcore"
    memory.touch()
    for securityfs in (tmp_path / "empty", tmp_path / "missing"):
        assert lockdown.mode(securityfs, memory) == "none or integrity"
        assert lockdown.mode(securityfs, tmp_path / "no_kcore") is None
        assert lockdown.mode(securityfs, Path("/dev/null")) is None
    refusal = PermissionError(errno.EPERM, "Operation not permitted")
    with mock.patch("os.open", side_effect=refusal):
        assert lockdown.mode(tmp_path / "missing", memory) == "confidentiality"
        with mock.patch.object(lockdown, "held_capabilities", return_value=0):
            assert lockdown.mode(tmp_path / "missing", memory) is None
    assert host_checks.about_lockdown(None).state == "note"
    (tmp_path / "lsm").write_text("capability")
    assert lockdown.mode(tmp_path) == "not in this kernel"
    for mode, state in (("none", "ok"), ("integrity", "ok"), ("confidentiality", "missing")):
        text = "none integrity confidentiality".replace(mode, f"[{mode}]")
        (tmp_path / "lockdown").write_text(text)
        assert lockdown.mode(tmp_path) == mode
        assert host_checks.about_lockdown(mode).state == state


def test_a_kernel_that_is_locked_down_rules_every_probe_out_and_says_so() -> None:
    with mock.patch.object(lockdown, "mode", return_value="confidentiality") as asked:
        report = host_checks.diagnose(Path("/tmp"))
    assert asked.call_count == 1
    steps = ladder.ladder(None, None, "confidentiality")
    assert [step.reason for step in steps[:3]] == [lockdown.NO_READING] * 3
    assert not any(step.usable for step in steps[:3])
    assert report.best in ("inet_diag", "nothing")
    fentry = next(check for check in report.checks if check.topic == "fentry")
    assert (fentry.state, fentry.advice) == ("missing", lockdown.WAY_OUT)
