"""Keep a lake in order: check it, remove runs, and merge the files of many runs into few.

Runs are added meanwhile without harm. Of these jobs themselves only one may be at work.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.errors import StoreError
from ...probes.base.plurals import plural
from ..store.query import Row
from ..store.schema import SCHEMA_VERSION
from .lake_manifest import FOLDER, folder_of, newest_rows, read_all_rows, read_rows, write_rows
from .lake_place import MARK, LakePlace, token

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

LOCK = "upkeep.lock"
# A reader that began before a merge may still be at its old files, an adding process before its
# manifest row: nothing younger is taken for left over.
LEFT_OVER_S = 3600
ROW_GROUP = 50_000


@dataclass(frozen=True)
class Fault:
    """Something wrong in a lake, and what to do about it."""

    what: str
    way_out: str


def check(place: LakePlace, read: bool = False) -> Iterator[Fault]:
    """Yield what is wrong: files missing, of another size, damaged or of no run; runs not readable.

    Args:
        place: the lake.
        read: read every file, too, and compare its pages with their checksums.
    """
    rows = read_rows(place)
    sizes = place.sizes()
    named: set[str] = {MARK, LOCK, *(row["manifest_file"] for row in rows)}
    for row in rows:
        if row["schema_version"] != SCHEMA_VERSION:
            yield Fault(
                f"run {row['run']} has schema version {row['schema_version']}, by"
                f" {row['made_by']}; this bbrscope reads {SCHEMA_VERSION}",
                _way_out(row),
            )
        for path, size in zip(row["paths"], row["sizes"], strict=True):
            if path in named:
                continue  # a merged file, which other runs' rows have named
            named.add(path)
            if path not in sizes:
                yield Fault(f"{path} of run {row['run']} is missing", _way_out(row))
            elif sizes[path] != size:
                yield Fault(
                    f"{path} has {plural(sizes[path], 'byte')}, not the {size:,} written",
                    _way_out(row),
                )
            elif read and (why := _unreadable(place, path)):
                yield Fault(f"{path} is damaged: {why}", _way_out(row))
    for path in sorted(sizes.keys() - named):
        if not path.startswith(".") and "/." not in path:
            yield Fault(
                f"{path} belongs to no run: a process that added it was killed, or is at work",
                "bbrscope lake compact DIR deletes such files an hour later",
            )


def _way_out(row: Row) -> str:
    if _is_merged(row):
        return (
            f"it has rows of all runs of {row['day']} from {row['host']} that were compacted:"
            " remove them together, and add their bundles again"
        )
    return f"remove the run and add its bundle again: bbrscope lake remove DIR {row['run']}"


def _opened(place: LakePlace, path: str) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    return pq.ParquetFile(place.full(path), filesystem=place.files, page_checksum_verification=True)


def _unreadable(place: LakePlace, path: str) -> str:
    import pyarrow as pa

    try:
        with _opened(place, path) as file:
            for batch in file.iter_batches(ROW_GROUP):
                batch.validate()
    except (OSError, ValueError, pa.ArrowException) as error:
        return " ".join(str(error).split())[:200]
    return ""


def remove(place: LakePlace, runs: Sequence[str]) -> None:
    """Remove runs: their manifest rows first, so that no reader finds half of one.

    Raises:
        StoreError: one is not there, and none is removed; or another process is removing or
            merging.
    """
    with _locked(place):
        rows = read_rows(place)
        missing = set(runs) - {row["run"] for row in rows}
        if missing:
            raise StoreError(
                f"the lake {place.shown} has no run {', '.join(sorted(missing))}",
                f"it has: bbrscope runs --store {place.shown}",
            )
        gone = [row for row in rows if row["run"] in runs]
        merged = {row["manifest_file"] for row in gone if _is_merged(row)}
        for manifest_file in sorted(merged):
            group = [row for row in rows if row["manifest_file"] == manifest_file]
            _merge(place, [row for row in group if row["run"] not in runs], group)
        single = [row for row in gone if not _is_merged(row)]
        place.delete([row["manifest_file"] for row in single])
        place.delete([path for row in single for path in row["paths"]])


def compact(place: LakePlace, at_least: int = 2) -> Iterator[tuple[str, int]]:
    """Merge the files of runs of one day and host; yield each such group and how many runs it has.

    Iterate to the end: the work is done meanwhile.

    Args:
        place: the lake.
        at_least: leave groups with fewer runs, or fewer new ones since the last time, as they are.

    Raises:
        StoreError: another process is removing or merging.
    """
    with _locked(place):
        # Tables of another bbrscope's version have other columns.
        groups: dict[tuple[str, str, int], list[Row]] = {}
        for row in read_rows(place):
            key = row["day"], row["host"], row["schema_version"]
            groups.setdefault(key, []).append(row)
        for (day, host, _), rows in groups.items():
            new = [row for row in rows if not _is_merged(row)]
            if len(rows) >= at_least and len(new) >= min(at_least, len(rows)):
                _merge(place, rows, rows)
                yield f"{day} {host}", len(rows)
        _delete_left_over(place)


def _is_merged(row: Row) -> bool:
    return "/run_id=" not in (row["paths"] or ["/run_id="])[0]


def _merge(place: LakePlace, rows: Sequence[Row], old: Sequence[Row]) -> None:
    """Write `rows` as one group, and delete the files of `old`."""
    if rows:
        with place.scratch() as folder, place.published() as names:
            merged = _write_tables(place, rows, folder, names)
            written = folder / "manifest.parquet"
            write_rows(merged, written)
            place.publish(written, f"{FOLDER}/merged-{token()}.parquet")
    place.delete(sorted({row["manifest_file"] for row in old}))
    place.delete(sorted({path for row in old for path in row["paths"]}))


def _write_tables(
    place: LakePlace, rows: Sequence[Row], folder: Path, names: list[str]
) -> list[Row]:
    """Write one file per table with the rows of all runs; return the runs' manifest rows.

    The files' names are added to `names`.
    """
    first = min(rows, key=lambda row: row["run_id"])
    ids = [row["run_id"] for row in rows]
    files: dict[str, tuple[str, int, int]] = {}
    for table in sorted({table for row in rows for table in row["tables"]}):
        paths = {
            p
            for row in rows
            for t, p in zip(row["tables"], row["paths"], strict=True)
            if t == table
        }
        written = folder / f"{table}.parquet"
        count = _concatenate(place, sorted(paths), ids, written)
        name = (
            folder_of(table, {**first, "run": "merged"}).rsplit("/", 1)[0] + f"/{token()}.parquet"
        )
        files[table] = (name, written.stat().st_size, count)
        names.append(name)
        place.publish(written, name)
    result = []
    for row in rows:
        shares = [
            files[table][1] * rows_in // max(1, files[table][2])
            for table, rows_in in zip(row["tables"], row["rows_in"], strict=True)
        ]
        result.append(
            {
                **{key: value for key, value in row.items() if key != "manifest_file"},
                "paths": [files[table][0] for table in row["tables"]],
                "sizes": [files[table][1] for table in row["tables"]],
                "bytes": sum(shares),
                "merges": max(each["merges"] for each in rows) + 1,
            }
        )
    return result


def _concatenate(place: LakePlace, paths: Sequence[str], ids: Sequence[int], written: Path) -> int:
    """Write the rows that several files have of some runs into one; return how many.

    Raises:
        StoreError: a file is missing or damaged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    wanted = pa.array(ids, pa.int64())
    count, writer = 0, None
    try:
        for path in paths:
            with _opened(place, path) as file:
                if writer is None:
                    # DuckDB says of a column without NULL that it cannot have one; the next may.
                    nullable = pa.schema([field.with_nullable(True) for field in file.schema_arrow])
                    writer = pq.ParquetWriter(
                        written, nullable, compression="zstd", write_page_checksum=True
                    )
                for batch in file.iter_batches(ROW_GROUP):
                    table = pa.Table.from_batches([batch])
                    table = table.filter(pc.is_in(table["run_id"], wanted))
                    count += table.num_rows
                    writer.write_table(_as(table, writer.schema))
    except (OSError, ValueError, pa.ArrowException) as error:
        if why := _unreadable(place, path):
            raise StoreError(
                f"{place.shown}/{path} cannot be read: {why}",
                f"bbrscope lake check {place.shown} --read names all such files, and what to do",
            ) from error
        raise
    finally:
        if writer is not None:
            writer.close()
    return count


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table.select(schema.names).cast(schema)


