"""DuckDB's settings for the time of some work, and the memory that it may have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


# What DuckDB may hold of a file that it writes. Left to itself it keeps most of what it wrote or
# read, up to four fifths of the machine's memory: 1,000 runs took 4.6 GB, and more time.
MEMORY = 320 << 20
# The same where many runs are only read, over and over.
READING_MEMORY = 640 << 20
# The same for its work on a run, for each event. A query that ends gives little of it back.
BYTES_AN_EVENT = 256
# Work that fits into no less may have what DuckDB takes by itself.
ALL_MEMORY = "80%"

# The file, if its settings may be changed here; no row: it has none, or they are locked.
_FILE = (
    "SELECT path FROM duckdb_databases() WHERE database_name = current_database()"
    " AND path IS NOT NULL AND NOT current_setting('lock_configuration')"
)


@dataclass
class _Held:
    """A setting's value before any work had it at another, and those that work wants now."""

    former: object
    wanted: list[str | int] = field(default_factory=list)


# The settings are the database's: several threads may have some at the same time.
_held: dict[tuple[str, str], _Held] = {}
# A generator that is left half-way may end, in any thread, while this is held.
_lock = RLock()


def memory_for(events: int, least: int = MEMORY) -> str:
    """Return the limit of memory for work on so many events at a time, as DuckDB takes it."""
    return f"{max(least, BYTES_AN_EVENT * events)}B"


@contextmanager
def limited(con: duckdb.DuckDBPyConnection, **settings: str | int) -> Iterator[None]:
    """Have settings at these values, and then at their former ones again, also after an error.

    Where several threads want one at different values, that of the last to come holds. A database
    in memory keeps those that whoever made it chose, and one that has answered a user's queries
    those that it had then: they are locked.
    """
    with ExitStack() as until_then:
        for (file,) in con.execute(_FILE).fetchall():
            for name, value in settings.items():
                until_then.enter_context(_at(con, (file, name), value))
        yield


@contextmanager
def _at(
    con: duckdb.DuckDBPyConnection, setting: tuple[str, str], value: str | int
) -> Iterator[None]:
    import duckdb

    _, name = setting
    with _lock:
        held = _held.get(setting)
        if held is None:
            held = _Held(con.execute(f"SELECT current_setting('{name}')").fetchall()[0][0])
        con.execute(f"SET {name} = '{value}'")
        held.wanted.append(value)
        _held[setting] = held
    try:
        yield
    finally:
        with _lock:
            held.wanted.remove(value)
            now = held.wanted[-1] if held.wanted else _held.pop(setting).former
            # A statement that fails voids the transaction of this connection, and nothing is
            # accepted there any more: another one sets it, unless all are closed. What other
            # threads need now may be more memory than was allowed before: it stays allowed.
            refused = suppress(duckdb.OutOfMemoryException, duckdb.ConnectionException)
            with refused, con.cursor() as other:
                other.execute(f"SET {name} = '{now}'")
