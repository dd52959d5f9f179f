"""Recording on distribution kernels, booted for it: what `collect` writes replays bit for bit.

Each suite is booted once; all of its recordings are made in that one guest. Attaching takes a
minute there, so what a kernel and a bpftrace have no part in is recorded in one suite alone.
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
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect import guest as runner
from bbrscope.collect.record.output import check

from tests.packed_rows import unpacked
from tests.recordings import (
    bbrscope,
    check_retransmissions,
    lacks_nothing_unsaid,
    manifest,
    replays_exactly,
    text,
)

pytestmark = pytest.mark.slow

# Suite -> what its kernel and bpftrace must be for the test to mean what it says.
# BBRSCOPE_SUITES chooses others: each takes a boot, some minutes and a gigabyte. What sid holds
# changes from day to day.
SUITES = {"bookworm": ("6.1.", "0.17"), "trixie": ("6.12.", "0.23"), "sid": ("", "")}
CHOSEN = os.environ.get("BBRSCOPE_SUITES", "bookworm trixie").split()
# What is not recorded in a suite because the other does: choosing flows, and doing without BTF, are
# Python's part; the shipped program has the words of trixie's bpftrace, and new kernels do not let
# a module go.
ELSEWHERE = {
    "bookworm": {"process", "chosen", "byhand"},
    "trixie": {"handed", "script", "unloaded", "typeless"},
}

BEGIN = """
. /opt/bbrscope/tests/collect/guest/bottleneck.sh
modprobe sch_fq
ip netns exec d iperf3 -s -D; iperf3 -s -D; iperf3 -s -p 5202 -D
# What the kernel itself counts in the sender's namespace, TcpRetransSegs among it.
printf '#!/bin/sh\\nip netns exec s1 cat /proc/net/snmp > /out/$1\\n' > /bin/snmp
chmod +x /bin/snmp
at() { read -r up idle < /proc/uptime; echo "$up $1" >> /out/times; }
keep() { [ -d /tmp/$1 ] && cp -r /tmp/$1 /out/; at $1; }
# NAME COLLECTOR...: a flow through the bottleneck for SECONDS_ to TO, and then what AFTER says.
send() {
  name=$1; shift
  flow="ip netns exec s1 iperf3 -c ${TO:-10.0.2.2} -t ${SECONDS_:-3} -J --logfile /tmp/$name.json"
  "$@" -o /tmp/$name -- sh -c "$flow; ${AFTER:-true}" 2> /out/$name.said
  echo $? > /out/$name.status
  [ -d /tmp/$name ] && mv /tmp/$name.json /tmp/$name/iperf1.json
  keep $name
}
uname -r > /out/kernel; bpftrace --version > /out/bpftrace
python3 -c 'import os, pty; print(os.ttyname(pty.openpty()[1]))' > /out/terminal
bbrscope doctor --json > /out/doctor.json
at start
"""

# Each of the recordings, in the order in which they are made.
PARTS = {
    "fentry": """
snmp fentry.before
SECONDS_=8 AFTER='snmp fentry.end; rmmod tcp_bbr 2> /out/rmmod; true' send fentry \\
  bbrscope collect -q --netns s1 -i r:rd
snmp fentry.after
""",
    "kprobe": """
# A callback that the kernel does not have: fentry fails, and the next rung must do. The queue is
# that of another host, reached by an ssh that knows only this one.
cat > /tmp/partial.py <<'EOF'
import sys; sys.path.insert(0, "/opt")
from bbrscope.collect.record.host import survey
from bbrscope.reports.cli import main
whole = survey.probe_program
def program(host, attach, *more):
    text = whole(host, attach, *more)
    return text.replace("bbr_undo_cwnd", "bbr_undone") if attach.rung == "fentry" else text
survey.probe_program = program
main()
EOF
printf '#!/bin/sh\\nshift 3\\nexec ip netns exec r sh -c "$*"\\n' > /run/bin/ssh
chmod +x /run/bin/ssh
TO=fd00:2::2 send kprobe python3 /tmp/partial.py collect -q --address fd00:2::2 -i r:rd \\
  --anonymize --queue ssh://router/rd
""",
    "lossy": """
