"""Facts about a run: where it comes from, how far to trust it, where its time went."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....analyze.story.completeness import completeness_of, simulated_of_many
from ....collect.bundle.rungs import RUNGS, Rung
from ....collect.store.query import Row, rows
from ....probes.base.plurals import plural
from ...text.findings.completeness_text import completeness
from ...text.quantities import quantity, seconds, share
from ..data.captures import ended_early
from ..data.select import ReportFlow, Run
from .setup_line import plain, setup_line

if TYPE_CHECKING:
    import duckdb


def title(con: duckdb.DuckDBPyConnection, run: Run) -> list[tuple[str, str]]:
    """Return the title block, name and value."""
    row = run.row
    facts = [
        ("Scenario", row["description"] or row["scenario"] or "not described"),
        ("Sender", _host(con, run)),
        ("Kernel", row["kernel"] or "not recorded"),
        ("Decoded as", _decoded(row)),
        ("Path", _path(run)),
        ("Set-up", setup_line(row["setup"])),
        ("Recorded", f"{_started(row)}{seconds((row['duration_ns'] or 0) / 1e9)}"),
        ("Capture", "; ".join(filter(None, [_events(con, run), *_packets(con, run)]))),
    ]
    return [(name, value) for name, value in facts if value]


def _decoded(row: Row) -> str:
    if row["version"] is None:
        return str(row["decoded_as"])
    return f"BBR {row['version']}, because {row['decoded_as']}"


# What is worth a line of the host's facts; the rest is in the manifest below.
_HOST = ("machine", "cpus", "clocksource", "qdiscs")


def _host(con: duckdb.DuckDBPyConnection, run: Run) -> str:
    addresses = dict.fromkeys(flow.row["local_address"] for flow in run.main)
    facts = dict(
        con.execute(
            "SELECT name, value FROM host_facts WHERE run_id = ? AND scope = 'host'",
            [run.row["run_id"]],
        ).fetchall()
    )
    known = [f"{name} {plain(_parsed(facts[name]))}" for name in _HOST if facts.get(name)]
    return ", ".join([" ".join(filter(None, addresses)) or "address not recorded", *known])


def _parsed(text: str) -> object:
    """A recorded value, which may be a list or an object in JSON."""
    try:
        value: object = json.loads(text)
    except ValueError:
        return text
    return value


def _path(run: Run) -> str:
    """Where the flows went, and the best that was seen of the path."""
    ends = dict.fromkeys(
        f"{flow.row['local_address']} \u2192 {flow.row['remote_address']}"
        for flow in run.main
        if flow.row["local_address"] and flow.row["remote_address"]
    )
    parts = list(ends)[:4] + (["..."] if len(ends) > 4 else [])
    rtts = [flow.row["rtt_min_us"] for flow in run.main if flow.row.get("rtt_min_us")]
    rates = [flow.row["max_bw_mbps"] for flow in run.main if flow.row.get("max_bw_mbps")]
    if rtts:
        parts.append(f"smallest RTT {seconds(min(rtts) / 1e6)}")
    if rates:
        parts.append(f"largest max_bw {quantity(max(rates) * 1e6, 'bit/s')}")
    return ", ".join(parts)


def _packets(con: duckdb.DuckDBPyConnection, run: Run) -> list[str]:
    """Whether packets were captured, where, and how well they fit the events."""
    captures = rows(con, "SELECT * FROM captures WHERE run_id = ?", run.row["run_id"])
    if not captures:
        return ["packets were captured but not read" if run.row["packets"] else "no packets"]
    where, end = _where(run.row["packets"]), ended_early(con, run.row["run_id"])
    return [f"{plural(row['packets'], 'packet')}{_matched(row)}{where}{end}" for row in captures]


def _matched(capture: Row) -> str:
    """How many of the events of kind main belong to an ACK of the capture."""
    if not capture["mains"]:
        return ""
    matched, mains = capture["mains_matched"], capture["mains"]
    return f", the ACKs of {matched:,} of {plural(mains, 'main event')} in its time among them"


def _where(text: str | None) -> str:
    try:
        about = json.loads(text or "{}")
    except ValueError:
        return ""
    place = about.get("where") if isinstance(about, dict) else None
    return f" ({place})" if place else ""


def rung(run: Run) -> Rung | None:
    """How the run was recorded, if the store knows."""
    return RUNGS.get(run.row["rung"] or "")


def _events(con: duckdb.DuckDBPyConnection, run: Run) -> str:
    """How many events or samples there are, and how they were recorded."""
    known = rung(run)
    if run.captured:
        return ""
    simulated = simulated_of_many(con, [run.row["run_id"]])
    event = "simulated event" if simulated else "kernel event"
    kind = event if known is None or known.replays else "sample"
    how = f" by {known.name}" if known else ""
    count = sum(flow.row["samples"] for flow in run.flows) if run.sampled else run.row["events"]
    return f"{plural(count or 0, kind)}{how}"


def _started(row: Row) -> str:
    if row["started_realtime_ns"] is None:
        return ""
    when = datetime.datetime.fromtimestamp(row["started_realtime_ns"] // 10**9, datetime.UTC)
    return f"{when:%Y-%m-%d %H:%M:%S} UTC, "


def quality(con: duckdb.DuckDBPyConnection, run: Run) -> list[Row]:
    """What the recording lacks or what is odd in it, by kind, with the first of each."""
    return rows(
        con,
        "SELECT kind, count(*) AS n, arg_min(detail, coalesce(line, 0)) AS detail"
        " FROM capture_quality WHERE run_id = ? GROUP BY kind ORDER BY n DESC",
        run.row["run_id"],
    )


def agreement(con: duckdb.DuckDBPyConnection, run: Run) -> list[Row]:
    """How the replay agreed with the kernel, per flow and mode."""
    replays = rows(
        con, "SELECT * FROM replays WHERE run_id = ? ORDER BY flow, mode DESC", run.row["run_id"]
    )
    for row in replays:
        row["divergence"] = _divergence(row["first_divergence"])
    return replays


def _divergence(text: str | None) -> str:
    if not text:
        return ""
    try:
        first: dict[str, Any] = json.loads(text)
    except ValueError:
        return text
    fields = first.get("fields") or {}
    differs = ", ".join(
        f"{name}: kernel {pair.get('expected')}, replay {pair.get('got')}"
        for name, pair in list(fields.items())[:5]
    )
    return f"first at event {first.get('seq')} ({first.get('kind')}): {differs}"


def verdict(con: duckdb.DuckDBPyConnection, run: Run, replays: list[Row]) -> list[tuple[str, str]]:
    """Return (good, bad or soft, sentence): how far to trust what the page says."""
    known = completeness_of(con, run.row["run_id"])
    return [_replayed(run, replays, bool(known.simulated)), completeness(known, run.row["rung"])]


def _replayed(run: Run, replays: list[Row], simulated: bool) -> tuple[str, str]:
    known = rung(run)
    if known is not None and not known.replays:
        return "bad", (
            f"Recorded by {known.name}: this page shows {known.can}. It cannot {known.cannot}."
        )
    if not replays:
        name = "bbrscope replay RUN"
        return "bad", f"Not replayed: reasons are missing. Run `{name}`, then report again."
    events = sum(row["events"] for row in replays if row["mode"] == "step")
    if all(row["exact"] == row["events"] for row in replays):
        exact = f"bit for bit on all {plural(events, 'event')} compared, in both modes"
        if simulated:
            return "good", f"The replay agrees with the simulation {exact}."
        return "good", (
            f"The replay agrees with the kernel {exact}: the reasons given are the kernel's own."
        )
    differ = sum(row["events"] - row["exact"] for row in replays)
    return "bad", (
        f"The replay differs from the kernel on {plural(differ, 'event')}: distrust reasons from "
        "the first divergence on (see Replay agreement)."
    )


def counted(con: duckdb.DuckDBPyConnection, run: Run) -> list[Row]:
    """What the kernel counted, per BPF probe."""
    return rows(con, "SELECT * FROM accounting WHERE run_id = ?", run.row["run_id"])


# What the page calls a fact of the recording, and scope and name of it in `host_facts`.
_COUNTS = (
    ("Ended", ("manifest", "ended")),
    ("Runs of the probes, as the kernel counted", ("accounting", "runs")),
    ("Runs that the kernel skipped", ("accounting", "missed_runs")),
    ("Events with numbers", ("completeness", "events")),
    ("Numbers missing", ("completeness", "sequence_missing")),
)


def recording(con: duckdb.DuckDBPyConnection, run: Run) -> list[tuple[str, str]]:
    """How the recording was made and how it went, as its collector wrote down."""
    noted = {
        (row["scope"], row["name"]): row["value"] or ""
        for row in rows(con, "SELECT * FROM host_facts WHERE run_id = ?", run.row["run_id"])
    }
    known = rung(run)
    facts = [("Recorded by", f"{known.name}: {known.answers}" if known else "")]
    facts += [
        ("Rung tried", _step(value)) for (scope, _), value in noted.items() if scope == "ladder"
    ]
    facts += [(title, noted.get(key, "")) for title, key in _COUNTS]
    if known and known.replays:
        breaks = noted.get(("completeness", "chain_breaks"), "")
        facts.append(("Calls of main() where tp.delivered does not add up", breaks))
    changed = (value for (scope, _), value in noted.items() if scope == "settings_changed")
    notes = (value for (scope, _), value in noted.items() if scope == "notes")
    facts += [("Changed while recording", value) for value in changed]
    facts += [("Note", value) for value in notes]
    return [(name, value) for name, value in facts if value]


def _step(text: str) -> str:
    """A step of the attach ladder, kept as JSON."""
    try:
        step = json.loads(text)
        return f"{step['rung']} {step['outcome']}: {step['reason']}"
    except (ValueError, KeyError, TypeError):
        return text


_ACCOUNTING = """
WITH sums AS (
  SELECT phase, sum(delivered * mss) AS bytes, sum(lost) AS lost
  FROM flow_steps WHERE run_id = $run_id AND flow = $flow GROUP BY phase
), most AS (
  SELECT phase, arg_max(binding, duration_ns) AS binding, max(share) AS share
  FROM binding_summary WHERE run_id = $run_id AND flow = $flow GROUP BY phase
)
SELECT phase, count(*) AS n, sum(duration_ns) AS total, median(duration_ns) AS median,
  max(duration_ns) AS longest, any_value(bytes) AS bytes, any_value(lost) AS lost,
  any_value(binding) AS binding, any_value(share) AS binding_share
