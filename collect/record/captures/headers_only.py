"""Cut the payload off the packets of a capture while it is written.

A recording is handed around, and what people sent is nobody's business. tcpdump's own snap length
is one number for all packets, so that short headers would let payload through: each packet is cut
here where its TCP header ends. Only the classic pcap format is read, which tcpdump -w writes.
"""

from __future__ import annotations

import struct

FILE_HEADER = 24
RECORD_HEADER = 16
# Byte order by the magic number as it lies in the file; the second has nanoseconds.
ORDERS = {
    b"\xd4\xc3\xb2\xa1": "<",
    b"\x4d\x3c\xb2\xa1": "<",
    b"\xa1\xb2\xc3\xd4": ">",
    b"\xa1\xb2\x3c\x4d": ">",
}
ETHERNET, RAW, SLL, SLL2 = 1, 101, 113, 276
# Link type -> (bytes before the network header, offset of the EtherType or None).
LINKS = {ETHERNET: (14, 12), SLL: (16, 14), SLL2: (20, 0), RAW: (0, None)}
VLAN = (0x8100, 0x88A8)
IPV6_HEADER = 40
TCP = 6
FRAGMENT = 0x1FFF  # where in its datagram a packet lies, in units of 8 bytes (RFC 791, 3.1)


class HeadersOnly:
    """Takes a capture in pieces of any size and returns it in pieces of whole packets."""

    def __init__(self) -> None:
        self._pending = b""
        self._order = ""
        self.link = 0

    def cut(self, data: bytes) -> bytes:
        """What can be written after this piece has come; bytes of no known format pass as a whole.

        The length that a packet had on the wire stays in its record.
        """
        self._pending += data
        parts = [] if self._order else [self._file_header()]
        if not self._order:
            return b"".join(parts)
        at, unpack = 0, struct.Struct(f"{self._order}IIII").unpack_from
        while at + RECORD_HEADER <= len(self._pending):
            seconds, fraction, captured, length = unpack(self._pending, at)
            start = at + RECORD_HEADER
            if start + captured > len(self._pending):
                break
            packet = self._pending[start : start + captured]
            short = packet[: headers_length(packet, self.link)]
            head = struct.pack(f"{self._order}IIII", seconds, fraction, len(short), length)
            parts += [head, short]
            at = start + captured
        self._pending = self._pending[at:]
        return b"".join(parts)

    def rest(self) -> bytes:
        """What is left at the end: a packet that was cut off is dropped."""
        return b"" if self._order else self._pending

    def _file_header(self) -> bytes:
        if len(self._pending) < FILE_HEADER:
            return b""
        head, self._pending = self._pending[:FILE_HEADER], self._pending[FILE_HEADER:]
        self._order = ORDERS.get(head[:4], "")
        if not self._order:
            raise ValueError("tcpdump did not write a pcap file")
        self.link = struct.unpack_from(f"{self._order}I", head, 20)[0] & 0xFFFF
        return head


def network_header(packet: bytes | bytearray, link: int) -> tuple[int, int | None]:
    """Where the network header begins, and the EtherType that says which it is, if the link has it.

    Raises:
        KeyError: a link type that is not among LINKS.
    """
    start, type_at = LINKS[link]
    if type_at is None:
        return start, None
    kind = int.from_bytes(packet[type_at : type_at + 2], "big")
    while kind in VLAN and len(packet) > start + 4:
        kind = int.from_bytes(packet[start + 2 : start + 4], "big")
        start += 4
    return start, kind


def headers_length(packet: bytes, link: int) -> int:
    """How many bytes of a packet are headers, up to TCP's with its options; 0 if none is known."""
    if link not in LINKS or len(packet) <= (at := network_header(packet, link)[0]):
        return 0
    version = packet[at] >> 4
    if version == 4 and len(packet) >= at + 20:
        transport, protocol = at + 4 * (packet[at] & 0xF), packet[at + 9]
        if int.from_bytes(packet[at + 6 : at + 8], "big") & FRAGMENT:
            return transport
    elif version == 6 and len(packet) >= at + IPV6_HEADER:
        transport, protocol = at + IPV6_HEADER, packet[at + 6]
    else:
        return at
    if protocol != TCP or len(packet) <= transport + 12:
        return transport
    return transport + 4 * (packet[transport + 12] >> 4)