(until grep -qs recording /out/lossy.said; do sleep 0.5; done
 sleep 2; pkill -STOP -x bpftrace; sleep 2; pkill -CONT -x bpftrace) &
SECONDS_=5 send lossy bbrscope collect -q --buffer 1k --no-packets
""",
    "script": """
# As fast as it can, and the end comes while rows are still on their way.
tc qdisc add dev lo root fq
bbrscope collect --print-script > /tmp/collect.sh
sh /tmp/collect.sh -o /tmp/script -i lo -- \\
  iperf3 -c 127.0.0.1 -C bbr -t 1 -J --logfile /tmp/script.json 2> /out/script.said
echo $? > /out/script.status; mv /tmp/script.json /tmp/script/iperf1.json; keep script
""",
    "process": """
# A process that connects after the probes are there, and sends on when the recording has ended.
bash -c 'until [ -e /tmp/go ]; do sleep 1; done; exec iperf3 -c 127.0.0.1 -C bbr -t 100' &
process=$!
echo 'touch /tmp/go; sleep 3' > /tmp/wait.sh
bbrscope collect -q --pid $process --no-packets -o /tmp/process -- sh /tmp/wait.sh \\
  2> /out/process.said
echo $? > /out/process.status
kill $process; keep process
""",
    "handed": """
python3 /opt/bbrscope/tests/collect/guest/hand_over.py /tmp/hand 20000 200000 bbr &
until [ -e /tmp/hand.pid ]; do sleep 0.2; done
echo 'touch /tmp/hand.go; until [ -e /tmp/hand ]; do sleep 0.2; done' > /tmp/wait_hand.sh
bbrscope collect -q --pid $(cat /tmp/hand.pid) --no-packets -o /tmp/handed -- \\
  timeout 60 sh /tmp/wait_hand.sh 2> /out/handed.said
echo $? > /out/handed.status; keep handed; cp /tmp/hand /out/handed.json
""",
    "chosen": """
mkdir /sys/fs/cgroup/one
cat > /tmp/three.sh <<'EOF'
iperf3 -c 127.0.0.1 -p 5202 -C bbr -n 1M
echo 0 > /sys/fs/cgroup/one/cgroup.procs
iperf3 -c 127.0.0.1 -C bbr -n 1M
exec iperf3 -c 127.0.0.1 -p 5202 -C bbr -n 1M
EOF
bbrscope collect -q --cgroup one --port 5202 --no-packets -o /tmp/chosen -- sh /tmp/three.sh
keep chosen
""",
    "byhand": """
# By hand: the shipped program where its words fit, else what --print-probe writes.
probe=/opt/bbrscope/probes/bbr1.bt
[ "$(uname -r | cut -c1-5)" = 6.12. ] || bbrscope collect --print-probe > /tmp/probe.bt
[ -e /tmp/probe.bt ] && probe=/tmp/probe.bt
mkdir /tmp/byhand
bpftrace -B line $probe > /tmp/byhand/raw 2> /out/byhand.said & tracer=$!
until grep -qs '^+last' /tmp/byhand/raw; do sleep 1; done
snmp byhand.before
ip netns exec s1 iperf3 -c 10.0.2.2 -t 3 -J --logfile /tmp/byhand/iperf1.json
snmp byhand.end; kill -URG $tracer; snmp byhand.after
until [ "$(grep -c '^+over' /tmp/byhand/raw)" -ge 2 ]; do sleep 1; done
kill -INT $tracer; wait $tracer; keep byhand
""",
    "typeless": """
unshare -m sh -c 'mount -t tmpfs none /sys/kernel/btf
  bbrscope collect -q --no-packets -o /tmp/typeless -- \\
    iperf3 -c 127.0.0.1 -C bbr -t 2' 2> /out/typeless.said
echo $? > /out/typeless.status; keep typeless
""",
    "unloaded": """
# What sees the module go is the same for all programs: this one attaches in a fraction of the time.
ip netns exec s1 sysctl -qw net.ipv4.tcp_congestion_control=cubic
bbrscope collect -q --rung kprobe --phases --no-packets -o /tmp/unloaded -- \\
  sh -c 'iperf3 -c 127.0.0.1 -C bbr -n 1M; rmmod tcp_bbr; modprobe tcp_bbr' 2> /out/unloaded.said
