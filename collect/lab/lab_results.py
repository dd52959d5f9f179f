"""Rows of the lab's tables from a bundle: the manifest's key `lab`, and iperf3's outputs.

Bundles come from anywhere: every value is checked, and one that is impossible is an error that
names the file. A bundle without that key may state its flows all the same, in `setup`.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ...probes.base.errors import BundleError
from ...probes.base.plurals import plural
from ..bundle.bundle import MANIFEST, MAX_ATTACHMENT
from ..bundle.manifest_values import Keys, dotted, place_of

KEY = "lab"
Row = dict[str, Any]

# The widest values that the columns hold: INTEGER, UINTEGER, USMALLINT, and the rest BIGINT.
_MOST = {"rep": (1 << 31) - 1, "seed": (1 << 32) - 1, "local_port": (1 << 16) - 1}
MOST_FLOWS = 10_000
MOST_STATED = 512
# Shorter intervals than a nanosecond make rates that no number holds.
SHORTEST_S = 1e-9

_TEXTS = ("scenario", "title", "source", "place", "aqm")
_WHOLE = ("rep", "seed", "rate_bps", "rtt_us", "bdp_bytes", "buffer_bytes")
_REAL = ("duration_s", "loss", "cpu_busy")
_FLAGS = ("quick", "valid")


@dataclass(frozen=True)
class LabRows:
    """Rows of lab_runs (one, or none), lab_flows and lab_intervals, without run_id."""

    runs: list[Row]
    flows: list[Row]
    intervals: list[Row]


class _Reader:
    """Takes values out of a JSON object, or says which one is wrong."""

    def __init__(self, shown: str, path: Path, raw: object, keys: Keys = ()) -> None:
        self.shown, self.path, self.keys = shown, path, keys
        if not isinstance(raw, dict):
            what = f"{dotted(keys)} is no object".lstrip()
            raise BundleError(f"{self._place(keys)}: {what}", "README.md of the lab describes it")
        self.raw: Mapping[str, Any] = raw

    def _place(self, keys: Keys) -> str:
        # A value that is wrong is rare: only then the file is read again, for its line.
        try:
            return place_of(self.shown, self.path.read_text("utf-8", "replace"), keys)
        except OSError:
            return self.shown

    def _fail(self, key: str, wanted: str) -> BundleError:
        keys, shown = (*self.keys, key), f"{self.raw.get(key)!r:.60}"
        return BundleError(
            f"{self._place(keys)}: {dotted(keys)} must be {wanted} (found {shown})",
            "make the run again",
        )

    def text(self, key: str) -> str:
        value = self.raw.get(key)
        if not isinstance(value, str) or len(value) > 1000:
            raise self._fail(key, "text")
        return value

    def whole(self, key: str, most: int = (1 << 62) - 1) -> int:
        value, most = self.raw.get(key), _MOST.get(key, most)
        if type(value) is not int or not 0 <= value <= most:
            raise self._fail(key, f"a whole number up to {most}")
        return value

    def real(self, key: str) -> float:
        value = self.raw.get(key)
        # A NaN fails every comparison.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
            raise self._fail(key, "a number")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self.raw.get(key)
        if not isinstance(value, bool):
            raise self._fail(key, "true or false")
        return value

    def inner(self, key: str) -> _Reader:
        return _Reader(self.shown, self.path, self.raw.get(key), (*self.keys, key))

    def listed(self, key: str) -> list[Any]:
        value = self.raw.get(key)
        if not isinstance(value, list):
            raise self._fail(key, "a list")
        return value

    def objects(self, key: str) -> Iterator[_Reader]:
        for number, each in enumerate(self.listed(key)):
            yield _Reader(self.shown, self.path, each, (*self.keys, key, number))


def rows(raw: object, folder: Path, shown: str) -> LabRows:
    """Return the rows of a bundle's lab run.

    Args:
        raw: the manifest's value of `lab`.
        folder: the bundle, for iperfN.json of flow N.

    Raises:
        BundleError: a value is impossible.
    """
    lab = _Reader(shown, folder / MANIFEST, raw, (KEY,))
    planned = list(lab.objects("flows"))
    run: Row = {key: lab.text(key) for key in _TEXTS}
    run |= {key: lab.whole(key) for key in _WHOLE}
    run |= {key: lab.real(key) for key in _REAL}
    run |= {key: lab.flag(key) for key in _FLAGS}
    run["params"] = json.dumps(lab.inner("params").raw, sort_keys=True)
    run["changes"] = json.dumps(lab.listed("changes"))
    run["why_invalid"] = None if run["valid"] else lab.text("why_invalid")
    run["flows"] = len(planned)
    if len(planned) > MOST_FLOWS:
        raise BundleError(
            f"{shown}: lab has {plural(len(planned), 'flow')}", f"{MOST_FLOWS} at most"
        )
    return LabRows([run], *_of_flows(planned, folder))


def stated(setup: object, folder: Path) -> LabRows:
    """Return the rows of the flows that a bundle's `setup` states: `n`, `ccs` and `starts`.

    Args:
        setup: the manifest's value. It may describe anything: no rows where it states no flows.
        folder: the bundle, for iperfN.json of flow N.
    """
    nothing = LabRows([], [], [])
    if not isinstance(setup, dict):
        return nothing
    ccs, starts = (str(setup.get(key) or "").split() for key in ("ccs", "starts"))
    if not 0 < len(ccs) == len(starts) <= MOST_STATED or str(setup.get("n")) != str(len(ccs)):
        return nothing
    try:
        plans = [
            {"flow_no": number, "cc": cc, "kind": "", "extra_rtt_us": 0, "start_s": float(start)}
            for number, (cc, start) in enumerate(zip(ccs, starts, strict=True), 1)
        ]
        return LabRows(
            [], *_of_flows([_Reader("setup", folder / MANIFEST, plan) for plan in plans], folder)
        )
    except (ValueError, BundleError):
        return nothing


def _of_flows(planned: list[_Reader], folder: Path) -> tuple[list[Row], list[Row]]:
    """Rows of lab_flows and of lab_intervals."""
    flows, intervals = [], []
    for plan in planned:
        report = _report(folder, plan.whole("flow_no", MOST_FLOWS))
        flow = _flow(plan, report)
        flows.append(flow)
        intervals += list(_intervals(flow, report))
    return flows, intervals


def _report(folder: Path, flow_no: int) -> _Reader | None:
    """iperf3's own JSON of a flow; None where it has none or died before it wrote it."""
    path = folder / f"iperf{flow_no}.json"
    try:
        # A link or a pipe could be anything, and endless.
        if not stat.S_ISREG(path.lstat().st_mode) or path.lstat().st_size > MAX_ATTACHMENT:
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
        return _Reader(path.name, path, json.loads(text))
    except (OSError, ValueError, RecursionError, BundleError):
        return None


