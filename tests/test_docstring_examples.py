"""The examples in docstrings say what comes out."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Its examples read a store, which tests/reports/api/test_recordings.py makes.
OF_A_STORE = "reports/api/recordings.py"
WITH_EXAMPLES = sorted(
    path.relative_to(ROOT).as_posix()
    for room in ("probes", "collect", "analyze", "reports")
    for path in (ROOT / room).rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("module", [path for path in WITH_EXAMPLES if path != OF_A_STORE])
def test_the_examples_of_a_module_hold(module: str) -> None:
    name = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    result = doctest.testmod(importlib.import_module(f"bbrscope.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
