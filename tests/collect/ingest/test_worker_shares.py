"""Bundles are divided among workers: each is in one share, and all workers end together."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.collect.ingest.worker_shares import MOST_TOGETHER, even_shares


@pytest.mark.parametrize(
    ("count", "workers"), [(1, 2), (3, 2), (57, 2), (58, 2), (97, 1), (200, 3)]
)
def test_even_shares_have_every_bundle_once_and_alike_much(
    tmp_path: Path, count: int, workers: int
) -> None:
    paths = [tmp_path / f"{number:03d}" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(b"x" * (1 + number))
    found = even_shares(paths, workers)
    assert sorted(path for share in found for path in share) == paths
    assert all(0 < len(share) <= MOST_TOGETHER for share in found)
    assert len(found) == count or len(found) % workers == 0
    sizes = [sum(path.stat().st_size for path in share) for share in found]
    assert max(sizes) - min(sizes) <= count  # the largest bundle


def test_nothing_has_no_share() -> None:
    assert even_shares([], 2) == []
