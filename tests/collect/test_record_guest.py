"""Recording on distribution kernels, booted for it: what `collect` writes replays bit for bit.

Each suite is booted once; all of its recordings are made in that one guest.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard
from bbrscope.collect import guest as runner
from bbrscope.collect.record import check

pytestmark = pytest.mark.slow

MAIN = "from bbrscope.reports.cli import main; main()"
# Suite -> what its kernel and bpftrace must be for the test to mean what it says.
# BBRSCOPE_SUITES chooses among them: each takes a boot, ten minutes and a gigabyte.
SUITES = {"bookworm": ("6.1.", "0.17"), "trixie": ("6.12.", "0.23"), "sid": ("", "")}

SCRIPT = """
. /opt/bbrscope/tests/guest/bottleneck.sh
ip netns exec d iperf3 -s -D
iperf3 -s -D
keep() { [ -d /tmp/$1 ] && cp -r /tmp/$1 /out/; }
send() {
  name=$1; shift
  "$@" -o /tmp/$name -- ip netns exec s1 iperf3 -c ${TO:-10.0.2.2} -t ${SECONDS_:-4} \\
    -J --logfile /tmp/$name.json 2> /out/$name.said
  echo $? > /out/$name.status
  [ -d /tmp/$name ] && mv /tmp/$name.json /tmp/$name/iperf1.json
  keep $name
}
uname -r > /out/kernel; bpftrace --version > /out/bpftrace
bbrscope doctor --json > /out/doctor.json
SECONDS_=12 send fentry bbrscope collect -q --netns s1 -i r:rd
send kprobe bbrscope collect -q --rung kprobe --no-packets
TO=fd00:2::2 send v6 bbrscope collect -q --address fd00:2::2 -i r:rd --anonymize
send elsewhere bbrscope collect -q --port 9 --no-packets
(until grep -qs recording /out/lossy.said; do sleep 0.5; done
 sleep 2; kill -STOP $(pidof bpftrace); sleep 2; kill -CONT $(pidof bpftrace)) &
SECONDS_=6 send lossy bbrscope collect -q --buffer 1k --no-packets
bbrscope collect --print-script > /tmp/collect.sh
send script sh /tmp/collect.sh -i lo
# A process that connects after the probes are there: it waits until they are.
bash -c 'until [ -e /tmp/go ]; do sleep 1; done; exec iperf3 -c 127.0.0.1 -C bbr -t 1' &
echo 'touch /tmp/go; sleep 6' > /tmp/wait.sh
bbrscope collect -q --pid $! --no-packets -o /tmp/process -- sh /tmp/wait.sh; keep process
mkdir /sys/fs/cgroup/one; iperf3 -s -p 5202 -D
cat > /tmp/both.sh <<'EOF'
iperf3 -c 127.0.0.1 -C bbr -t 1
echo 0 > /sys/fs/cgroup/one/cgroup.procs
iperf3 -c 127.0.0.1 -p 5202 -C bbr -t 1
EOF
bbrscope collect -q --cgroup one --no-packets -o /tmp/group -- sh /tmp/both.sh; keep group
pidof bpftrace tcpdump > /out/left
exit 0
"""


@cache
def recorded(suite: str, folder: Path) -> Path:
    """Boot the suite, make every recording, and return the folder that holds them."""
    if lacking := runner.missing_tools():
        pytest.skip(f"needs QEMU and debootstrap: apt-get install {' '.join(lacking)}")
    done = runner.run(suite, SCRIPT, folder / suite, 3000)
    assert done.returncode == 0, done.stderr
    return folder / suite


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guests")


@pytest.fixture(params=os.environ.get("BBRSCOPE_SUITES", " ".join(SUITES)).split())
def guest(request: pytest.FixtureRequest, shared: Path) -> Path:
    return recorded(request.param, shared)


def bbrscope(*words: str) -> str:
    command = [sys.executable, "-c", MAIN, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def manifest(folder: Path) -> dict[str, Any]:
    loaded = json.loads((folder / "manifest.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def replayed(bundle: Path, store: Path) -> list[tuple[int, int]]:
    """(exact, all) events per flow and mode, as `bbrscope replay` counts them."""
    bbrscope("ingest", "--store", str(store), str(bundle))
    told = bbrscope("replay", "--store", str(store))
    pairs = re.findall(r"([\d,]+) of\s+([\d,]+) events exact", told)
    return [(int(a.replace(",", "")), int(b.replace(",", ""))) for a, b in pairs]


def text(path: Path) -> str:
    with path.open("rb") as raw:
        reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        return reader.read().decode()


def test_the_suites_have_the_kernels_and_the_bpftrace_that_they_are_booted_for(
    guest: Path,
) -> None:
    kernel, tool = SUITES[guest.name]
    assert (guest / "kernel").read_text().startswith(kernel)
    assert (guest / "bpftrace").read_text().startswith(f"bpftrace v{tool}")
    assert json.loads((guest / "doctor.json").read_text())["best"] == "fentry"


@pytest.mark.parametrize("name", ["fentry", "kprobe", "v6", "script"])
def test_a_recording_replays_exactly_with_nothing_lost(
    name: str, guest: Path, tmp_path: Path
) -> None:
    bundle = guest / name
    said = (guest / f"{name}.said").read_text()
    assert (guest / f"{name}.status").read_text() == "0\n", said
    told = manifest(bundle)
    assert told["events_lost"] == 0
    found = check.check(bundle / "events.csv.zst")
    assert (found.sequence_missing, found.chain_breaks) == (0, 0)
    counted = replayed(bundle, tmp_path / "store.duckdb")
    assert sum(total for _, total in counted) > 2 * 1000
    assert [exact for exact, _ in counted] == [total for _, total in counted]


@pytest.mark.parametrize("name", ["fentry", "kprobe", "v6"])
def test_attempted_is_recorded_plus_cut_for_every_probe(name: str, guest: Path) -> None:
    probes = manifest(guest / name)["accounting"]["probes"]
    assert probes["M"]["attempted"] > 1000
    for counts in probes.values():
        assert counts["attempted"] == counts["recorded"] + counts["cut"]


def test_the_rung_and_the_reason_are_in_the_manifest(guest: Path) -> None:
    assert [step["rung"] for step in manifest(guest / "fentry")["ladder"]] == ["fentry"]
    assert manifest(guest / "kprobe")["probe"] == "kprobe"
    assert manifest(guest / "kprobe")["ladder"][0]["reason"].startswith("rs is argument ")


def test_the_kernels_own_count_of_bytes_agrees(guest: Path) -> None:
    """snd_una's growth over the recording is what iperf3 says it sent, but for the last flight."""
    sent = json.loads((guest / "fentry" / "iperf1.json").read_text())["end"]["sum_sent"]["bytes"]
    una: dict[str, list[int]] = {}
    tag, place = "", 0
    for line in text(guest / "fentry" / "events.csv.zst").splitlines():
        fields = line.split(",")
        if line.startswith("#M") and "tp.snd_una" in fields:
            tag, place = fields[0].removeprefix("#"), fields.index("tp.snd_una")
        elif fields[0] == tag:
            una.setdefault(fields[2], []).append(int(fields[place]))
    grown = max((each[-1] - each[0]) % (1 << 32) for each in una.values())
    assert 0.8 * sent < grown <= sent + 1000


