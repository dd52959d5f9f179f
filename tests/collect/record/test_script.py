"""The shell script: it records on the rung that holds, for its owner only, and removes nothing."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bbrscope.collect.record.output import check
from bbrscope.collect.record.output.accounting import trouble
from bbrscope.collect.record.script import probe, script
from bbrscope.probes.attach import LONGEST_TEXT, SHORT_TEXT

from tests.collect.record.captures.test_side_captures import with_tool
from tests.collect.record.test_record_host import (
    SELF_TALK,
    needs_bbr,
    needs_bpftrace,
    needs_btf,
    needs_root,
    traced,
)
from tests.processes import runs, wait_until
from tests.recordings import bbrscope, manifest, text


@pytest.fixture(scope="session")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script") / "collect.sh"
    path.write_text(script())
    return path


def recorded(
    collector: Path,
    out: Path,
    *words: str,
    inside: tuple[str, ...] = (),
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Record a flow over loopback by the rung that needs least."""
    (out.parent / "talk.py").write_text(f"{SELF_TALK}\nraise SystemExit(5)\n")
    command = [*inside, "sh", str(collector), "-r", "tcp_probe", "-o", str(out), *words]
    command += ["--", sys.executable, str(out.parent / "talk.py")]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


class TestOnThisKernel:
    pytestmark = traced

    def test_it_records_completely_and_passes_the_commands_status_on(
        self, collector: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "run"
        done = recorded(collector, out, "-i", "lo")
        assert done.returncode == 5, done.stderr
        document = manifest(out)
        assert (document["rung"], document["command_status"]) == ("tcp_probe", 5)
        counts = document["accounting"]["probes"]["T"]
        assert counts["attempted"] == counts["recorded"] > 50
        assert counts["lost_rows"] == 0
        assert check.check(out / "events.csv.zst").sequence_missing == 0
        assert stat.S_IMODE(out.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in out.iterdir()} == {0o600}
        assert {path.stat().st_uid for path in out.iterdir()} == {0}

    def test_rows_of_several_cpus_are_in_order_of_time(
        self, collector: Path, tmp_path: Path
    ) -> None:
        """bpftrace prints those of one CPU before those of another."""
        (tmp_path / "talk.py").write_text(SELF_TALK)
        talk = f"{sys.executable} {tmp_path}/talk.py"
        out, cpus = tmp_path / "run", sorted(os.sched_getaffinity(0))
        script = "".join(f"taskset -c {cpu} {talk} & " for cpu in (*cpus[:2], *cpus[:2])) + "wait"
        command = ["sh", str(collector), "-r", "tcp_probe", "-n", "-o", str(out)]
        command += ["--", "sh", "-c", script]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        rows = re.findall(r"^[A-Z]+[0-9]?,([0-9]+),", text(out / "events.csv.zst"), re.MULTILINE)
        times = [int(ns) for ns in rows]
        assert len(times) > 200
        assert times == sorted(times)
        assert check.check(out / "events.csv.zst").sequence_missing == 0

    @pytest.fixture
    def netns(self, host_alone: None) -> Iterator[str]:
        name = f"script{os.getpid()}"
        if subprocess.run(
            ["ip", "netns", "add", name], capture_output=True, check=False
        ).returncode:
            pytest.skip("needs ip netns: apt-get install iproute2, as root")
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
        subprocess.run(["ip", "netns", "del", name], check=True)

    def test_it_records_under_ip_netns_exec_where_tracefs_is_not_mounted(
        self, collector: Path, netns: str, tmp_path: Path
    ) -> None:
        out = tmp_path / "run"
        done = recorded(collector, out, "-n", inside=("ip", "netns", "exec", netns))
        assert done.returncode == 5, done.stderr
        assert manifest(out)["accounting"]["probes"]["T"]["recorded"] > 50

    def test_a_killed_script_leaves_rows_to_salvage_and_nothing_that_runs(
        self, collector: Path, tmp_path: Path
    ) -> None:
        left, said = tmp_path / "run.partial", tmp_path / "said"
        command = ["sh", str(collector), "-r", "tcp_probe", "-i", "lo", "-o", str(tmp_path / "run")]
        with said.open("w") as stderr:
            script = subprocess.Popen(command, stderr=stderr)
        wait_until(lambda: "\nrecording\n" in said.read_text())
        children = Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text().split()
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in children}
        assert {"bpftrace", "tcpdump"} <= names
        subprocess.run([sys.executable, "-c", SELF_TALK], check=True)
        script.kill()
        script.wait()
        wait_until(lambda: not any(map(runs, children)))
        bbrscope("ingest", "--store", str(tmp_path / "s"), "--salvage", str(left))
        counted = bbrscope("sql", "--store", str(tmp_path / "s"), "SELECT max(events) FROM flows")
        assert int(re.findall(r"^ *(\d+)$", counted, re.MULTILINE)[0]) > 50

    def test_a_full_disk_is_told_and_what_was_recorded_can_be_salvaged(
        self, collector: Path, tmp_path: Path
    ) -> None:
        small, kept = tmp_path / "small", tmp_path / "kept.partial"
        small.mkdir()
        (tmp_path / "talk.py").write_text(SELF_TALK)
        words = f"{sys.executable} {tmp_path}/talk.py"
        script = (
            f"mount -t tmpfs -o size=100k small {small} || exit 77; "
            f"sh {collector} -r tcp_probe -n -o {small}/run -- {words}; status=$?; "
            f"cp -r {small}/run* {kept}; rm -f {kept}/queue.csv*; exit $status"
        )
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False
        )
        if done.returncode == 77:
            pytest.skip("needs the right to mount a tmpfs")
        assert done.returncode == 1
        assert "no room left" in done.stderr
        assert "no socket had BBR" not in done.stderr
        # Samples of the queue are cut off, too, and optional.
        bbrscope("ingest", "--store", str(tmp_path / "s"), "--salvage", str(kept))
        counted = bbrscope("sql", "--store", str(tmp_path / "s"), "SELECT max(events) FROM flows")
        assert int(re.findall(r"^ *(\d+)$", counted, re.MULTILINE)[0]) > 50


