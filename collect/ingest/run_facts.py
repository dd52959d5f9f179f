"""What the manifest and the loaded events say about a run as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...probes.base.plurals import worded
from ...probes.fields import column_name
from ..bundle.bundle import Bundle, Manifest
from ..bundle.quality import CODES
from ..bundle.rungs import CAPTURE, PHASES, RUNGS, named_rung
from ..store.schema.recorded_tables import SAMPLE

if TYPE_CHECKING:
    import duckdb

# Manifest keys that have columns or tables of their own; the rest goes to host_facts.
OWN_COLUMNS = set("format version name bbr kernel rung probe scenario clocks lab".split())


# Exit rows stop first when the probes detach, so the mains after the last exit of a recording have
# none: one note per flow says so. Elsewhere each missing exit has a note of its own.
_MISSING_EXITS = """
WITH last_exit AS (
  SELECT max(line) AS line FROM events WHERE run_id = $run_id AND exit_ns IS NOT NULL
), missing AS (
  SELECT flow, seq, e.line, ns, kind, e.line > last_exit.line AND kind = 'main' AS tail
  FROM events e, last_exit WHERE e.run_id = $run_id AND NOT e.complete
)
SELECT flow, seq, line, ns, 'missing_exit', kind::VARCHAR FROM missing WHERE NOT tail
UNION ALL
SELECT flow, min(seq), min(line), min(ns), 'exits_stop', count(*)::VARCHAR
FROM missing WHERE tail GROUP BY flow
"""


def missing_exits(con: duckdb.DuckDBPyConnection, run_id: int) -> Iterator[QualityRow]:
    """Yield notes on events whose exit was not recorded, of a run in which others' was."""
    found = con.execute(_MISSING_EXITS, {"run_id": run_id}).fetchall()
    for flow, seq, line, ns, code, said in found:
        detail = worded(CODES[code], kind=said, count=said)
        yield QualityRow(run_id, flow, seq, line, ns, code, detail)


def without_init(flows: Iterable[Mapping[str, Any]]) -> Iterator[QualityRow]:
    """Yield notes on flows that began before their recording, of the rows of table flows."""
    for flow in flows:
        if not flow["has_init"] and flow["events"] > flow[SAMPLE]:
            place = flow["run_id"], flow["flow"], 0, None, flow["first_ns"]
            yield QualityRow(*place, "no_init", CODES["no_init"])


def notes_on_run(run_id: int, notes: Mapping[str, str]) -> Iterator[QualityRow]:
    """Yield notes on a run as a whole, given by their code."""
    for code, said in notes.items():
        yield QualityRow(run_id, None, None, None, None, code, said)


# What packets and samples bring is counted where it is.
_MORE = """
UPDATE runs SET
  flows = (SELECT count(*) FROM flows WHERE run_id = $run_id),
  quality_notes = (SELECT count(*) FROM capture_quality WHERE run_id = $run_id)
WHERE runs.run_id = $run_id
"""

# A run without events lasts from the first sample or packet to the last.
EVENTLESS_TIMES = """
UPDATE runs SET first_ns = f.first_ns, last_ns = f.last_ns, duration_ns = f.last_ns - f.first_ns,
  flows = f.flows
FROM (SELECT min(first_ns) AS first_ns, max(last_ns) AS last_ns, count(*) AS flows FROM flows
  WHERE run_id = $run_id) f
WHERE runs.run_id = $run_id AND runs.events = 0
"""

# A run of which neither events nor samples tell, but packets.
CAPTURED = f"""
UPDATE runs SET rung = '{CAPTURE.name}',
  decoded_as = 'no BBR flow: no kernel events were recorded, packets were'
WHERE run_id = $run_id AND rung IS NULL AND events = 0 AND EXISTS (
  SELECT 1 FROM packets WHERE packets.run_id = runs.run_id)
"""


def count_more(con: duckdb.DuckDBPyConnection, run_id: int) -> None:
    """Say of a run what its packets and samples tell, once they are loaded."""
    con.execute(_MORE, {"run_id": run_id})
    without_events(con, run_id)


def without_events(con: duckdb.DuckDBPyConnection, run_id: int) -> None:
    """Say of a run without events what samples and packets tell, once they are loaded."""
    for change in (CAPTURED, EVENTLESS_TIMES):
        con.execute(change, {"run_id": run_id})


def param_column(recorded: str) -> str:
    """Return the column of table params for a recorded name."""
    return column_name(recorded).removeprefix("params_")


def run_facts(manifest: Manifest) -> dict[str, Any]:
    """Return the columns of table runs that come from the manifest."""
    scenario = manifest.group("scenario")
    raw = manifest.raw
    return {
        "declared_version": manifest.text("bbr"),
        "kernel": manifest.text("kernel"),
        "scenario": _text(scenario.get("id")),
        "description": _text(scenario.get("description")),
        "setup": None if raw.get("setup") is None else json.dumps(raw["setup"]),
        "hz": manifest.hz,
        "started_realtime_ns": manifest.clocks[0].realtime_ns if manifest.clocks else None,
        "traffic_start_ns": _traffic_start(manifest),
        "packets": None if raw.get("packets") is None else json.dumps(raw["packets"]),
    }


def rung(manifest: Manifest, kinds: set[str]) -> str | None:
    """Return the rung by which a run was recorded, from the kinds of its events and the manifest.

    None: its events are of callbacks, and the manifest names neither fentry nor kprobe.
    """
    declared = RUNGS.get(named_rung(manifest.raw))
    if kinds == {SAMPLE}:
        return PHASES.name if declared == PHASES else "tcp_probe"
    return declared.name if declared and declared.replays else None


def _traffic_start(manifest: Manifest) -> int | None:
    """Return the start of the traffic on CLOCK_MONOTONIC, if the clocks allow it."""
    uptime = manifest.raw.get("traffic_start_uptime_s")
    if not manifest.clocks or not isinstance(uptime, int | float) or not 0 < uptime < 1e9:
        return None
    clock = manifest.clocks[0]
    return max(0, round(uptime * 1e9) - (clock.boottime_ns - clock.monotonic_ns))


def host_facts(run_id: int, manifest: Manifest) -> Iterator[dict[str, Any]]:
    """Yield the settings of the manifest, nested groups by their path."""
    for key, value in manifest.raw.items():
        if key in OWN_COLUMNS:
            continue
        scope = "rows" if key == "events" else key
        if isinstance(value, dict):
            for name, inner in value.items():
                yield {"run_id": run_id, "scope": scope, "name": name, "value": _text(inner)}
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                yield {"run_id": run_id, "scope": scope, "name": str(index), "value": _text(inner)}
        elif value is not None:
            yield {"run_id": run_id, "scope": "manifest", "name": key, "value": _text(value)}


def constants(run_id: int, values: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield build constants that rows have and the manifest has not."""
    for name, value in values.items():
        yield {"run_id": run_id, "scope": "constants", "name": name, "value": str(value)}


def _text(value: object) -> str | None:
    """Return a setting as text: itself, or JSON."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def attachments(run_id: int, bundle: Bundle) -> Iterator[dict[str, Any]]:
    """Yield the small files that are kept as they are."""
    for path in bundle.attachments():
        text = path.read_text(encoding="utf-8", errors="replace")
        yield {"run_id": run_id, "name": path.name, "text": text}


@dataclass(frozen=True)
class QualityRow:
    """A row of capture_quality."""

    run_id: int
    flow: int | None
    seq: int | None
    line: int | None
    ns: int | None
    kind: str
    detail: str
