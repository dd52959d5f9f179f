"""Write a file so that it is there as a whole or not at all, and never over another unasked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ....collect.bundle.bundle import MANIFEST, wanted
from ....collect.lake.lake_place import MARK
from ....collect.store.connect import is_database
from ....probes.base.errors import BbrscopeError
from ....probes.base.scratch import ScratchFolder


def check_free(path: Path, force: bool, *inputs: Path) -> None:
    """See, before the work is done, that `path` may be written.

    Raises:
        BbrscopeError: it exists and `force` is not given, is no file, has no folder to lie in, or
            is one of `inputs`, a database, its log, or a file of a recording or a lake, whatever it
            is called.
    """
    if path.is_dir():
        raise BbrscopeError(f"{path} is a folder", f"name a file in it: -o {path / 'NAME'}")
    if path.exists() and not path.is_file():
        fact = f"{path} is a device or a pipe, and the file would take its place"
        raise BbrscopeError(fact, "name a file, and copy it from there")
    if kept := _kept(path, inputs):
        raise BbrscopeError(f"{path} is {kept}, and is not overwritten", "name another: -o")
    if path.exists() and not force:
        raise BbrscopeError(f"{path} exists", "add --force to overwrite it, or name another: -o")
    if not path.parent.is_dir():
        raise BbrscopeError(f"there is no folder {path.parent}", f"mkdir -p {path.parent}")


def _kept(path: Path, inputs: tuple[Path, ...]) -> str:
    """Say what a file is that no output may take the place of; empty: it is none."""
    # The file behind a link would be lost to whoever uses the link.
    true = Path(os.path.realpath(path))  # of links in a circle, too
    for place in (path, true):
        # DuckDB reads the log of a database when it opens it, whoever wrote the log.
        if place.suffix == ".wal" and is_database(place.with_suffix("")):
            return f"the log of the database {place.with_suffix('')}"
    if not path.exists():
        return ""
    if any(one.exists() and one.samefile(path) for one in inputs):
        return "what this command reads"
    if is_database(path):
        return "a database"
    if wanted(true.name) and (true.parent / MANIFEST).is_file():
        return f"a file of the recording {true.parent}"
    if true.suffix in (".parquet", ".json"):  # a page may well lie in a lake's folder
        lakes = (folder for folder in true.parents if (folder / MARK).is_file())
        return next((f"a file of the lake {lake}" for lake in lakes), "")
    return ""


def write(path: Path, text: str) -> None:
    """Write `text` as UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` aside, then put it in place.

    Raises:
        BbrscopeError: it cannot be written; what lay at `path` is untouched.
    """
    with written_aside(path) as file:
        file.write(content)


@contextmanager
def written_aside(path: Path) -> Iterator[IO[bytes]]:
    """Give a file that takes the place of `path` at the end; after an error it is removed.

    What a killed process left is removed by the next one that writes into the folder.

    Raises:
        BbrscopeError: it cannot be written; what lay at `path` is untouched.
    """
    try:
        with ScratchFolder(path.parent) as scratch:
            aside = scratch.path / "whole"
            with aside.open("wb") as file:
                yield file
            aside.replace(path)
    except OSError as error:
        way = "write elsewhere with -o, or make room"
        raise BbrscopeError(f"cannot write {path}: {error.strerror}", way) from error