@pytest.mark.parametrize(("kilobytes", "said"), [(0, "no room left"), (300, "ingest --salvage")])
@needs_root
@needs_bpftrace
@needs_bbr
@needs_btf
def test_a_disk_that_rows_fill_while_it_attaches_keeps_the_manifest_or_nothing(
    kilobytes: int, said: str, collector: Path, tmp_path: Path
) -> None:
    """Others' sockets fill the disk before anything else of the bundle is there."""
    small, kept = tmp_path / "small", tmp_path / "kept"
    small.mkdir()
    rows = tmp_path / "rows"
    rows.write_text("+first\n+last\n" + "T,1,ff\n" * 100_000)
    real = shutil.which("bpftrace")
    env = with_tool(
        "bpftrace",
        f'#!/bin/sh\ncase $* in *probe.bt) cat {rows}; exec sleep 5;; esac\nexec {real} "$@"\n',
        tmp_path / "bin",
    )
    script = (
        f"mount -t tmpfs -o size=300k small {small} || exit 77; "
        f"head -c {300 - kilobytes}k /dev/zero > {small}/others; "
        f"sh {collector} -r tcp_probe -n -o {small}/run -d 1; status=$?; "
        f"cp -r {small} {kept}; exit $status"
    )
    command = ["unshare", "-m", "sh", "-c", script]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=99, check=False)
    if done.returncode == 77:
        pytest.skip("needs the right to mount a tmpfs")
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    left = kept / "run.partial"
    if kilobytes:
        assert manifest(left)["unfinished"]
    else:
        assert not left.exists()


