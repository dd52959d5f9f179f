"""Which sockets are asked for: by process, by cgroup, by address and by network namespace."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from bbrscope.collect.record import cgroups, filters, process_sockets
from bbrscope.collect.record.host import survey
from bbrscope.collect.record.process_sockets import HowToSee
from bbrscope.probes import btf
from bbrscope.probes.attach import Attach
from bbrscope.probes.base.errors import HostError


class Types(btf.Btf):
    """Those of a kernel that has these functions."""

    def __init__(self, functions: set[str]) -> None:
        self.functions = functions

    def parameters(self, function: str) -> list[str] | None:
        """Of a function that it has."""
        return ["file"] if function in self.functions else None

    def member_offset(self, struct: str, member: str) -> int | None:
        """That of struct pid's numbers, or any other."""
        return 96


SO_COOKIE = 57  # asm-generic/socket.h


def test_a_program_with_a_line_break_in_its_name_is_found_by_its_number(tmp_path: Path) -> None:
    name = tmp_path / "two\nlines"
    name.symlink_to(sys.executable)
    talk = "import socket as s\na = s.create_server(('127.0.0.1', 0)); b = s.create_connection("
    talk += "a.getsockname())\nprint('', flush=True)\ninput()"
    with subprocess.Popen(
        [name, "-c", talk], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert Path(f"/proc/{running.pid}/comm").read_text() == "two\nlines\n"
        places = process_sockets.known_sockets((running.pid,))
        running.communicate("\n", timeout=20)
    assert len([place for place in places if "@had[(uint64)0x" in place]) == 1
    assert len([place for place in places if place.startswith("@listening")]) == 1


def test_a_process_is_recorded_by_its_sockets_and_by_the_ports_where_it_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        own = filters.Filters(pids=(os.getpid(),))
        condition = filters.condition(own, HowToSee("args."))
        cookies = (one.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8) for one in (client, server))
        of_client, of_server = (int.from_bytes(one, sys.byteorder) for one in cookies)
        port = server.getsockname()[1]
        monkeypatch.setattr(process_sockets, "MOST_SOCKETS", 1)
        with pytest.raises(HostError, match="sockets: more than 1 cannot") as refused:
            filters.condition(own, HowToSee("args."))
    netns = os.stat("/proc/self/ns/net").st_ino
    assert f"@had[(uint64){of_client:#x}] = (uint64)1;" in condition.begin
    assert f"@listening[(uint64){netns}, (uint64){port}] = (uint64)1;" in condition.begin
    assert f"{of_server:#x}]" not in "".join(condition.begin)
    assert "--port" in refused.value.way_out
    for name in ("@mine", "@listening", "@had"):
        assert f"{name}[(uint64)$sk" in condition.text
    assert f"$number->nr == {os.getpid()}" in condition.setup


def test_only_what_a_process_does_itself_makes_a_socket_its_own() -> None:
    """Other changes of state come in interrupts, in whatever process runs: the other end's, too."""
    setup = filters.condition(filters.Filters(pids=(os.getpid(),)), HowToSee("args.", 96)).setup
    probe = setup.split("tracepoint:sock:inet_sock_set_state")[1]
    first, *_ = probe.partition("@mine")
    assert "(args.newstate != 2 && args.newstate != 10) { return; }" in first
    assert "(uint64)$process + 96 + @level[0] * 16" in first


@pytest.mark.parametrize(
    ("rung", "point", "file"),
    [
        ("fentry", "fentry:vmlinux:__receive_sock", "args.file"),
        ("kprobe", "kprobe:__receive_sock", "arg0"),
        ("tcp_probe", "", ""),
    ],
)
def test_a_socket_that_a_process_is_handed_is_its_own(rung: str, point: str, file: str) -> None:
    """Where the kernel tells of it: from Linux 5.9 on, and where its functions have probes."""
    types = Types({"__receive_sock"})
    setup = filters.condition(
        filters.Filters(pids=(os.getpid(),)), survey.how_to_see(types, Attach(rung))
    ).setup
    assert f"$number->nr == {os.getpid()}" in setup
    _, handed, body = setup.partition(f"\n{point}\n") if point else ("", "", "")
    assert bool(handed) == ("__receive_sock" in setup)
    if handed:
        body, *_ = body.partition("\n}")
        assert f"(struct file *){file};" in body
        # A listening socket by its port, any other by itself; of other processes' none.
        assert body.index("$number->nr") < body.index("skc_state == 10) { @listening[")
        assert body.rstrip().endswith("@mine[(uint64)$sk] = 1;")
    types.functions.clear()
    assert survey.how_to_see(types, Attach(rung)) == HowToSee("args.", 96)


WAIT = """\
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
print(flush=True)
got = signal.sigtimedwait({signal.SIGCHLD}, 20)
print(got.si_code, got.si_errno & 0xffffffff)
"""


def queued(known: process_sockets.KnownSocket) -> tuple[int, int]:
    """What a process gets with the signal that names a socket: si_code and si_errno."""
    words = [sys.executable, "-c", WAIT]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        waiting.stdout.readline()
        process_sockets.queue_signal(waiting.pid, *known.signal)
        code, errno = map(int, waiting.stdout.read().split())
    return code, errno


