"""Prove a recording complete from its own rows: sequence numbers, and tp.delivered's growth.

It runs where a recording was made, on hosts that have nothing but Python, so it is plain Python
that looks at each row once and no further than to the last column that it needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ....probes.base.plurals import plural
from ....probes.leaving import LEFT, LEFT_FOR_GOOD, SET_BACK_BY_INIT, SET_BY_INIT
from ...bundle.exits import BESIDE_MAIN, CALLS, calls_without_main
from ...events.seqno import went_back
from .row_plan import ACKED, CHAIN, DELIVERED, ENDS, IDLE, MSS, RowPlan, places_of
from .whole_lines import whole_lines

SHOWN = 20
EVENT_ROWS = ("M", "S", "E", "H", "U", "L", "I", "T")
EXIT_OF = {call.entry: call.exit for call in CALLS}
ENTRY_OF = {call.exit: call.entry for call in CALLS}
U32 = 1 << 32
# No event of the socket had a number yet.
UNNUMBERED = -1


@dataclass
class Completeness:
    """What the rows say about what is missing.

    `sockets` counts addresses of sockets, `flows` those who had them, one after the other, and a
    socket anew that came back to BBR; `left_bbr` is how often one took another congestion control.
    `sequence_missing` counts the numbers that no event of a socket carries; `out_of_order` the
    events that come after newer ones of their socket, or are there twice; `chain_breaks` the calls
    of main() at which tp.delivered grew by other than rs.acked_sacked (a call before it
    went unseen, or the segment size changed); `calls` counts calls of main() and init() by the tag
    of their entry row, `exits_missing` those of them whose exit row never came; `without_main` is
    how many other calls were recorded where main() never was; `broken` counts rows that another
    was printed over, as far as what is looked at shows it; `first` shows where, as (row's ns, sk,
    why).
    """

    events: int = 0
    sockets: int = 0
    flows: int = 0
    sequence_missing: int = 0
    out_of_order: int = 0
    chain_breaks: int = 0
    left_bbr: int = 0
    calls: dict[str, int] = field(default_factory=dict)
    exits_missing: dict[str, int] = field(default_factory=dict)
    without_main: int = 0
    broken: int = 0
    first: list[tuple[int, str, str]] = field(default_factory=list)

    def note(self, ns: bytes, sk: bytes, why: str) -> None:
        """Remember one of the first places where something is missing."""
        if len(self.first) < SHOWN:
            self.first.append((int(ns), sk.decode(), why))

    def as_dict(self) -> dict[str, object]:
        """The result as the manifest's `completeness`."""
        return {**vars(self), "first": [list(each) for each in self.first]}


@dataclass(slots=True)
class SocketSoFar:
    """What is remembered of a socket: its next number, what main() last saw, the call under way.

    `newest` is the time of its newest event, `missing` how many numbers no event has had so far;
    `delivered` is -1 where main() saw nothing yet; `parts` has what the event's earlier rows had of
    CHAIN; `inside` is the entry tag of a call under way, which began at `since`; `called` says that
    main() was seen, `begun` that the flow's init() was, or must have been: before it main() is
    called for the SYN's ACK alone, on a zeroed struct bbr; `come` is how far BBR had come by its
    last sample, which also said its `cookie` (0: it has none yet); `in_flight` is what the last row
    of main() had (RowPlan.flight_in), and `events` how often cwnd_event() was called since;
    `parted` says that a row since the last event named another connection, or told that the socket
    left BBR.
    """

    next: int
    newest: bytes = b"0"
    missing: int = 0
    delivered: int = -1
    mss: int = 0
    parts: dict[str, int] | None = None
    inside: str = ""
    since: bytes = b""
    called: bool = False
    begun: bool = False
    come: int = -1
    cookie: bytes = b"0"
    in_flight: bytes = b""
    events: int = 0
    parted: bool = False

    def begin(self) -> None:
        """Forget what was of the flow before."""
        self.called, self.begun, self.come, self.cookie = False, False, -1, b"0"

    def is_other(self, cookie: bytes) -> bool:
        """Whether a row's cookie is another socket's: the probe at this one's end was skipped."""
        return b"0" not in (cookie, self.cookie) and cookie != self.cookie


