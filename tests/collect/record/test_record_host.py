"""Recording on this machine's own kernel: a real loopback flow, real bpftrace, real endings."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bbrscope.collect.record import user_command
from bbrscope.collect.record.output import check

from tests.packed_rows import unpacked
from tests.processes import runs, wait_until
from tests.recordings import MAIN, manifest, text

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: run pytest with sudo")
needs_bpftrace = pytest.mark.skipif(
    shutil.which("bpftrace") is None, reason="needs bpftrace: apt-get install bpftrace"
)
needs_bbr = pytest.mark.skipif(
    "bbr" not in AVAILABLE.read_text().split(), reason="needs BBR: modprobe tcp_bbr"
)
needs_btf = pytest.mark.skipif(
    not Path("/sys/kernel/btf/vmlinux").exists(), reason="needs a kernel with BTF"
)
traced = [needs_root, needs_bpftrace, needs_bbr, needs_btf]


def collect(*words: str) -> list[str]:
    return [sys.executable, "-c", MAIN, "collect", "-q", *words]


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(collect(*words), capture_output=True, text=True, timeout=300, check=False)


# Connections over loopback that leave BBR in every way; FILE gets the name and port of each.
LEAVER = [
    sys.executable,
    "-c",
    """
import socket, sys, threading, time
CONTROL = socket.IPPROTO_TCP, socket.TCP_CONGESTION
server = socket.create_server(("127.0.0.1", 0))
server.setsockopt(*CONTROL, b"cubic")
def answer():
    while True:
        peer, _ = server.accept()
        threading.Thread(target=echo, args=(peer,), daemon=True).start()
def echo(peer):
    with peer:
        while data := peer.recv(1 << 16):
            peer.sendall(data[:10])
threading.Thread(target=answer, daemon=True).start()
def send(flow):
    for _ in range(20):
        flow.sendall(b"x" * 30000)
        flow.recv(1 << 16)
        time.sleep(0.002)
def connect(name, *controls):
    flow = socket.socket()
    flow.setsockopt(*CONTROL, b"bbr")
    flow.connect(server.getsockname())
    print(name, flow.getsockname()[1], file=made, flush=True)
    send(flow)
    for control in controls:
        if control:
            flow.setsockopt(*CONTROL, control)
        else:
            send(flow)
    return flow
made = open(sys.argv[1], "w")
connect("silent", b"cubic", b"bbr", b"").close()
connect("spoken", b"cubic", b"", b"bbr", b"").close()
connect("gone", b"cubic").close()
left = connect("open", b"cubic", b"")
connect("stays").close()
time.sleep(0.3)
""",
]


class Traffic:
    """A BBR flow over loopback that sends until it is stopped."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.server.getsockname()[1])
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=run) for run in (self.receive, self.send)]

    def receive(self) -> None:
        connection, _ = self.server.accept()
        with connection:
            while connection.recv(1 << 16):
                pass

    def send(self) -> None:
        with socket.socket() as sender:
            sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
            sender.connect(("127.0.0.1", self.port))
            while not self.stopping.is_set():
                sender.sendall(b"x" * 20_000)
                time.sleep(0.005)

    def __enter__(self) -> Traffic:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(100)
        self.server.close()


@pytest.fixture
def traffic() -> Iterator[Traffic]:
    with Traffic() as running:
        yield running


# A process that is connected with itself under BBR: what `client` sends, `peer` receives.
CONNECT = """
import socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
client = socket.socket()
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
client.connect(server.getsockname())
peer, _ = server.accept()
"""
# Sends to itself under BBR for a while, and says so when it is under way.
SELF_TALK = (
    CONNECT
    + """
threading.Thread(target=lambda: [None for _ in iter(lambda: peer.recv(65536), b"")]).start()
for turn in range(300):
    client.sendall(b"x" * 20000); time.sleep(0.01)
    if turn == 50: print("talking", flush=True)
client.close()
"""
)
# Listens once a file exists, and sends to whoever connects, under BBR.
LATE_SERVER = """
import os, socket, sys, time
while not os.path.exists(sys.argv[1]): time.sleep(0.05)
with socket.create_server(("127.0.0.1", int(sys.argv[2]))) as server:
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
    connection, _ = server.accept()
    with connection:
        for _ in range(100):
            connection.sendall(b"x" * 20000)
            time.sleep(0.01)
time.sleep(60)
"""
# Sends under BBR from another address, and a port that is given, for as long as it lives.
NAMESAKE = """
import socket, sys, time
server = socket.create_server(("127.0.0.3", 0))
client = socket.socket()
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
client.bind(("127.0.0.2", int(sys.argv[1])))
client.connect(server.getsockname())
peer, _ = server.accept()
while True:
    client.sendall(b"x" * 2000); peer.recv(65536); time.sleep(0.02)
"""


