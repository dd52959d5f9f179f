"""Rings: bounded memory, whole events, flows introduced, packets and looks of the same window."""

from __future__ import annotations

import os
import struct
import threading
import time
from pathlib import Path

import pytest
import zstandard
from bbrscope.collect.bundle.bundle import EVENTS, PACKETS, SS
from bbrscope.collect.flight.event_ring import EventRing
from bbrscope.collect.flight.packet_ring import PacketRing
from bbrscope.collect.flight.pieces import PieceRing
from bbrscope.collect.flight.rings import MARGIN_NS, Rings
from bbrscope.collect.record.output import accounting, check
from bbrscope.probes.base.errors import HostError

SECOND = 1_000_000_000
HEAD = (
    b"#N,ns,sk,sport,dport,saddr,daddr,netns\n#P,ns,sk,params.high_gain\n"
    b"#M0,ns,sk,seqno,tp.delivered\n#M1,ns,sk,bbr.mode\n#X,ns,sk,tp.snd_cwnd\n#S,ns,sk,seqno\n"
)
NAMES = b"N,%d,%s,20756,26855,33556746,33620234,7\n"


def event(ns: int, sk: bytes, number: int, noise: bytes = b"0") -> bytes:
    return b"M0,%d,%s,%d,%d\nM1,%d,%s,%s\nX,%d,%s,10\n" % (
        *(ns, sk, number, number),
        *(ns + 10, sk, noise),
        *(ns + 20, sk),
    )


def window(ring: EventRing, from_ns: int, until_ns: int) -> tuple[list[bytes], dict[str, int]]:
    written: list[bytes] = []
    rows = ring.write_window(from_ns, until_ns, written.append)
    lines = b"".join(written).splitlines(keepends=True)
    return [line for line in lines if not line.startswith(b"#")], rows


