"""Recordings as plain polars frames: nothing here imports what it is to check.

`events` reads a bundle's event rows, `queue` its samples of the bottleneck.
A frame of events has a row per event of a flow: columns as the rows name them (`tp.lost`), `ns`,
and `kind` (the tag without its number); of main's calls also `out.*`, what its exit said.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import zstandard

WRAP = 1 << 32
# The only columns that do not fit 63 bits: addresses, and rates of which the unset one is ~0UL.
_TYPES = {"sk": pl.String, "daddr": pl.String} | dict.fromkeys(
    ("sk.sk_pacing_rate", "sk.sk_max_pacing_rate"), pl.UInt64
)

# Columns that not every recording has rows of.
_RARE = pl.DataFrame(schema={"new_state": pl.Int64, "event": pl.Int64, "skb.seq": pl.Int64})


def manifest(bundle: Path) -> dict[str, Any]:
    """Return the recording's set-up."""
    loaded: dict[str, Any] = json.loads((bundle / "manifest.json").read_text())
    return loaded


def _text(path: Path) -> str:
    with path.open("rb") as raw:
        reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        return reader.read().decode()


def _tables(bundle: Path) -> dict[str, pl.DataFrame]:
    """Return the rows of each tag, all columns as integers but the socket's address."""
    heads: dict[str, list[str]] = {}
    lines: dict[str, list[str]] = defaultdict(list)
    for line in _text(bundle / "events.csv.zst").splitlines():
        tag, _, rest = line.partition(",")
        if tag.startswith("#"):
            heads[tag[1:]] = rest.split(",")
        elif tag in heads:
            lines[tag].append(rest)
    return {
        tag: pl.read_csv(
            io.StringIO("\n".join(rows)),
            has_header=False,
            new_columns=heads[tag],
            schema_overrides=[_TYPES.get(name, pl.Int64) for name in heads[tag]],
            truncate_ragged_lines=True,
        )
        for tag, rows in lines.items()
    }


def _halves(tables: dict[str, pl.DataFrame], kind: str) -> pl.DataFrame | None:
    """Put the two rows of each event together: the n-th of a socket with its n-th."""
    if kind in tables:
        return tables[kind]
    if f"{kind}0" not in tables or f"{kind}1" not in tables:
        return None
    first, second = (
        tables[f"{kind}{half}"].with_columns(place=pl.int_range(pl.len()).over("sk"))
        for half in (0, 1)
    )
    return first.join(second.drop("ns"), on=["sk", "place"], how="inner").drop("place")


def events(bundle: Path) -> dict[str, pl.DataFrame]:
    """Return the events of each socket that carried more than a control connection.

    Of a recording that lacks rows, the halves and exits of an event may be another's: ask such a
    one for what stands in first halves alone.
    """
    tables = _tables(bundle)
    parts = []
    for kind in ("I", "IX", "M", "S", "E", "H", "U", "L"):
        rows = _halves(tables, kind)
        if rows is None:
            continue
        if kind == "M" and "X" in tables:
            exits = tables["X"].rename({n: f"out.{n}" for n in tables["X"].columns if n != "sk"})
            rows = rows.sort("ns").join_asof(
                exits.sort("out.ns"),
                left_on="ns",
                right_on="out.ns",
                by="sk",
                strategy="forward",
                check_sortedness=False,
            )
        parts.append(rows.with_columns(kind=pl.lit(kind)))
    every = pl.concat([*parts, _RARE], how="diagonal").sort("sk", "ns", maintain_order=True)
    found = {}
    for (sk,), rows in every.group_by("sk", maintain_order=True):
        found[str(sk)] = rows.filter(pl.col("tp.delivered").is_not_null())
    carried = {sk: _carried(rows) for sk, rows in found.items()}
    most = max(carried.values())
    chosen = [sk for sk in found if carried[sk] >= most / 100 and found[sk].height >= 50]
    return {sk: found[sk] for sk in sorted(chosen, key=lambda sk: int(found[sk]["ns"][0]))}


def _carried(rows: pl.DataFrame) -> int:
    return int((rows["tp.delivered"][-1] - rows["tp.delivered"][0]) % WRAP)


def grown(rows: pl.DataFrame, name: str) -> pl.Series:
    """Return by how much a 32-bit counter grew since the row before; 0 where it fell back."""
    steps = rows[name].diff().fill_null(0) % WRAP
    return steps.zip_with(steps < WRAP // 2, steps * 0)


def queue(bundle: Path) -> list[tuple[float, dict[str, Any]]]:
    """Return samples of the queue: uptime [s] and what tc printed, as it printed it."""
    path = bundle / "queue.csv.zst"
    if not path.is_file():
        return []
    rows = [line.split(",") for line in _text(path).splitlines() if line]
    head, *body = rows
    return [(float(row[0]), dict(zip(head, row, strict=False))) for row in body]
