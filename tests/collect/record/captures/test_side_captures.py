"""What is recorded beside the events: headers only, the right queue, the user's own command."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import struct
import subprocess
from pathlib import Path

import pytest
import zstandard
from bbrscope.collect.record import user_command
from bbrscope.collect.record.captures.headers_only import HeadersOnly, headers_length
from bbrscope.collect.record.captures.packet_capture import PacketCapture
from bbrscope.collect.record.captures.place import Place
from bbrscope.collect.record.output.folder import hand_over
from bbrscope.collect.record.output.outputs import Discarded
from bbrscope.probes.base.errors import HostError

from tests.collect.record.test_record_host import Traffic, collect, manifest, needs_root, ran
from tests.processes import wait_until

ETHERNET, RAW = 1, 101
SECRET = b"what people sent is nobody's business"


def tcp(options: bytes = b"", payload: bytes = SECRET) -> bytes:
    """A TCP header with options of whole words, and a payload."""
    words = 5 + len(options) // 4
    return struct.pack("!HHIIBBHHH", 443, 5000, 1, 2, words << 4, 16, 100, 0, 0) + options + payload


def ipv4(body: bytes, protocol: int = 6, options: bytes = b"", fragment: int = 0) -> bytes:
    first = 0x40 | 5 + len(options) // 4
    size = 20 + len(options) + len(body)
    head = struct.pack("!BBHHHBBH", first, 0, size, 7, fragment, 64, protocol, 0)
    return head + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + options + body


def ipv6(body: bytes, following: int = 6) -> bytes:
    return struct.pack("!IHBB", 6 << 28, len(body), following, 64) + bytes(32) + body


def ethernet(body: bytes, kind: int, tags: int = 0) -> bytes:
    return bytes(12) + b"\x81\x00\x00\x05" * tags + struct.pack("!H", kind) + body


@pytest.mark.parametrize(
    "packet",
    [
        ethernet(ipv4(tcp()), 0x0800),
        ethernet(ipv4(tcp(b"\x01" * 12)), 0x0800),
        ethernet(ipv4(tcp(b"\x01" * 40), options=b"\x01" * 8), 0x0800, tags=2),
        ethernet(ipv6(tcp(b"\x01" * 20)), 0x86DD),
    ],
)
def test_a_packet_is_cut_where_its_tcp_header_ends(packet: bytes) -> None:
    assert packet[headers_length(packet, ETHERNET) :] == SECRET


@pytest.mark.parametrize(
    "packet",
    [
        ethernet(ipv4(SECRET, protocol=17), 0x0800),
        ethernet(ipv4(SECRET, fragment=100), 0x0800),
        ethernet(ipv6(SECRET, following=44), 0x86DD),
        ethernet(SECRET, 0x0806),
        ethernet(b"", 0x0800),
    ],
)
def test_what_is_no_tcp_keeps_no_payload_either(packet: bytes) -> None:
    assert SECRET[:4] not in packet[: headers_length(packet, ETHERNET)]


def capture(packets: list[bytes], order: str = "<", link: int = RAW) -> bytes:
    head = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 128, link)
    rows = [
        struct.pack(f"{order}IIII", i, i, len(p), len(p) + 900) + p for i, p in enumerate(packets)
    ]
    return head + b"".join(rows)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("piece", [1, 7, 100_000])
def test_a_capture_is_cut_whatever_its_pieces_and_keeps_times_and_lengths(
    order: str, piece: int
) -> None:
    data = capture([ipv4(tcp(b"\x01" * 4 * i)) for i in range(10)], order)
    cutter = HeadersOnly()
    got = b"".join(cutter.cut(data[i : i + piece]) for i in range(0, len(data), piece))
    assert got == capture_of_headers(order)
    assert cutter.link == RAW


def capture_of_headers(order: str) -> bytes:
    head = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 128, RAW)
    rows = []
    for i in range(10):
        whole, bare = ipv4(tcp(b"\x01" * 4 * i)), 40 + 4 * i
        record = struct.pack(f"{order}IIII", i, i, bare, len(whole) + 900)
        rows.append(record + whole[:bare])
    return head + b"".join(rows)


def test_a_packet_that_was_cut_off_is_dropped() -> None:
    data = capture([ipv4(tcp())])
    assert HeadersOnly().cut(data[:-1]) == data[:24]


@needs_root
@pytest.mark.parametrize(("words", "is_there"), [((), False), (("--snaplen", "200"), True)])
def test_payload_is_recorded_only_when_asked_for(
    words: tuple[str, ...], is_there: bool, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with Traffic() as traffic:
        more = ("-d", "1.5", "-i", "lo", "--port", str(traffic.port), *words)
        done = ran("--rung", "inet_diag", *more, "-o", str(out))
    assert done.returncode == 0, done.stderr
    if not (out / "packets.pcap.zst").exists():
        pytest.skip("needs tcpdump: apt-get install tcpdump")
    with (out / "packets.pcap.zst").open("rb") as raw:
        data = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True).read()
    assert len(data) > 1000
    assert (b"x" * 20 in data) == is_there  # what Traffic sends


# Captures for a second, and ends as when its device is removed.
ENDING = """#!/bin/sh
echo "tcpdump: listening on veth7, link-type EN10MB (Ethernet)" >&2
printf '\\324\\303\\262\\241\\002\\000\\004\\000%016d'
sleep 1
echo "tcpdump: pcap_loop: The interface disappeared" >&2
echo "5 packets captured" >&2
echo "9 packets received by filter" >&2
echo "3 packets dropped by kernel" >&2
echo "1 packet dropped by interface" >&2
exit 1
"""


def with_tool(name: str, script: str, folder: Path) -> dict[str, str]:
    """An environment in which a tool is this script."""
    folder.mkdir()
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@needs_root
def test_a_tcpdump_that_ended_by_itself_is_told_with_its_words_and_losses(tmp_path: Path) -> None:
    env, out = with_tool("tcpdump", ENDING, tmp_path / "bin"), tmp_path / "run"
    with Traffic() as traffic:
        words = ("--rung", "inet_diag", "-d", "2.5", "-i", "lo", "--port", str(traffic.port))
        done = subprocess.run(
            collect(*words, "-o", str(out)), env=env, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    said = "(status 1) tcpdump: pcap_loop: The interface disappeared: later packets are missing"
    assert f"note: tcpdump ended by itself {said}" in done.stderr
    assert "note: 4 packets lost by tcpdump: a larger --ring loses fewer" in done.stderr
    assert "is not complete: tcpdump ended by itself (status 1)" in done.stderr
    packets = manifest(out)["packets"]
    assert packets["ended"] == "status 1"
    counts = {name: n for name, n in packets.items() if name.startswith("packets_")}
    assert counts == {
        "packets_captured": 5,
        "packets_received": 9,
        "packets_dropped": 3,
        "packets_dropped_by_interface": 1,
    }


def test_polls_that_fail_are_counted_and_told(tmp_path: Path) -> None:
    """As of an ss that does not know an option, and of a queue whose device is gone."""
    env = with_tool("tc", "#!/bin/sh\nexit 1\n", tmp_path / "bin")
    (tmp_path / "bin" / "ss").write_text("#!/bin/sh\nexit 255\n")
    (tmp_path / "bin" / "ss").chmod(0o755)
    words = ("--rung", "inet_diag", "-d", "1.5", "-i", "lo", "--no-packets")
    done = subprocess.run(
        collect(*words, "-o", str(tmp_path / "run")),
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1  # it is empty
    document = manifest(tmp_path / "run")
    assert document["polls"] == 0
    assert re.search(r"note: (\d+) of \1 polls of ss failed", done.stderr)
    assert re.search(r"note: (\d+) of \1 polls of queue failed", done.stderr)


@needs_root
def test_a_process_in_another_network_namespace_is_told_to_have_no_samples(tmp_path: Path) -> None:
    """As one of a container; one that shares the recorder's is not."""
    apart = subprocess.Popen(["unshare", "-n", "sleep", "100"])
    beside = subprocess.Popen(["sleep", "100"])
    own = os.stat("/proc/self/ns/net").st_ino
    wait_until(lambda: os.stat(f"/proc/{apart.pid}/ns/net").st_ino != own)
    words = ("--rung", "inet_diag", "-d", "1", "-i", "lo", "--no-packets")
    chosen = ("--pid", str(apart.pid), "--pid", str(beside.pid))
    ran(*words, *chosen, "-o", str(tmp_path / "run"))
    apart.kill()
    beside.kill()
    (note,) = [text for text in manifest(tmp_path / "run")["notes"] if "namespace" in text]
    assert note.startswith(f"process {apart.pid} is in another network namespace")