def _delete_left_over(place: LakePlace) -> None:
    """Delete files that belong to no run and are not new: their process was killed."""
    from pyarrow.fs import FileSelector, FileType

    named = {MARK, LOCK}
    for row in read_rows(place):
        named |= {row["manifest_file"], *row["paths"]}
    limit = time.time() - LEFT_OVER_S
    files = place.files.get_file_info(FileSelector(place.root, recursive=True))
    for info in files:
        name = info.path[len(place.root) + 1 :]
        hidden = name.startswith(".") or "/." in name
        old = info.mtime is not None and info.mtime.timestamp() < limit
        if info.type == FileType.File and name not in named and old and not hidden:
            place.delete([name])


def _finish_killed(place: LakePlace) -> None:
    """Finish what a merge that was killed had begun, once its lock is held.

    A file of the manifest whose runs are all in files merged later counts no more, nor do the
    files that only it names. Merged files that no manifest names were never part of the lake; in
    a bucket, where a lock may be broken, they are left to `_delete_left_over`.
    """
    every = read_all_rows(place)
    counting = {row["manifest_file"] for row in newest_rows(every)}
    passed = {row["manifest_file"] for row in every} - counting
    place.delete(sorted(passed))
    kept = {path for row in every if row["manifest_file"] in counting for path in row["paths"]}
    old = {path for row in every if row["manifest_file"] in passed for path in row["paths"]}
    if place.local:
        old |= {path for path in place.sizes() if _is_data(path) and "/run_id=" not in path}
    place.delete(sorted(old - kept))


