"""Which sockets to record, as a condition that the probes test in the kernel."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

from ...probes.base.errors import HostError
from ...probes.base.plurals import plural
from ...probes.fields import FIELDS
from ...probes.flow_share import ASKED, is_in_share
from ...probes.program import probe
from .host.helpers import output_of
from .host.ss_sockets import socket_lines

TCP_LISTEN = 10  # include/net/tcp_states.h
HOSTS_PIDS = 0xEFFFFFFC  # PROC_PID_INIT_INO, include/linux/proc_ns.h
COMMON = "$sk->__sk_common"
# A port that a process listens on is that of its network namespace.
_LISTENING = "@listening[(uint64){netns}, (uint64){port}]"
_NETNS = "__sk_common.skc_net.net->ns.inum"
# bpftrace takes programs of some ten thousand words.
MOST_SOCKETS = 500


@dataclass(frozen=True)
class Filters:
    """What the user asked for; several of one kind are alternatives, the kinds must all hold.

    Of `sample` flows one is recorded, chosen by the kernel's own hash of its addresses and ports
    (skc_hash); with `phases` only where the phase changes.
    """

    ports: tuple[int, ...] = ()
    addresses: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    cgroups: tuple[str, ...] = ()
    netns: str | None = None
    sample: int = 1
    phases: bool = False

    @property
    def prefix(self) -> list[str]:
        """The words before a helper's command, by which it enters the network namespace."""
        return ["ip", "netns", "exec", self.netns] if self.netns else []

    def describe(self) -> dict[str, object]:
        """What was asked for, as the manifest's `setup.filters`."""
        said = {name: value for name, value in vars(self).items() if value}
        return {name: value for name, value in said.items() if name != "sample" or value != 1}

    def pcap(self) -> list[str]:
        """tcpdump's expression: TCP, and the ports and addresses if any."""
        parts = ["tcp"]
        for word, values in (("port", self.ports), ("host", self.addresses)):
            if values:
                parts.append("(" + " or ".join(f"{word} {value}" for value in values) + ")")
        return [" and ".join(parts)]

    def ss(self) -> list[str]:
        """ss's expression, which inet_diag evaluates in the kernel."""
        groups = (
            [f"sport = :{n} or dport = :{n}" for n in self.ports],
            [f"src {each} or dst {each}" for each in map(bracketed, self.addresses)],
            [f"cgroup {cgroup_folder(path)}" for path in self.cgroups],
        )
        return [" and ".join(f"( {' or '.join(group)} )" for group in groups if group)]


def bracketed(address: str) -> str:
    """An address as ss reads it."""
    return f"[{address}]" if ":" in address else address


@dataclass
class Condition:
    """A bpftrace condition on `$sk` and what it needs beside it; "" records every socket.

    Attributes:
        setup: probes, as text.
        begin: statements that are run before the first event.
    """

    text: str = ""
    setup: str = ""
    begin: list[str] = field(default_factory=list)


def condition(filters: Filters, argument: str) -> Condition:
    """Translate the filters.

    Raises:
        HostError: a named process, cgroup or namespace does not exist, or a process has too many
            sockets.
    """
    groups = [
        [port(number) for number in filters.ports],
        [address(text) for text in filters.addresses],
        [cgroup(path) for path in filters.cgroups],
        [f"{COMMON}.skc_net.net->ns.inum == {namespace(filters.netns)}"] if filters.netns else [],
        [OF_PROCESS] if filters.pids else [],
        # Set before BBR's first call, and never changed (inet_ehash_insert(), inet_hash_connect()).
        [is_in_share(str(filters.sample), ASKED)] if filters.sample > 1 else [],
    ]
    parts = ["(" + " || ".join(group) + ")" for group in groups if group]
    probes = owner_probe(filters.pids, argument)
    return Condition(" && ".join(parts), probes, known_sockets(filters.pids))


def port(number: int) -> str:
    """The condition that either end has this port."""
    swapped = socket.htons(number)
    return f"{COMMON}.skc_num == {number} || {COMMON}.skc_dport == {swapped}"


def address(text: str) -> str:
    """The condition that either end has this address; IPv4 also as mapped into IPv6.

    Raises:
        HostError: it is no address.
    """
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError as error:
        raise HostError(f"{text!r} is not an address", "give an IPv4 or IPv6 address") from error
    words = [
        int.from_bytes(parsed.packed[i : i + 4], "little") for i in range(0, len(parsed.packed), 4)
    ]
    if len(words) == 1:
        return f"{COMMON}.skc_daddr == {words[0]} || {COMMON}.skc_rcv_saddr == {words[0]}"
    ends = []
    for end in ("skc_v6_daddr", "skc_v6_rcv_saddr"):
        same = (f"{COMMON}.{end}.in6_u.u6_addr32[{i}] == {word}" for i, word in enumerate(words))
        ends.append("(" + " && ".join(same) + ")")
    return f"({COMMON}.skc_family == 10 && ({' || '.join(ends)}))"


def cgroup_folder(path: str) -> Path:
    """A cgroup's folder, given as that or as its path within the hierarchy."""
    return Path(path) if path.startswith("/sys/") else Path("/sys/fs/cgroup") / path.lstrip("/")


