"""`lab run --vm` around its guests: what is kept, what is left behind, what is asked for again.

QEMU is a stand-in here, and so is Debian: it finishes the first run that it is asked for, begins
the second, and hangs, until a file tells it to finish. All else is the real command, as a process
of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bbrscope.collect import guest
from bbrscope.collect.guest import kernel as guest_kernel
from bbrscope.collect.lab import scenario, vm
from bbrscope.collect.store.store import open_store
from bbrscope.probes.base.errors import BbrscopeError, HostError
from bbrscope.reports.lab import lab_runs

from tests import lab_rows
from tests.collect.lab.test_lab_results import lab_bundle
from tests.recordings import MAIN

RELEASE = "6.1.0-99-fake"
KERNEL = f"{RELEASE} #1 SMP Debian 6.1.999-1 (2026-07-02)"
WORDS = ("run", "song-single-buffer", "--quick", "--cc", "cubic")

# Knows what a guest is told from the folder that it shares: -fsdev local,id=out,path=FOLDER,...
QEMU = """#!{python}
import json, os, pathlib, shlex, shutil, sys, time
here = pathlib.Path({here!r})
[out] = [word for word in sys.argv if word.startswith("local,id=out,")]
out = pathlib.Path(out.split("path=")[1].split(",")[0])
numbers = shlex.split((out / ".command").read_text())[-1].split(",")
(here / f"booted.{{os.getpid()}}").write_text(",".join(numbers))
names = json.loads((here / "names.json").read_text())
for order, number in enumerate(numbers):
    made = out / "bundles" / (names[int(number)] + ".partial")
    shutil.copytree(here / "bundle", made)
    manifest = json.loads((made / "manifest.json").read_text())
    manifest["name"], manifest["kernel"] = names[int(number)], {kernel!r}
    (made / "manifest.json").write_text(json.dumps(manifest))
    while order and not (here / "finish").exists():
        time.sleep(0.05)
    made.rename(made.with_suffix(""))
for name, text in ((".stdout", ""), (".stderr", "made them"), (".status", "0")):
    (out / name).write_text(text)
