"""What the collector says of its own completeness, taken from a manifest that anybody may write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .bundle import Manifest
from .exits import calls_without_main, missing_exits, without_main
from .quality import QualityNote, note_of

MOST = 100
LONGEST = 300
MAX_COUNT = 1 << 62
COUNTS = ("attempted", "recorded", "cut", "lost")


def accounting_rows(run_id: int, manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Rows of table accounting; what is no count is NULL."""
    probes = manifest.group("accounting").get("probes")
    if not isinstance(probes, dict):
        return
    for tag, counts in list(probes.items())[:MOST]:
        if isinstance(counts, dict):
            numbers = {name: _count(counts.get(name)) for name in COUNTS}
            yield {"run_id": run_id, "probe": str(tag)[:20], **numbers}


def quality_notes(manifest: Manifest, counts: Mapping[str, int]) -> list[QualityNote]:
    """What a reader must know of how the recording went, beside what its rows show.

    `counts` are the rows by tag, of the tags that the recording declares.
    """
    accounting = manifest.group("accounting")
    notes = []
    if manifest.is_unfinished:
        notes.append(note_of("unfinished"))
    if "manifest" in manifest.raw and manifest.raw["manifest"] is None:
        notes.append(note_of("no_manifest"))
    for row in accounting_rows(0, manifest):
        if row["lost"]:
            notes.append(note_of("probe_lost", **row))
    if missed := _count(accounting.get("missed_runs")):
        notes.append(note_of("runs_missed", count=missed))
    # Single exits that are missing are found among the events; none at all is no event's gap.
    for call in missing_exits(counts):
        if call.exits == 0:
            notes.append(note_of("no_exits", call=call.name, entries=call.entries))
    if calls := calls_without_main(counts):
        notes.append(note_of("no_main", what=without_main(calls)))
    ended = str(manifest.raw.get("ended") or "not recorded")[:LONGEST]
    if accounting and accounting.get("complete") is not True:
        notes.append(note_of("not_counted", ended=ended))
    elif ended.startswith(("bpftrace ended", "cannot write")):
        notes.append(note_of("ended_early", ended=ended))
    if how := manifest.group("packets").get("ended"):
        notes.append(note_of("packets_ended", how=str(how)[:LONGEST]))
    changed = _texts(manifest, "settings_changed")
    return [*notes, *(note_of("setting_changed", what=what) for what in changed)]


def _count(value: object) -> int | None:
    return value if type(value) is int and abs(value) < MAX_COUNT else None


def _texts(manifest: Manifest, key: str) -> list[str]:
    value = manifest.raw.get(key)
    if not isinstance(value, list):
        return []
    return [(v if isinstance(v, str) else json.dumps(v))[:LONGEST] for v in value[:MOST]]