def _is_data(path: str) -> bool:
    """Tell whether this is where a lake has rows of a table: TABLE/day=DAY/..."""
    return "/day=" in path and "/." not in path and not path.startswith(".")


@contextmanager
def _locked(place: LakePlace) -> Iterator[None]:
    """Keep other processes from removing and merging meanwhile.

    In a folder the kernel takes the lock back from a process that was killed.

    Raises:
        StoreError: one is at it, or was killed at it in a bucket.
    """
    holder = f"{socket.gethostname()}, process {os.getpid()}"
    with place.writing(), (_held_file if place.local else _held_object)(place, holder):
        place.remove_abandoned()
        _finish_killed(place)
        yield


@contextmanager
def _held_file(place: LakePlace, holder: str) -> Iterator[None]:
    path = Path(place.full(LOCK))
    try:
        held = _lock(path)
    except BlockingIOError:
        raise _busy(place, path.read_bytes()[:200], "wait until it has ended") from None
    except OSError as error:
        raise StoreError(
            f"{place.shown}/{LOCK} cannot be locked: {error.strerror}",
            "compact and remove need to write there, on a file system that has locks",
        ) from error
    try:
        with suppress(OSError):  # on a full disk, of which runs are to be removed
            os.ftruncate(held, 0)
            os.write(held, holder.encode())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(held)


def _lock(path: Path) -> int:
    """Make and lock a file; another process may remove it before it is locked."""
    while True:
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(held), path.stat(follow_symlinks=False)):
                    return held
        except BaseException:
            os.close(held)
            raise
        os.close(held)


@contextmanager
def _held_object(place: LakePlace, holder: str) -> Iterator[None]:
    with place.scratch() as folder:
        written = folder / "lock"
        written.write_text(holder)
        if not place.publish_new(written, LOCK):
            with place.files.open_input_stream(place.full(LOCK)) as stream:
                found = stream.read(200)
            way_out = f"wait until it has ended; if it was killed, delete {place.shown}/{LOCK}"
            raise _busy(place, found, way_out)
    try:
        yield
    finally:
        place.delete([LOCK])


def _busy(place: LakePlace, holder: bytes, way_out: str) -> StoreError:
    name = holder.decode(errors="replace")
    return StoreError(
        f"the lake {place.shown} is being compacted, or runs removed, by {name!r}", way_out
    )
