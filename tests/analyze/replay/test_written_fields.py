"""The estimator's source is read once, whichever thread asks first."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, get_ident

import pytest
from bbrscope.analyze.replay import written_fields


def test_threads_that_ask_at_once_do_not_build_trees_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written_fields._functions_read.cache_clear()
    real, building, together = ast.parse, set[int](), []

    def parse(source: str) -> ast.Module:
        building.add(get_ident())
        together.append(len(building))
        tree = real(source)
        building.discard(get_ident())
        return tree

    monkeypatch.setattr(ast, "parse", parse)
    start = Barrier(4)

    def ask(version: str) -> int:
        start.wait()
        return len(written_fields._functions(version))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, ["v1", "v2", "v3", "v3"]))
    assert found[2] == found[3] > 50
    assert set(together) == {1}
