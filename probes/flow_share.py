"""Which flows are in a share of them, by the kernel's own hash of their addresses and ports."""

from __future__ import annotations

# Odd numbers of 32 bits that have no small pattern: one for the share that the user asks for, one
# for backing off, so that half of a share is not the whole of it.
ASKED, BACKED_OFF = 2654435761, 2246822519
_HASH = "(uint64)$sk->__sk_common.skc_hash"
# Whether the socket is in the kernel's table of connections, and so has its addresses and hash. One
# that was just made for a packet has the listener's: tcp_create_openreq_child() calls set_state().
IS_HASHED = "(uint64)$sk->__sk_common.skc_node.pprev != 0"


def is_in_share(of: str, factor: int) -> str:
    """The expression that is true of about one of `of` flows, an expression or a number from 1 on.

    From Linux 6.15 on the hash is that of the other end's port and of both addresses, plus the own
    port (inet_ehashfn()), and connect() takes even ports: of such hashes the remainder by 64 is one
    of 32, and never 0 for half of the hosts. Times a large odd number, neighbours are far apart.
    What is in a share of 2 * `of` is in that of `of`.

    >>> is_in_share("64", 3)
    '(((uint64)$sk->__sk_common.skc_hash * 3) & 0xffffffff) * 64 <= 0xffffffff'
    """
    return f"(({_HASH} * {factor}) & 0xffffffff) * {of} <= 0xffffffff"
