"""Find the packets in a capture's bytes, and which of them belong to one connection.

The caller knows which format it is; everything here is compiled, and nothing in a capture
is believed: what does not fit is STRANGE, and what lies beyond the bytes at hand is PARTIAL.
"""

from __future__ import annotations

from typing import Any

from ...probes.base.jit import jit

# What connections are sorted into. What is not plainly TCP goes to the first.
GROUPS = 64
# Frames are no longer than this in any capture that tshark reads.
MOST_BYTES = 256 << 10
# A block of a pcapng has its type and twice its size; of larger ones nothing is believed.
LEAST_BLOCK, LARGEST_BLOCK = 12, 64 * MOST_BYTES

PCAP, PCAPNG = 0, 1
# pcapng blocks (draft-ietf-opsawg-pcapng, section 4).
SECTION, INTERFACE, OLD_PACKET, SIMPLE_PACKET, ENHANCED_PACKET = 0x0A0D0D0A, 1, 2, 3, 6
ORDER_MAGIC = 0x1A2B3C4D
MOST_INTERFACES = 1024
# Link types (tcpdump.org/linktypes.html): where the IP header begins is known of these.
NULL, ETHERNET, LOOP, COOKED, COOKED2 = 0, 1, 108, 113, 276
RAW, IPV4, IPV6 = 101, 228, 229
ETHER_IPV4, ETHER_IPV6, VLAN, VLAN_OUTER, VLAN_OLD = 0x0800, 0x86DD, 0x8100, 0x88A8, 0x9100
ICMP, IPIP, TCP, IP6IP, ICMPV6 = 1, 4, 6, 41, 58
HOP_OPTIONS, ROUTING, DESTINATION_OPTIONS = 0, 43, 60

# What `state` holds: format, whether numbers are big-endian, link type (pcap), interfaces (pcapng).
FORMAT, BIG, LINK, INTERFACES = range(4)
# What is known of a record: where, how long, how many bytes of the frame are kept (-1: all), how
# many were captured, and whether its numbers are big-endian.
AT, SIZE, KEPT, CAPTURED, RECORD_BIG = range(5)
# What the record at a place is: a packet, a section's or interface's block (which all files need),
# cut off, nonsense, or a block that has nothing to do with packets.
PACKET, BLOCK, PARTIAL, STRANGE, BESIDE = range(5)
NOBODYS = -2


@jit
def number_of(text: Any, at: int, size: int, big: int) -> int:
    """Return the unsigned number of `size` bytes at `at`."""
    value = 0
    for place in range(size):
        value = value * 256 + int(text[at + place if big else at + size - 1 - place])
    return value


@jit
def ip_begins(text: Any, at: int, end: int, link: int) -> int:
    """Return where the IP header of the frame at `at` begins; -1: nowhere known."""
    kind = at
    if link in (RAW, IPV4, IPV6):
        return at
    if link in (NULL, LOOP):
        return at + 4
    if link == COOKED2:
        at += 20
    elif link == COOKED:
        kind, at = at + 14, at + 16
    elif link == ETHERNET:
        kind, at = at + 12, at + 14
    else:
        return -1
    while at < end:
        ether = number_of(text, kind, 2, 1)
        if ether in (ETHER_IPV4, ETHER_IPV6):
            return at
        if ether not in (VLAN, VLAN_OUTER, VLAN_OLD):
            return -1
        kind, at = at + 2, at + 4
    return -1


@jit
def mixed(value: int, byte: int) -> int:
    """Return a hash with one more byte in it (FNV-1a, 32 bits)."""
    return ((value ^ byte) * 16777619) & 0xFFFFFFFF


@jit
def group_of(text: Any, at: int, end: int, link: int) -> tuple[int, int]:
    """Return the group of the frame in text[at:end], and where its headers end.

    The group is the same for both directions.

    Tunnels in IP and what an ICMP error quotes are followed to the innermost header, as tshark
    does. 0 is everything that is not an unfragmented TCP segment.
    """
    quoted = False
    at = ip_begins(text, at, end, link)
    while at >= 0 and at + 20 <= end:
        version = int(text[at]) >> 4
        if version == 4:
            first, size = at + 12, 4
            if number_of(text, at + 6, 2, 1) & 0x3FFF:
                return 0, end
            kind, inner = int(text[at + 9]), at + 4 * (int(text[at]) & 15)
        elif version == 6 and at + 40 <= end:
            first, size = at + 8, 16
            kind, inner = int(text[at + 6]), at + 40
            while kind in (HOP_OPTIONS, ROUTING, DESTINATION_OPTIONS):
                if inner + 2 > end:
                    return 0, end
                kind, inner = int(text[inner]), inner + 8 * (int(text[inner + 1]) + 1)
        else:
            return 0, end
        if inner <= at or inner + 4 > end:
            return 0, end
        if kind == TCP:
            total = 0
            for side in range(2):
                value = 2166136261
                for place in range(size):
                    value = mixed(value, int(text[first + side * size + place]))
                for place in range(2):
                    value = mixed(value, int(text[inner + 2 * side + place]))
                total += value
            if not quoted and inner + 20 <= end:
                # A header length below 20 is for tshark to complain of, with all the fields.
                end = min(end, inner + max(20, 4 * (int(text[inner + 12]) >> 4)))
            return (total ^ (total >> 16)) % (GROUPS - 1) + 1, end
        icmp_type = int(text[inner])
        if (kind == ICMP and icmp_type in (3, 4, 5, 11)) or (
            kind == ICMPV6 and icmp_type in (1, 2, 3, 4)
        ):
            quoted = True
            at = inner + 8
        elif kind in (IPIP, IP6IP):
            at = inner
        else:
            return 0, end
    return 0, end