@pytest.mark.parametrize(
    "text",
    ["", "a b", "ssh://host/eth0;reboot", "ssh://host/$(id)", "r:", "-h", "a" * 20, "ssh://h/"],
)
def test_what_is_no_device_is_refused(text: str) -> None:
    with pytest.raises(HostError, match="does not name a device"):
        Place(text)


def test_the_far_shell_gets_every_word_as_it_is() -> None:
    words = Place("ssh://router/eth0").command("tc", "-s", "$(reboot)", "a b")
    assert words[:4] == ["ssh", "-o", "BatchMode=yes", "router"]
    (for_the_shell,) = words[4:]
    assert shlex.split(for_the_shell) == ["tc", "-s", "$(reboot)", "a b"]
    done = subprocess.run(
        ["sh", "-c", for_the_shell.replace("tc ", "printf %s, ", 1)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "-s,$(reboot),a b,"


@pytest.mark.parametrize("queue", ["no-such-dev", "nowhere:eth0"])
def test_a_queue_that_cannot_be_sampled_is_reported_before_anything_is_recorded(
    queue: str, tmp_path: Path
) -> None:
    done = ran("--rung", "inet_diag", "-d", "1", "--queue", queue, "-o", str(tmp_path / "run"))
    assert done.returncode == 1
    assert f"cannot sample the queue of {queue}" in done.stderr
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_under_sudo_a_command_runs_as_its_caller_unless_reported_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nobody = pwd.getpwnam("nobody")
    monkeypatch.setenv("SUDO_UID", str(nobody.pw_uid))
    assert ids(as_root=False, folder=tmp_path) == [nobody.pw_uid, nobody.pw_gid]
    assert ids(as_root=True, folder=tmp_path) == [0, 0]
    monkeypatch.delenv("SUDO_UID")
    assert ids(as_root=False, folder=tmp_path) == [0, 0]


@needs_root
@pytest.mark.parametrize("caller", ["evil", "-1", "4000000000", "99999999999999999999"])
def test_a_command_of_a_user_whom_the_host_does_not_know_is_not_run_as_root(
    caller: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SUDO_UID", caller)
    with pytest.raises(HostError, match="whom this host does not know"):
        user_command.UserCommand(("true",))
    assert ids(as_root=True, folder=tmp_path) == [0, 0]
    hand_over(tmp_path)
    user_command.UserCommand(())


def ids(*, as_root: bool, folder: Path) -> list[int]:
    """User and group that a command runs as."""
    path = folder / "ids"
    path.touch()
    path.chmod(0o666)
    for parent in (folder, *folder.parents[:3]):  # pytest's folders let nobody else in
        parent.chmod(parent.stat().st_mode | 0o755)
    script = f"(id -u; id -g) > {shlex.quote(str(path))}"
    command = user_command.UserCommand(("sh", "-c", script), as_root)
    command.start()
    assert command.process is not None
    command.process.wait(20)
    assert command.status == 0
    return [int(line) for line in path.read_text().split()]


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -9 $$", 137), ("true", 0)])
def test_the_status_of_a_command_is_reported_as_a_shell_tells_it(script: str, status: int) -> None:
    command = user_command.UserCommand(("sh", "-c", script))
    command.start()
    assert command.process is not None
    command.process.wait(20)
    assert command.status == status


@needs_root
def test_a_tcpdump_that_ends_by_itself_is_told_of_while_it_is_recorded_and_afterwards() -> None:
    """A recording goes on without its packets, for days perhaps."""
    captures = [PacketCapture(Place("lo"), Discarded(), 1024, ["tcp"]) for _ in range(2)]
    assert all(capture.wait_listening() for capture in captures)
    killed, other = captures
    assert [capture.notes() for capture in captures] == [[], []]
    killed.process.kill()
    killed.process.wait()
    told = ["tcpdump ended by itself (signal 9): later packets are missing"]
    assert killed.notes() == told
    for capture in captures:
        capture.stop()
    assert (killed.notes(), other.notes()) == (told, [])
