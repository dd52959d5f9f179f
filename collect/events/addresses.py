"""Ports and addresses of a socket, from how the kernel stores them to how people write them."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, ip_address

AF_INET6 = "10"


def decode_address(text: str) -> str:
    """Return an address in its usual notation.

    A number is an IPv4 address as the kernel stores it, four bytes in network order read as a
    little-endian integer; anything else is IPv4 or IPv6 text, as bpftrace's ntop() prints it.

    Raises:
        ValueError: neither.

    >>> decode_address("33556746"), decode_address("::ffff:10.9.0.2")
    ('10.9.0.2', '10.9.0.2')
    """
    if text.isdecimal():
        number = int(text)
        if number >= 1 << 32:
            raise ValueError(text)
        return str(IPv4Address(number.to_bytes(4, "little")))
    address = ip_address(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def decode_port(text: str) -> int:
    """Return a port whose 16 bits in network byte order were read as a little-endian number.

    Raises:
        ValueError: no number of 16 bits.

    >>> decode_port("20756")
    5201
    """
    number = int(text)
    if not 0 <= number < 1 << 16:
        raise ValueError(text)
    return int.from_bytes(number.to_bytes(2, "little"), "big")


def decode_inode(text: str) -> int:
    """Return the number of a namespace (struct ns_common's inum, 32 bits).

    Raises:
        ValueError: no such number.
    """
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else -1
    if not 0 <= number < 1 << 32:
        raise ValueError(text)
    return number


def endpoints(row: Mapping[str, str]) -> dict[str, str | int]:
    """Return what a row says of ``sport``, ``dport``, ``saddr``, ``daddr`` and ``netns``, decoded.

    Rows may have both families' addresses, of which ``family`` says which one counts.

    Raises:
        ValueError: a value is no port, no address or no inode number.
    """
    parts: dict[str, str | int] = {}
    for name in ("sport", "dport"):
        if name in row:
            parts[name] = decode_port(row[name])
    long = row.get("family") == AF_INET6
    for name in ("saddr", "daddr"):
        recorded = name + "6" if long and name + "6" in row else name
        if recorded in row:
            parts[name] = decode_address(row[recorded])
    if "netns" in row:
        parts["netns"] = decode_inode(row["netns"])
    return parts


def flow_name(ends: Mapping[str, str | int], sk: str) -> str:
    """Name a flow by the ends that `endpoints` returns, or by its socket where there are none.

    >>> flow_name({"saddr": "10.9.0.1", "sport": 4711, "dport": 443}, "ff00")
    '10.9.0.1:4711 > ?:443'
    >>> flow_name({}, "ff00")
    'socket ff00'
    """
    if "dport" not in ends:
        return f"socket {sk}"
    both = [f"{ends.get(f'{side}addr', '?')}:{ends.get(f'{side}port', '?')}" for side in "sd"]
    return " > ".join(both)
