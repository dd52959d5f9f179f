"""The lab on this machine: what it refuses, what it would start, and what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from bbrscope.collect.guest import root as guest_root
from bbrscope.collect.lab import host, lab_points, scenario, testbed, traffic, vm
from bbrscope.collect.lab import lab_run as run
from bbrscope.probes.base.errors import HostError

from tests.recordings import MAIN

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None,
    reason="needs root and iproute2: run pytest with sudo",
)


def lab(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MAIN, "lab", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def point(*settings: str) -> lab_points.LabPoint:
    """One run of a scenario with two flows, some parameters set."""
    chosen = scenario.quick(scenario.load("song-cubic"))
    values = dict(setting.split("=") for setting in settings)
    wanted = {"buffer": ["1bdp"], **{name: [value] for name, value in values.items()}}
    return next(scenario.points(scenario.override(chosen, wanted)))


def state() -> tuple[str, ...]:
    """What the lab could leave changed on a host."""
    commands = (
        "ip netns list",
        "ip -o link",
        "ip -br addr",  # without lifetimes, which run
        "tc qdisc show",
        "sysctl net.ipv4.ip_forward net.ipv4.tcp_congestion_control net.ipv4.tcp_rmem",
    )
    texts = [subprocess.run(c.split(), capture_output=True, text=True).stdout for c in commands]
    return (*texts, " ".join(sorted(host.loaded_modules())))


@needs_root
def test_a_testbed_that_cannot_be_built_leaves_the_host_as_it_was(host_alone: None) -> None:
    before = state()
    with pytest.raises(HostError) as error, testbed.built(point("rtt=100000s")):
        pass
    assert "tc" in error.value.fact
    assert state() == before


@needs_root
def test_a_lab_that_this_kernel_cannot_run_says_why_and_changes_nothing(
    host_alone: None, tmp_path: Path
) -> None:
    if host.has_module("sch_netem"):
        pytest.skip("this kernel has netem: the guest's test runs the lab")
    before = state()
    done = lab("run", "song-single-buffer", "--quick", "--cc", "bbr", cwd=tmp_path)
    assert done.returncode == 1
    assert "this kernel has no sch_netem" in done.stderr
    assert "--vm" in done.stderr
    assert state() == before
    assert list(tmp_path.glob("*.duckdb")) == []


@needs_root
def test_what_a_killed_lab_left_is_refused_until_it_is_cleaned(
    host_alone: None, tmp_path: Path
) -> None:
    before = state()
    subprocess.run(["ip", "netns", "add", testbed.SENDERS], check=True)
    inside = subprocess.Popen(["ip", "netns", "exec", testbed.SENDERS, "sleep", "600"])
    try:
        with pytest.raises(HostError, match="bbrlab-s") as error, testbed.built(point()):
            pass
        assert error.value.way_out.endswith("bbrscope lab clean")
        assert testbed.existing() == [testbed.SENDERS]
        done = lab("clean", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"removed {testbed.SENDERS}\n")
        assert inside.wait(100) == -9
    finally:
        inside.kill()
    assert state() == before
    assert lab("clean", cwd=tmp_path).stdout == "nothing to remove\n"


@needs_root
def test_two_labs_at_once_are_refused(tmp_path: Path) -> None:
    with run.exclusively():
        done = lab("clean", cwd=tmp_path)
    assert done.returncode == 1
    assert "another lab is running" in done.stderr


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("run", "song-single-bufer"), 1, "near: song-single-buffer"),
        (("run", "song-single-buffer", "--set", "bufer=1bdp"), 1, "near: buffer"),
        (("run", "song-single-buffer", "--set", "rate"), 1, "'rate' sets nothing"),
        (("run", "song-single-buffer", "--set", "rate=fast"), 1, "rate 'fast'"),
        (("run", "song-single-buffer", "--cc", ""), 1, "'cc=' sets nothing"),
        (("run", "song-single-buffer", "--set", "shaper=cbq"), 1, "shaper is one of tbf, htb"),
        (("run", "song-single-buffer", "--kernel", "/"), 2, "--kernel goes with --vm"),
        (("list", "nothing-like-it"), 1, "no scenario called"),
        (("run", "./mine.toml"), 1, "there is no file ./mine.toml"),
    ],
)
def test_wrong_words_are_reported_before_anything_is_built(
    words: tuple[str, ...], status: int, said: str, tmp_path: Path
) -> None:
    done = lab(*words, cwd=tmp_path)
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_root_and_without_qemu_both_ways_out_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(guest_root, "TOOLS", {"no-such-tool": "some-package"})
    with pytest.raises(HostError) as error:
        host.require_root()
    assert "sudo" in error.value.way_out
    assert "apt-get install some-package" in error.value.way_out
    with pytest.raises(HostError, match="a guest needs some-package"):
        vm.version(None)
    with pytest.raises(HostError) as error:
        host.require_root(in_guest=False)
    assert error.value.way_out == "use sudo"


def test_a_folder_for_guests_that_cannot_be_used_is_named_with_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BBRSCOPE_GUESTS", str(tmp_path / "file" / "guests"))
    with pytest.raises(guest_root.GuestError, match=r"cannot use .*/file/guests") as error:
        guest_root.build_root("bookworm")
    assert "BBRSCOPE_GUESTS" in error.value.way_out


def test_a_rate_beyond_what_was_measured_is_refused_also_when_it_comes_later() -> None:
    run.refuse_beyond(point("rate=90mbit"), 100_000_000)
    with pytest.raises(HostError, match="this machine forwards 100 Mbit/s"):
        run.refuse_beyond(point("rate=200mbit"), 100_000_000)
    chosen = scenario.load("song-bwchange")
    with pytest.raises(HostError, match="80 Mbit/s"):
        run.refuse_beyond(next(scenario.points(chosen)), 50_000_000)


def test_a_run_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert not run.finished(folder)
    folder.mkdir()
    (folder / "manifest.json").write_text("{")
    assert not run.finished(folder)
    (folder / "manifest.json").write_text(json.dumps({"lab": {}}))
    assert run.finished(folder)


def test_a_cpu_is_busy_for_the_traffic_but_not_with_the_recording() -> None:
    """/proc/stat: user nice system idle iowait irq softirq steal."""
    assert host.busy([(0, 0), (0, 0)], [(90, 100), (40, 100)]) == 0.6
    assert all(free <= total for free, total in host.cpu_times())


def test_each_kind_of_flow_is_a_command_of_iperf3() -> None:
    base = point()
    flow = lab_points.FlowSpec(1, "bbr", "bulk", 0, 10_000_000, 0)

    def words(**changed: object) -> str:
        return " ".join(traffic.client(base, lab_points.FlowSpec(**{**vars(flow), **changed})))

    assert words().endswith("-p 5202 -C bbr -J -t 10")
    assert words(kind="fixed-size", size_bytes=10**6).endswith("-n 1000000 -l 16K")
    assert words(kind="rate-limited", rate_bps=10**6).endswith("-t 10 -b 1000000 -l 1448")
    # 10 Mbit/s for 2 s are 152 blocks of 16 KiB; with 3 s of silence their mean is 4 Mbit/s.
    assert words(kind="on-off", on_us=2 * 10**6, off_us=3 * 10**6).endswith(
        "-t 10 -b 3984588/152 -l 16384"
    )


def test_starts_are_drawn_from_the_seed_within_one_round_trip(tmp_path: Path) -> None:
    base = point()
    starts = [step["at_s"] for step in traffic.plan(base, tmp_path)["steps"]]
    assert starts == [step["at_s"] for step in traffic.plan(base, tmp_path)["steps"]]
    assert all(0 <= start < base.path.rtt_us / 1e6 for start in starts)
    assert len(set(starts)) == 2


def test_an_outage_has_an_end_and_restores_the_loss_that_was_there() -> None:
    base = point("loss=1%")
    outage = lab_points.PathChange(5_000_000, "outage", 2e6)
    away, back = testbed.commands(base, outage)
    assert (away[0], back[0]) == (5_000_000, 7_000_000)
    assert away[1][-3:] == ["loss", "random", "100.000000%"]
    assert back[1][-3:] == ["loss", "random", "1.000000%"]
    # Also if that had changed before.
    changed = replace(base, changes=(lab_points.PathChange(3_000_000, "loss", 0.05), outage))
    assert testbed.commands(changed, outage)[1][1][-1] == "5.000000%"


def test_bbr2_heeds_ecn_on_a_path_with_it_and_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testbed, "BBR2", tmp_path)
    before = {"ecn_enable": "N\n", "ecn_max_rtt_us": "5000\n"}

    def settings() -> dict[str, str]:
        return {name: (tmp_path / name).read_text() for name in before}

    for name, value in before.items():
        (tmp_path / name).write_text(value)
    for cc, ecn, heeds in (("bbr2", "yes", True), ("bbr2", "no", False), ("bbr", "yes", False)):
        with contextlib.ExitStack() as stack:
            stack.enter_context(testbed.heeding_ecn(point(f"cc={cc}", f"ecn={ecn}")))
            assert settings() == ({"ecn_enable": "1", "ecn_max_rtt_us": "0"} if heeds else before)
        assert settings() == before
    (tmp_path / "ecn_max_rtt_us").unlink()
    with (
        pytest.raises(HostError, match="ecn_max_rtt_us"),
        testbed.heeding_ecn(point("cc=bbr2", "ecn=yes")),
    ):
        pass
    assert (tmp_path / "ecn_enable").read_text() == before["ecn_enable"]


def test_flows_with_other_delays_have_links_of_their_own() -> None:
    chosen = scenario.quick(scenario.load("song-rttfair-sweep"))
    base = next(scenario.points(chosen))
    assert testbed.extra_delays(base) == [0, 60_000]
    ends = {testbed.receiver(base, flow.extra_rtt_us) for flow in base.flows}
    assert len(ends) == 2


def test_of_two_bbrs_only_that_of_a_run_is_held_but_what_was_there_before_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = {"tcp_bbr", "tcp_bbr2", "sch_netem"}
    loaded: list[str] = []
    monkeypatch.setattr(host, "loaded_modules", lambda: set(held))
    monkeypatch.setattr(host, "unload", lambda modules: held.difference_update(modules))
    monkeypatch.setattr(host, "congestion_controls", loaded.extend)
    host.hold_only({"bbr2", "bbr"}, {"tcp_bbr"})
    assert held == {"tcp_bbr", "sch_netem"}
    # v2's comes last: that is the one whose callbacks probes find.
    assert loaded == ["bbr", "bbr2"]


def test_without_events_ss_records_and_the_version_is_still_reported(tmp_path: Path) -> None:
    kept = run.LabCaptures(events=False, packets=False)
    recording = run._recording(tmp_path, "x", kept, {"bbr": "v1"})
    assert (recording.rung, recording.packets, recording.bbr) == ("inet_diag", False, "v1")
    assert run._recording(tmp_path, "x", run.LabCaptures(), {"bbr": "v1"}).rung is None


def test_every_flow_says_which_bbr_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one BBR of a kernel is recorded, but which ones it has is known of all."""
    present: set[str] = set()

    def candidates(_base: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(version=SimpleNamespace(name=name)) for name in present]

    monkeypatch.setattr(host.btf, "load", lambda: None)
    monkeypatch.setattr(host.target, "candidates", candidates)
    for kernel, recorded, versions in (
        ({"v1", "v2"}, "v2", {"bbr": "v1", "bbr2": "v2"}),
        ({"v3", "v2"}, "v2", {"bbr": "v3", "bbr2": "v2"}),
        ({"v1"}, "v1", {"bbr": "v1"}),
        ({"v3"}, "v3", {"bbr": "v3"}),
    ):
        present.clear()
        present.update(kernel)
        ccs = {"cubic", *versions}
        assert host.bbr_versions(ccs) == versions
        assert host.recorded(host.bbr_versions(ccs)) == recorded
        flow = lab_points.FlowSpec(1, "bbr", "bulk", 0, 10**6, 0)
        assert run._flow(point(), flow, {"flows": {}}, versions)["bbr_version"] == versions["bbr"]
    assert host.bbr_versions({"cubic"}) == {}
    assert host.recorded({}) is None


def test_an_iperf3_that_does_not_pause_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "iperf3"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for version, refused in (("3.17.1", False), ("3.18", True), ("3.19", False)):
        tool.write_text(f"#!/bin/sh\necho 'iperf {version} (cJSON 1.7.15)'\n")
        tool.chmod(0o755)
        expected = pytest.raises(HostError, match=r"3\.18") if refused else contextlib.nullcontext()
        with expected:
            host.require_pauses()