def cgroup(path: str) -> str:
    """The condition that the socket was created in this cgroup (v2).

    A cgroup's id is the inode number of its folder.

    Raises:
        HostError: there is no such cgroup.
    """
    folder = cgroup_folder(path)
    try:
        inode = folder.stat().st_ino
    except OSError as error:
        raise HostError(f"no cgroup {folder}: {error.strerror}", "ls /sys/fs/cgroup") from error
    return f"$sk->sk_cgrp_data.cgroup->kn->id == {inode}"


def namespace(name: str) -> int:
    """The inode number of a named network namespace. Raises HostError."""
    path = Path("/run/netns") / name
    try:
        return os.stat(path).st_ino
    except OSError as error:
        raise HostError(f"no network namespace {name!r}", "ip netns list") from error


# A socket is a process's if the process connected it, or listens on its local port, now or later
# (owner_probe()), or had it before the recording (known_sockets()).
OF_PROCESS = " || ".join(
    (
        "@mine[(uint64)$sk] == 1",
        f"{_LISTENING.format(netns=f'$sk->{_NETNS}', port=f'{COMMON}.skc_num')} == 1",
        f"@had[(uint64)$sk->{FIELDS['sk.cookie'].path}] == 1",
    )
)


def require_kernels_pids(pids: tuple[int, ...]) -> None:
    """Refuse processes whose numbers are not those by which the kernel's probes know them.

    bpftrace's pid is the host's number up to 0.21, and may be a thread's in later ones.

    Raises:
        HostError: this process is in another PID namespace than the host's.
    """
    if pids and os.stat("/proc/self/ns/pid").st_ino != HOSTS_PIDS:
        raise HostError(
            "this is a PID namespace of its own (a container): by --pid probes would take another"
            " process for this one",
            "run it on the host with the host's number, or choose by --port, --address, --cgroup",
        )


def known_sockets(pids: tuple[int, ...]) -> list[str]:
    """Statements that mark the sockets that processes have now, and the ports they listen on.

    Connections are known by the kernel's cookies, which no two sockets share.

    Raises:
        HostError: there is no such process, or it has too many sockets.
    """
    found = [place for pid in pids for place in _sockets_of(pid)]
    if len(found) > MOST_SOCKETS:
        raise HostError(
            f"these processes have {plural(len(found), 'socket')}: more than {MOST_SOCKETS}"
            " cannot be told"
            " from others",
            "choose by port, address or cgroup: --port, --address, --cgroup",
        )
    # bpftrace takes no map that nothing is written to; 0 is the cookie of a socket without one.
    define = ["@had[(uint64)0] = (uint64)0;"] if pids else []
    return [*define, *(f"{place} = (uint64)1;" for place in found)]


def _sockets_of(pid: int) -> list[str]:
    """Where the probes look for a process's sockets."""
    namespace, prefix = _network_of(pid)
    places = []
    for line in socket_lines(output_of([*prefix, "ss", "-tanpeOH"])):
        local, cookie = _LOCAL_PORT.match(line), _COOKIE.search(line)
        if f"pid={pid}," not in line or local is None or cookie is None:
            continue
        state, port = local.groups()
        listens = _LISTENING.format(netns=namespace, port=port)
        places.append(listens if state == "LISTEN" else f"@had[(uint64)0x{cookie[1]}]")
    return sorted(set(places))


def _network_of(pid: int) -> tuple[int, list[str]]:
    """A process's network namespace, and the words before a command that enter it."""
    if not Path(f"/proc/{pid}").exists():
        raise HostError(f"no process {pid}", "pgrep NAME finds it")
    path = Path(f"/proc/{pid}/ns/net")
    try:
        return path.stat().st_ino, ["nsenter", f"--net={path}"]
    except PermissionError:  # without root, or where the kernel hides it: it is most likely ours
        return os.stat("/proc/self/ns/net").st_ino, []


# A line of ss: state, two queues, and the local address and port; behind them, the cookie.
_LOCAL_PORT = re.compile(r"(\S+) +\d+ +\d+ +\S+:(\d+) ")
_COOKIE = re.compile(r"\bsk:([0-9a-f]+)\b")


def owner_probe(pids: tuple[int, ...], argument: str) -> str:
    """The probe that marks a process's sockets and the ports where it listens.

    A process connects and listens in its own context, so its pid is seen there. A socket that it
    accepts is made in the context in which the packet came in: it is known by its port.
    """
    if not pids:
        return ""
    same = " || ".join(f"pid == {pid}" for pid in pids)
    listening = _LISTENING.format(netns=f"$sk->{_NETNS}", port=f"{argument}sport")
    body = [
        f"  if (!({same})) {{ return; }}",
        f"  @mine[(uint64){argument}skaddr] = 1;",
        f"  if ({argument}newstate != {TCP_LISTEN}) {{ return; }}",
        f"  $sk = (struct sock *){argument}skaddr;",
        f"  {listening} = (uint64)1;",
    ]
    comment = "Mark the process's sockets, and the ports where it listens."
    return probe(comment, "tracepoint:sock:inet_sock_set_state", body)