@needs_root
@needs_bpftrace
@needs_bbr
@needs_btf
def test_what_a_command_waits_for_ends_with_the_script(collector: Path, tmp_path: Path) -> None:
    started, said = tmp_path / "started", tmp_path / "said"
    command = ["sh", str(collector), "-r", "tcp_probe", "-n", "-o", str(tmp_path / "run"), "--"]
    inner = f"sh -c 'echo $$ >> {started}; sleep 100; sleep 100'; true"
    with said.open("w") as stderr:
        script = subprocess.Popen([*command, "sh", "-c", inner], stderr=stderr)
    wait_until(lambda: started.exists())
    script.terminate()
    script.wait(100)
    wait_until(lambda: not any(map(runs, started.read_text().split())))


@pytest.mark.parametrize(
    ("tcpdump", "status", "packets", "said"),
    [
        ("sleep 1; exit 1", 1, "status 1", "tcpdump ended by itself (status 1)"),
        ("sleep 1; kill -9 $$", 1, "status 137", "tcpdump ended by itself (status 137)"),
        # As of one that is asked to end, which the script is too.
        ("sleep 1", 5, None, ""),
    ],
)
@needs_root
@needs_bpftrace
@needs_bbr
@needs_btf
def test_a_tcpdump_that_ends_is_told(
    tcpdump: str, status: int, packets: str | None, said: str, collector: Path, tmp_path: Path
) -> None:
    env = with_tool(
        "tcpdump", f"#!/bin/sh\necho listening on lo >&2\n{tcpdump}\n", tmp_path / "bin"
    )
    done = recorded(collector, tmp_path / "run", "-i", "lo", environment=env)
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert manifest(tmp_path / "run")["packets"].get("ended") == packets


@needs_root
@needs_bpftrace
@needs_bbr
@needs_btf
def test_a_tcpdump_that_cannot_start_leaves_no_packets_and_its_reason(
    collector: Path, tmp_path: Path
) -> None:
    done = recorded(collector, tmp_path / "run", "-i", "no-such-dev")
    assert done.returncode == 5, done.stderr
    document = manifest(tmp_path / "run")
    assert document["packets"] is None
    assert "no packets: " in document["notes"][0]
    assert not list((tmp_path / "run").glob("packets*"))


