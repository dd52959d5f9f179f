"""attempted = recorded + cut + lost: what a recording says of its own completeness, in words."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from ....probes.base.errors import BundleError
from ....probes.base.plurals import plural, worded
from ...bundle.exits import CALLS, MissingExits, without_main
from ...bundle.quality import CODES
from ...bundle.rungs import named_rung

if TYPE_CHECKING:
    from ..tracer import TracerEnd


class EventCounts(Protocol):
    """What the stream of events counted: rows and cut rows by tag, the kernel's counters of what
    was attempted by the events' letters, and the rows that bpftrace says it lost.
    """

    rows: Counter[str]
    attempted: dict[str, int]

    @property
    def cut(self) -> Counter[str]:
        """Rows of events that began after the end."""

    @property
    def lost(self) -> int:
        """Rows that bpftrace reported as lost."""


def account(events: EventCounts, end: TracerEnd) -> dict[str, Any]:
    """Return the manifest's `accounting`.

    Per probe, by the letters of its tags, it counts events by their first row: `lost` = `attempted`
    - `recorded` - `cut`; `lost_rows` counts every row that did not arrive. For all probes: `lost`
    in rows (the larger of that sum and what bpftrace reports), `runs` of the BPF programs (None:
    the kernel did not count), and `missed_runs`, their recursion_misses.
    """
    probes = {tag: _probe(events, tag, n) for tag, n in sorted(expected(events.attempted).items())}
    return {
        "probes": probes,
        "lost": max(events.lost, sum(probe["lost_rows"] for probe in probes.values())),
        "reported_lost_rows": events.lost,
        "runs": sum(p.get("run_cnt", 0) for p in end.programs) if end.counted else None,
        "missed_runs": sum(p.get("recursion_misses", 0) for p in end.programs),
        "complete": bool(events.attempted) and not end.died and not end.killed,
    }


def expected(attempted: dict[str, int]) -> dict[str, int]:
    """The kernel's counters, and zero for exits that must be there and were never attempted."""
    exits = {call.exit: 0 for call in CALLS if attempted.get(call.entry)}
    return exits | attempted


def _probe(events: EventCounts, tag: str, attempted: int) -> dict[str, int]:
    """The account of one probe; the rows of a long event are TAG0, TAG1 and so on."""
    rows = [row for row in (events.rows | events.cut) if row.rstrip("0123456789") == tag]
    first = tag if tag in rows else f"{tag}0"
    recorded, cut = events.rows.get(first, 0), events.cut.get(first, 0)
    lost_rows = sum(
        max(attempted - events.rows.get(row, 0) - events.cut.get(row, 0), 0)
        for row in rows or [tag]
    )
    return {
        "attempted": attempted,
        "recorded": recorded,
        "cut": cut,
        "lost": attempted - recorded - cut,
        "lost_rows": lost_rows,
    }


def exits_missing(completeness: dict[str, Any]) -> list[MissingExits]:
    """Calls whose exit row never came, by what check() counted; none where it did not look."""
    calls, missing = (completeness.get(key) or {} for key in ("calls", "exits_missing"))
    return [
        MissingExits(call.name, calls[call.entry], calls[call.entry] - missing[call.entry])
        for call in CALLS
        if missing.get(call.entry)
    ]


# How a user finds out why a recording is empty.
EMPTY_WAY_OUT = "ss -ti shows which congestion control flows use; filters may leave out all of them"

# Of the manifest's `setup.filters`, what leaves out no socket.
SHAPES = {"phases"}


def no_socket(filters: Mapping[str, Any]) -> str:
    """Say of a recording that is empty what was not seen, given the manifest's `setup.filters`."""
    chosen = " that the filters choose" if filters.keys() - SHAPES else ""
    return f"no socket{chosen} had BBR"


def is_empty(manifest: dict[str, Any]) -> bool:
    """Whether a recording holds neither an event nor a sample of a socket."""
    counts = manifest.get("events") or {}
    return not any(counts.values()) and not manifest.get("socket_samples")


def _read(read: Callable[[dict[str, Any]], list[str]]) -> Callable[[dict[str, Any]], list[str]]:
    """The one way to read an account, which anybody may have written: sense, or a BundleError."""

    @functools.wraps(read)
    def sensibly(manifest: dict[str, Any]) -> list[str]:
        try:
            return read(manifest)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BundleError(
                f"the manifest's account makes no sense ({type(error).__name__}: {error})",
                "was it changed by hand? record again",
            ) from error

    return sensibly