"""


def make_image(path: Path, kernel: str) -> None:
    """Write the header of a bzImage that names this kernel, and who built it."""
    release, _, rest = kernel.partition(" ")
    text = f"{release} (me@here) {rest}\0".encode()
    head = bytearray(0x2000)
    head[0x202:0x206] = b"HdrS"
    head[0x20E:0x210] = (0x1000).to_bytes(2, "little")
    head[0x1200 : 0x1200 + len(text)] = text
    path.write_bytes(head)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to run in, with a stand-in for QEMU on the path and for the guest's files."""
    if shutil.which("busybox", path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
        pytest.skip("needs busybox: apt-get install busybox-static")
    here = tmp_path / "here"
    modules = here / "guests/bookworm/lib/modules" / RELEASE
    modules.mkdir(parents=True)
    (modules / "modules.dep").write_text("kernel/net/ipv4/tcp_cubic.ko:\n")
    (here / "guests/bookworm/boot").mkdir()
    make_image(here / f"guests/bookworm/boot/vmlinuz-{RELEASE}", KERNEL)
    tools = here / "bin"
    tools.mkdir()
    for tool in ("apt-get", "dpkg-deb", "depmod"):
        (tools / tool).symlink_to("/bin/true")
    (tools / "qemu-system-x86_64").write_text(
        QEMU.format(python=sys.executable, here=str(here), kernel=KERNEL)
    )
    (tools / "qemu-system-x86_64").chmod(0o755)
    lab_bundle(here, {}, events=False)
    chosen = scenario.override(
        scenario.quick(scenario.load("song-single-buffer")), {"cc": ["cubic"]}
    )
    names = [point.run_name(RELEASE) for point in scenario.points(chosen)]
    assert len(names) == 2
    (here / "names.json").write_text(json.dumps(names))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("BBRSCOPE_GUESTS", str(here / "guests"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    return here


def start(place: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, "lab", *WORDS, "--vm", *more],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def until(what: Callable[[], bool], said: str) -> None:
    deadline = time.monotonic() + 300
    while not what():
        assert time.monotonic() < deadline, said
        time.sleep(0.05)


def booted(place: Path) -> dict[int, str]:
    """The guests that were booted: numbers of the runs that they were asked for, by pid."""
    files = (path for path in place.glob("booted.*") if path.stat().st_size)
    return {int(path.suffix[1:]): path.read_text() for path in files}


def runs(place: Path) -> dict[int, str]:
    """The guests that run now."""
    return {
        pid: number for pid, number in booted(place).items() if Path(f"/proc/{pid}/exe").exists()
    }


def left(place: Path) -> list[str]:
    """What there is in the output folder."""
    return sorted(path.name for path in (place / "lab-runs").iterdir())


@pytest.fixture
def midway(place: Path) -> Iterator[tuple[Path, subprocess.Popen[str], list[str]]]:
    """The command when its guest has finished one run, which is stored, and is at the second."""
    names = json.loads((place / "names.json").read_text())
    lab = start(place)
    try:
        until(lambda: bool(list(place.glob(f"lab-runs/*/bundles/{names[1]}.partial"))), "no run")
        until(lambda: names[0] in left(place), "the first run was not brought")
        yield place, lab, names
    finally:
        lab.kill()
        lab.communicate()


def resume(place: Path, names: list[str], number: str) -> None:
    """Go on: only what is missing is asked for, and all is stored in the end."""
    before = set(booted(place))
    (place / "finish").touch()
    again = start(place)
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert "there already: 1 of 2 runs" in said
    [booted_with] = [numbers for pid, numbers in booted(place).items() if pid not in before]
    assert booted_with == number
    assert left(place) == sorted(names)
    with open_store(place / "bbrscope.duckdb", read_only=True) as store:
        assert sorted(store.runs()) == sorted(names)


# Ctrl-C and a terminal that closes reach the whole group; SIGTERM, what one means to end.
@pytest.mark.parametrize(
    ("number", "to_group"),
    [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGHUP, True)],
)
def test_a_signal_ends_guests_keeps_finished_runs_and_leaves_nothing(
    number: signal.Signals,
    to_group: bool,
    midway: tuple[Path, subprocess.Popen[str], list[str]],
) -> None:
    place, lab, names = midway
    (os.killpg if to_group else os.kill)(lab.pid, number)
    _, said = lab.communicate(timeout=300)
    assert lab.returncode == 1
    assert "interrupted; finished runs are kept" in said
    assert "Traceback" not in said
    assert runs(place) == {}
    assert left(place) == [names[0]]
    assert list((place.parent / "scratch").iterdir()) == []
    resume(place, names, "1")


def test_after_kill_9_no_guest_is_left_and_the_next_run_takes_over_what_is(
    midway: tuple[Path, subprocess.Popen[str], list[str]],
) -> None:
    place, lab, names = midway
    os.kill(lab.pid, signal.SIGKILL)
    lab.communicate(timeout=300)
    until(lambda: runs(place) == {}, "the guest goes on")
    assert [name for name in left(place) if not name.startswith(vm.SHARED)] == [names[0]]
    assert list((place.parent / "scratch").iterdir()) == []
    resume(place, names, "1")


def test_what_a_killed_lab_had_finished_is_kept_but_not_what_another_is_making(
    tmp_path: Path,
) -> None:
    with vm.shared_folder(tmp_path) as busy:
        dead = tmp_path / f"{vm.SHARED}dead"
        for shared in (busy, dead):
            for name in ("whole", "cut.partial"):
                (shared / "bundles" / f"{shared.name}.{name}").mkdir(parents=True)
                (shared / "bundles" / f"{shared.name}.{name}/manifest.json").touch()
        vm.take_over(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            [busy.name, f"{dead.name}.whole"]
        )
    assert [path.name for path in tmp_path.iterdir()] == [f"{dead.name}.whole"]


def test_jobs_are_guests_at_the_same_time(place: Path) -> None:
    lab = start(place, "--jobs", "2", "--reps", "2")
    try:
        names = json.loads((place / "names.json").read_text())
        names += [name.replace("+r1@", "+r2@") for name in names]
        (place / "names.json").write_text(json.dumps(names))
        until(lambda: len(runs(place)) == 2, "two guests were not seen")
        assert sorted(runs(place).values()) == ["0,1", "2,3"]
        (place / "finish").touch()
        _, said = lab.communicate(timeout=300)
        assert lab.returncode == 0, said
        assert left(place) == sorted(names)
    finally:
        lab.kill()
        lab.communicate()


def test_a_guest_that_fails_is_reported_and_what_it_made_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of each guest's runs the first is finished and the last is cut off with the guest."""
    boots = []

    def boot(_suite: str, command: str, shared: Path, *_: object) -> object:
        numbers = command.split()[-1].split(",")
        boots.append(numbers)
        for name in (f"run{numbers[0]}", f"run{numbers[-1]}.partial"):
            (shared / "bundles" / name).mkdir(parents=True)
            (shared / "bundles" / name / "manifest.json").write_text("{}")
        raise guest.GuestError("the guest ended early")

    monkeypatch.setattr(guest, "run", boot)
    points = list(enumerate(scenario.points(scenario.load("song-cubic-trace"))))
    made: list[str] = []
    problems = vm.run(
        points, [], None, None, 2, tmp_path, lambda _: None, lambda path: made.append(path.name)
    )
    assert sorted(boots) == [["0", "1", "2"], ["3", "4", "5"]]
    assert sorted(made) == ["run0", "run3"]
    assert problems == ["the guest ended early"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run0", "run3"]


def test_a_bare_kernel_image_names_its_release_and_has_no_modules(tmp_path: Path) -> None:
    image = tmp_path / "bzImage"
    make_image(image, "6.13.7-bbr3 #1 SMP Debian 6.13.7-1 (2026-07-02)")
    found = guest_kernel.find(image)
    assert (found.release, found.image, found.modules) == ("6.13.7-bbr3", image, None)
    assert vm.image_version(image) == "6.13.7-bbr3 #1 SMP Debian 6.13.7-1 (2026-07-02)"
    assert guest_kernel.module_order(None) == []
    assert vm.congestion_controls(image) is None
    image.write_bytes(b"no kernel")
    with pytest.raises(BbrscopeError, match="is no bzImage"):
        guest_kernel.find(image)


def test_a_kernels_congestion_controls_are_read_from_its_lists(tmp_path: Path) -> None:
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz-6.1.0").touch()
    modules = tmp_path / "lib/modules/6.1.0"
    modules.mkdir(parents=True)
    (modules / "modules.dep").write_text("kernel/net/ipv4/tcp_bbr.ko:\nkernel/fs/9p/9p.ko: x.ko\n")
    (modules / "modules.builtin").write_text("kernel/net/ipv4/tcp_cubic.ko\n")
    assert vm.congestion_controls(tmp_path) == {"bbr", "cubic", "reno"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cc", "bbr2"), "this kernel has no congestion control bbr2; it has cubic, reno"),
        (("--kernel", "/etc/passwd"), "/etc/passwd is no bzImage"),
        (("--kernel", "/etc"), "/etc holds no kernel"),
        (("-o", "/proc/runs"), "cannot make the folder /proc/runs"),
        (("--store", "/proc/lab.duckdb"), "/proc/lab.duckdb"),
    ],
)
def test_what_cannot_be_run_or_kept_is_refused_before_a_guest_boots(
    words: tuple[str, ...], said: str, place: Path
) -> None:
    lab = start(place, *words)
    _, output = lab.communicate(timeout=300)
    assert lab.returncode == 1
    assert said in output
    assert booted(place) == {}
    assert not (place / "lab-runs").exists()


def test_a_run_of_another_kernel_with_the_same_release_is_not_taken_for_this_ones(
    tmp_path: Path,
) -> None:
    chosen = scenario.quick(scenario.load("song-bwchange"))
    name = next(scenario.points(chosen)).run_name("6.1.192")
    path = tmp_path / "s.duckdb"
    with open_store(path) as store:
        row = {"run_id": 1, "run": name, "kernel": "6.1.192 #2 SMP today"}
        lab_rows.insert(store, {"runs": [row]})
    with pytest.raises(HostError, match="another kernel of the same release"):
        lab_runs.missing_points(chosen, "6.1.192 #1 SMP today", tmp_path, path)
    missing, ready = lab_runs.missing_points(chosen, "6.1.192 #2 SMP today", tmp_path, path)
    assert ready == 1
    assert all(point.run_name("6.1.192") != name for _, point in missing)