def _flow(plan: _Reader, report: _Reader | None) -> Row:
    start = plan.real("start_s")
    row: Row = {
        "flow_no": plan.whole("flow_no", MOST_FLOWS),
        "cc": plan.text("cc"),
        # Of the kernel, if it was known; the recording, if there is one, says it again.
        "bbr_version": plan.text("bbr_version") if plan.raw.get("bbr_version") else None,
        "kind": plan.text("kind"),
        "extra_rtt_us": plan.whole("extra_rtt_us"),
        "start_s": start,
    }
    if report is None or "error" in report.raw:
        return row
    for connected in islice(report.inner("start").objects("connected"), 1):
        row["local_port"] = connected.whole("local_port")
    if "server_output_json" not in report.raw:
        return row
    row["retransmits"] = report.inner("end").inner("sum_sent").whole("retransmits")
    received = report.inner("server_output_json").inner("end").inner("sum_received")
    row["bytes"] = received.whole("bytes")
    seconds = received.real("seconds")
    row["stop_s"] = start + seconds
    row["goodput_bps"] = row["bytes"] * 8 / seconds if seconds > SHORTEST_S else None
    if row["kind"] == "fixed-size" and report.inner("end").inner("sum_sent").whole(
        "bytes"
    ) >= plan.whole("size_bytes"):
        row["completion_s"] = seconds
    return row


def _intervals(flow: Row, report: _Reader | None) -> Iterator[Row]:
    if report is None or "bytes" not in flow:
        return
    for each in report.inner("server_output_json").objects("intervals"):
        total = each.inner("sum")
        seconds = total.real("seconds")
        if seconds > SHORTEST_S:
            yield {
                "flow_no": flow["flow_no"],
                "t_s": flow["start_s"] + total.real("start"),
                "seconds": seconds,
                "goodput_bps": total.whole("bytes") * 8 / seconds,
            }