def test_a_socket_that_is_made_while_probes_are_attached_is_told_by_a_signal() -> None:
    """Of those that name none, the code is above and the other number 0."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        cookie = client.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8)
        netns, port = os.stat("/proc/self/ns/net").st_ino, server.getsockname()[1]
        known = process_sockets.sockets_of((os.getpid(),))
    connected = process_sockets.KnownSocket(int.from_bytes(cookie, sys.byteorder))
    listening = process_sockets.KnownSocket(netns=netns, port=port)
    assert {connected, listening} <= set(known)
    assert queued(listening) == (-(1 << 24) - port, netns)
    assert queued(process_sockets.KnownSocket((5 << 32) + 7)) == (-(1 << 20) - 5, 7)


def test_a_process_that_has_ended_and_a_thread_are_refused_by_their_names() -> None:
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(HostError, match=f"process {ended.pid} has ended"):
            process_sockets.known_sockets((ended.pid,))
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with pytest.raises(HostError, match=f"is a thread of process {os.getpid()}") as refused:
            process_sockets.known_sockets((thread.native_id or 0,))
    finally:
        stop.set()
        thread.join()
    assert refused.value.way_out == f"--pid {os.getpid()}"


@pytest.fixture
def hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is taken for a mounted cgroup v2, at a path with a space in it."""
    root = tmp_path / "cgroup v2"
    root.mkdir()
    device = root.stat().st_dev
    at = str(root).replace(" ", "\\040")
    lines = [
        "31 23 0:1 / /sys/fs/cgroup rw - tmpfs tmpfs rw",
        f"41 31 {os.major(device)}:{os.minor(device)} / {at} rw shared:9 - cgroup2 cgroup2 rw",
    ]
    mounts = tmp_path / "mountinfo"
    mounts.write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(cgroups, "MOUNTS", mounts)
    return root


NAMES = ["a b", "q\"uo'te", "pct%d", "back\\slash", "ümläut", "(x)", "-x", "one/below", "L" * 250]


@pytest.mark.parametrize("name", NAMES)
def test_a_cgroup_is_found_wherever_it_is_mounted_and_whatever_it_is_called(
    name: str, hierarchy: Path
) -> None:
    folder = hierarchy / name
    folder.mkdir(parents=True)
    number = folder.stat().st_ino
    for path in (name, f"/{name}", str(folder)):
        select = filters.Filters(cgroups=(path,))
        assert filters.condition(select, HowToSee("args.")).text.endswith(f"->kn->id == {number})")
    held = cgroups.hold(name)
    try:
        for_ss = cgroups.name_for_ss(held)
        assert Path(for_ss).stat().st_ino == number
        folder.rmdir()
        assert Path(for_ss).stat().st_ino == number
        assert not set(for_ss) & set(" ()")
    finally:
        os.close(held)


@pytest.mark.parametrize("path", ["", "none", "/none", "/proc/self", "../../../../../../proc/self"])
def test_what_is_no_cgroup_of_version_2_is_refused(path: str, hierarchy: Path) -> None:
    with pytest.raises(HostError, match="no cgroup") as refused:
        filters.condition(filters.Filters(cgroups=(path,)), HowToSee("args."))
    assert str(hierarchy) in refused.value.fact


def test_a_host_without_cgroup_v2_says_so(hierarchy: Path) -> None:
    cgroups.MOUNTS.write_text("32 31 0:2 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n")
    with pytest.raises(HostError, match="no cgroup v2 hierarchy is mounted"):
        cgroups.folder_of(str(hierarchy))


def test_sockets_of_ipv6_do_not_have_the_ipv4_address_that_the_kernel_gives_them() -> None:
    """LOOPBACK4_IPV6 of include/net/ipv6.h is 127.0.0.6, which proxies really use."""
    text = filters.condition(filters.Filters(addresses=("127.0.0.6",)), HowToSee("args.")).text
    family, either = text.split(" && ")
    assert "skc_family == 2 ||" in family
    assert "skc_v6_daddr.in6_u.u6_addr32[2] == 4294901760" in family
    assert "skc_daddr == 100663423 || " in either


def test_an_address_with_a_device_is_refused() -> None:
    with pytest.raises(HostError, match="names a device") as refused:
        filters.address("fe80::1%eth0")
    assert "-i eth0" in refused.value.way_out


@pytest.mark.parametrize("name", ["", ".", "..", "/proc/self/ns/net", "a/b", "no-such", "nul\0"])
def test_what_is_no_network_namespaces_name_is_refused(name: str) -> None:
    with pytest.raises(HostError, match="no network namespace"):
        filters.condition(filters.Filters(netns=name), HowToSee("args."))


def test_a_share_is_of_sockets_that_have_their_own_hash() -> None:
    """A socket that was just made for a packet has its listener's."""
    text = filters.condition(filters.Filters(sample=2), HowToSee("args.")).text
    assert text.startswith("((uint64)$sk->__sk_common.skc_node.pprev != 0 && ")