echo $? > /out/unloaded.status; keep unloaded
""",
}

END = """
pgrep -x 'bpftrace|tcpdump' > /out/left
exit 0
"""


def made_in(suite: str) -> list[str]:
    """The recordings that are made in a suite: all if it stands alone."""
    others = ELSEWHERE.get(suite, set()) if len(CHOSEN) > 1 else set()
    return [name for name in PARTS if name not in others]


def of_recordings(*names: str) -> pytest.MarkDecorator:
    """Parameters of a test: `guest` and `name`, for each of these where it is recorded."""
    pairs = [(suite, name) for suite in CHOSEN for name in names if name in made_in(suite)]
    return pytest.mark.parametrize(("guest", "name"), pairs, indirect=["guest"])


@cache
def recorded(suite: str, folder: Path) -> Path:
    """Boot the suite, make every recording, and return the folder that holds them."""
    if lacking := runner.missing_tools():
        pytest.skip(f"needs QEMU: apt-get install {' '.join(lacking)}")
    parts = "".join(PARTS[name] for name in made_in(suite))
    done = runner.run(suite, BEGIN + parts + END, folder / suite, 3000)
    assert done.returncode == 0, done.stderr
    if "byhand" in made_in(suite):
        bundle_by_hand(folder / suite)
    return folder / suite


def bundle_by_hand(folder: Path) -> None:
    """Make a bundle of what bpftrace printed, as the programs' headers say."""
    bundle = folder / "byhand"
    header = (Path(__file__).resolve().parents[3] / "probes" / "bbr1.bt").read_text()
    pipeline = re.search(r"(grep -E .* -k2,2n) \| zstd", header)
    assert pipeline is not None
    rows = subprocess.run(["sh", "-c", pipeline[1]], cwd=bundle, stdout=subprocess.PIPE, check=True)
    (bundle / "events.csv.zst").write_bytes(zstandard.compress(rows.stdout))
    known = manifest(folder / "fentry")
    document = {key: known[key] for key in ("format", "version", "constants", "sysctls")}
    (bundle / "manifest.json").write_text(json.dumps({**document, "name": "byhand"}))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guests")


@pytest.fixture(params=CHOSEN)
def guest(request: pytest.FixtureRequest, shared: Path) -> Path:
    return recorded(request.param, shared)


def test_the_suites_have_the_kernels_and_the_bpftrace_that_they_are_booted_for(
    guest: Path,
) -> None:
    kernel, tool = SUITES[guest.name]
    assert (guest / "kernel").read_text().startswith(kernel)
    assert (guest / "bpftrace").read_text().startswith(f"bpftrace v{tool}")
    assert json.loads((guest / "doctor.json").read_text())["best"] == "fentry"


@of_recordings("fentry", "kprobe", "script", "process")
def test_a_recording_replays_exactly_and_lacks_nothing_unsaid(
    name: str, guest: Path, tmp_path: Path
) -> None:
    lacks_nothing_unsaid(guest, name)
    assert replays_exactly(guest / name, tmp_path / "store.duckdb") > 2 * 500


@of_recordings("fentry", "kprobe", "process", "script")
def test_attempted_is_recorded_plus_cut_for_every_probe(name: str, guest: Path) -> None:
    probes = manifest(guest / name)["accounting"]["probes"]
    assert probes["M"]["attempted"] > 500
    for counts in probes.values():
        assert counts["attempted"] == counts["recorded"] + counts["cut"]


@of_recordings("handed")
def test_what_a_process_is_handed_while_it_is_recorded_is_its_own(
    guest: Path, name: str, tmp_path: Path
) -> None:
    lacks_nothing_unsaid(guest, name)
    ports = json.loads((guest / f"{name}.json").read_text())
    path = tmp_path / "handed.duckdb"
    assert replays_exactly(guest / name, path) > 0
    with open_store(path, read_only=True) as store:
        found = store.con.execute("SELECT local_port FROM flows WHERE events > 0").fetchall()
    assert sorted(found) == sorted([(ports["handed"],), (ports["accepted"],)])


