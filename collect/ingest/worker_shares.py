"""Divide bundles into what one worker takes at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

# What is the same for all bundles of a share (planning queries, a store of its own, a commit) is
# paid once. Few enough that little is done again when a worker dies.
MOST_TOGETHER = 28
# Smaller shares, so that all workers end at about the same time, cost more than that saves.
FEWEST_TOGETHER = 8
BYTES_TOGETHER = 64 << 20


def shares(paths: Sequence[Path], workers: int) -> list[tuple[Path, ...]]:
    """Divide bundles among workers: for several, two shares or more for each if these are large.

    None has more than MOST_TOGETHER bundles, or BYTES_TOGETHER bytes unless it is one bundle.
    """
    wanted = len(paths) if workers == 1 else len(paths) // (2 * workers)
    wanted = max(wanted, min(FEWEST_TOGETHER, -(-len(paths) // workers)))
    most = max(1, min(MOST_TOGETHER, wanted))
    result: list[tuple[Path, ...]] = []
    current: list[Path] = []
    held = 0
    for path in paths:
        size = size_of(path)
        if current and (len(current) == most or held + size > BYTES_TOGETHER):
            result.append(tuple(current))
            current, held = [], 0
        current.append(path)
        held += size
    return [*result, tuple(current)] if current else result


def even_shares(paths: Sequence[Path], workers: int) -> list[tuple[Path, ...]]:
    """Divide bundles among workers, in any order: as few shares as can be, as many for each worker.

    All take about as long, for large and small ones are dealt out in turn.
    """
    sizes = {path: size_of(path) for path in paths}
    least = max(-(-len(paths) // MOST_TOGETHER), -(-sum(sizes.values()) // BYTES_TOGETHER))
    count = min(len(paths), -(-least // workers) * workers)
    dealt = sorted(paths, key=lambda path: -sizes[path])
    return [tuple(dealt[number::count]) for number in range(count)]


def size_of(path: Path) -> int:
    """Return the bytes of a bundle, a file or a folder; 0 if it cannot be read."""
    try:
        files = path.rglob("*") if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files if file.is_file())
    except OSError:
        return 0
