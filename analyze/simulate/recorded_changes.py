"""What changed on a recorded path, at times of its first flow: rates, outages, reordering."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...collect.lab import units
from ...collect.store.query import first_row
from ...probes.base.errors import BbrscopeError
from .recorded_reordering import recorded_reordering
from .world.world_setup import PathSetup

if TYPE_CHECKING:
    import duckdb

    from ..replay.run_info import RunInfo

Change = tuple[int, str, float]
# An outage is looked for in the recording so far around its nominal time, in us.
_AROUND_US = 2_000_000
# Within so much of the shortest RTT a packet was not delayed.
_AT_ONCE_US = 1000


def changes_of(
    con: duckdb.DuckDBPyConnection, info: RunInfo, words: Mapping[str, str], origin: int, flow: int
) -> tuple[Change, ...]:
    """Changes of the path in us since `origin` [ns, CLOCK_MONOTONIC], by their time."""
    ahead = _ahead_ns(con, info.run_id)
    changes: list[Change] = []
    for name, text in words.items():
        if not name.startswith("change "):
            continue
        change = json.loads(text)
        at_us = round(float(change["at_s"]) * 1e6)
        if "uptime_s" in change and ahead is not None:
            # When it was really made: a traffic generator takes a while to begin.
            at_us = round((float(change["uptime_s"]) * 1e9 - ahead - origin) / 1000)
        if "rate" in change:
            changes.append((at_us, "rate", units.rate(change["rate"])))
        elif "what" in change:
            changes.append((at_us, str(change["what"]), float(change["value"])))
    if words.get("outage"):
        at, _, seconds = words["outage"].partition(":")
        nominal = round(float(at) * 1e6)
        begun = _silence_us(con, info.run_id, origin, flow, nominal)
        changes.append((begun, "down", float(seconds) * 1e6))
    return tuple(sorted((max(at, 0), what, value) for at, what, value in changes))


def _ahead_ns(con: duckdb.DuckDBPyConnection, run_id: int) -> int | None:
    """By how much uptime is ahead of CLOCK_MONOTONIC."""
    row = first_row(
        con,
        "SELECT min(boottime_ns::BIGINT - monotonic_ns) FROM clocks"
        " WHERE run_id = ? AND point = 'start'",
        run_id,
    )
    return None if row is None or row[0] is None else int(row[0])


def _silence_us(
    con: duckdb.DuckDBPyConnection, run_id: int, origin: int, flow: int, nominal: int
) -> int:
    """When the longest silence around a time began: the last ACK before it came then."""
    row = first_row(
        con,
        "SELECT (ns::BIGINT - ?) // 1000 AS begun_us, lead(ns) OVER (ORDER BY ns) - ns AS gap"
        " FROM events WHERE run_id = ? AND flow = ? AND kind = 'main'"
        " QUALIFY begun_us BETWEEN ? AND ? ORDER BY gap DESC NULLS LAST LIMIT 1",
        origin,
        run_id,
        flow,
        nominal - _AROUND_US,
        nominal + _AROUND_US,
    )
    return int(row[0]) if row else nominal


def with_reordering(
    con: duckdb.DuckDBPyConnection, info: RunInfo, path: PathSetup, word: str, flow: int
) -> PathSetup:
    """The path with reordering: all skbs wait for some ms, except a share that overtakes them.

    `word` is the manifest's, such as ``8:20``; the number before the colon is the wait [ms]. The
    wait must show in `flow`: its RTTs (10th percentile) lie that far above the shortest, or more.
    The share is measured: netem's correlation makes it another than the number that netem is given.

    Raises:
        BbrscopeError: the recording does not show such a wait.
    """
    wait_us = round(float(word.partition(":")[0]) * 1000)
    row = first_row(
        con,
        "SELECT min(rs_rtt_us), quantile_cont(rs_rtt_us, 0.1) FROM events"
        " WHERE run_id = ? AND flow = ? AND kind = 'main' AND rs_rtt_us > 0",
        info.run_id,
        flow,
    )
    shortest, usual = row or (None, None)
    if shortest is None or usual - shortest < wait_us - _AT_ONCE_US or wait_us <= 0:
        raise BbrscopeError(
            f"{info.run}: the path cannot be fitted: its reordering {word!r:.20} is not seen in the"
            " RTTs",
            "closed loops need a path that the manifest or the recording describes",
        )
    share, again = recorded_reordering(con, info.run_id, flow)
    return replace(
        path,
        rtt_us=path.rtt_us + wait_us,
        reorder=share,
        reorder_us=wait_us,
        reorder_again=again,
        in_skbs=True,
    )
