"""What keeps the code readable, counted: sizes, names, docstrings, types, and how imports flow."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import pytest

ROOT = Path(__file__).parents[1]
# A room imports from itself and from those before it.
ROOMS = ("probes", "collect", "analyze", "reports")
LONGEST_MODULE = 400
# Without the docstring.
LONGEST_FUNCTION = 60

# Folders of tests of no room: against raw rows and ground truth, and campaigns over all commands.
TESTS_OF_ALL = frozenset({"truth", "fuzz", "kills"})

# Pure tables: one entry per line, and nothing to follow.
TABLES = frozenset({"analyze/bbr/codes.py"})  # the decision vocabulary
# Modules whose functions numba compiles, which types arrays and records by itself.
NUMBAS = frozenset(
    {
        "analyze/bbr/loops.py",
        "analyze/bbr/plain.py",
        "analyze/simulate/world/places.py",
        "collect/packets/capture_records.py",
        "collect/packets/tshark_text.py",
        "collect/samples/tcp_info_scan.py",
        "probes/base/record_addresses.py",
        "probes/base/compiled.py",
    }
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Every module of the product by its path: read by who asks, not whenever tests are listed."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
    }


def functions(module: ast.Module) -> Iterator[Function]:
    """Every function and method of a module, nested ones too."""
    return (node for node in ast.walk(module) if isinstance(node, Function))


def public(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Public classes, functions and methods with their dotted names."""
    for node in body:
        if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
            yield f"{prefix}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{prefix}{node.name}.")


def imported_rooms(path: str, module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and room of each relative import that leaves its own room."""
    folders = path.split("/")[:-1]
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.level > len(folders):
            names = [node.module] if node.module else [name.name for name in node.names]
            yield from ((node.lineno, name.partition(".")[0]) for name in names)


def places(names: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Names that are there more than once, with their places."""
    by_name = defaultdict(list)
    for name, path in names:
        by_name[name].append(path)
    return {name: paths for name, paths in by_name.items() if len(paths) > 1}


def test_no_module_but_tables_is_long() -> None:
    assert len(modules()) > 200
    lines = {path: len((ROOT / path).read_text().splitlines()) for path in modules()}
    long = {path for path, count in lines.items() if count > LONGEST_MODULE}
    assert long - TABLES == set()


def test_every_public_name_has_a_docstring() -> None:
    without = {
        f"{path} {name}"
        for path, module in modules().items()
        for name, node in public(module.body, "")
        if not ast.get_docstring(node)
    }
    assert without == set()


def test_parameters_have_types_but_where_numba_gives_them() -> None:
    untyped = {
        path
        for path, module in modules().items()
        for function in functions(module)
        for argument in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        if isinstance(argument.annotation, ast.Name) and argument.annotation.id == "Any"
    }
    assert untyped - NUMBAS == set()


def test_no_class_has_the_name_of_another() -> None:
    names = (
        (node.name, path)
        for path, module in modules().items()
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert places(names) == {}


def test_no_file_has_the_name_of_another_but_those_of_commands() -> None:
    # The command line loads a command by its file; its room may have a file of the same name.
    commands = [path for path in modules() if path.startswith("reports/commands/")]
    without = [
        path
        for path in commands
        if not path.endswith("__.py")
        and not any(isinstance(n, Function) and n.name == "command" for n in modules()[path].body)
    ]
    assert without == []
    names = (
        (Path(path).name, path)
        for path in modules()
        if not Path(path).name.startswith("__") and not path.startswith("reports/commands/")
    )
    assert places(names) == {}


@pytest.mark.parametrize("room", ROOMS)
def test_imports_flow_from_recording_to_reports(room: str) -> None:
    later = ROOMS[ROOMS.index(room) + 1 :]
    backward = [
        f"{path}:{line} imports {target}"
        for path, module in modules().items()
        if path.startswith(f"{room}/")
        for line, target in imported_rooms(path, module)
        if target in later
    ]
    assert backward == []


def test_the_ground_floor_imports_nothing_above_it() -> None:
    upward = [
        f"{path}:{node.lineno}"
        for path, module in modules().items()
        if path.startswith("probes/base/")
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and node.level > 1
    ]
    assert upward == []


def test_tests_are_in_the_folders_of_the_code_they_test() -> None:
    files = ROOT.glob("tests/*/**/test_*.py")
    folders = {file.parent.relative_to(ROOT / "tests") for file in files}
    rooms = {folder for folder in folders if folder.parts[0] not in TESTS_OF_ALL}
    assert len(rooms) > 30
    assert {str(folder) for folder in rooms if not list((ROOT / folder).glob("*.py"))} == set()


def size(function: Function) -> int:
    """Lines of a function, without its docstring and the functions inside it."""
    inside = [node for node in ast.walk(function) if isinstance(node, Function)][1:]
    docstring = function.body[:1] if ast.get_docstring(function) else []
    left_out = {
        line
        for node in [*inside, *docstring]
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return len(set(range(function.lineno, (function.end_lineno or 0) + 1)) - left_out)


def test_functions_are_short() -> None:
    sizes = {
        f"{path}:{node.lineno} {node.name}": size(node)
        for path, module in modules().items()
        for node in functions(module)
    }
    assert len(sizes) > 3_000
    assert median(sizes.values()) <= 7
    assert quantiles(sizes.values(), n=10)[-1] <= 22
    assert {name for name, lines in sizes.items() if lines > LONGEST_FUNCTION} == set()


def test_no_result_is_left_open() -> None:
    """collect/store/query.py says what fetchone() leaves behind."""
    found = [
        f"{path}:{node.lineno}"
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "fetchone"
    ]
    assert not found
