"""Recordings of the testbed as runs of the lab: copies with the manifest's key `lab` added.

What the lab asks iperf3's server for, these recordings have from the client: its receiver's totals,
and the sender's intervals.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Recording without its version -> the scenario that it may stand for.
SCENARIOS = {
    "single_1bdp": ("song-single-buffer", "song-randomloss"),
    "shallow_0.2bdp": ("song-single-buffer",),
    "bwchange": ("song-bwchange",),
    "loss_1pct": ("song-randomloss",),
    "latecomer_4bdp": ("song-intra-2flow", "song-intra-2flow-inflight"),
    "latecomer_2bdp": ("song-intra-2flow", "song-intra-2flow-inflight"),
    "vs_cubic_2bdp": ("song-cubic", "song-cubic-trace", "ware-probetime"),
}
FRAME = 1514


def bundles(traces: Path, folder: Path, scenario: str, quick: bool = True) -> Iterator[Path]:
    """Make and yield a bundle for every recording that may stand for a run of `scenario`."""
    for version in ("v1", "v2", "v3"):
        for kind, scenarios in SCENARIOS.items():
            if scenario in scenarios and (traces / f"{version}_{kind}").is_dir():
                yield bundle(traces / f"{version}_{kind}", folder, scenario, quick)


def bundle(recording: Path, folder: Path, scenario: str, quick: bool = True) -> Path:
    """Make one bundle in `folder`; the packets stay out of it."""
    made = folder / f"{scenario}.{recording.name}"
    made.mkdir()
    for path in recording.iterdir():
        if path.name != "packets.pcap.zst":
            shutil.copyfile(path, made / path.name)
    manifest = json.loads((made / "manifest.json").read_text())
    manifest["name"] = made.name
    manifest["lab"] = _lab(manifest, scenario, quick)
    (made / "manifest.json").write_text(json.dumps(manifest))
    for number in range(1, len(manifest["lab"]["flows"]) + 1):
        _with_server(made / f"iperf{number}.json")
    return made


def _lab(manifest: dict[str, Any], scenario: str, quick: bool) -> dict[str, Any]:
    setup = manifest["setup"]
    rate = round(float(setup["rate"].removesuffix("mbit")) * 1e6)
    rtt_us = round(float(setup["delay"]) * 1000)
    buffer = int(setup["limit"]) * FRAME
    loss = float(setup.get("loss", "0%").removesuffix("%")) / 100
    began = manifest["traffic_start_uptime_s"]
    return {
        "scenario": scenario,
        "title": setup.get("description", scenario),
        "source": "Song21",
        "rep": 1,
        "seed": 1,
        "quick": quick,
        "place": "vm",
        "params": {"buffer": f"{setup['limit']}pkt", "loss": setup.get("loss", "0")},
        "duration_s": float(setup["t"]),
        "rate_bps": rate,
        "rtt_us": rtt_us,
        "bdp_bytes": rate * rtt_us // 8_000_000,
        "buffer_bytes": buffer,
        "loss": loss,
        "aqm": "fifo",
        "cpu_busy": 0.1,
        "valid": True,
        "changes": [
            {
                "at_s": change["uptime_s"] - began,
                "what": "rate",
                "value": float(change["rate"].removesuffix("mbit")) * 1e6,
            }
            for change in manifest["changes"]
        ],
        "flows": [
            {
                "flow_no": number,
                "cc": cc,
                "kind": "bulk",
                "extra_rtt_us": 0,
                "start_s": float(start),
                "size_bytes": 0,
            }
            for number, (cc, start) in enumerate(
                zip(setup["ccs"].split(), setup["starts"].split(), strict=True), 1
            )
        ],
    }


def _with_server(path: Path) -> None:
    report = json.loads(path.read_text())
    report["server_output_json"] = {
        "end": {"sum_received": report["end"]["sum_received"]},
        "intervals": report["intervals"],
    }
    path.write_text(json.dumps(report))
