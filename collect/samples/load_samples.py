"""Samples of flows, whoever printed them: what a reader yields, and how it gets into the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..bundle.numbers import fitting
from ..store.rowsets import insert
from ..store.schema import recorded_table
from ..store.schema.recorded_tables import KINDS
from ..store.schema.table import Column

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Ends:
    """The addresses of a connection as its sender sees them; None: the source does not tell."""

    local_address: str | None
    local_port: int | None
    remote_address: str
    remote_port: int


@dataclass(frozen=True)
class Sample:
    """One flow at one time.

    Attributes:
        ends: whose it is.
        cookie: the socket's cookie (ss prints it as sk:), which tells connections of the same
            ends apart; None: not printed.
        poll: number of the call of ss, which shows all flows, or of the line.
        time: ns and the clock they are of, ``monotonic`` or ``realtime``; None: not recorded.
        values: columns of table samples.
    """

    ends: Ends
    cookie: str | None
    poll: int
    time: tuple[int, str] | None
    values: dict[str, Any]


@dataclass
class Loaded:
    """What the samples of a run were: flows by their number, and what they lack.

    `steps` are the times in ns between two samples of a flow (not of a tcp-info archive). `broken`
    counts the lines that were to be samples and cannot be read, `first_broken` is the first one's
    number.
    """

    samples: int = 0
    untimed: int = 0
    backwards: int = 0
    steps: list[int] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)
    clocks: set[str] = field(default_factory=set)
    first_ns: int | None = None
    last_ns: int | None = None
    flows: int = 0
    broken: int = 0
    first_broken: int = 0


# The largest number of each unit that a connection has: the kernel counts packets and RTTs in 32
# bits, and 2^53 bytes pass in a day at 800 Gbit/s. Views add these numbers and multiply some.
_MOST = {"packets": 0xFFFFFFFF, "us": 0xFFFFFFFF, "bytes": 1 << 53, "bit/s": 1 << 53, "ms": 1 << 53}
_MOST_MSS = 0xFFFF


def type_and_limit(column: Column) -> tuple[str, int | None]:
    """Return a column's type, and the largest number taken from a file (None: all it holds)."""
    return column.type, _MOST_MSS if column.name == "mss" else _MOST.get(column.unit)


@dataclass
class Life:
    """One connection among those of the same ends; `began_ns` is of its first event, if known."""

    flow: int
    cookie: str | None
    first_ns: int | None
    last_ns: int | None
    grown: int = 0
    began_ns: int | None = None


def load(
    con: duckdb.DuckDBPyConnection,
    run_id: int,
    samples: Iterable[Sample],
    to_monotonic_ns: int | None = None,
) -> Loaded:
    """Fill table samples, and table flows with connections that it does not have yet.

    Call it inside a transaction, after the run's events and flows are loaded, if it has any.

    Args:
        con: the store's connection.
        run_id: the run that the samples belong to.
        samples: in the order in which they were taken.
        to_monotonic_ns: added to times on CLOCK_REALTIME; None leaves them as they are.
    """
    flows = con.execute(
        "SELECT flow, printf('%x', nullif(cookie, 0)), first_ns, local_address, local_port,"
        " remote_address, remote_port FROM flows WHERE run_id = ? ORDER BY flow",
        [run_id],
    ).fetchall()
    connections, loaded = SampledConnections(run_id, flows), Loaded()
    columns = recorded_table("samples").columns
    types = {column.name: type_and_limit(column) for column in columns}

    def rows() -> Iterator[dict[str, Any]]:
        for sample in samples:
            ns = _monotonic(sample.time, to_monotonic_ns)
            life = connections.life_of(sample, ns)
            _note(loaded, life, sample, ns)
            values = {name: fitting(each, *types[name]) for name, each in sample.values.items()}
            yield {"run_id": run_id, "flow": life.flow, "poll": sample.poll, "ns": ns, **values}

    insert(con, "samples", rows())
    insert(con, "flows", connections.rows())
    loaded.flows = connections.count
    return loaded


def _monotonic(time: tuple[int, str] | None, to_monotonic_ns: int | None) -> int | None:
    """Return a sample's time on CLOCK_MONOTONIC, if one knows how to get there."""
    ns, clock = time or (None, None)
    if ns is not None and clock == "realtime" and to_monotonic_ns is not None:
        return max(0, ns + to_monotonic_ns)
    return ns