@_read
def trouble(manifest: dict[str, Any]) -> list[str]:
    """What a user must know before trusting the recording; empty when it is complete.

    Raises:
        BundleError: the manifest's account is none.
    """
    problems = []
    if manifest.get("unfinished"):
        problems.append("the collector was killed, or is still at work: nothing was counted")
    if manifest.get("events_lost"):
        lost = plural(manifest["events_lost"], "row was", "rows were")
        problems.append(f"{lost} lost on the way to user space")
    done = manifest.get("completeness") or {}
    if done.get("sequence_missing"):
        missing = plural(done["sequence_missing"], "sequence number is", "sequence numbers are")
        problems.append(f"{missing} missing")
    if done.get("out_of_order"):
        late = plural(done["out_of_order"], "event is", "events are")
        problems.append(f"{late} out of order, or there twice")
    if done.get("chain_breaks"):
        breaks = plural(done["chain_breaks"], "call")
        problems.append(f"tp.delivered does not add up at {breaks} of main()")
    problems += [call.sentence for call in exits_missing(done)]
    if done.get("without_main"):
        problems.append(without_main(int(done["without_main"])))
    if done.get("broken"):
        broken = plural(int(done["broken"]), "row is", "rows are")
        problems.append(f"{broken} broken: cut, or not of numbers")
    accounting = manifest.get("accounting") or {}
    if accounting.get("missed_runs"):
        missed = plural(accounting["missed_runs"], "run")
        problems.append(f"the kernel skipped {missed} of the probes")
    if accounting and not accounting.get("complete"):
        problems.append("bpftrace did not end in order: its counters are missing")
    if why := (manifest.get("packets") or {}).get("ended"):
        problems.append(worded(CODES["packets_ended"], how=why))
    problems += [note for note in manifest.get("notes") or [] if "unloaded" in note]
    ended = str(manifest.get("ended") or "")
    if ended.startswith(("bpftrace ended", "cannot write")):
        problems.append(ended)
    return problems


@_read
def lines(manifest: dict[str, Any]) -> list[str]:
    """The account of a bundle, for a terminal.

    Raises:
        BundleError: the manifest's account is none.
    """
    return list(_lines(manifest))


def counted(number: object) -> str:
    """Return a number of the kernel's as text; "not counted" where nobody asked it to count."""
    return f"{number:,}" if isinstance(number, int) else "not counted"


def _lines(manifest: dict[str, Any]) -> Iterator[str]:
    yield f"recorded by {named_rung(manifest)}; ended: {manifest.get('ended') or 'unknown'}"
    for step in manifest.get("ladder") or []:
        yield f"  {step['rung']} {step['outcome']}: {step['reason']}"
    accounting = manifest.get("accounting")
    if accounting is None:
        yield "nothing was counted in the kernel"
    else:
        heads = ("attempted", "recorded", "cut", "lost")
        yield "".join([f"{'probe':<6}", *(f"{head:>12}" for head in heads)])
        for tag, counts in accounting["probes"].items():
            yield "".join([f"{tag:<6}", *(f"{int(counts[head]):>12,}" for head in heads)])
        runs, missed = (counted(accounting.get(name)) for name in ("runs", "missed_runs"))
        yield f"runs of the probes: {runs}; skipped: {missed}"
    done = manifest.get("completeness")
    if done is not None:
        summary = f"{plural(int(done['events']), 'numbered event')} of"
        summary += f" {plural(int(done['sockets']), 'socket')}:"
        summary += f" {plural(int(done['sequence_missing']), 'number')} missing"
        if named_rung(manifest) != "tcp_probe":
            summary += (
                f"; tp.delivered does not add up at {plural(int(done['chain_breaks']), 'call')} of"
                " main()"
            )
        yield summary
        if done.get("left_bbr"):
            times = plural(int(done["left_bbr"]), "time")
            yield f"sockets left BBR {times}: nothing of their other congestion control is recorded"
        yield from (call.sentence for call in exits_missing(done))
        if done.get("without_main"):
            yield without_main(int(done["without_main"]))
    for change in manifest.get("settings_changed") or []:
        yield f"changed while recording: {change}"