@of_recordings("byhand")
def test_a_program_run_by_hand_prints_all_that_it_counts_and_replays(
    guest: Path, name: str, tmp_path: Path
) -> None:
    said = (guest / name / "raw").read_text()
    for tag, row in (("M", "M0?"), ("X", "X"), ("I", "I0?"), ("S", "S0?"), ("E", "E0?")):
        attempted = re.search(rf"^@attempted_{tag}: (\d+)$", said, re.MULTILINE)
        assert attempted is not None
        assert int(attempted[1]) == len(re.findall(rf"^{row},", said, re.MULTILINE)) > 0
    replays_exactly(guest / name, tmp_path / "store.duckdb")


def retransmitted(path: Path) -> int:
    """TcpRetransSegs in a copy of /proc/net/snmp."""
    names, values = (line.split() for line in path.read_text().splitlines() if line[:4] == "Tcp:")
    return int(values[names.index("RetransSegs")])


@of_recordings("fentry", "byhand")
def test_the_kernel_and_iperf_count_the_same_retransmissions(
    name: str, guest: Path, tmp_path: Path
) -> None:
    """The kernel counts segments, and so do R rows: of all flows between two readings."""
    path = tmp_path / "s.duckdb"
    bbrscope("ingest", "--store", str(path), str(guest / name))
    check_retransmissions(guest / name, path)
    with open_store(path, read_only=True) as store:
        recorded = store.con.execute(
            "SELECT sum(retransmits)::BIGINT FROM flows WHERE remote_port = 5201"
        ).fetchall()[0][0]
        marks, resent = store.con.execute(
            "SELECT count(*), count(resent_ns) FROM repairs"
        ).fetchall()[0]
        init = store.con.execute(
            "SELECT bool_and(tp_rtt_min = bbr_min_rtt_us) FROM events WHERE kind = 'init'"
        ).fetchall()
    before, end, after = (
        retransmitted(guest / f"{name}.{when}") for when in ("before", "end", "after")
    )
    assert end - before <= recorded <= after - before
    assert marks > 0
    assert resent > 0.9 * marks
    assert init == [(True,)]


def rows(bundle: Path, tag: str) -> list[dict[str, str]]:
    """The rows whose tag matches, by column."""
    names: list[str] = []
    found = []
    for line in unpacked(text(bundle / "events.csv.zst").splitlines()):
        fields = line.split(",")
        if re.fullmatch(f"#{tag}", fields[0]):
            names = fields[1:]
        elif re.fullmatch(tag, fields[0]):
            found.append(dict(zip(names, fields[1:], strict=True)))
    return found


def test_the_rung_and_the_reason_are_in_the_manifest(guest: Path) -> None:
    assert [step["rung"] for step in manifest(guest / "fentry")["ladder"]] == ["fentry"]


def test_a_function_that_is_not_there_costs_one_rung(guest: Path) -> None:
    document = manifest(guest / "kprobe")
    assert document["rung"] == "kprobe"
    failed, used = document["ladder"]
    assert (failed["rung"], failed["outcome"]) == ("fentry", "failed")
    assert "bbr_undone" in failed["reason"]
    assert used["reason"].startswith("rs is argument ")
    assert "bbr_undone" in (guest / "kprobe.said").read_text()


@of_recordings("typeless")
def test_without_btf_the_last_rung_is_left_and_says_why(guest: Path, name: str) -> None:
    said = (guest / f"{name}.said").read_text()
    assert (guest / f"{name}.status").read_text() == "0\n", said
    assert manifest(guest / name)["rung"] == "inet_diag"
    assert "BTF" in said


def test_fentry_holds_the_module(guest: Path) -> None:
    assert "in use" in (guest / "rmmod").read_text()


@of_recordings("unloaded")
def test_a_module_is_held_or_its_going_is_reported(guest: Path, name: str) -> None:
    """Kprobes hold it on new kernels only; it is taken away and loaded again."""
    said, status = (guest / f"{name}.said").read_text(), (guest / f"{name}.status").read_text()
    if "in use" in said:
        lacks_nothing_unsaid(guest, name)
    else:
        assert status == "1\n"
        assert "module tcp_bbr was unloaded" in said
    assert check.check(guest / name / "events.csv.zst").events > 0


