"""Find the addresses in what people and programs wrote, whatever stands around them.

`-c192.0.2.7`, `192.0.2.7.443`, `[::ffff:192.0.2.7]:443` and `a:443:2001:db8::7` have one each.
Where it is not clear where one begins, more of the text is taken for an address rather than less:
texts are searched so that no address stays in them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

# What an address can be written with; of those with less than two colons none is IPv6.
RUN = re.compile(r"[0-9A-Fa-f.:]{3,}")
# Not the end of a longer number, and not behind one and a dot: the first four of more parts.
IPV4 = re.compile(r"(?<!\d)(?<!\d\.)(?:\d{1,3}\.){3}\d{1,3}(?!\d)")
# Eight groups of four digits and a zero more for each, or six and an IPv4 address.
LONGEST = 45


def replace_addresses(text: str, change: Callable[[str], str]) -> str:
    """The text with every address in it replaced by what `change` makes of it."""
    return RUN.sub(lambda run: _in_run(run[0], change), text)


def _in_run(run: str, change: Callable[[str], str]) -> str:
    """One run of characters that addresses are written with."""
    done, begin = "", 0
    if run.count(":") >= 2:
        start = 0
        while start < len(run) - 1:
            if end := _end_of_ipv6(run, start):
                done += _in_rest(run[begin:start], change) + change(run[start:end])
                begin = start = end
            else:
                start += 1
    return done + _in_rest(run[begin:], change)


def _end_of_ipv6(run: str, start: int) -> int:
    """Where the longest IPv6 address ends that begins here; 0 if none does."""
    for end in range(min(len(run), start + LONGEST), start + 1, -1):
        text = run[start:end]
        if text.count(":") < 2:
            return 0
        try:
            ipaddress.IPv6Address(text)
        except ValueError:
            continue
        return end
    return 0


def _in_rest(text: str, change: Callable[[str], str]) -> str:
    """A text without IPv6 addresses."""
    return IPV4.sub(lambda found: change(_without_zeros(found[0])), text)


def _without_zeros(address: str) -> str:
    """An IPv4 address whose numbers may be padded with zeros, which ipaddress refuses."""
    return ".".join(str(int(part)) for part in address.split("."))
