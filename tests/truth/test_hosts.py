"""Numbers of findings about a host's settings, worked out anew where a trouble was put into rows.

Rows and manifest of a bundle are changed, so that both the store and the readers read them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from bbrscope import fixtures

from tests.packed_rows import unpacked
from tests.truth import raw, readers_hosts
from tests.truth.facts import Recording
from tests.truth.recomputed import Recomputed
from tests.truth.simulated import diagnosed

HEALTHY = "v2_single_1bdp"
Row = dict[str, str]


@dataclass(frozen=True)
class Put:
    """What is changed: values of each event row by their names, those of each sample of the queue,
    and entries of the manifest."""

    event: Callable[[Row], Row] = dict
    sample: Callable[[Row], Row] = dict
    manifest: dict[str, Any] = field(default_factory=dict)


def put(into: str, what: Put, folder: Path, name: str = "") -> Path:
    """Copy a shipped recording with the change, and another name; return the bundle."""
    bundle = folder / (name or into)
    shutil.copytree(fixtures.path(into), bundle)
    told = raw.manifest(bundle) | what.manifest | ({"name": name} if name else {})
    (bundle / "manifest.json").write_text(json.dumps(told))
    heads: dict[str, list[str]] = {}
    lines = []
    for line in unpacked(raw._text(bundle / "events.csv.zst").splitlines()):
        tag, _, rest = line.partition(",")
        if tag.startswith("#"):
            heads[tag[1:]] = rest.split(",")
        elif tag in heads:
            row = dict(zip(heads[tag], rest.split(","), strict=False))
            line = ",".join([tag, *(row | what.event(row)).values()])
        lines.append(line)
    _write(bundle / "events.csv.zst", lines)
    head, *samples = raw._text(bundle / "queue.csv.zst").splitlines()
    names = head.split(",")
    rows = (dict(zip(names, sample.split(","), strict=True)) for sample in samples)
    changed = [",".join((row | what.sample(row)).values()) for row in rows]
    _write(bundle / "queue.csv.zst", [head, *changed])
    return bundle


def _write(path: Path, lines: list[str]) -> None:
    path.write_bytes(zstandard.ZstdCompressor().compress(("\n".join(lines) + "\n").encode()))


def capped(row: Row) -> Row:
    """SO_MAX_PACING_RATE of 4.8 Mbit/s in the first ten seconds, then of half of it."""
    cap = 600_000 if int(row["ns"]) < 50_000_000_000 else 300_000
    changed = {"sk.sk_max_pacing_rate": str(cap)}
    pacing = {"sk.sk_pacing_rate": str(min(cap, int(row.get("sk.sk_pacing_rate", 0))))}
    return {name: to for name, to in (changed | pacing).items() if name in row}


def emptied(row: Row) -> Row:
    """All that the application had written was sent."""
    if "tp.delivered" not in row:
        return {}
    signs = {"packets_out": 1, "retrans_out": 1, "sacked_out": -1, "lost_out": -1}
    flight = sum(sign * int(row[f"tp.{name}"]) for name, sign in signs.items())
    return {"tp.app_limited": str(int(row["tp.delivered"]) + flight)}


def unsplit(row: Row) -> Row:
    return {"backlog_bytes": str(8 * int(row["backlog_bytes"]))}


WMEM = {"sysctls": {"net.ipv4.tcp_wmem": "4096 16384 131072"}}
PUT = {
    "netem_on_sender": Put(manifest={"host": {"qdiscs": ["eth0 fq 8001:", "eth1 netem 8002:"]}}),
    "missing_fq": Put(manifest={"kernel": "4.9.0", "host": {"qdiscs": ["eth0 fq_codel 0:"]}}),
    "tiny_tcp_wmem": Put(manifest=WMEM),
    "send_buffer_limited": Put(event=emptied, manifest=WMEM),
    "pacing_capped": Put(event=capped),
    "gso_through_bottleneck": Put(sample=unsplit),
}


def test_every_reader_is_asked() -> None:
    assert set(PUT) == set(readers_hosts.READERS)


@pytest.mark.parametrize("name", PUT)
def test_numbers_about_a_host_are_those_of_its_rows(name: str, tmp_path: Path) -> None:
    bundle = put(HEALTHY, PUT[name], tmp_path)
    ((_, made),) = diagnosed([bundle], tmp_path)
    numbers = Recomputed(readers_hosts.READERS, {})
    findings = [each for each in made.findings if each.rule.name == name]
    numbers.check(replace(made, findings=findings), Recording(bundle))
    assert numbers.missing == set()
    assert numbers.compared[name] > 3
