"""What the collector says of its own completeness, taken from a manifest that anybody may write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .bundle import Manifest
from .events import Finding
from .findings import CODES

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


def findings(manifest: Manifest) -> list[Finding]:
    """What a reader must know of how the recording went, beside what its rows show."""
    accounting = manifest.group("accounting")
    found = []
    for row in accounting_rows(0, manifest):
        if row["lost"]:
            found.append(_finding("probe_lost", **row))
    if missed := _count(accounting.get("missed_runs")):
        found.append(_finding("runs_missed", count=missed))
    ended = str(manifest.raw.get("ended") or "not told how")[:LONGEST]
    if accounting and accounting.get("complete") is not True:
        found.append(_finding("not_counted", ended=ended))
    elif ended.startswith(("bpftrace ended", "cannot write")):
        found.append(_finding("ended_early", ended=ended))
    changed = _texts(manifest, "settings_changed")
    return [*found, *(_finding("setting_changed", what=what) for what in changed)]


def _finding(code: str, **values: Any) -> Finding:
    return Finding(code, CODES[code].format(**values))


def _count(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < MAX_COUNT else None


def _texts(manifest: Manifest, key: str) -> list[str]:
    value = manifest.raw.get(key)
    if not isinstance(value, list):
        return []
    return [(v if isinstance(v, str) else json.dumps(v))[:LONGEST] for v in value[:MOST]]