def check(path: Path) -> Completeness:
    """Read a recording's events once; memory is a few numbers per socket.

    Raises:
        IndexError, KeyError, ValueError: a row makes no sense.
    """
    checker = Checker()
    for data in whole_lines(path):
        checker.read(data)
    return checker.finish()


Reader = Callable[["RowPlan", list[bytes]], None]


class Checker:
    """Goes through the rows of a recording in their order and counts what is missing."""

    def __init__(self) -> None:
        self.result = Completeness()
        self._plans: dict[bytes, tuple[Reader, RowPlan]] = {}
        self._sockets: dict[bytes, SocketSoFar] = {}
        self._ends: dict[bytes, tuple[bytes, ...]] = {}
        self._rows: Counter[str] = Counter()
        self._next_mains = 0

    def read(self, data: bytes) -> None:
        """Take the next whole lines: headers, rows, and talk that is skipped."""
        plans = self._plans
        for line in data.split(b"\n"):
            if found := plans.get(line[: line.find(b",")]):
                reader, plan = found
                try:
                    reader(plan, line.split(b",", plan.last + 1))
                except (IndexError, ValueError):
                    self.result.broken += 1
            elif line.startswith(b"#"):
                self._plan(line)

    def _plan(self, header: bytes) -> None:
        """Learn where a tag's rows have what counts; the other tags are passed over."""
        tag, *names = header[1:].decode(errors="replace").split(",")
        letters, place = tag.rstrip("0123456789"), {name: i for i, name in enumerate(names, 1)}
        chain = {name: place[name] for name in CHAIN if name in place and letters == "M"}
        gain = next(iter(places_of(names, (SET_BY_INIT,))), None) if letters == "M" else None
        named = letters in ("I", "N") and place.keys() >= {*ENDS}
        ends = tuple(place[name] for name in ENDS) if named else ()
        reader: Reader
        if letters in ENTRY_OF:
            reader, wanted = self._leave, ["sk"]
        elif letters in EVENT_ROWS and "seqno" in place:
            reader = self._main if chain.keys() == {*CHAIN} else self._event
            wanted = ["ns", "sk", "seqno"]
        elif chain:
            reader, wanted = self._continue, ["ns", "sk"]
        elif gain:
            reader, wanted = self._look, ["sk"]
        elif letters in (LEFT, LEFT_FOR_GOOD):
            reader, wanted = self._left, ["sk"]
        elif letters == "N" and ends:
            reader, wanted = self._name, ["sk"]
        elif letters in BESIDE_MAIN and tag in (letters, f"{letters}0"):
            reader, wanted = self._count, ["sk"]
        else:
            return
        whole = (chain[DELIVERED], chain[ACKED], chain[MSS]) if len(chain) == len(CHAIN) else None
        growing = places_of(names, SET_BACK_BY_INIT) if letters == "T" else ()
        cookie = place.get("sk.cookie", 0) if letters == "T" else 0
        idle = places_of(names, IDLE) if whole else ()
        idle = idle if len(idle) == len(IDLE) else ()
        needed = [*ends, cookie, *(place[name] for name in wanted), *chain.values()]
        last = max(needed + [at for at, _ in (*growing, *idle)])
        number, ns = place.get("seqno", 0), place.get("ns", 0)
        self._plans[tag.encode()] = (
            reader,
            RowPlan(
                letters,
                ns,
                place["sk"],
                number,
                chain,
                whole,
                growing,
                gain,
                ends,
                cookie,
                idle,
                last,
            ),
        )

    def finish(self) -> Completeness:
        """Return the result; calls that are still under way have no exit row."""
        if self._next_mains:
            self._rows["M"] += self._next_mains
            self.result.events += self._next_mains
            self.result.calls["M"] += self._next_mains
        for sk, socket in self._sockets.items():
            self._miss_exit(sk, socket)
        self.result.without_main = calls_without_main(self._rows)
        self.result.sockets = sum(one.next != UNNUMBERED for one in self._sockets.values())
        return self.result

    def _main(self, plan: RowPlan, values: list[bytes]) -> None:
        """A row of main() that has all that counts, as almost every event's.

        Where it is just what comes next, little is to be looked at: an hour has millions of them.
        """
        socket = self._sockets.get(values[plan.sk])
        if (
            socket is None
            or int(values[plan.number]) != socket.next
            or not socket.called
            or not socket.begun
            or socket.inside
            or socket.parted
        ):
            self._event(plan, values)
            return
        self._next_mains += 1
        socket.next += 1
        socket.newest = socket.since = values[plan.ns]
        socket.inside = "M"
        self._chain(plan, values, socket)

    def _event(self, plan: RowPlan, values: list[bytes]) -> None:
        """The first row of an event."""
        self._rows[plan.letters] += 1
        sk, number, come = values[plan.sk], int(values[plan.number]), plan.how_far(values)
        cookie = plan.cookie_in(values)
        socket = self._sockets.get(sk)
        if socket is None:
            socket = self._sockets[sk] = SocketSoFar(number)
            self.result.flows += 1
        elif number < socket.next and int(values[plan.ns]) <= int(socket.newest):
            self._come_late(plan, values, socket)
            return
        elif self._is_of_another(plan, number, socket) or socket.is_other(cookie):
            # Of the next socket at this address, whose first events are missing unless this is one.
            self.result.flows += 1
            self._begin_at(number, values[plan.ns], sk, socket)
        elif (plan.letters == "I" and socket.begun) or 0 <= come < socket.come:
            # No packet came while it had another congestion control: the numbers go on.
            self.result.flows += 1
            # Unless it is another one: the kernel may skip the probe at a socket's end.
            same = not plan.ends or self._ends.get(sk) in (None, plan.ends_of(values))
            self.result.left_bbr += same and number == socket.next
            socket.begin()
        self.result.events += 1
        if plan.ends:
            self._name(plan, values)
        if number > socket.next and socket.next != UNNUMBERED:
            self._miss(number - socket.next, number, values[plan.ns], sk, socket)
        socket.next, socket.newest, socket.parted = number + 1, values[plan.ns], False
        letters = plan.letters
        if number == 0 or letters == "I":
            socket.delivered = -1
        socket.come = come if come >= 0 else socket.come
        socket.cookie = cookie if cookie != b"0" else socket.cookie
        socket.begun |= letters == "I" or (letters == "M" and socket.called)
        socket.called |= letters == "M"
        if not socket.begun:
            socket.begun = plan.found_state(values)
        socket.events += letters == "E"
        if letters in EXIT_OF:
            self._enter(letters, values[plan.ns], sk, socket)
        if letters == "M":
            socket.parts = None
            self._chain(plan, values, socket)

    def _is_of_another(self, plan: RowPlan, number: int, socket: SocketSoFar) -> bool:
        """Whether an event's number, or what named its socket before, is another socket's."""
        begins = number == 0 and (socket.parted or socket.next == UNNUMBERED)
        return begins or went_back(number, socket.next, plan.letters == "I")

    def _begin_at(self, number: int, ns: bytes, sk: bytes, socket: SocketSoFar) -> None:
        """Another socket begins at the address, with its event of this number."""
        socket.begin()
        if number < socket.next:
            if number:
                self._miss(number, number, ns, sk, socket)
            socket.next = number

    def _miss(self, missing: int, number: int, ns: bytes, sk: bytes, socket: SocketSoFar) -> None:
        """Numbers before this one are missing; a late event may still bring them."""
        self.result.sequence_missing += missing
        socket.missing += missing
        self.result.note(ns, sk, f"{plural(missing, 'event')} missing before number {number}")
        socket.delivered = -1

    def _come_late(self, plan: RowPlan, values: list[bytes], socket: SocketSoFar) -> None:
        """An event no newer than one before it: its number is not missing, as had seemed."""
        self.result.events += 1
        self.result.out_of_order += 1
        self.result.note(values[plan.ns], values[plan.sk], "out of order, or there twice")
        if socket.missing:
            self.result.sequence_missing -= 1
            socket.missing -= 1
        # What main() saw then says nothing of its growth up to the next call.
        socket.delivered, socket.parts = -1, None

    def _enter(self, letters: str, ns: bytes, sk: bytes, socket: SocketSoFar) -> None:
        if socket.inside:
            self._miss_exit(sk, socket)
        socket.inside, socket.since = letters, ns
        self.result.calls[letters] = self.result.calls.get(letters, 0) + 1

    def _leave(self, plan: RowPlan, values: list[bytes]) -> None:
        socket = self._sockets.get(values[plan.sk])
        if socket is not None and socket.inside == ENTRY_OF[plan.letters]:
            socket.inside = ""

    def _miss_exit(self, sk: bytes, socket: SocketSoFar) -> None:
        """The socket's call, if one is under way, never came to its exit row."""
        if letters := socket.inside:
            missing = self.result.exits_missing
            missing[letters] = missing.get(letters, 0) + 1
            self.result.note(socket.since, sk, f"{letters} has no {EXIT_OF[letters]}")
            socket.inside = ""

    def _left(self, plan: RowPlan, values: list[bytes]) -> None:
        """A socket with events has another congestion control."""
        self.result.left_bbr += 1
        if socket := self._sockets.get(values[plan.sk]):
            socket.parted = True

    def _name(self, plan: RowPlan, values: list[bytes]) -> None:
        """A row that says which connection a socket is."""
        sk, ends = values[plan.sk], plan.ends_of(values)
        socket = self._sockets.get(sk)
        if socket is not None and plan.letters == "N":
            socket.parted = socket.parted or ends != self._ends.get(sk)
        self._ends[sk] = ends

    def _count(self, plan: RowPlan, values: list[bytes]) -> None:
        """The first row of another call, where events have no numbers."""
        self._rows[plan.letters] += 1

    def _look(self, plan: RowPlan, values: list[bytes]) -> None:
        """A further row of main()'s, which may tell that init() was called before."""
        socket = self._sockets.get(values[plan.sk])
        if socket is not None and not socket.begun:
            socket.begun = plan.found_state(values)

    def _continue(self, plan: RowPlan, values: list[bytes]) -> None:
        """A further row of main()'s, or one without a number, with columns of CHAIN."""
        self._rows[plan.letters] += 1
        sk = values[plan.sk]
        socket = self._sockets.get(sk)
        if socket is None:
            socket = self._sockets[sk] = SocketSoFar(UNNUMBERED)
        self._chain(plan, values, socket)
        if not socket.begun:
            socket.begun = plan.found_state(values)

    def _chain(self, plan: RowPlan, values: list[bytes], socket: SocketSoFar) -> None:
        """Take a row's columns of CHAIN; once there are all, check main()."""
        if whole := plan.whole:
            at_delivered, at_acked, at_mss = whole
            now, mss = int(values[at_delivered]), int(values[at_mss])
            self._grow(now, int(values[at_acked]), mss, plan, values, socket)
            socket.in_flight, socket.events = plan.flight_in(values), 0
            return
        known = (socket.parts or {}) | {n: int(values[place]) for n, place in plan.chain.items()}
        socket.parts = known
        if len(known) == len(CHAIN):
            socket.parts = None
            now, acked, mss = known[DELIVERED], known[ACKED], known[MSS]
            self._grow(now, acked, mss, plan, values, socket)

    def _grow(
        self,
        now: int,
        acked: int,
        mss: int,
        plan: RowPlan,
        values: list[bytes],
        socket: SocketSoFar,
    ) -> None:
        """Check one main(): tp.delivered(n) - tp.delivered(n-1) is rs.acked_sacked(n)."""
        before, mss_before = socket.delivered, socket.mss
        socket.delivered, socket.mss = now, mss
        grown = (now - before) % U32
        if grown == acked or before < 0 or mss_before != mss:
            return
        if plan.grew_idle(socket.in_flight, socket.events, values, now, acked):
            return
        self.result.chain_breaks += 1
        why = f"tp.delivered grew by {grown}, rs.acked_sacked is {acked}"
        self.result.note(values[plan.ns], values[plan.sk], why)
