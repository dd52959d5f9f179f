"""Every function that implements one of the kernel's cites it, for each version that runs it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from bbrscope.analyze.bbr import citations, codes, params

_ROOM = Path(codes.__file__).parent
_VERSIONS = ("v1", "v2", "v3")
NOT_RUN = "not run: a parameter keeps the version from it"
_KERNEL_NAME = re.compile(r"(bbr2?|tcp|minmax|dctcp)_")


@dataclass(frozen=True)
class Function:
    """A compiled function: where it is, the sources that it cites, and whom it calls."""

    module: str
    name: str
    cited: tuple[tuple[str, str], ...]
    calls: tuple[tuple[str, str], ...]


def citations_in(comment: str) -> list[tuple[str, str]]:
    """(source, function) pairs of a comment: ``v2 bbr_init(), bbr2_init(); v3 bbr_init()``."""
    pairs = []
    for part in comment.split(";"):
        source, _, names = part.strip().partition(" ")
        pairs += [(source, name) for name in re.findall(r"(\w+)\(\)", names)]
        if kept_from := re.match(r"not, see (\w+)$", names):
            assert kept_from[1] in params.PARAMETERS
            pairs.append((source, NOT_RUN))
    return pairs


def _comment_above(lines: list[str], line: int) -> str:
    above: list[str] = []
    for text in reversed(lines[: line - 1]):
        if not text.startswith("#"):
            break
        above.insert(0, text.removeprefix("#").strip())
    return ";".join(above)


def _imports(tree: ast.Module, module: str) -> dict[str, tuple[str, str]]:
    """Local name -> (module, name) of what comes from analyze/bbr."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            parts = module.split(".")[: -node.level]
            if node.level <= module.count(".") + 1:
                for alias in node.names:
                    home = ".".join([*parts, node.module])
                    found[alias.asname or alias.name] = (home, alias.name)
    return found


def _functions_of(path: Path) -> Iterator[Function]:
    text = path.read_text()
    tree = ast.parse(text)
    module = ".".join(path.relative_to(_ROOM).with_suffix("").parts)
    known = _imports(tree, module)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or not node.decorator_list:
            continue
        names = {
            call.func.id
            for call in ast.walk(node)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        }
        calls = [known.get(name, (module, name)) for name in names if name in known or name in own]
        comment = _comment_above(text.splitlines(), node.decorator_list[0].lineno)
        yield Function(module, node.name, tuple(citations_in(comment)), tuple(calls))


@cache
def _functions() -> dict[tuple[str, str], Function]:
    paths = sorted(path for path in _ROOM.rglob("*.py"))
    return {(each.module, each.name): each for path in paths for each in _functions_of(path)}


def _run_by(version: str) -> list[Function]:
    """The compiled functions that a version's callbacks reach."""
    functions = _functions()
    home = f"versions.{version}"
    waiting, reached = [(home, "dispatch"), (home, "bbr_init")], {}
    while waiting:
        key = waiting.pop()
        if key in functions and key not in reached:
            reached[key] = functions[key]
            waiting += functions[key].calls
    return list(reached.values())


def test_every_citation_names_a_function_of_a_pinned_source() -> None:
    unknown = [
        f"{each.module}.{each.name}: {source} {name}()"
        for each in _functions().values()
        for source, name in each.cited
        if source not in citations.SOURCES
        or name not in citations.SOURCES[source].functions | {NOT_RUN}
    ]
    assert unknown == []


def test_functions_with_a_kernel_name_cite_it() -> None:
    silent = [
        f"{each.module}.{each.name}"
        for each in _functions().values()
        if _KERNEL_NAME.match(each.name.lstrip("_")) and not each.cited
    ]
    assert silent == []
    assert sum(bool(each.cited) for each in _functions().values()) > 100


@pytest.mark.parametrize("version", _VERSIONS)
def test_a_function_cites_its_source_for_every_version_that_runs_it(version: str) -> None:
    run = _run_by(version)
    assert len(run) > 50
    lacking = [
        f"{each.module}.{each.name} cites {dict(each.cited)}"
        for each in run
        if {source for source, _ in each.cited} & set(_VERSIONS)
        and version not in {source for source, _ in each.cited}
    ]
    assert lacking == []


def test_the_table_lists_no_function_that_nobody_cites() -> None:
    cited = {pair for each in _functions().values() for pair in each.cited}
    listed = {(key, name) for key, one in citations.SOURCES.items() for name in one.functions}
    # A code may name a function by itself.
    named = {
        (version, citations.kernel_function(code, version))
        for code in codes.CODES.values()
        for version in _VERSIONS
        if version[1] in code.versions
    }
    assert sorted(listed - cited - named) == []


def test_what_codes_call_a_kernel_function_is_one() -> None:
    everywhere = frozenset().union(*(one.functions for one in citations.SOURCES.values()))
    unknown = {
        citations.kernel_function(code, f"v{version}")
        for code in codes.CODES.values()
        for version in code.versions
        if code.about != "core"
    } - everywhere
    assert unknown == set()


def test_v2_functions_carry_their_own_prefix() -> None:
    cut = codes.BY_NAME["HI_CUT_RS_LOSS"]
    assert citations.kernel_function(cut, "v2") == "bbr2_handle_inflight_too_high"
    assert citations.kernel_function(cut, "v3") == "bbr_handle_inflight_too_high"
    assert citations.kernel_function(codes.BY_NAME["DRAIN_ENTER"], "v2") == "bbr_check_drain"


def test_a_source_is_pinned_to_a_commit_or_to_a_release() -> None:
    for source in citations.SOURCES.values():
        assert re.fullmatch(r"[0-9a-f]{40}", source.revision)
        assert source.url.endswith(f"{source.revision}/{source.file}")
