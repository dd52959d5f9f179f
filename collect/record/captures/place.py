"""Where packets and queues are measured: a device here, in a namespace, or on another host."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import shlex
import socket
from urllib.parse import urlsplit

from ....probes.base.errors import HostError
from ..host.helpers import output_of

# A name that dev_valid_name() of the kernel (net/core/dev.c) allows, less what a shell would heed.
DEVICE = re.compile(r"[A-Za-z0-9_@+=:][A-Za-z0-9_.@+=:-]{0,14}")


class Place:
    """DEV, NETNS:DEV, or ssh://HOST/DEV (queues only).

    Raises:
        HostError: the text is none of these.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.netns = ""
        self.host = ""
        if match := re.fullmatch(r"ssh://([^/\s-][^/\s]*)/(\S+)", text):
            self.host, self.device = match[1], match[2]
        elif ":" in text:
            self.netns, self.device = text.split(":", 1)
        else:
            self.device = text
        if not DEVICE.fullmatch(self.device):
            raise HostError(
                f"{text!r} does not name a device", "give DEV, NETNS:DEV or ssh://HOST/DEV"
            )

    def command(self, *words: str) -> list[str]:
        """The words as a command that runs there; ssh's far shell gets each of them quoted."""
        if self.host:
            return ["ssh", "-o", "BatchMode=yes", self.host, shlex.join(words)]
        if self.netns:
            return ["ip", "netns", "exec", self.netns, *words]
        return list(words)


def route_device(address: str | None, prefix: list[str]) -> str | None:
    """The device of the route to `address`, or of the default route; None where there is none."""
    words = ["route", "get", address] if address else ["route", "show", "default"]
    text = output_of([*prefix, "ip", *(["-6"] if address and ":" in address else []), *words])
    match = re.search(r"\bdev (\S+)", text)
    return match[1] if match else None


def address_in(command: tuple[str, ...]) -> str | None:
    """The first argument that names a reachable host, as an address."""
    for word in command[1:]:
        try:
            host = urlsplit(word).hostname if "://" in word else word
        except ValueError:
            continue
        # A shell's script is no host, and longer than a name may be (RFC 1035, 2.3.4).
        if not host or host.startswith("-") or len(host) > 255 or " " in host:
            continue
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            if host != "localhost" and "." not in host:
                continue
        with contextlib.suppress(OSError, UnicodeError):
            return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    return None