@jit
def record_at(text: Any, at: int, end: int, state: Any, links: Any, frame: Any) -> int:
    """Return what the record at `at` is: PACKET, BLOCK, PARTIAL, STRANGE or BESIDE.

    `frame` gets the record's size and, for a packet, its start, its end and its link type.
    """
    big = state[BIG]
    if state[FORMAT] == PCAP:
        if at + 16 > end:
            return PARTIAL
        size = number_of(text, at + 8, 4, big)
        if size > MOST_BYTES:
            return STRANGE
        frame[0], frame[1], frame[2], frame[3] = 16 + size, at + 16, at + 16 + size, state[LINK]
        return PACKET if at + 16 + size <= end else PARTIAL
    if at + 12 > end:
        return PARTIAL
    kind = number_of(text, at, 4, big)
    if kind == SECTION:
        state[INTERFACES] = 0
        state[BIG] = number_of(text, at + 8, 4, 1) == ORDER_MAGIC
        big = state[BIG]
        if not big and number_of(text, at + 8, 4, 0) != ORDER_MAGIC:
            return STRANGE
    size = number_of(text, at + 4, 4, big)
    if size < LEAST_BLOCK or size % 4 or size > LARGEST_BLOCK:
        return STRANGE
    if at + size > end:
        return PARTIAL
    frame[0] = size
    if kind == INTERFACE:
        if state[INTERFACES] == MOST_INTERFACES or size < 20:
            return STRANGE
        links[state[INTERFACES]] = number_of(text, at + 8, 2, big)
        state[INTERFACES] += 1
    elif kind == ENHANCED_PACKET:
        interface = number_of(text, at + 8, 4, big)
        length = number_of(text, at + 20, 4, big) if size >= 32 else MOST_BYTES + 1
        if interface >= state[INTERFACES] or length > size - 32:
            return STRANGE
        frame[1], frame[2], frame[3] = at + 28, at + 28 + length, links[interface]
        return PACKET
    elif kind in (SIMPLE_PACKET, OLD_PACKET):
        return STRANGE
    return BLOCK if kind in (SECTION, INTERFACE) else BESIDE


@jit
def sort_records(
    text: Any, end: int, state: Any, links: Any, records: Any, groups: Any, frame: Any
) -> int:
    """Find the records of text[:end] and their groups; return how many.

    The group is -1 for a BLOCK, which the files of all groups need, and NOBODYS for what is BESIDE.

    Rows of `records` are AT to RECORD_BIG. frame[4] becomes the position after the last, frame[5]
    what stopped it, if not the end.
    """
    at = 0
    count = 0
    what = PARTIAL
    while at < end and count < len(records):
        what = record_at(text, at, end, state, links, frame)
        if what in (PARTIAL, STRANGE):
            break
        records[count, AT], records[count, SIZE] = at, frame[0]
        records[count, KEPT] = -1
        records[count, RECORD_BIG] = state[BIG]
        groups[count] = -1 if what != BESIDE else NOBODYS
        if what == PACKET:
            groups[count], stop = group_of(text, frame[1], frame[2], frame[3])
            records[count, CAPTURED] = frame[2] - frame[1]
            # Blocks of pcapng are whole words.
            captured = (stop - frame[1] + 3) // 4 * 4
            if captured < frame[2] - frame[1]:
                records[count, KEPT] = captured
        at += frame[0]
        count += 1
    frame[4] = at
    frame[5] = what
    return count


@jit
def put_number(out: Any, at: int, value: int, big: int) -> None:
    """Write a number of four bytes at `at`."""
    for place in range(4):
        out[at + (3 - place if big else place)] = (value >> (8 * place)) & 255


@jit
def gather(text: Any, form: int, records: Any, chosen: Any, out: Any) -> int:
    """Copy the chosen records, cut where their headers end; return how many bytes they fill.

    `form` is PCAP or PCAPNG.
    """
    done = 0
    for index in chosen:
        at, size, captured = records[index, AT], records[index, SIZE], records[index, KEPT]
        big = records[index, RECORD_BIG]
        if captured < 0:
            out[done : done + size] = text[at : at + size]
        elif form == PCAP:
            size = 16 + captured
            out[done : done + size] = text[at : at + size]
            put_number(out, done + 8, captured, big)
        else:
            size = 32 + captured
            out[done : done + size - 4] = text[at : at + size - 4]
            put_number(out, done + 4, size, big)
            put_number(out, done + 20, captured, big)
            put_number(out, done + size - 4, size, big)
        done += size
    return done
