"""Modes are entered at one place each, from legal predecessors; versions differ in their rooms."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bbrscope.analyze.bbr import codes

_ROOM = Path(codes.__file__).parent
_TREES = {
    path.relative_to(_ROOM).as_posix(): ast.parse(path.read_text())
    for path in sorted(_ROOM.rglob("*.py"))
}
# The modules that each room may import from besides its own and the ground floor of analyze/bbr.
_BELOW = {
    "control": {"control", "model"},
    "model": {"model", "control.pacing"},
    "modes": {"modes", "model", "control"},
    "versions": {"versions", "modes", "model", "control"},
}


def _calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    for place, tree in _TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                yield place, node


def test_the_mode_is_assigned_at_one_place() -> None:
    places = [
        place
        for place, tree in _TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for each in ast.walk(target)
        if isinstance(each, ast.Attribute) and each.attr == "mode"
    ]
    assert places == ["modes/transition.py"]


def test_each_mode_is_entered_by_its_own_module() -> None:
    entered = [(ast.unparse(call.args[1]), place) for place, call in _calls("transition_to")]
    assert sorted(entered) == [
        ("BBR_DRAIN", "modes/drain.py"),
        ("BBR_PROBE_BW", "modes/gain_cycle.py"),  # v1
        ("BBR_PROBE_BW", "modes/phases.py"),  # v2, v3
        ("BBR_PROBE_RTT", "modes/probe_rtt.py"),
        ("BBR_STARTUP", "modes/startup.py"),
    ]


_PLAIN_TRANSITIONS = """
from types import SimpleNamespace
from bbrscope.analyze.bbr.modes.transition import IllegalTransitionError, transition_to
for old in (-1, 0, 1, 2, 3, 5):
    for new in range(4):
        bbr = SimpleNamespace(mode=old)
        try:
            transition_to(bbr, new)
        except IllegalTransitionError:
            assert bbr.mode == old
        else:
            assert bbr.mode == new
            print(old, new)
"""


def test_plain_python_refuses_a_mode_that_may_not_follow() -> None:
    # tcp_bbr.c's diagram: STARTUP > DRAIN > PROBE_BW, PROBE_RTT from each and back to two of them;
    # v1's bbr_lt_bw_sampling() restarts PROBE_BW in PROBE_BW
    done = subprocess.run(
        [sys.executable, "-c", _PLAIN_TRANSITIONS],
        env=os.environ | {"BBRSCOPE_PLAIN": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    legal = {tuple(int(part) for part in line.split()) for line in done.stdout.splitlines()}
    assert legal == {(-1, 0), (3, 0), (0, 1), (1, 2), (3, 2), (2, 2), (0, 3), (1, 3), (2, 3)}


def test_no_code_asks_for_a_version() -> None:
    named = [
        f"{place}:{node.lineno}"
        for place, tree in _TREES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and node.attr == "version")
        or (isinstance(node, ast.Name) and node.id == "version" and place != "codes.py")
    ]
    # What maps a code to the name of its function in a version's source is no rule of BBR's.
    assert [place for place in named if not place.startswith("citations.py")] == []


@pytest.mark.parametrize("room", sorted(_BELOW))
def test_imports_go_down(room: str) -> None:
    wrong = []
    for place, tree in _TREES.items():
        if not place.startswith(f"{room}/"):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.level not in (1, 2):
                continue
            target = f"{room}.{node.module}" if node.level == 1 else node.module or ""
            if target.split(".")[0] in _BELOW and not {target, target.split(".")[0]} & _BELOW[room]:
                wrong.append(f"{place} imports {target}")
    assert wrong == []
