"""Which sockets to record, as a condition that the probes test in the kernel."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...probes.base.errors import HostError
from ...probes.flow_share import ASKED, IS_HASHED, is_in_share
from . import cgroups, process_sockets
from .process_sockets import COMMON, HowToSee

# A socket of IPv6 has the IPv4 address of its ends, or 127.0.0.6 if these have none
# (LOOPBACK4_IPV6, include/net/ipv6.h): that is an address which others use.
_IS_IPV4 = (
    f"{COMMON}.skc_family == 2"
    f" || {COMMON}.skc_v6_daddr.in6_u.u6_addr32[2] == {socket.htonl(0xFFFF)}"
)


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

    def ss(self, folders: Sequence[str] = ()) -> list[str]:
        """ss's expression, which inet_diag evaluates in the kernel; `folders` are the cgroups'."""
        groups = (
            [f"sport = :{n} or dport = :{n}" for n in self.ports],
            [f"src {each} or dst {each}" for each in map(bracketed, self.addresses)],
            [f"cgroup {path}" for path in folders],
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


def condition(filters: Filters, how: HowToSee) -> Condition:
    """Translate the filters; `how` says how the program reads what processes do.

    Raises:
        HostError: a named process, cgroup or namespace does not exist, or a process has too many
            sockets.
    """
    groups = [
        [port(number) for number in filters.ports],
        [address(text) for text in filters.addresses],
        [cgroup(path) for path in filters.cgroups],
        [network(filters.netns)] if filters.netns is not None else [],
        [process_sockets.OF_PROCESS] if filters.pids else [],
        # Set with the place in the kernel's table, and never changed.
        [f"{IS_HASHED} && {is_in_share(str(filters.sample), ASKED)}"] if filters.sample > 1 else [],
    ]
    parts = ["(" + " || ".join(group) + ")" for group in groups if group]
    probes = process_sockets.owner_probes(filters.pids, how)
    known = process_sockets.known_sockets(filters.pids)
    return Condition(" && ".join(parts), probes, known)


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
    if "%" in text:  # neither ss nor tcpdump takes it, and sockets are not told apart by it
        alone, _, device = text.partition("%")
        raise HostError(
            f"{text!r} names a device beside the address",
            f"give the address alone, {alone}, and -i {device} for that device's packets",
        )
    words = [
        int.from_bytes(parsed.packed[i : i + 4], "little") for i in range(0, len(parsed.packed), 4)
    ]
    if len(words) == 1:
        either = f"{COMMON}.skc_daddr == {words[0]} || {COMMON}.skc_rcv_saddr == {words[0]}"
        return f"(({_IS_IPV4}) && ({either}))"
    ends = []
    for end in ("skc_v6_daddr", "skc_v6_rcv_saddr"):
        same = (f"{COMMON}.{end}.in6_u.u6_addr32[{i}] == {word}" for i, word in enumerate(words))
        ends.append("(" + " && ".join(same) + ")")
    return f"({COMMON}.skc_family == 10 && ({' || '.join(ends)}))"


def cgroup(path: str) -> str:
    """The condition that the socket was created in this cgroup (v2), not below it.

    Raises:
        HostError: there is no such cgroup.
    """
    return f"$sk->sk_cgrp_data.cgroup->kn->id == {cgroups.number_of(path)}"


def network(name: str) -> str:
    """The condition that the socket is in this network namespace. Raises HostError."""
    return f"{COMMON}.skc_net.net->ns.inum == {namespace(name)}"


def namespace(name: str) -> int:
    """The inode number of a named network namespace. Raises HostError."""
    try:
        if name in ("", ".", "..") or "/" in name:
            raise FileNotFoundError(name)
        found, own = os.stat(Path("/run/netns") / name), os.stat("/proc/self/ns/net")
    except (OSError, ValueError) as error:
        raise HostError(f"no network namespace {name!r}", "ip netns list") from error
    if found.st_dev != own.st_dev:  # `ip netns add` that failed leaves an empty file
        raise HostError(f"/run/netns/{name} is no network namespace", f"ip netns delete {name}")
    return found.st_ino