def connected(port: int) -> socket.socket:
    """A connection to a server that may not listen yet."""
    deadline = time.monotonic() + 100
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@contextlib.contextmanager
def bbr_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection over loopback; the first sends under BBR."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
        client.connect(server.getsockname())
        peer, _ = server.accept()
        with peer:
            yield client, peer


def rows(folder: Path, tag: str) -> list[dict[str, str]]:
    lines = list(unpacked(text(folder / "events.csv.zst").splitlines()))
    names = next(line for line in lines if line.startswith(f"#{tag},")).split(",")[1:]
    found = [line.split(",")[1:] for line in lines if line.startswith(f"{tag},")]
    return [dict(zip(names, values, strict=True)) for values in found]


def followed(store: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run another command of ours on a store."""
    command = [sys.executable, "-c", MAIN, *words, "--store", str(store)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def recorders(folder: Path) -> list[str]:
    """Every bpftrace that records into a folder: its parent, and its command.

    Tests that run beside this one kill recorders of their own.
    """
    command = ["ps", "-ww", "-C", "bpftrace", "-o", "ppid=,args="]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if f"{folder}/" in line]


def left_behind(folder: Path) -> list[str]:
    """Those that nobody waits for any more."""
    return [line for line in recorders(folder) if line.split()[0] == "1"]


class TestTracepoint:
    pytestmark = traced

    def test_state_is_read_when_packets_arrive_and_everything_is_accounted_for(
        self, tmp_path: Path, traffic: Traffic
    ) -> None:
        out = tmp_path / "run"
        done = ran("--rung", "tcp_probe", "-d", "2.5", "--port", str(traffic.port), "-o", str(out))
        document = manifest(out)
        assert document["rung"] == "tcp_probe"
        accounting = document["accounting"]
        assert isinstance(accounting, dict)
        counts = accounting["probes"]["T"]
        assert counts["attempted"] == counts["recorded"] + counts["cut"]
        assert counts["recorded"] > 50
        assert counts["recorded"] == len(rows(out, "T"))
        assert check.check(out / "events.csv.zst").sequence_missing == 0
        if accounting["runs"] is not None:
            # Runs were read just before the end; other sockets' packets are runs, too.
            assert accounting["runs"] >= counts["recorded"] * 0.9
        # A run that the kernel skipped must be told by the exit status, and only that may.
        assert done.returncode == (1 if accounting["missed_runs"] else 0), done.stderr
        assert left_behind(tmp_path) == []
        self.follow(tmp_path / "s.duckdb", out, traffic.port)

    def test_a_socket_that_leaves_bbr_is_two_flows_or_told_to_have_gone(
        self, tmp_path: Path
    ) -> None:
        """One comes back before a packet arrives, one after some, one never; one stays."""
        out, store = tmp_path / "run", str(tmp_path / "s.duckdb")
        made = tmp_path / "made"
        ran("--rung", "tcp_probe", "--no-packets", "-o", str(out), "--", *LEAVER, str(made))
        ports = dict(line.split() for line in made.read_text().splitlines())
        asked = ",".join(ports.values())
        assert followed(store, "ingest", str(out)).returncode == 0
        query = (
            "SELECT local_port, list(kind ORDER BY flow, kind) AS kinds FROM flows LEFT JOIN"
            f" capture_quality USING (run_id, flow) WHERE local_port IN ({asked}) GROUP BY ALL"
        )
        told = json.loads(followed(store, "sql", query, "--format", "json").stdout)
        kinds = {str(row["local_port"]): row["kinds"] for row in told}
        assert {name: kinds[port] for name, port in ports.items()} == {
            "silent": ["left_bbr", "back_to_bbr"],
            "spoken": ["left_bbr", "back_to_bbr"],
            "gone": ["left_bbr"],
            "open": ["left_bbr"],
            "stays": [None],
        }
        first = "SELECT flow FROM flows WHERE local_port = " + ports["silent"] + " ORDER BY flow"
        flow = json.loads(followed(store, "sql", first, "--format", "json").stdout)[0]["flow"]
        story = followed(store, "explain", "run", "--flow", str(flow)).stdout
        assert "its socket had another congestion control, and then BBR again, as flow" in story
        words = [sys.executable, "-c", MAIN, "doctor", "--bundle", str(out)]
        account = subprocess.run(words, capture_output=True, text=True, check=False).stdout
        assert "sockets left BBR 4 times" in account

    def follow(self, store: Path, out: Path, port: int) -> None:
        """The same bundle through ingest, replay, explain, metrics and report."""
        loaded = followed(store, "ingest", "--no-packets", str(out))
        assert loaded.returncode == 0, loaded.stderr
        assert "cannot say why anything changed" in loaded.stdout
        refused = followed(store, "replay", "run")
        assert refused.returncode == 1
        assert "recorded by tcp_probe" in refused.stderr
        story = followed(store, "explain", "run").stdout
        assert f"-> 127.0.0.1:{port}" in story
        assert "begins" in story
        assert "first seen so" in story
        metrics = json.loads(followed(store, "metrics", "run", "--format", "json").stdout)
        # 20,000 bytes every 5 ms or so are sent; the counter tp.snd_una says how many arrived.
        assert max(flow["goodput_mbps"] or 0 for flow in metrics) > 1
        drawn = followed(store, "report", "run", "-o", str(out.with_name("run.html")))
        assert drawn.returncode == 0, drawn.stderr

    def test_only_sockets_of_the_port_are_recorded(self, tmp_path: Path, traffic: Traffic) -> None:
        out = tmp_path / "run"
        with Traffic() as other:
            assert other.port != traffic.port
            ran("--rung", "tcp_probe", "-d", "1.5", "--port", str(traffic.port), "-o", str(out))
        found = {
            frozenset((socket.ntohs(int(row["sport"])), socket.ntohs(int(row["dport"]))))
            for row in rows(out, "N")
        }
        assert found
        assert all(traffic.port in ports for ports in found)

    def test_the_state_agrees_with_what_ss_sees(self, tmp_path: Path, traffic: Traffic) -> None:
        """ss is an independent witness: same min_rtt, and a count of delivered that was recorded.

        It reads between two ACKs, so the next one's row has the same count; that row is later than
        the sample before. Samples beyond the last row have none.
        """
        out = tmp_path / "run"
        ran("--rung", "tcp_probe", "-d", "4", "--port", str(traffic.port), "-o", str(out))
        seen = []
        for block in text(out / "ss.txt.zst").split("# monotonic_ns ")[1:]:
            taken, _, lines = block.partition("\n")
            for line in lines.splitlines():
                if re.search(rf" 127\.0\.0\.1:{traffic.port} ", line.split("ino:")[0]) and (
                    match := re.search(r" delivered:(\d+)", line)
                ):
                    mrtt = re.search(r"mrtt:([\d.]+)", line)
                    assert mrtt
                    sender = f":{traffic.port}" in line.split()[4]
                    if sender:
                        seen.append((int(taken), int(match[1]), float(mrtt[1])))
        senders = {r["sk"] for r in rows(out, "N") if socket.ntohs(int(r["dport"])) == traffic.port}
        states = [row for row in rows(out, "T") if row["sk"] in senders]
        known = [(int(row["ns"]), int(row["tp.delivered"])) for row in states]
        within = [each for each in seen if each[1] <= known[-1][1]]
        assert len(within) >= 2
        for (before, *_), (_, delivered, _) in zip([(0, 0, 0.0), *within], within, strict=False):
            assert delivered in {count for ns, count in known if ns > before}
        heads = text(out / "events.csv.zst").splitlines()[:20]
        holder = next(h for h in heads if h.startswith("#T") and "bbr.min_rtt_us" in h)
        rtts = {
            int(row["bbr.min_rtt_us"]) / 1000
            for row in rows(out, holder[1:].split(",")[0])
            if row["sk"] in senders
        }
        assert rtts & {mrtt for _, _, mrtt in seen}

    def test_what_a_process_accepts_on_a_port_where_it_listens_later_is_its_own(
        self, tmp_path: Path, traffic: Traffic
    ) -> None:
        """Sockets that it accepts are made in softirq; only the port tells whose they are."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        begin, out = tmp_path / "begin", tmp_path / "run"
        server = subprocess.Popen([sys.executable, "-c", LATE_SERVER, str(begin), str(port)])
        try:
            words = collect("--rung", "tcp_probe", "-d", "4", "--pid", str(server.pid))
            running = subprocess.Popen([*words, "-o", str(out)], stderr=subprocess.PIPE, text=True)
            assert running.stderr is not None
            while "recording" not in running.stderr.readline():
                assert running.poll() is None
            begin.touch()
            received = 0
            with connected(port) as client:
                while data := client.recv(1 << 16):
                    received += len(data)
            running.communicate(timeout=300)
        finally:
            server.kill()
            server.wait()
        assert received == 2_000_000
        ends = {(socket.ntohs(int(r["sport"])), r["sk"]) for r in rows(out, "N")}
        assert {sport for sport, _ in ends} == {port}
        (accepted,) = {sk for _, sk in ends}
        assert len([row for row in rows(out, "T") if row["sk"] == accepted]) > 10

    def test_what_a_process_had_before_is_its_own_however_many_and_nobody_elses(
        self, tmp_path: Path
    ) -> None:
        """Another process that has one of its ports, at another address, is not recorded."""
        out, stopping = tmp_path / "run", threading.Event()
        with contextlib.ExitStack() as stack:
            pairs = [stack.enter_context(bbr_pair()) for _ in range(70)]
            ports = [client.getsockname()[1] for client, _ in pairs]
            theirs = {peer.getsockname()[1] for _, peer in pairs}

            def talk() -> None:
                while not stopping.wait(0.05):
                    for client, peer in pairs:
                        client.sendall(b"x" * 2000)
                        peer.recv(1 << 16)

            namesake = subprocess.Popen([sys.executable, "-c", NAMESAKE, str(min(ports))])
            talking = threading.Thread(target=talk)
            talking.start()
            try:
                words = ("--rung", "tcp_probe", "--no-packets", "-d", "2", "-o", str(out))
                done = ran(*words, "--pid", str(os.getpid()))
            finally:
                assert namesake.poll() is None
                namesake.kill()
                namesake.wait()
                stopping.set()
                talking.join()
        assert done.returncode == 0, done.stderr
        recorded = [socket.ntohs(int(row["sport"])) for row in rows(out, "N")]
        # The other ends are its own, too, where BBR is the default.
        assert sorted(port for port in recorded if port not in theirs) == sorted(ports)

    def test_a_retransmission_has_the_sequence_numbers_of_the_packet(
        self, host_alone: None, tmp_path: Path
    ) -> None:
        """Loopback of a namespace goes down for a while; what is sent again lies in the window."""
        name, out = f"rows{os.getpid()}", tmp_path / "run"
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
        if made.returncode:
            pytest.skip("needs ip netns: apt-get install iproute2, as root")
        try:
            subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
            away = "read word; ip link set lo down; sleep 0.5; ip link set lo up; cat"
            script = f"{sys.executable} -c '{SELF_TALK}' | {{ {away}; }}"
            inside = ["ip", "netns", "exec", name, "sh", "-c", script]
            ran(
                "--rung",
                "tcp_probe",
                "--netns",
                name,
                "--no-packets",
                "-o",
                str(out),
                "--",
                *inside,
            )
        finally:
            subprocess.run(["ip", "netns", "del", name], check=True)
        resent = rows(out, "R")
        assert resent
        states = rows(out, "T")
        for row in resent:
            before = [s for s in states if s["sk"] == row["sk"] and int(s["ns"]) < int(row["ns"])]
            if not before:
                continue
            first, last = int(row["skb.seq"]), int(row["skb.end_seq"])
            una = int(before[-1]["tp.snd_una"])
            # Sent since that state at most: a window more than was in flight then.
            assert (first - una) % 2**32 < 1 << 26
            assert 0 < (last - first) % 2**32 <= 1 << 17

    def test_sigterm_ends_the_recording_in_order(self, tmp_path: Path, traffic: Traffic) -> None:
        out = tmp_path / "run"
        words = collect("--rung", "tcp_probe", "--port", str(traffic.port), "-o", str(out))
        running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert running.stderr is not None
        while "recording" not in running.stderr.readline():
            assert running.poll() is None
        time.sleep(1.5)
        assert len(recorders(tmp_path)) == 1
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=300)
        assert manifest(out)["ended"] == "SIGTERM"
        assert len(rows(out, "T")) > 20
        assert left_behind(tmp_path) == []
        assert not out.with_name("run.partial").exists()

    def test_a_bpftrace_that_dies_leaves_what_was_recorded_and_status_1(
        self, tmp_path: Path, traffic: Traffic
    ) -> None:
        out = tmp_path / "run"
        words = collect("--rung", "tcp_probe", "--port", str(traffic.port), "-o", str(out))
        running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert running.stderr is not None
        while "recording" not in running.stderr.readline():
            assert running.poll() is None
        time.sleep(2)
        find = ["pgrep", "-P", str(running.pid), "-x", "bpftrace"]
        children = subprocess.run(find, capture_output=True, text=True, check=True)
        os.kill(int(children.stdout), signal.SIGKILL)
        _, said = running.communicate(timeout=300)
        assert running.returncode == 1
        assert "bpftrace ended by itself" in said
        assert str(manifest(out)["ended"]).startswith("bpftrace ended by itself (signal 9)")
        assert len(rows(out, "T")) > 20

    def test_a_size_cap_ends_it_cleanly(self, tmp_path: Path, traffic: Traffic) -> None:
        out = tmp_path / "run"
        limit = ("-d", "60", "--max-size", "2k")
        ran("--rung", "tcp_probe", *limit, "--port", str(traffic.port), "-o", str(out))
        assert "size cap of 2,000 bytes" in str(manifest(out)["ended"])
        assert check.check(out / "events.csv.zst").events > 0


