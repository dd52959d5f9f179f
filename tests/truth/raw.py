"""Recordings as plain polars frames: nothing here imports what it is to check.

`events` reads a bundle's event rows, `queue` its samples of the bottleneck.
A frame of events has a row per event of a flow: columns as the rows name them (`tp.lost`), `ns`,
and `kind` (the tag without its number); of main's calls also `out.*`, what its exit said.
"""

from __future__ import annotations

import io
import json
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import zstandard

from tests.packed_rows import unpacked

WRAP = 1 << 32
# The only columns that do not fit 63 bits: addresses, and rates of which the unset one is ~0UL.
_TYPES = dict.fromkeys(("sk", "saddr", "daddr", "saddr6", "daddr6"), pl.String) | dict.fromkeys(
    ("sk.sk_pacing_rate", "sk.sk_max_pacing_rate"), pl.UInt64
)

# Bytes between two events on the way to an init; another connection begins anywhere else.
_HANDSHAKE = 1

# Where rows were lost, those of one event are no further apart: they are printed one after the
# other, within 60 us in all recordings that lack none.
_SPAN_NS = 100_000

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
    for line in unpacked(_text(bundle / "events.csv.zst").splitlines()):
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


def _order(tables: dict[str, pl.DataFrame], lacks: bool) -> pl.DataFrame:
    """All rows as they came: socket, `ns`, tag, and those of the socket's row before.

    `lacks`: rows were lost; what came long before is then none of the same event.
    """
    every = pl.concat(
        table.select("sk", "ns", tag=pl.lit(tag)) for tag, table in tables.items()
    ).sort("sk", "ns", "tag")
    order = every.with_columns(
        since=pl.col("ns").shift(1).over("sk"), behind=pl.col("tag").shift(1).over("sk")
    )
    return order.filter(pl.col("ns") - pl.col("since") <= _SPAN_NS) if lacks else order


def _whole(tables: dict[str, pl.DataFrame], order: pl.DataFrame, kind: str) -> pl.DataFrame | None:
    """Put the rows of each event together, one or more, which follow each other on a socket.

    `last_ns` is when the last of them came; an event of which one is missing falls out.
    """
    parts = [name for name in sorted(tables) if re.fullmatch(kind + "[0-9]*", name)]
    if not parts:
        return None
    rows = tables[parts[0]].with_columns(last_ns="ns")
    for before, name in pairwise(parts):
        places = order.filter(tag=name, behind=before).select("sk", "ns", "since")
        part = tables[name].join(places, on=["sk", "ns"]).rename({"ns": "came_ns"})
        rows = rows.join(part, left_on=["sk", "last_ns"], right_on=["sk", "since"])
        rows = rows.with_columns(last_ns="came_ns").drop("came_ns")
    return rows


def _exits(calls: pl.DataFrame, tables: dict[str, pl.DataFrame], lacks: bool) -> pl.DataFrame:
    """Add to each call of main what its exit said, `out.*`: the first one before another call."""
    begun = pl.concat(
        table.select("sk", since="ns") for tag, table in tables.items() if re.match("M[0-9]*$", tag)
    )
    exits = tables["X"].rename(
        {n: f"out.{n}" for n in tables["X"].columns if n not in ("sk", "ns")}
    )
    exits = (
        exits.sort("ns")
        .join_asof(
            begun.sort("since"), left_on="ns", right_on="since", by="sk", check_sortedness=False
        )
        .unique(["sk", "since"], keep="first", maintain_order=True)
        .filter(not lacks or (pl.col("ns") - pl.col("since") <= _SPAN_NS))
        .drop("ns")
    )
    return calls.join(exits, left_on=["sk", "last_ns"], right_on=["sk", "since"], how="left")


def _lives(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Cut a socket's rows into flows: the kernel uses addresses again, and each flow has an init.

    What ran on the way to an init, on a zeroed state, is that flow's: the SYN-ACK's call of main.
    """
    kinds = rows["kind"].to_list()
    sequence = rows["tp.snd_nxt"].to_list()
    starts = []
    for place in (at for at, kind in enumerate(kinds) if kind == "I"):
        least = starts[-1] + 1 if starts else 0
        while place > least and (sequence[place] - sequence[place - 1]) % WRAP <= _HANDSHAKE:
            place -= 1
        starts.append(place)
    starts = [0, *starts[1:]]
    return [rows[a:b] for a, b in pairwise([*starts, rows.height])]


def events(bundle: Path) -> dict[str, pl.DataFrame]:
    """Return the events of each flow that carried more than a control connection, as they began.

    Of a recording that lacks rows, events of which a row is missing are left out.
    """
    tables = _tables(bundle)
    lacks = manifest(bundle).get("events_lost", 0) > 0
    order = _order(tables, lacks)
    parts = []
    for kind in ("I", "IX", "M", "S", "E", "H", "U", "L"):
        rows = _whole(tables, order, kind)
        if rows is None:
            continue
        if kind == "M" and "X" in tables:
            rows = _exits(rows, tables, lacks)
        parts.append(rows.with_columns(kind=pl.lit(kind)))
    every = pl.concat([*parts, _RARE], how="diagonal").sort("sk", "ns", maintain_order=True)
    every = every.filter(pl.col("tp.delivered").is_not_null())
    found = {
        f"{sk}/{number}": rows
        for (sk,), of_socket in every.group_by("sk", maintain_order=True)
        for number, rows in enumerate(_lives(of_socket))
    }
    carried = {name: _carried(rows) for name, rows in found.items()}
    most = max(carried.values())
    chosen = [
        name
        for name, rows in found.items()
        if carried[name] >= most / 100 and rows.filter(kind="M").height >= 50
    ]
    return {
        name: found[name] for name in sorted(chosen, key=lambda name: int(found[name]["ns"][0]))
    }


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
