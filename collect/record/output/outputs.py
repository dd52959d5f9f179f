"""Where the parts of a recording write: files of a bundle, rings in memory, or nowhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from .stream import Compressed


class Output(Protocol):
    """Takes bytes in order; `written` counts those that it keeps, in bytes."""

    @property
    def written(self) -> int:
        """Bytes that are kept."""

    def write(self, data: bytes) -> None:
        """Take more. Raises OSError."""

    def flush(self) -> None:
        """Let everything so far be read by whoever looks now."""

    def close(self) -> None:
        """End the output. Raises OSError."""


class Outputs(Protocol):
    """Gives out the outputs of one recording, by the names of a bundle's files."""

    def open(self, name: str) -> Output:
        """An empty output; one that was there under this name is replaced."""

    def drop(self, name: str) -> None:
        """Forget an output and what is in it."""


class FilesIn:
    """Compressed files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, name: str) -> Output:
        """A compressed file."""
        return Compressed(self.folder / name)

    def drop(self, name: str) -> None:
        """Remove the file."""
        (self.folder / name).unlink(missing_ok=True)


class Discarded:
    """An output of a recording that only looks."""

    written = 0

    def write(self, data: bytes) -> None:
        """Drop it."""

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing to end."""


class FilelessOutputs:
    """Outputs that `make` makes, by name: those of a recording that leaves no files."""

    def __init__(self, make: Callable[[str], Output]) -> None:
        self.make = make
        self.outputs: dict[str, Output] = {}

    def open(self, name: str) -> Output:
        """A new output of this name."""
        self.outputs[name] = self.make(name)
        return self.outputs[name]

    def drop(self, name: str) -> None:
        """Forget it."""
        self.outputs.pop(name, None)
