"""The cache of compiled code is named after everything that can end up in it."""

from __future__ import annotations

import ast
from pathlib import Path

from bbrscope.collect import jit

ROOT = Path(jit.__file__).resolve().parents[1]


def imported(source: Path) -> set[Path]:
    """The project's own files that a file imports by name, relative imports being its only form."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        folder = source.parents[node.level - 1].joinpath(*(node.module or "").split("."))
        if folder.with_suffix(".py").is_file():
            found.add(folder.with_suffix(".py"))
        found |= {
            folder / f"{name.name}.py"
            for name in node.names
            if (folder / f"{name.name}.py").is_file()
        }
    return found


def test_the_cache_key_covers_all_that_compiled_functions_can_reach() -> None:
    keyed = {path for pattern in jit.SOURCES for path in ROOT.glob(pattern)}
    reached = set()
    todo = [
        source
        for folder in ("collect", "analyze")
        for source in (ROOT / folder).rglob("*.py")
        if any(line in source.read_text() for line in ("\n@jit\n", "\n@inline\n"))
    ]
    assert len(todo) > 20
    while todo:
        source = todo.pop()
        if source not in reached:
            reached.add(source)
            todo += imported(source)
    assert not {path.relative_to(ROOT).as_posix() for path in reached - keyed}
