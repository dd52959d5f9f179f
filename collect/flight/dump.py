"""Write what the rings hold as an ordinary bundle."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...probes.base.errors import HostError
from ..bundle.bundle import EVENTS, PACKETS
from ..record.host import clocks
from ..record.output import check
from ..record.output.accounting import is_empty
from ..record.output.folder import RecordingFolder
from ..record.output.stream import Compressed
from .rings import Covered, Rings

T = TypeVar("T")


def write_dump(
    rings: Rings,
    window: Covered,
    output: Path,
    facts: dict[str, Any],
    program: str,
    empty_too: bool = True,
) -> dict[str, Any] | None:
    """Write the window as a bundle at `output`; return its manifest.

    `facts` are the keys of the manifest but for those that count what is written here. Where not
    `empty_too`, a window in which no socket had BBR and nothing was lost leaves no bundle: None.

    Raises:
        HostError: the name is taken, or the disk refuses. What was written is removed, but stays
            where the message says if it is whole and only the renaming failed.
    """
    folder = RecordingFolder(output)
    try:
        if program:
            folder.write_probe(program)
        # What is left of a dump whose recorder is killed says what it is, and when it was.
        folder.write_manifest({**facts, "unfinished": True, "events": None})
        counts = _write_parts(rings, window, folder, facts)
        manifest = {**facts, **counts}
        if not empty_too and is_empty(manifest) and not facts["events_lost"]:
            folder.discard()
            return None
        if rings.events is not None:
            manifest["completeness"] = check.check(folder.events).as_dict()
        folder.release_reserve()
        folder.write_manifest(manifest)
    except OSError as error:
        folder.discard()
        raise HostError(f"cannot write {output}: {error.strerror}") from error
    folder.publish()
    return manifest


def _write_parts(
    rings: Rings, window: Covered, folder: RecordingFolder, facts: dict[str, Any]
) -> dict[str, Any]:
    """Write the files; return the manifest's counts of what is in them."""
    counts: dict[str, Any] = {"events": {}, "polls": 0, "socket_samples": 0}
    span = window.from_ns, window.until_ns
    if (events := rings.events) is not None:
        counts["events"] = written(folder.path / EVENTS, partial(events.write_window, *span))
    if (packets := rings.packets) is not None:
        ahead = facts["clocks"]["start"]["realtime_ns"] - facts["clocks"]["start"]["monotonic_ns"]
        real = span[0] + ahead, span[1] + ahead
        captured = written(folder.path / PACKETS, partial(packets.write_window, *real))
        counts["packets"] = {**facts["packets"], "packets_captured": captured}
    for name, text in rings.texts.items():
        polled = written(folder.path / name, partial(text.write_window, *span))
        if name.startswith("ss."):
            counts |= {"polls": polled.polls, "socket_samples": polled.rows}
    return counts


def written(path: Path, fill: Callable[[Callable[[bytes], None]], T]) -> T:
    """Let `fill` write a compressed file; return what it returns. Raises OSError."""
    output = Compressed(path)
    try:
        return fill(output.write)
    finally:
        output.close()


def clocks_of(
    readings: list[clocks.ClockReading], window: Covered
) -> tuple[clocks.ClockReading, clocks.ClockReading]:
    """The readings nearest to the two ends of a window; there is one at least."""
    start = min(readings, key=lambda one: abs(one.monotonic_ns - window.from_ns))
    end = min(readings, key=lambda one: abs(one.monotonic_ns - window.until_ns))
    return start, end
