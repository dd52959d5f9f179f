"""The manifest of a lake: one row per run, which says what it is and which files hold its rows."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.errors import BbrscopeError, StoreError
from ..store.query import Row
from ..store.rowsets import arrow_type
from ..store.schema import Column, Table
from ..store.schema.recorded_tables import RUNS
from .lake_place import LakePlace

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "manifest"
RUN_ID = Column("run_id", "BIGINT", "", "the run: the first 52 bits of its bundle's digest")

# What the manifest has of a run besides the columns of table runs.
LAKE_RUNS = Table(
    "lake_runs",
    "One row per run of a lake: where it came from, what it was judged by, what its files hold.",
    (
        RUN_ID,
        Column("run", "VARCHAR", "", "name to use on the command line"),
        Column("bundle_digest", "VARCHAR", "sha256", "digest of the bundle's files"),
        Column("day", "VARCHAR", "UTC", "date on which it was recorded, or unknown"),
        Column("host", "VARCHAR", "", "host, as whoever added the run calls it, or unknown"),
        Column("added_ns", "BIGINT", "ns", "wall clock at which it was added"),
        Column("made_by", "VARCHAR", "", "bbrscope's version"),
        Column("schema_version", "INTEGER", "", "version of the tables in its files"),
        Column("views", "VARCHAR", "", "digest of the views that its metrics were taken from"),
        Column("compared", "BIGINT", "events", "events that the replay compared with the kernel"),
        Column("exact", "BIGINT", "events", "of these, exact in every field and output"),
        Column("diagnosed", "BIGINT", "findings", "rows in findings; NULL: it was not diagnosed"),
        Column("bytes", "BIGINT", "bytes", "size of its files; of merged ones: its part by rows"),
    ),
)
_PLACES = ("tables", "paths", "rows_in", "sizes")
# A merged file holds runs of one day and host; of two rows of a run, the one merged more often
# counts.
_MERGES = "merges"
# Names of files have up to 255 bytes nearly everywhere, and "host=" stands before this one.
_LONGEST_HOST = 240
_SAFE = re.compile(r"[A-Za-z0-9_.%@+=/-]+")


def run_id_of(digest: str) -> int:
    """Return a run's number in every lake: the first 52 bits of its digest (in hexadecimal).

    So many stay exact in JSON and JavaScript.
    """
    return int(digest[:13], 16)


def day_of(started_realtime_ns: int | None) -> str:
    """Return the date on which a run was recorded, in UTC."""
    if not started_realtime_ns:
        return "unknown"
    return datetime.fromtimestamp(started_realtime_ns / 1e9, UTC).date().isoformat()


def check_host(host: str) -> None:
    """Refuse a host that cannot name a folder.

    Raises:
        BbrscopeError: it is empty, or longer than a name may be once it is quoted.
    """
    size = len(urllib.parse.quote(host, safe="", errors="replace"))
    if not 1 <= size <= _LONGEST_HOST:
        raise BbrscopeError(
            f"a host's name must take 1 to {_LONGEST_HOST} bytes as the name of a folder, this one"
            f" takes {size:,}",
            "file the runs under a shorter name: --host NAME",
        )


def folder_of(table: str, row: Row) -> str:
    """Return the folder of a run's rows of a table."""
    parts = [
        f"{name}={urllib.parse.quote(str(row[name]), safe='')}"
        for name in ("day", "host", "run", "run_id")
    ]
    return "/".join([table, *parts])


def manifest_schema() -> pa.Schema:
    """Return the Arrow schema of a file of the manifest."""
    import pyarrow as pa

    own = {column.name: column for column in (*RUNS.columns, *LAKE_RUNS.columns)}
    return pa.schema(
        [(column.name, arrow_type(column.type)) for column in own.values()]
        + [
            ("tables", pa.list_(pa.string())),
            ("paths", pa.list_(pa.string())),
            ("rows_in", pa.list_(pa.int64())),
            ("sizes", pa.list_(pa.int64())),
            (_MERGES, pa.int64()),
        ]
    )


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows of the manifest into a local file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(list(rows), manifest_schema())
    pq.write_table(table, path, compression="zstd", write_page_checksum=True)