@of_recordings("kprobe", "script")
def test_the_queue_sent_what_iperf_sent(name: str, guest: Path) -> None:
    """Samples of a queue elsewhere and of one's own, by Python and by the shell script."""
    kind = {"kprobe": "tbf", "script": "fq"}[name]
    sent = json.loads((guest / name / "iperf1.json").read_text())["end"]["sum_sent"]["bytes"]
    lines = [line.split(",") for line in text(guest / name / "queue.csv.zst").splitlines()]
    taken = [int(line[2]) for line in lines if line[1] == kind]
    assert taken[-1] - taken[0] > 0.7 * sent
    assert taken == sorted(taken)


def test_the_kernels_own_count_of_bytes_agrees(guest: Path) -> None:
    """snd_una's growth over the recording is what iperf3 says it sent, but for the last flight."""
    sent = json.loads((guest / "fentry" / "iperf1.json").read_text())["end"]["sum_sent"]["bytes"]
    una: dict[str, list[int]] = {}
    tag, place = "", 0
    for line in unpacked(text(guest / "fentry" / "events.csv.zst").splitlines()):
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
    """A retransmission that BPF saw leaves the bottleneck a little later, never before.

    Where the queue was full, it leaves only when it was sent once more.
    """
    folder = guest / "fentry"
    offset = manifest(folder)["clocks"]["offset_ns"]
    seen: dict[int, list[int]] = {}
    for when, body in packets(folder / "packets.pcap.zst"):
        if len(body) >= 54 and body[12:14] == b"\x08\x00" and body[23] == 6:
            seen.setdefault(struct.unpack_from("!I", body, 38)[0], []).append(when - offset)
    sends: dict[int, list[int]] = {}
    for line in text(folder / "events.csv.zst").splitlines():
        if line.startswith("R,"):
            fields = line.split(",")
            sends.setdefault(int(fields[-2]), []).append(int(fields[1]))
    delays = []
    for seq, times in sends.items():
        for sent, again in pairwise([*times, sys.maxsize]):
            left = [when for when in seen.get(seq, []) if sent - 100_000 <= when < again - 100_000]
            delays += [min(left) - sent] if left else []
    assert len(delays) > 10
    assert all(-100_000 <= delay < 200_000_000 for delay in delays)
    clocks = manifest(folder)["clocks"]
    assert clocks["uncertainty_ns"] < 100_000


def test_addresses_of_an_anonymized_recording_are_nowhere(guest: Path) -> None:
    wanted = socket.inet_pton(socket.AF_INET6, "fd00:2::2")
    for path in (guest / "kprobe").iterdir():
        data = path.read_bytes()
        if path.suffix == ".zst":
            with path.open("rb") as raw:
                reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
                data = reader.read()
        assert wanted not in data, path
        if not path.name.startswith("iperf"):
            assert b"fd00:2::2" not in data, path


@of_recordings("chosen")
def test_one_of_three_flows_is_chosen_by_its_port_and_cgroup(guest: Path, name: str) -> None:
    """One of the others is in the cgroup, one has the port."""
    peers = [int(row["dport"]) for row in rows(guest / name, "I0?")]
    assert [socket.ntohs(port) for port in peers] == [5202]


def test_a_buffer_that_overflows_is_reported_by_everything(guest: Path) -> None:
    """bpftrace stood still for 2 s: rows were lost, counted, and end in status 1."""
    document = manifest(guest / "lossy")
    probes = document["accounting"]["probes"]
    assert document["events_lost"] > 0
    assert (guest / "lossy.status").read_text() == "1\n"
    assert "lost" in (guest / "lossy.said").read_text()
    for counts in probes.values():
        assert counts["attempted"] == counts["recorded"] + counts["cut"] + counts["lost"]


def test_a_guest_has_terminals(guest: Path) -> None:
    """`bbrscope top` draws on one; without devpts there is none to be had."""
    assert (guest / "terminal").read_text() == "/dev/pts/0\n"


def test_nothing_is_left_attached_or_running(guest: Path) -> None:
    assert (guest / "left").read_text() == ""