@needs_root
@needs_bpftrace
@needs_bbr
@needs_btf
def test_a_full_disk_ends_the_recording_and_what_was_written_stays(
    tmp_path: Path, traffic: Traffic
) -> None:
    """On a small tmpfs of a private mount namespace; kept by copying it out of there."""
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    words = collect("--rung", "tcp_probe", "-d", "60", "-o", str(disk / "run"), "--no-packets")
    script = f"""
        mount -t tmpfs -o size=2560k small {disk} || exit 77
        (until [ -s {disk}/run.partial/events.csv.zst ]; do sleep 0.2; done
         sleep 2; cat /dev/urandom > {disk}/ballast) 2> /dev/null &
        "$@"; status=$?
        cp -r {disk}/run {kept}; exit $status
    """
    command = ["unshare", "-m", "sh", "-c", script, "sh", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode == 77:
        pytest.skip("needs the right to mount a tmpfs")
    assert done.returncode == 1, done.stderr
    assert "cannot write: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert check.check(kept / "events.csv.zst").events > 20
    assert left_behind(tmp_path) == []


def test_inet_diag_needs_neither_root_nor_bpf(tmp_path: Path, traffic: Traffic) -> None:
    out = tmp_path / "run"
    words = ("--rung", "inet_diag", "-d", "2.5", "--no-packets", "--port", str(traffic.port))
    with Traffic():
        done = ran(*words, "-o", str(out))
    assert done.returncode == 0, done.stderr
    document = manifest(out)
    assert document["rung"] == "inet_diag"
    assert "nothing can be replayed" in str(document["answers"])
    samples = text(out / "ss.txt.zst")
    assert samples.count("# monotonic_ns") >= 2
    assert re.search(rf":{traffic.port} .*bbr:\(bw:", samples)
    told_lines = [line for line in samples.splitlines() if line and not line.startswith("#")]
    assert all(f":{traffic.port} " in line for line in told_lines)
    store = tmp_path / "s.duckdb"
    loaded = followed(store, "ingest", str(out))
    assert loaded.returncode == 0, loaded.stderr
    assert "samples of ss" in loaded.stdout
    assert followed(store, "replay", "run").returncode == 1
    story = followed(store, "explain", "run").stdout
    assert f"-> 127.0.0.1:{traffic.port}" in story
    assert "STARTUP" in story or "PROBE_BW" in story
    drawn = followed(store, "report", "run", "-o", str(tmp_path / "run.html"))
    assert drawn.returncode == 0, drawn.stderr


@needs_bbr
def test_a_flight_recorder_counts_the_sockets_that_it_saw_and_fails_if_it_saw_none(
    tmp_path: Path, traffic: Traffic
) -> None:
    words = ("--rung", "inet_diag", "--no-packets", "--rotate", "2s", "-d", "3")
    seen = ran(*words, "--port", str(traffic.port), "-o", str(tmp_path / "seen"))
    assert seen.returncode == 0, seen.stderr
    samples = [manifest(dump)["socket_samples"] for dump in sorted(tmp_path.glob("seen-*"))]
    assert len(samples) == 2
    assert all(samples)
    none = ran(*words, "--port", "1", "-o", str(tmp_path / "none"))
    assert none.returncode == 1
    nothing = "no socket that the filters choose had BBR"
    assert none.stderr.count(f"no bundle: {nothing} in the last ") == 2
    assert f"nothing was recorded: {nothing}\n" in none.stderr
    assert list(tmp_path.glob("none-*")) == []


def test_a_flight_recorder_that_cannot_write_says_so_first_and_later_goes_on_and_fails(
    tmp_path: Path, traffic: Traffic
) -> None:
    place = tmp_path / "place"
    words = ("--rung", "inet_diag", "--no-packets", "--port", str(traffic.port))
    words = (*words, "--rotate", "2s", "-o", str(place / "x"))
    place.touch()
    refused = ran(*words, "-d", "60")
    assert refused.returncode == 1
    assert f"cannot write {place}: File exists" in refused.stderr
    assert "watching" not in refused.stderr
    place.unlink()
    replaced = f"rmdir {place}; touch {place}; sleep 1"
    failed = ran(*words, "--", "sh", "-c", replaced)
    assert failed.returncode == 1, failed.stderr
    assert "no bundle: cannot write" in failed.stderr
    assert "could not be written or not complete: " in failed.stderr
    assert "0 bundles" in failed.stderr


def test_what_inet_diag_cannot_do_of_what_was_asked_is_said_and_in_the_manifest(
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    words = ("--sample", "1/64", "--phases", "--max-cpu", "5%", "--follow")
    with Traffic() as flow:
        only = ("--port", str(flow.port), "--no-packets")
        done = ran("--rung", "inet_diag", *words, *only, "-d", "1.5", "-o", str(out))
    assert done.returncode == 0, done.stderr
    note = "inet_diag records every flow: --sample, --phases, --max-cpu without effect"
    assert note in done.stderr
    assert note in manifest(out)["notes"]
    assert "--follow tells nothing by inet_diag" in done.stderr


def test_a_command_that_cannot_start_is_refused_before_anything_is_attached(tmp_path: Path) -> None:
    done = ran("-o", str(tmp_path / "run"), "--", "no-such-command-here")
    assert done.returncode == 1
    assert "cannot start 'no-such-command-here'" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_leaves_others_running_ends_the_recording_and_that_is_told(
    tmp_path: Path,
) -> None:
    words = ("--rung", "inet_diag", "--no-packets", "--port", "9", "-o", str(tmp_path / "run"))
    done = ran(*words, "--", "sh", "-c", "sleep 3 & exit 7")
    assert done.returncode == 1
    assert "ended: the command ended (status 7)" in done.stderr
    assert "what COMMAND leaves running is not waited for" in done.stderr


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_what_a_command_waits_for_ends_with_the_recording(
    trap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    inner = f"{trap}echo $$ >> {started}; sleep 100; sleep 100"
    script = f"echo $$ >> {started}; sh -c '{inner.replace(chr(39), chr(34))}'; true"
    monkeypatch.setattr(user_command, "STOP_S", 2.0)
    command = user_command.UserCommand(["sh", "-c", script])
    command.start()
    wait_until(lambda: started.exists() and started.read_text().count("\n") == 2)
    command.stop()
    wait_until(lambda: not any(map(runs, started.read_text().split())))
    assert command.status == 143


def test_a_command_that_is_no_utf_8_leaves_a_bundle_that_can_be_read(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("--rung", "inet_diag", "--no-packets", "-o", str(out), "--")
    with Traffic():
        done = ran(*words, "sh", "-c", "sleep 1.5", os.fsdecode(b"caf\xe9 \xc3\xa9"))
    assert done.returncode == 0, done.stderr
    assert manifest(out)["setup"]["command"][-1] == "caf\\xe9 é"
    loaded = followed(tmp_path / "s.duckdb", "ingest", str(out))
    assert loaded.returncode == 0, loaded.stderr


def test_an_existing_output_is_never_touched(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "precious").write_text("x")
    done = ran("-o", str(out), "-d", "1")
    assert done.returncode == 1
    assert "exists" in done.stderr
    assert (out / "precious").read_text() == "x"


@pytest.mark.skipif(
    not Path("/usr/bin/python3").exists() or os.geteuid() != 0,
    reason="needs root, to become nobody, and /usr/bin/python3",
)
def test_without_root_it_says_so_and_records_what_ss_shows(tmp_path: Path) -> None:
    here = Path("/var/tmp") / f"bbrscope-nobody-{os.getpid()}"
    here.mkdir(mode=0o777)
    here.chmod(0o777)
    repository = Path(__file__).resolve().parents[3]
    packages = [path for path in sys.path if path.endswith("site-packages")]
    search = ":".join([str(repository / ".dev"), *packages])
    # In a network of its own: ss sees every flow of a network, those of tests beside it, too.
    nobody = ["unshare", "-n", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env"]
    python = [f"PYTHONPATH={search}", "/usr/bin/python3", "-B", "-c", MAIN]
    try:
        probe = subprocess.run([*nobody, *python, "--help"], capture_output=True, check=False)
        if probe.returncode:
            pytest.skip("needs packages that nobody can read and /usr/bin/python3 can import")
        words = ["collect", "-d", "1", "-o"]
        done, refused, denied = (
            subprocess.run(
                [*nobody, *python, *words, where, *more],
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            for where, more in (
                (str(here / "run"), []),
                (str(here / "other"), ["--rung", "fentry"]),
                (str(tmp_path / "run"), []),
            )
        )
        assert done.returncode == 1, done.stderr
        assert "is empty: no socket had BBR" in done.stderr
        assert "not root" in done.stderr
        assert manifest(here / "run")["rung"] == "inet_diag"
        assert refused.returncode == 1
        assert "not root" in refused.stderr
        assert denied.returncode == 1
        assert "Permission denied" in denied.stderr
        assert "Traceback" not in refused.stderr + denied.stderr
        assert not (here / "other.partial").exists()
    finally:
        shutil.rmtree(here)


def test_the_commands_own_end_ends_the_recording_and_gives_it_its_status(
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    script = "sleep 1; exit 3"
    with Traffic():
        done = ran("--rung", "inet_diag", "--no-packets", "-o", str(out), "--", "sh", "-c", script)
    assert done.returncode == 3, done.stderr
    assert manifest(out)["ended"] == "the command ended (status 3)"


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("--address", "not-an-address"), "is not an address"),
        (("--cgroup", "/no/such"), "no cgroup"),
        (("--pid", "4194304"), "no process"),
        (("--netns", "no-such-ns"), "no network namespace"),
    ],
)
@needs_root
@needs_bpftrace
@needs_bbr
@needs_btf
def test_a_filter_that_names_nothing_is_refused(
    words: tuple[str, ...], fact: str, tmp_path: Path
) -> None:
    done = ran(*words, "-d", "1", "-o", str(tmp_path / "run"))
    assert done.returncode == 1
    assert fact in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_host_without_ss_cannot_be_polled_and_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        collect("--rung", "inet_diag", "-d", "1", "-o", str(tmp_path / "run")),
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "ss is not installed" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_a_host_without_bpftrace_is_reported_and_falls_back(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("ss", "ip", "tc", "sh"):
        if path := shutil.which(tool):
            (folder / tool).symlink_to(path)
    out = tmp_path / "run"
    with Traffic():
        done = subprocess.run(
            collect("-d", "1", "--no-packets", "-o", str(out)),
            env={**os.environ, "PATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    ladder = manifest(out)["ladder"]
    assert isinstance(ladder, list)
    assert "bpftrace is not installed" in ladder[-1]["reason"]
