"""doctor tells what this host can do, in one screen and as JSON, and changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bbrscope.collect.bundle.rungs import LADDER
from bbrscope.collect.lab import host
from bbrscope.collect.record.host import host_checks

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


def test_lockdown_is_unknown_where_securityfs_is_not_mounted(tmp_path: Path) -> None:
    """As under `ip netns exec`, or in a container: nothing there does not mean no lockdown."""
    for securityfs in (tmp_path, tmp_path / "missing"):
        answer = host_checks.lockdown(securityfs)
        assert (answer.state, answer.value) == ("note", "unknown: securityfs is not mounted")
        assert "mount -t securityfs" in answer.advice
    (tmp_path / "lsm").write_text("capability")
    assert host_checks.lockdown(tmp_path).value == "not in this kernel"
    for mode, state in (("none", "ok"), ("integrity", "ok"), ("confidentiality", "missing")):
        text = "none integrity confidentiality".replace(mode, f"[{mode}]")
        (tmp_path / "lockdown").write_text(text)
        check = host_checks.lockdown(tmp_path)
        assert (check.value, check.state) == (mode, state)