def read_rows(place: LakePlace) -> list[Row]:
    """Return the manifest's rows, one per run, in the order in which they were added.

    Of runs of the same name, all but the first have their host or digest added to it.

    Raises:
        StoreError: a file of the manifest is damaged, or names files outside the lake.
    """
    rows = newest_rows(read_all_rows(place))
    return _named_apart(sorted(rows, key=lambda row: (row["added_ns"], row["run_id"])))


def read_all_rows(place: LakePlace) -> list[Row]:
    """Return the rows of all files of the manifest: of a run more than one if a merge was killed.

    Raises:
        StoreError: as `read_rows`.
    """
    names = sorted(name for name in place.sizes(FOLDER) if name.endswith(".parquet"))
    with ThreadPoolExecutor(16) as pool:
        return [row for rows in pool.map(lambda name: _read(place, name), names) for row in rows]


def newest_rows(rows: Iterable[Row]) -> list[Row]:
    """Return the row of each run that counts: that of the files that were merged last."""
    newest: dict[int, Row] = {}
    for row in rows:
        old = newest.get(row["run_id"])
        if old is None or _age(row) > _age(old):
            newest[row["run_id"]] = row
    return list(newest.values())


_known: dict[tuple[str, str], list[int]] = {}


def known_runs(place: LakePlace) -> set[int]:
    """Return the numbers of a lake's runs; files that this process has read are not read again.

    Raises:
        StoreError: as `read_rows`.
    """
    names = [name for name in place.sizes(FOLDER) if name.endswith(".parquet")]
    for name in names:
        if (place.shown, name) not in _known:
            _known[place.shown, name] = [row["run_id"] for row in _read(place, name)]
    return {run_id for name in names for run_id in _known[place.shown, name]}


def _age(row: Row) -> tuple[int, str]:
    return row[_MERGES], row["manifest_file"]


def _read(place: LakePlace, name: str) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(
            place.full(name),
            filesystem=place.files,
            partitioning=None,
            page_checksum_verification=True,
        )
        fitting = table.select(manifest_schema().names).cast(manifest_schema())
        rows: list[Row] = fitting.to_pylist()
    except FileNotFoundError:
        return []  # removed, or merged into another, since it was listed
    except (OSError, pa.ArrowException, KeyError) as error:
        raise StoreError(
            f"{place.shown}/{name} is damaged: {' '.join(str(error).split()):.200}",
            "see what else is: bbrscope lake check DIR",
        ) from error
    for row in rows:
        _check(place, name, row)
        row["manifest_file"] = name
    return rows


def _check(place: LakePlace, name: str, row: Row) -> None:
    """Refuse a row that misses what is needed, or whose paths lead out of the lake."""
    lists = [row[key] for key in _PLACES]
    bad = any(row[key] is None for key in ("run_id", "run", "added_ns", "bundle_digest"))
    bad = bad or any(part is None or len(part) != len(lists[0]) for part in lists)
    for path in row["paths"] or ():
        parts = str(path).split("/")
        bad = bad or not _SAFE.fullmatch(str(path)) or len(parts) < 3 or "" in parts
        bad = bad or not parts[-1].endswith(".parquet") or bool({".", ".."} & set(parts))
    if bad:
        raise StoreError(
            f"{place.shown}/{name} is not as bbrscope writes it",
            "do not use this lake: add the bundles to a new one",
        )


def _named_apart(rows: Iterable[Row]) -> list[Row]:
    taken: set[str] = set()
    result = []
    for row in rows:
        digest = row["bundle_digest"][:8]
        choices = (row["run"], f"{row['run']}@{row['host']}", f"{row['run']}@{digest}")
        name = next((choice for choice in choices if choice not in taken), str(row["run_id"]))
        taken.add(name)
        result.append({**row, "run": name})
    return result


def lake_columns(table: Table) -> tuple[Column, ...]:
    """Return a table's columns as a lake has them: Parquet has no ENUM, and run_id is longer."""
    return tuple(
        RUN_ID
        if column.name == "run_id"
        else replace(column, type="VARCHAR")
        if column.type.startswith("ENUM")
        else column
        for column in table.columns
    )