def test_a_window_has_whole_events_and_says_who_a_flow_is() -> None:
    ring = EventRing(8 * SECOND, 64 << 20)
    ring.write(HEAD)
    ring.write(NAMES % (SECOND, b"ff00") + b"P,%d,ff00,739\n" % SECOND)
    for number in range(400):
        ring.write(event(SECOND + number * SECOND // 20, b"ff00", number))
    # A window that begins and ends within an event.
    lines, rows = window(ring, 15 * SECOND + 5, 17 * SECOND + 5)
    first = 281
    assert lines[0] == b"N1,%d,ff00,%d,20756,26855,33556746,33620234,7,739\n" % (
        SECOND + first * SECOND // 20,
        first,
    )
    wanted = [event(SECOND + n * SECOND // 20, b"ff00", n) for n in range(first, 321)]
    assert b"".join(lines[1:]) == b"".join(wanted)
    assert rows == {"N1": 1, "M0": 40, "M1": 40, "X": 40}


def test_an_address_that_is_used_again_is_introduced_as_who_it_was_then() -> None:
    ring = EventRing(60 * SECOND, 64 << 20)
    ring.write(HEAD)
    old, new = NAMES % (SECOND, b"ff00"), b"N,%d,ff00,1,2,3,4,7\n" % (9 * SECOND)
    early = b"".join(event(n * SECOND, b"ff00", n) for n in range(1, 9))
    ring.write(old + early + new + event(9 * SECOND + 1, b"ff00", 0))
    lines, _ = window(ring, 5 * SECOND, 20 * SECOND)
    introduced = [line for line in lines if line.startswith(b"N")]
    assert introduced == [b"N1,%d,ff00,5,20756,26855,33556746,33620234,7,\n" % (5 * SECOND), new]


def test_rows_that_another_was_printed_over_are_kept_and_counted(tmp_path: Path) -> None:
    """bpftrace 0.22 and later build them in memory that the probes of a CPU share."""
    ring = EventRing(60 * SECOND, 64 << 20)
    ring.write(HEAD.replace(b"#M0,ns,sk,seqno,tp.delivered", b"#M0,ns,sk,seqno"))
    ring.write(b"M0,%d,ff00\n" % SECOND + event(2 * SECOND, b"ff00", 1))
    ring.write(b"M0,%d,ff00,2x\nX,%d,ff00,10\n" % (3 * SECOND, 3 * SECOND))
    lines, rows = window(ring, 0, 4 * SECOND)
    assert rows["M0"] == 3
    path = tmp_path / "events.csv.zst"
    path.write_bytes(zstandard.compress(b"".join([HEAD, *lines])))
    found = check.check(path)
    assert found.broken == 2
    told = accounting.trouble({"completeness": found.as_dict()})
    assert "2 rows are broken: cut, or not of numbers" in told


def test_memory_is_bounded_and_the_window_says_from_when_on_all_is_there() -> None:
    ring = EventRing(3600 * SECOND, 300_000)
    ring.write(HEAD)
    for number in range(1000):
        noise = os.urandom(2000).hex().encode()
        ring.write(event(number * SECOND // 4, b"ff00", number, noise))
        assert ring.written < 300_000 + 5 * 4100  # what waits for its piece is not compressed yet
    covered = ring.covered_from(0)
    assert covered > 0
    assert ring.ring.overrun
    lines, rows = window(ring, covered, 1000 * SECOND)
    numbers = [int(line.split(b",")[3]) for line in lines if line.startswith(b"M0")]
    assert numbers == list(range(numbers[0], 1000))
    assert rows["X"] == rows["M0"] == len(numbers)


def packet(ns: int, size: int) -> bytes:
    return struct.pack("<IIII", ns // SECOND, ns % SECOND // 1000, size, 1500) + os.urandom(size)


@pytest.mark.parametrize("piece", [7, 1000, 1 << 20])
def test_packets_of_a_window_are_a_capture_again(piece: int) -> None:
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 128, 1)
    packets = [(n * SECOND // 10, packet(n * SECOND // 10, 60 + n % 20)) for n in range(1, 300)]
    data = head + b"".join(one for _, one in packets)
    ring = PacketRing(100 * SECOND, 64 << 20)
    for at in range(0, len(data), piece):
        ring.write(data[at : at + piece])
    written: list[bytes] = []
    count = ring.write_window(10 * SECOND, 20 * SECOND, written.append)
    wanted = [one for ns, one in packets if 10 * SECOND <= ns < 20 * SECOND]
    assert b"".join(written) == head + b"".join(wanted)
    assert count == len(wanted)


def test_a_dump_has_what_all_rings_cover(tmp_path: Path) -> None:
    rings = Rings(60 * SECOND, 4_000_000)
    events, packets, looks = (rings.open(name) for name in (EVENTS, PACKETS, SS))
    now = time.monotonic_ns()
    ahead = 10**18
    events.write(HEAD)
    packets.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 128, 1))
    looks.write(b"# monotonic_ns 1\n")
    for second in range(60):
        ns = now - (60 - second) * SECOND
        events.write(event(ns, b"ff00", second))
        packet_ns = ns + ahead
        for _ in range(1000):  # more than a million bytes in all
            size = 100
            record = struct.pack("<IIII", packet_ns // SECOND, packet_ns % SECOND, size, size)
            packets.write(record + os.urandom(size))
    covered = rings.window(now, ahead)
    assert covered.short == ("packets",)
    assert now - 20 * SECOND < covered.from_ns < now - 2 * SECOND
    assert covered.packets
    # The packets' clock is set back: what was recorded otherwise is written without them.
    set_back = rings.window(now, ahead - 7200 * SECOND)
    assert (set_back.packets, set_back.short) == (False, ())
    assert set_back.from_ns == now - 60 * SECOND
    assert rings.size < 4_000_000
    assert MARGIN_NS > 0
    with pytest.raises(HostError, match="next to nothing"):
        Rings(SECOND, 1000)


def test_a_ring_takes_pieces_while_it_is_asked_how_full_it_is() -> None:
    """Rows come in one thread, and another asks when to rotate."""
    ring = PieceRing(SECOND, 1_000_000)
    for ns in (1, 2, 3):
        ring.add(ns, ns, b"row")
    adding = threading.Thread(target=ring.add, args=(4, 4, b"row"))

    class Asked(int):
        """A time, and the other thread wants to add a piece when it is compared."""

        def __gt__(self, other: int) -> bool:
            if adding.ident is None:
                adding.start()
                adding.join(0.2)
            return int(self) > other

    each = ring.size // 3
    assert ring.size_before(Asked(3)) == 2 * each
    adding.join()
    assert (len(ring.pieces), ring.size) == (4, 4 * each)