class TestItsFolder:
    pytestmark = needs_root

    def refused(self, collector: Path, out: str) -> str:
        command = ["sh", str(collector), "-d", "1", "-o", out]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 1
        return done.stderr

    @pytest.fixture(autouse=True)
    def needs_a_known_bbr(self) -> None:
        if shutil.which("bpftrace") is None:
            pytest.skip("needs bpftrace: apt-get install bpftrace")

    @pytest.mark.parametrize("name", ["run", "run.partial"])
    def test_a_planted_link_is_neither_followed_nor_removed(
        self, name: str, collector: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "precious"
        target.mkdir()
        (target / "raw").write_text("x")
        (tmp_path / name).symlink_to(target)
        self.refused(collector, str(tmp_path / "run"))
        assert (tmp_path / name).is_symlink()
        assert (target / "raw").read_text() == "x"
        assert [path.name for path in target.iterdir()] == ["raw"]

    def test_what_a_killed_recording_left_stays(self, collector: Path, tmp_path: Path) -> None:
        left = tmp_path / "run.partial"
        left.mkdir()
        (left / "events.csv").write_text("M,1")
        said = self.refused(collector, str(tmp_path / "run"))
        assert (left / "events.csv").read_text() == "M,1"
        assert "ingest --salvage" in said or "no BBR" in said

    @pytest.mark.parametrize(
        "out", [".", "..", "/", "x/..", "", "-x", "a b", "$(id)", "=a", "x/+a", "...", "a" * 101]
    )
    def test_a_name_that_ingest_would_refuse_is_refused(
        self, out: str, collector: Path, tmp_path: Path
    ) -> None:
        said = self.refused(collector, out)
        assert re.search("name for the bundle|the bundle's name", said), said


def started(environment: dict[str, str], program: str) -> subprocess.CompletedProcess[str]:
    """What the script does to start its COMMAND, `program` being one for sh."""
    text = script()
    functions = ['fail() { echo "$1" >&2; exit 1; }']
    for name in ("choose_caller", "run"):
        functions.append(text[text.index(f"{name}() {{") :].split("\n}\n")[0] + "\n}")
    (asked,) = re.findall(r"^.* choose_caller$", text, re.MULTILINE)
    lines = ["set -u", "mask=022 as_root= as_caller=", *functions, asked, 'run "$@"']
    command = ["sh", "-c", "\n".join(lines), "sh", "sh", "-c", program]
    path = {"PATH": environment.get("PATH", os.environ["PATH"])}
    return subprocess.run(
        command, env=environment | path, capture_output=True, text=True, check=False
    )


def test_a_root_whom_no_user_made_root_runs_the_command_itself() -> None:
    """Containers and chroots have no sudo, but may have its variables."""
    for environment in ({}, {"SUDO_UID": ""}, {"SUDO_UID": "0", "SUDO_GID": "0"}):
        done = started(environment, "id -u")
        assert (done.stdout, done.stderr) == (f"{os.getuid()}\n", "")


@needs_root
def test_a_command_runs_as_who_called_sudo_where_sudo_is_not_at_hand(tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    called = {"SUDO_UID": str(nobody.pw_uid), "SUDO_GID": str(nobody.pw_gid)}
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "id", "true"):
        (tools / name).symlink_to(str(shutil.which(name)))
    done = started(called | {"PATH": str(tools)}, "id -u")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"cannot run COMMAND as user {nobody.pw_uid}" in done.stderr
    (tools / "setpriv").symlink_to(str(shutil.which("setpriv")))
    for folder in (tmp_path, *tmp_path.parents[:3]):  # pytest's folders let nobody else in
        folder.chmod(folder.stat().st_mode | 0o755)
    done = started(called | {"PATH": str(tools)}, "id -u; id -g")
    assert done.stdout.split() == [str(nobody.pw_uid), str(nobody.pw_gid)], done.stderr
    done = started({"SUDO_UID": "evil"}, "id -u")
    assert (done.returncode, done.stderr) == (1, "SUDO_UID is no user's number\n")


@pytest.mark.parametrize(
    ("callbacks", "expected"),
    [
        ("cwnd_event", {"bbr_cwnd_event": "args.event"}),
        ("tx_start", {"bbr_cwnd_event_tx_start": "0"}),
        ("both", {"bbr_cwnd_event": "args.event", "bbr_cwnd_event_tx_start": "0"}),
    ],
)
def test_the_callbacks_for_cwnd_events_are_those_that_the_kernel_has(
    callbacks: str, expected: dict[str, str]
) -> None:
    text = script()
    function = text[text.index("cwnd_events() {") :].split("\n}\n")[0] + "\n}\n"
    probe = text.split("fentry-v3) cat <<'PROBE'\n")[1].split("PROBE\n")[0]
    program = f"callbacks={callbacks}\n{function}\ncwnd_events"
    done = subprocess.run(["sh", "-c", program], input=probe, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {
        block.split(":bbr_cwnd")[1].split("\n")[0]: row.split("(uint64)$sk, ")[1].split(",")[0]
        for block in done.stdout.split("\n}\n")
        if ":bbr_cwnd_event" in block
        for row in block.split('printf("E0,')[1:]
    }
    assert {f"bbr_cwnd{name}": value for name, value in found.items()} == expected
    if callbacks == "cwnd_event":
        assert done.stdout == probe


def test_a_module_that_was_loaded_again_is_another(tmp_path: Path) -> None:
    """Its probes went with it: Linux 5.10 lets a module go that kprobes are attached to."""
    text = script()
    (function,) = re.findall(r"^instance\(\) .*\n", text, re.MULTILINE)
    noted = re.search(r"^unloaded=.*\n.*\n.*\n", text, re.MULTILINE)
    assert noted is not None
    for name in ("module/tcp_bbr", "next"):
        (tmp_path / name).mkdir(parents=True)
    steps = [
        f"module=$1 notes=; {function}loaded=$(instance)",
        f'{noted[0]}echo "$notes"',
        "[ $1 = vmlinux ] || { mv /sys/module/tcp_bbr gone; mv next /sys/module/tcp_bbr; }",
        f'{noted[0]}echo "$notes"',
    ]
    program = "\n".join(steps).replace("/sys", str(tmp_path))
    said = "module tcp_bbr was unloaded during the recording"
    for module, notes in (("tcp_bbr", [said]), ("vmlinux", [])):
        command = ["sh", "-uc", program, "sh", module]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        before, after = (json.loads(f"[{line}]") for line in done.stdout.splitlines())
        assert (before, after) == ([], notes)
        assert trouble({"notes": after}) == notes


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (("sport", "sock_cookie", "skbaddr", "skaddr"), 0),
        (("sport", "sock_cookie"), 1),  # Linux 5.10 and 6.1
        ((), 0),  # no tracefs to look into: bpftrace will tell
    ],
)
def test_a_tcp_probe_that_does_not_name_the_socket_is_known_before_it_is_tried(
    fields: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    text = script()
    function = text[text.index("names_socket() {") :].split("\n}\n")[0] + "\n}\n"
    if fields:
        format = tmp_path / "tracing/events/tcp/tcp_probe/format"
        format.parent.mkdir(parents=True)
        format.write_text("".join(f"\tfield:__u64 {name};\n" for name in fields))
    program = f"{function}\nnames_socket".replace("/sys/kernel", str(tmp_path))
    assert subprocess.run(["sh", "-c", program], check=False).returncode == status


@pytest.mark.parametrize(
    ("rung", "host", "why"),
    [
        ("fentry", "untyped=yes", "the kernel has no types of its modules (Linux 5.11"),
        ("fentry", "short=-short", "it needs a newer bpftrace"),
        ("kprobe", "found=' tcp_bbr tcp_bbr2'", "by name alone it could land in the other BBR"),
        ("tcp_probe", "names_socket() { false; }", "the tracepoint of this kernel does not name"),
        ("fentry", "found=' tcp_bbr tcp_bbr2'", ""),
        ("kprobe", "untyped=yes short=-short", ""),
    ],
)
def test_a_rung_that_is_passed_over_says_why(rung: str, host: str, why: str) -> None:
    (choice,) = re.findall(r"^  lacks=\n  case .*?^  esac\n", script(), re.MULTILINE | re.DOTALL)
    plain = f"module=tcp_bbr found=' tcp_bbr' untyped= short= rung={rung}"
    program = f'names_socket() {{ true; }}\n{plain}\n{host}\n{choice}echo "$lacks"'
    done = subprocess.run(["sh", "-uc", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(why or "\n")


def test_the_bpftrace_of_debian_11_gets_texts_that_it_can_hold() -> None:
    """0.11 takes 64 bytes: rows are split further, and no column is lost."""
    old, new = (probe("v1", "kprobe", longest) for longest in (SHORT_TEXT, LONGEST_TEXT))
    texts = re.findall(r'printf\("((?:[^"\\]|\\.)*)"', old)
    assert max(len(text.replace("\\n", "\n")) for text in texts if "+clock" not in text) < 64
    columns = {
        text: set(re.findall(r"[a-z][\w.\[\]]+", "".join(re.findall(r'printf\("([^"+%]*)"', text))))
        for text in (old, new)
    }
    assert columns[old] == columns[new]
    assert "bbr.extra_acked[1]" in columns[old]
    assert '"M5,%llu' in old
    assert '"M5,%llu' not in new
