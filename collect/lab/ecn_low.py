"""The route feature ecn_low, without which BBRv3 takes no notice of ECN.

    ip netns exec NAMESPACE python -m bbrscope.collect.lab.ecn_low

A route that has it says that marks on its way are of a low-latency, shallow-threshold ECN: TCP sets
TCP_ECN_LOW, which bbr_can_use_ecn asks for (tcp_set_ecn_low_from_dst in include/net/tcp.h of
google/bbr's branch v3). iproute2 does not know it, so the namespace's routes via a gateway are read
with RTM_GETROUTE (rtnetlink(7)) and put back with it.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator

from ...probes.base.errors import HostError

# include/uapi/linux/netlink.h and rtnetlink.h
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_REPLACE, NLM_F_DUMP, NLM_F_CREATE = 1, 4, 0x100, 0x300, 0x400
RTM_NEWROUTE, RTM_GETROUTE = 24, 26
RTA_GATEWAY, RTA_METRICS = 5, 8
RTAX_FEATURES = 12
HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
ROUTE = struct.Struct("=8BI")  # struct rtmsg; the last are its flags
ATTRIBUTE = struct.Struct("=HH")  # struct rtattr: length, type

FAMILIES = (socket.AF_INET, socket.AF_INET6)
RECEIVE_BYTES = 1 << 16


def ecn_low(release: str) -> int:
    """Return RTAX_FEATURE_ECN_LOW of a kernel with BBRv3.

    The bit that it had went to RTAX_FEATURE_TCP_USEC_TS in 6.7; patches for later kernels use the
    next one.
    """
    version = tuple(int(number) for number in re.findall(r"\d+", release)[:2])
    return 1 << 5 if version >= (6, 7) else 1 << 4


def add_feature(feature: int) -> int:
    """Add a feature (a bit of RTAX_FEATURES) to this namespace's routes via a gateway.

    Other metrics of these routes are not kept; the lab's have none.

    Returns:
        how many routes there are.

    Raises:
        HostError: the kernel does not know the feature, or refuses a route.
    """
    metrics = _attribute(RTA_METRICS, _attribute(RTAX_FEATURES, struct.pack("=I", feature)))
    changed = 0
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        for family in FAMILIES:
            for header, attributes in list(_routes(link, family)):
                if RTA_GATEWAY not in attributes:
                    continue
                attributes.pop(RTA_METRICS, None)
                unchanged = b"".join(_attribute(kind, data) for kind, data in attributes.items())
                _replace(link, header + unchanged + metrics)
                changed += 1
    return changed


def _routes(link: socket.socket, family: int) -> Iterator[tuple[bytes, dict[int, bytes]]]:
    """Ask for the routes; yield each as its rtmsg, without flags, and its attributes by type."""
    asked = ROUTE.pack(family, *[0] * 7, 0)
    link.send(_message(RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, asked))
    for kind, body in _answers(link):
        if kind == RTM_NEWROUTE:
            *fixed, _flags = ROUTE.unpack_from(body)
            yield ROUTE.pack(*fixed, 0), _attributes(body[ROUTE.size :])


def _replace(link: socket.socket, route: bytes) -> None:
    flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE
    link.send(_message(RTM_NEWROUTE, flags, route))
    for _ in _answers(link):
        pass


def _answers(link: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Yield messages as (type, content) up to the end of a dump or an acknowledgement."""
    while True:
        data = link.recv(RECEIVE_BYTES)
        while data:
            length, kind, *_ = HEADER.unpack_from(data)
            body = data[HEADER.size : length]
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                _check(-struct.unpack_from("=i", body)[0])
                return
            yield kind, body
            data = data[_aligned(length) :]


def _check(error: int) -> None:
    """Raise HostError for an error number; 0 is an acknowledgement."""
    if error == errno.EINVAL:
        raise HostError(
            f"this kernel ({os.uname().release}) refuses the route feature ecn_low, without which "
            "BBRv3 takes no notice of ECN",
            "boot a kernel of google/bbr's branch v3, or run with --set ecn=no",
        )
    if error:
        raise HostError(f"cannot change a route: {os.strerror(error)}")


def _message(kind: int, flags: int, body: bytes) -> bytes:
    return HEADER.pack(HEADER.size + len(body), kind, flags, 0, 0) + body


def _attribute(kind: int, data: bytes) -> bytes:
    length = ATTRIBUTE.size + len(data)
    return ATTRIBUTE.pack(length, kind) + data.ljust(_aligned(len(data)), b"\0")


def _attributes(data: bytes) -> dict[int, bytes]:
    attributes = {}
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        attributes[kind] = data[ATTRIBUTE.size : length]
        data = data[_aligned(length) :]
    return attributes


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def main() -> None:
    """Give this namespace's routes the feature ecn_low; exit with the reason where it cannot be."""
    try:
        add_feature(ecn_low(os.uname().release))
    except HostError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