def packets(path: Path) -> list[tuple[int, bytes]]:
    """(realtime in ns, bytes) of every packet."""
    with path.open("rb") as raw:
        data = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True).read()
    found, at = [], 24
    while at + 16 <= len(data):
        seconds, micros, size = struct.unpack_from("<III", data, at)
        found.append((seconds * 10**9 + micros * 1000, data[at + 16 : at + 16 + size]))
        at += 16 + size
    return found


def test_packet_time_and_event_time_join(guest: Path) -> None:
    """A retransmission that BPF saw leaves the bottleneck a little later, never before."""
    folder = guest / "fentry"
    offset = manifest(folder)["clocks"]["offset_ns"]
    seen: dict[int, list[int]] = {}
    for when, body in packets(folder / "packets.pcap.zst"):
        if len(body) >= 54 and body[12:14] == b"\x08\x00" and body[23] == 6:
            seen.setdefault(struct.unpack_from("!I", body, 38)[0], []).append(when - offset)
    sends = []
    for line in text(folder / "events.csv.zst").splitlines():
        if line.startswith("R,"):
            fields = line.split(",")
            sends.append((int(fields[1]), int(fields[-2])))
    delays = [
        min(when - ns for when in seen[seq] if when >= ns - 100_000)
        for ns, seq in sends
        if any(when >= ns - 100_000 for when in seen.get(seq, []))
    ]
    assert len(delays) > 10
    assert all(-100_000 <= delay < 200_000_000 for delay in delays)
    clocks = manifest(folder)["clocks"]
    assert clocks["uncertainty_ns"] < 100_000


def test_addresses_of_an_anonymized_recording_are_nowhere(guest: Path) -> None:
    wanted = socket.inet_pton(socket.AF_INET6, "fd00:2::2")
    for path in (guest / "v6").iterdir():
        data = path.read_bytes()
        if path.suffix == ".zst":
            with path.open("rb") as raw:
                reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
                data = reader.read()
        assert wanted not in data, path
        if not path.name.startswith("iperf"):
            assert b"fd00:2::2" not in data, path


def test_a_filter_for_another_port_records_nothing(guest: Path) -> None:
    assert check.check(guest / "elsewhere" / "events.csv.zst").events == 0


def test_a_cgroup_is_recorded_and_its_neighbours_are_not(guest: Path) -> None:
    peers = set()
    for line in text(guest / "group" / "events.csv.zst").splitlines():
        if line.startswith(("I,", "I0,", "N,")):
            peers.add(socket.ntohs(int(line.split(",")[4])))
    assert peers == {5202}


def test_a_process_is_recorded_from_its_first_connection(guest: Path) -> None:
    if not (guest / "process").exists():
        pytest.fail("nothing was recorded for the process")
    found = check.check(guest / "process" / "events.csv.zst")
    assert found.events > 0


def test_a_buffer_that_overflows_is_told_by_everything(guest: Path) -> None:
    """bpftrace stood still for 2 s: rows were lost, counted, and end in status 1."""
    told = manifest(guest / "lossy")
    probes = told["accounting"]["probes"]
    assert told["events_lost"] > 0
    assert (guest / "lossy.status").read_text() == "1\n"
    assert "lost" in (guest / "lossy.said").read_text()
    for counts in probes.values():
        assert counts["attempted"] == counts["recorded"] + counts["cut"] + counts["lost"]


def test_nothing_is_left_attached_or_running(guest: Path) -> None:
    assert (guest / "left").read_text() == ""
