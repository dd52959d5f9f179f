"""What happens to recordings in the field: rows that never came, came twice, or of many sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

Lines = list[str]
Damage = Callable[[Lines, Random], Lines]


def split(lines: Iterable[str]) -> tuple[Lines, Lines]:
    """Return header lines and rows."""
    listed = list(lines)
    return [x for x in listed if x.startswith("#")], [x for x in listed if not x.startswith("#")]


def _tag(row: str) -> str:
    return row.partition(",")[0]


def _without(*tags: str) -> Damage:
    """Rows of these tags are missing, in all their parts."""

    def drop(rows: Lines, random: Random) -> Lines:
        return [row for row in rows if _tag(row).rstrip("0123456789") not in tags]

    return drop


def _no_first_exit(rows: Lines, random: Random) -> Lines:
    return [row for row in rows if _tag(row) != "IX0"]


def _some_dropped(rows: Lines, random: Random) -> Lines:
    return [row for row in rows if random.random() > 0.1]


def _hole(rows: Lines, random: Random) -> Lines:
    return rows[: len(rows) // 3] + rows[len(rows) * 2 // 3 :]


def _no_beginning(rows: Lines, random: Random) -> Lines:
    return rows[len(rows) // 3 :]


def _cut_short(rows: Lines, random: Random) -> Lines:
    last = max(i for i, row in enumerate(rows) if _tag(row) in ("M0", "M"))
    return rows[: last + 1]


def _init_alone(rows: Lines, random: Random) -> Lines:
    return [row for row in rows if _tag(row).startswith("I")][:3]


def _init_again(rows: Lines, random: Random) -> Lines:
    """The socket takes another congestion control and comes back to BBR, as setsockopt() may."""
    inits = [row for row in rows if _tag(row).startswith("I")]
    middle = len(rows) // 2
    ns = rows[middle - 1].split(",")[1]
    again = []
    for row in inits:
        tag, _, rest = row.split(",", 2)
        again.append(f"{tag},{ns},{rest}")
    return rows[:middle] + again + rows[middle:]


def _many_sockets(rows: Lines, random: Random) -> Lines:
    """Each call belongs to one of 30 sockets, whose inits were not seen but for one."""
    made, socket = [], "ff00"
    for row in rows:
        tag, ns, _, rest = row.split(",", 3)
        if tag.rstrip("0") in ("M", "I", "S", "E", "H", "U", "L"):
            socket = f"ff{random.randrange(30):02x}"
        made.append(f"{tag},{ns},{socket},{rest}")
    return made


def _twice(rows: Lines, random: Random) -> Lines:
    return [row for row in rows for _ in range(2)]


def _one_time(rows: Lines, random: Random) -> Lines:
    """A clock that stands still."""
    parts = [row.split(",", 2) for row in rows]
    return [f"{tag},{parts[0][1]},{rest}" for tag, _, rest in parts]


def _clock_back(rows: Lines, random: Random) -> Lines:
    """The clock jumps back by an hour half way."""
    made = []
    for number, row in enumerate(rows):
        tag, ns, rest = row.split(",", 2)
        back = 3_600_000_000_000 if number > len(rows) // 2 else 0
        made.append(f"{tag},{max(int(ns) - back, 1)},{rest}")
    return made


def _clock_ahead(rows: Lines, random: Random) -> Lines:
    """The clock jumps ahead by an hour half way."""
    made = []
    for number, row in enumerate(rows):
        tag, ns, rest = row.split(",", 2)
        ahead = 3_600_000_000_000 if number > len(rows) // 2 else 0
        made.append(f"{tag},{int(ns) + ahead},{rest}")
    return made


def _zeros(rows: Lines, random: Random) -> Lines:
    """Every value that the kernel told is 0, as from a kernel of another layout."""
    made = []
    for row in rows:
        tag, ns, sk, rest = row.split(",", 3)
        made.append(",".join([tag, ns, sk, *("0" for _ in rest.split(","))]))
    return made


def _ones(rows: Lines, random: Random) -> Lines:
    """A tenth of the values are the largest of 32 or 64 bits, or -1."""
    made = []
    for row in rows:
        tag, ns, sk, rest = row.split(",", 3)
        values = [
            random.choice(("4294967295", "18446744073709551615", "-1", "2147483648"))
            if random.random() < 0.1
            else value
            for value in rest.split(",")
        ]
        made.append(",".join([tag, ns, sk, *values]))
    return made


DAMAGES: dict[str, Damage] = {
    "no_exit_of_init": _no_first_exit,
    "no_init": _without("I", "IX"),
    "no_exits": _without("X", "IX"),
    "only_main": _without("I", "IX", "S", "E", "H", "U", "L", "X"),
    "no_main": _without("M", "X"),
    "half_events": lambda rows, random: [row for row in rows if _tag(row) != "M1"],
    "rows_dropped": _some_dropped,
    "hole": _hole,
    "no_beginning": _no_beginning,
    "cut_short": _cut_short,
    "init_alone": _init_alone,
    "init_again": _init_again,
    "many_sockets": _many_sockets,
    "twice": _twice,
    "one_time": _one_time,
    "clock_back": _clock_back,
    "clock_ahead": _clock_ahead,
    "zeros": _zeros,
    "ones": _ones,
}


def damaged(lines: Iterable[str], damage: Damage, random: Random) -> Lines:
    """Return the lines of a recording after that happened to it."""
    heads, rows = split(lines)
    return heads + damage(rows, random)