class SampledConnections:
    """Whose samples are: the run's flows, and connections that samples alone show.

    Attributes:
        count: how many there are.
    """

    def __init__(self, run_id: int, flows: Sequence[tuple[Any, ...]] = ()) -> None:
        """Begin with the flows that the run has already: flow, cookie, first_ns, ends of each."""
        self._run_id = run_id
        self._by_ends: dict[Ends, list[Life]] = {}
        for flow, cookie, began_ns, *ends in flows:
            if ends[2] is not None and ends[3] is not None:
                life = Life(flow, cookie, None, None, began_ns=began_ns)
                self._by_ends.setdefault(Ends(*ends), []).append(life)
        self._last_flow = max((row[0] for row in flows), default=0)
        self.count = len(flows)
        # Of each other connection its ends, how many had the same ends before, and itself.
        self._fresh: list[tuple[Ends, int, Life]] = []

    def life_of(self, sample: Sample, ns: int | None) -> Life:
        """Return the connection that a sample is of; a new one if it fits none."""
        same = self._by_ends.setdefault(sample.ends, [])
        life = _life_of(same, sample, ns)
        if life is None:
            self._last_flow += 1
            life = Life(self._last_flow, sample.cookie, ns, ns)
            same.append(life)
            self.count += 1
            self._fresh.append((sample.ends, len(same) - 1, life))
        return life

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield rows of table flows for those that it did not have."""
        return (_flow_row(self._run_id, *entry) for entry in self._fresh)


def _life_of(same: list[Life], sample: Sample, ns: int | None) -> Life | None:
    """Return whose sample it is among connections of the same ends; None: a new one's.

    The ends of a connection are used again after it, and may be another's at the same time, where
    addresses are of one link (fe80::1%eth0): then the cookie is another, or a counter fell back. A
    socket that left BBR and came back is two flows of one cookie: the sample is of the last that
    had begun. Without the sender's port, several may live at once: the sample belongs to the one
    that had got furthest, but not further.
    """
    if sample.ends.local_port is None:
        able = [life for life in same if life.grown <= _progress(sample)]
        return max(able, key=lambda life: life.grown, default=None)
    if sample.cookie is not None:
        if its_own := [life for life in same if life.cookie == sample.cookie]:
            return _at(its_own, ns)
        same = [life for life in same if life.cookie is None]
    life = _at(same, ns) if same else None
    return life if life is not None and _progress(sample) >= life.grown else None


def _at(lives: list[Life], ns: int | None) -> Life:
    """Return the last that had begun by then; the first where none had."""
    begun = [life for life in lives if ns is None or (life.began_ns or 0) <= ns]
    return (begun or lives[:1])[-1]


def _progress(sample: Sample) -> int:
    counters = (sample.values.get(name) for name in ("delivered", "bytes_acked"))
    return next((int(value) for value in counters if value is not None), 0)


def _note(loaded: Loaded, life: Life, sample: Sample, ns: int | None) -> None:
    loaded.samples += 1
    loaded.sources.add(sample.values["source"])
    if sample.values.get("bbr_version") is not None:
        loaded.versions.add(sample.values["bbr_version"])
    life.grown = max(life.grown, _progress(sample))
    life.cookie = life.cookie or sample.cookie
    if ns is None or sample.time is None:
        loaded.untimed += 1
        return
    loaded.clocks.add(sample.time[1])
    if life.last_ns is not None and ns < life.last_ns:
        loaded.backwards += 1
    elif life.last_ns is not None:
        loaded.steps.append(ns - life.last_ns)
    for seen in (loaded, life):
        seen.first_ns = ns if seen.first_ns is None else min(seen.first_ns, ns)
        seen.last_ns = ns if seen.last_ns is None else max(seen.last_ns, ns)


def _flow_row(run_id: int, ends: Ends, generation: int, life: Life) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "flow": life.flow,
        "generation": generation,
        **vars(ends),
        "first_ns": life.first_ns,
        "last_ns": life.last_ns,
        **dict.fromkeys(("events", *KINDS), 0),
        "has_init": False,
        "pre_init": 0,
        "note": "seen in samples only: no kernel event of it was recorded",
    }
