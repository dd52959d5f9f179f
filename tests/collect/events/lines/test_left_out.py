"""Columns that were not recorded are told, with what is not known without them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import zstandard
from bbrscope import fixtures, probes
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.events.lines import header
from bbrscope.collect.events.lines.left_out import columns_left_out
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.reports.commands.ingest import describe

from tests.fuzz.inputs import bundle_of


def told(lines: list[str], version: str) -> list[str]:
    found = header.parse(list(enumerate(lines, 1)), "events.csv")
    return [note.detail for note in columns_left_out(found, version)]


def header_of(recording: str) -> list[str]:
    packed = (fixtures.path(recording) / "events.csv.zst").read_bytes()
    text = zstandard.ZstdDecompressor().stream_reader(packed).read(100_000).decode()
    return [line[1:] for line in text.splitlines() if line.startswith("#")]


def without(lines: list[str], *prefixes: str) -> list[str]:
    return [
        ",".join(name for name in line.split(",") if not name.startswith(prefixes))
        for line in lines
    ]


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_our_own_probes_leave_nothing_out(version: str) -> None:
    program = Path(probes.__path__[0], f"bbr{version[1]}.bt").read_text()
    lines = re.findall(r'printf\("#([A-Z]+[0-9]*,ns,sk[^"\\]*)', program)
    assert len(lines) > 8
    assert told(lines, version) == []


def test_whole_groups_of_columns_are_told_with_what_they_would_say() -> None:
    lines = header_of("v2_x_spur")
    assert told(lines, "v2") == []
    (lost,) = told(without(lines, "skb."), "v2")
    assert "rows L have no column skb.in_flight, skb.lost," in lost
    assert "and 1 more. It cannot be told: which packets were lost or sent again" in lost
    (state,) = told(without(lines, "icsk_ca_state"), "v2")
    assert "when TCP was in recovery" in state
    (ends,) = told(without(lines, "sport", "daddr"), "v2")
    assert "rows I have no column sport, daddr." in ends
    # Another row of the socket may have them.
    assert told([*without(lines, "sport", "daddr"), "N,ns,sk,sport,daddr"], "v2") == []
    # Of no BBR that is known, nothing is expected.
    assert not list(columns_left_out(header.parse([(1, "M,ns,sk")], "events.csv"), None))


def test_ingest_says_what_was_left_out(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path / "short", "v2_x_spur", 160)
    lines = header_of("v2_x_spur")
    packed = (bundle / "events.csv.zst").read_bytes()
    rows = zstandard.ZstdDecompressor().stream_reader(packed).read(1 << 24).decode().splitlines()
    rows = [row for row in rows if not row.startswith(("#", "L"))]
    text = [*(f"#{line}" for line in without(lines, "skb.")), *rows, ""]
    (bundle / "events.csv.zst").write_bytes(zstandard.compress("\n".join(text).encode()))
    with open_store(tmp_path / "s.duckdb") as store:
        said = describe(ingest(store, bundle, salvage=True), store.path)
    assert "nothing missing" not in said
    assert "\n  rows L have no column skb.in_flight" in said
    assert "columns_left_out" in said
