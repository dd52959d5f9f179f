"""The path that somebody wrote down: a manifest's set-up, or the lab's run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...collect.lab import units
from ...collect.lab.lab_points import path_of_params
from ...collect.store.query import first_row
from .world.world_setup import PathSetup
from .world.worlds import path_of_link

if TYPE_CHECKING:
    import duckdb

    from ..replay.run_info import RunInfo


BY_THE_LAB = "the lab's run"


def described_path(
    con: duckdb.DuckDBPyConnection, info: RunInfo, words: Mapping[str, str]
) -> tuple[PathSetup, str] | None:
    """The path, and who wrote it down; None: nobody did.

    Args:
        words: the manifest's set-up.

    Raises:
        ScenarioError: what is written down makes no path.
    """
    lab = first_row(
        con,
        "SELECT rate_bps, rtt_us, buffer_bytes, loss, aqm, params FROM lab_runs WHERE run_id = ?",
        info.run_id,
    )
    if lab:
        return _of_the_lab(*lab), BY_THE_LAB
    if {"rate", "delay"} <= words.keys() and {"limit", "limit_bytes"} & words.keys():
        return _of_words(words), "the manifest's set-up"
    return None


def _of_the_lab(rate: int, rtt: int, size: int, loss: float, aqm: str, text: str) -> PathSetup:
    """What the testbed built: the run's parameters, and what became of them in this run."""
    given = {str(name): str(value) for name, value in json.loads(text).items()}
    known = {"rate": f"{rate}bit", "rtt": f"{rtt}us", "buffer": f"{size}B"}
    known |= {"loss": f"{loss:.9f}", "aqm": aqm}
    # What a socket may buffer is the kernel's own where the run does not say it.
    return path_of_link(path_of_params({"memory": "default", **given, **known}))


def _of_words(words: Mapping[str, str]) -> PathSetup:
    rate_text, bucket = words["rate"], int(words.get("policer", "0"))
    return PathSetup(
        rate_bps=int(rate_text) if rate_text.isdigit() else units.rate(rate_text),
        rtt_us=round(float(words["delay"]) * 1000),
        limit_packets=int(words.get("limit", "0")),
        limit_bytes=int(words.get("limit_bytes", "0")),
        burst_bytes=bucket or int(words.get("burst_bytes", PathSetup.burst_bytes)),
        loss=units.share(words.get("loss", "0")),
        jitter_us=units.time_us(words.get("jitter", "0ms")),
        aggregation_us=units.time_us(words.get("aggregation", "0ms")),
        policer=bucket > 0,
        marks_us=units.time_us(words["ecn"]) if words.get("ecn") else 0,
        peeks=words.get("shaper") == "tbf",
        ecn=bool(words.get("ecn")),
        host_bps=int(words.get("host", "0")),
    )


def as_words(path: PathSetup) -> dict[str, str]:
    """The set-up of a manifest that says what `path` is; but for segments, memory and hosts."""
    wait_us = (path.reorder_us or path.rtt_us // 2) if path.reorder else 0
    words = {
        "rate": str(path.rate_bps),
        "delay": str((path.rtt_us - wait_us) / 1000),
        "limit": str(path.limit_packets),
        "limit_bytes": str(path.limit_bytes),
        "loss": str(path.loss),
    }
    words["policer" if path.policer else "burst_bytes"] = str(path.burst_bytes)
    if wait_us:
        words["reorder"] = f"{wait_us / 1000:g}:{100 * path.reorder:g}"
        words["reorder"] += f":{100 * path.reorder_again:g}" if path.reorder_again else ""
    for name, value in (("jitter", path.jitter_us), ("aggregation", path.aggregation_us)):
        if value:
            words[name] = f"{value}us"
    if path.host_bps:
        words["host"] = str(path.host_bps)
    if path.ecn and path.marks_us:
        words["ecn"] = f"{path.marks_us}us"
        words["shaper"] = "tbf" if path.peeks else "htb"
    return words
