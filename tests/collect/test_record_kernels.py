"""Recording BBR v2 and v3 on kernels that have them: no distribution ships one, so bring your own.

BBRSCOPE_KERNEL_V2 and BBRSCOPE_KERNEL_V3 name folders as tests/guest/build_kernel.sh makes them;
that of v2 has mainline's v1 beside it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bbrscope.collect import guest
from bbrscope.collect.record import check

pytestmark = pytest.mark.slow

MAIN = "from bbrscope.reports.cli import main; main()"
SUITE = "trixie"
CONTROLS = {"v2": "bbr2", "v3": "bbr"}

SCRIPT = """
. /opt/bbrscope/tests/guest/bottleneck.sh
modprobe -q tcp_bbr2
[ $CC = bbr2 ] && rmmod tcp_bbr
ip netns exec d iperf3 -s -D; iperf3 -s -D; iperf3 -s -p 5202 -D
# NAME SECONDS COLLECTOR...
send() {
  name=$1 seconds=$2; shift 2
  "$@" -o /tmp/$name -- ip netns exec s1 \\
    iperf3 -c 10.0.2.2 -t $seconds -J --logfile /tmp/$name.json 2> /out/$name.said
  echo $? > /out/$name.status
  [ -d /tmp/$name ] && mv /tmp/$name.json /tmp/$name/iperf1.json && cp -r /tmp/$name /out/
}
bbrscope doctor --json > /out/doctor.json
send fentry 8 bbrscope collect -q --rung fentry --netns s1 -i r:rd
send kprobe 4 bbrscope collect -q --rung kprobe --no-packets
bbrscope collect --print-script > /tmp/collect.sh
sysctl -qw net.ipv4.tcp_congestion_control=$CC
sh /tmp/collect.sh -o /tmp/script -i lo -- iperf3 -c 127.0.0.1 -n 20M 2> /out/script.said
echo $? > /out/script.status; cp -r /tmp/script /out/
[ $CC = bbr ] && exit 0
# v1 beside v2, a flow of each.
modprobe tcp_bbr
sysctl -qw net.ipv4.tcp_congestion_control=cubic
bbrscope collect -q -d 1 -o /tmp/unclear 2> /out/unclear.said
echo $? > /out/unclear.status
cat > both.sh <<'EOF'
iperf3 -c 127.0.0.1 -p 5202 -C bbr -n 5M & iperf3 -c 127.0.0.1 -C bbr2 -n 5M; wait $!
EOF
bbrscope collect -q --bbr v2 --no-packets -o /tmp/both -- sh both.sh 2> /out/both.said
echo $? > /out/both.status; cp -r /tmp/both /out/
exit 0
"""


@cache
def recorded(version: str, folder: Path) -> Path:
    kernel = os.environ.get(f"BBRSCOPE_KERNEL_{version.upper()}")
    if not kernel:
        pytest.skip(
            f"needs a kernel with BBR {version}: tests/guest/build_kernel.sh says how to make one,"
            f" then set BBRSCOPE_KERNEL_{version.upper()} to its folder"
        )
    if lacking := guest.missing_tools():
        pytest.skip(f"needs QEMU: apt-get install {' '.join(lacking)}")
    script = f"CC={CONTROLS[version]}\n{SCRIPT}"
    done = guest.run(SUITE, script, folder / version, 3000, Path(kernel))
    assert done.returncode == 0, done.stderr
    return folder / version


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(params=CONTROLS)
def kernel(request: pytest.FixtureRequest, shared: Path) -> Path:
    return recorded(request.param, shared)


@pytest.fixture
def v2(shared: Path) -> Path:
    return recorded("v2", shared)


def bbrscope(*words: str) -> str:
    command = [sys.executable, "-c", MAIN, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def replayed(bundle: Path, store: Path) -> list[tuple[str, str]]:
    """(exact, all) events per flow and mode, as `bbrscope replay` counts them."""
    bbrscope("ingest", "--store", str(store), str(bundle))
    told = bbrscope("replay", "--store", str(store))
    return re.findall(r"([\d,]+) of\s+([\d,]+) events exact", told)


def manifest(folder: Path) -> dict[str, Any]:
    loaded = json.loads((folder / "manifest.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize("name", ["fentry", "kprobe", "script"])
def test_v2_and_v3_replay_exactly_with_nothing_lost(
    name: str, kernel: Path, tmp_path: Path
) -> None:
    said = (kernel / f"{name}.said").read_text()
    assert (kernel / f"{name}.status").read_text() == "0\n", said
    told = manifest(kernel / name)
    assert (told["bbr"], told["events_lost"]) == (kernel.name, 0)
    found = check.check(kernel / name / "events.csv.zst")
    assert (found.sequence_missing, found.chain_breaks) == (0, 0)
    counted = replayed(kernel / name, tmp_path / "store.duckdb")
    assert counted
    assert [exact for exact, _ in counted] == [total for _, total in counted]
    assert found.events > 300


def test_doctor_tells_the_version_by_the_struct(kernel: Path) -> None:
    size = {"v2": 216, "v3": 144}[kernel.name]
    told = (kernel / "doctor.json").read_text()
    assert f"{CONTROLS[kernel.name]} is {kernel.name}: " in told
    assert f"struct bbr of {size} bytes" in told
    assert json.loads(told)["best"] == "fentry"


def test_two_bbrs_without_a_choice_are_refused_with_both_names(v2: Path) -> None:
    assert (v2 / "unclear.status").read_text() == "1\n"
    said = (v2 / "unclear.said").read_text()
    assert "more than one BBR: v1" in said
    assert "--bbr v2" in said


def test_of_two_bbrs_only_the_chosen_one_is_recorded(v2: Path, tmp_path: Path) -> None:
    """Whatever rung holds: if it is a replayable one, the flow of v2 replays exactly."""
    told = manifest(v2 / "both")
    said = (v2 / "both.said").read_text()
    assert told["bbr"] == "v2"
    if told["probe"] != "fentry":
        assert "by name" in said
        return
    assert (v2 / "both.status").read_text() == "0\n", said
    counted = replayed(v2 / "both", tmp_path / "store.duckdb")
    assert counted
    assert [exact for exact, _ in counted] == [total for _, total in counted]
