"""Whether a recording still has the rows that were counted when it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ....probes.base.plurals import plural, worded
from ...bundle.quality import CODES
from .whole_lines import whole_lines


def differences(events: Path, said: Mapping[str, int] | None) -> list[str]:
    """Where the rows by tag are not those that the manifest says; None: it says nothing."""
    if said is None:
        return []
    if not events.is_file():
        rows = sum(said.values())
        return [f"{events.name} is missing, with {plural(rows, 'row')}"] if rows else []
    found = rows_by_tag(events)
    tags = sorted(tag for tag in {*found, *said} if found.get(tag, 0) != said.get(tag, 0))
    return [
        worded(CODES["row_count"], tag=tag, found=found.get(tag, 0), said=said.get(tag, 0))
        for tag in tags
    ]


def rows_by_tag(events: Path) -> dict[str, int]:
    """Rows of a file of events by tag: whole lines that are no headers."""
    counts: Counter[bytes] = Counter()
    for lines in whole_lines(events):
        counts.update(line.partition(b",")[0] for line in lines.split(b"\n") if b"," in line)
    tags = {tag.decode(errors="replace"): count for tag, count in counts.items()}
    return {tag: count for tag, count in tags.items() if tag[:1].isupper()}