FROM flow_phases LEFT JOIN sums USING (phase) LEFT JOIN most USING (phase)
GROUP BY phase ORDER BY min(seq)
"""


def accounting(con: duckdb.DuckDBPyConnection, run: Run, flow: ReportFlow) -> list[Row]:
    """Time, data and loss per phase, and what mostly limited sending in it; samples have none."""
    if run.sampled or run.captured:
        return []
    phases = rows(con, _ACCOUNTING, run_id=run.row["run_id"], flow=flow.number)
    whole = max(sum(row["total"] for row in phases), 1)
    return [_account(row, whole) for row in phases]


def _account(row: Row, whole: int) -> Row:
    total = row["total"] / 1e9
    rate = quantity(row["bytes"] * 8 / total, "bit/s") if row["bytes"] and total else "\u2013"
    limit = f"{row['binding']} ({share(row['binding_share'])})" if row["binding"] else "\u2013"
    return {
        "phase": row["phase"] or "unknown",
        "n": row["n"],
        "total": seconds(total),
        "share": share(row["total"] / whole),
        "median": seconds(row["median"] / 1e9),
        "longest": seconds(row["longest"] / 1e9),
        "rate": rate,
        "lost": f"{row['lost'] or 0:,}",
        "limit": limit,
    }


def manifest(con: duckdb.DuckDBPyConnection, run: Run) -> dict[str, list[tuple[str, str]]]:
    """Everything recorded about the run and its host, by scope."""
    facts: dict[str, list[tuple[str, str]]] = {
        "run": [(name, str(value)) for name, value in run.row.items() if value is not None]
    }
    for row in rows(
        con,
        "SELECT scope, name, value FROM host_facts WHERE run_id = ? ORDER BY scope, name",
        run.row["run_id"],
    ):
        facts.setdefault(row["scope"], []).append((row["name"], str(row["value"])))
    return facts


def reductions(run: Run) -> list[str]:
    """What the page left out to stay small; empty if nothing."""
    return [
        f"flow {flow.number}, {reduction}" for flow in run.main for reduction in _reductions(flow)
    ]


def _reductions(flow: ReportFlow) -> Iterator[str]:
    for key, points in flow.signals.items():
        if not points.exact:
            yield f"{key}: {len(points.t):,} of {plural(points.recorded, 'point')}"
    lane = flow.lanes.get("binding")
    if lane is not None and lane.recorded > len(lane.a):
        yield f"what limited it: {len(lane.a):,} of {plural(lane.recorded, 'span')}"
