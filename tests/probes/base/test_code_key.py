"""The key of compiled code changes with the code and with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bbrscope.probes.base.code_key import key_of

HELPER = '''"""What the helper is for."""
LIMIT = 10
TABLE = {"snd_cwnd": "the congestion window"}


def doubled(x):
    """Twice x."""
    if x < 0:
        raise ValueError("negative")
    return 2 * x
'''
OUTER = '''"""The outermost function."""
import numpy as np
import {helper} as helper
from {helper} import doubled

OFFSETS = (1, 2)
WEIGHTS = np.arange(3)


def made(bonus):
    def inner(x):
        return doubled(x) + bonus
    return inner


inner = made(5)


def outer(x, extra=0):
    """Add them up."""
    # the limit comes last
    return inner(x) + OFFSETS[0] + WEIGHTS[1] + extra + helper.LIMIT
'''


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A function that writes both modules, one text in them replaced, and gives outer()'s key."""
    monkeypatch.syspath_prepend(str(tmp_path))
    numbers = iter(range(100))

    def of(old: str = "", new: str = "") -> str:
        # Every variant imports modules of its own, which must not show in the key.
        assert old in HELPER + OUTER
        variant = tmp_path / f"variant{next(numbers)}"
        variant.mkdir()
        (variant / "helper.py").write_text(HELPER.replace(old, new) if old else HELPER)
        text = OUTER.replace(old, new) if old else OUTER
        (variant / "outer.py").write_text(text.format(helper="helper"))
        for name in ("helper", "outer"):
            sys.modules.pop(name, None)
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(variant))
            import outer  # type: ignore[import-not-found]

            return key_of(outer.outer)

    return of


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Twice x."""', '"""The double\n    of x."""'),
        ('"""Add them up."""', '"""Their sum."""'),
        ("# the limit comes last", "# first the limit\n    #\n"),
        ("the congestion window", "how much may be in flight"),
        ('"""What the helper is for."""', '"""Helps."""\n\n\n'),
        ("LIMIT = 10\n", "LIMIT = 10  # packets\nUNUSED = 3\n"),
    ],
)
def test_texts_leave_the_key_alone(key: object, old: str, new: str) -> None:
    assert key(old, new) == key()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return 2 * x", "return 3 * x"),  # a constant, in a callee of a callee
        ("return 2 * x", "return 2 + x"),  # an operator
        ("LIMIT = 10", "LIMIT = 11"),  # through a module's attribute
        ("OFFSETS = (1, 2)", "OFFSETS = (2, 1)"),
        ("OFFSETS = (1, 2)", "OFFSETS = (1.0, 2)"),  # equal, and of another type
        ("np.arange(3)", "np.arange(3) * 2"),
        ("made(5)", "made(6)"),  # what a closure holds
        ("extra=0", "extra=1"),
        ('ValueError("negative")', 'ValueError("below 0")'),  # it is in the machine code
        ("helper.LIMIT", "helper.doubled(1)"),
    ],
)
def test_whatever_machine_code_depends_on_changes_the_key(key: object, old: str, new: str) -> None:
    assert key(old, new) != key()  # type: ignore[operator]


def test_functions_may_call_each_other_in_a_circle() -> None:
    assert key_of(even) != key_of(odd)


def even(n: int) -> bool:
    return n == 0 or odd(n - 1)


def odd(n: int) -> bool:
    return n != 0 and even(n - 1)


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import small
print(small.outer(20))
stats = small.outer.for_python.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""
SMALL = '''
from bbrscope.probes.base.jit import jit


def loop_over(called):
    @jit
    def outer(x):
        return called(x) + 1
    return outer


@jit
def inner(x):
    """Text."""
    return 2 * x


outer = loop_over(inner)
'''


def run_compiled(folder: Path, program: str = PROGRAM, **modules: str) -> list[str]:
    """Write the modules, run the program with a cache of its own, and return what it prints."""
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    environment = {name: v for name, v in environment.items() if name != "BBRSCOPE_PLAIN"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.split()


def test_compiled_code_survives_a_changed_text_and_never_a_changed_callee(tmp_path: Path) -> None:
    # numba itself would keep the stale loop, and would not keep one that calls through a closure.
    assert run_compiled(tmp_path, small=SMALL) == ["41", "0", "1"]
    assert run_compiled(tmp_path, small=SMALL) == ["41", "1", "0"]
    changed_text = SMALL.replace("Text.", "Another text,\n    longer.")
    assert run_compiled(tmp_path, small=changed_text) == ["41", "1", "0"]
    assert run_compiled(tmp_path, small=SMALL.replace("2 * x", "3 * x")) == ["61", "0", "1"]
    assert run_compiled(tmp_path, small=SMALL) == ["41", "1", "0"]


PAIR_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import small
print(small.outer(small.PAIR))
stats = small.outer.for_python.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""
PAIR = """
from typing import NamedTuple


class Pair(NamedTuple):
    first: int
    second: int
"""
OF_PAIR = """
from bbrscope.probes.base.jit import jit
from pair import Pair

PAIR = Pair(first=30, second=1)


@jit
def outer(pair):
    return pair.first - pair.second
"""


def test_compiled_code_for_a_named_tuple_is_for_these_fields_in_this_module(tmp_path: Path) -> None:
    def run_pair(text: str, module: str = "pair") -> list[str]:
        small = OF_PAIR.replace("from pair", f"from {module}")
        return run_compiled(tmp_path, PAIR_PROGRAM, small=small, **{module: text})

    swapped = PAIR.replace("first: int\n    second: int", "second: int\n    first: int")
    assert run_pair(PAIR) == ["29", "0", "1"]
    assert run_pair(PAIR) == ["29", "1", "0"]
    assert run_pair(swapped) == ["29", "0", "1"]
    (tmp_path / "pair.py").unlink()
    assert run_pair(PAIR, "twosome") == ["29", "0", "1"]


def test_compiled_code_that_cannot_be_read_is_made_anew(tmp_path: Path) -> None:
    assert run_compiled(tmp_path, small=SMALL) == ["41", "0", "1"]
    (index,) = (tmp_path / "cache" / "bbrscope" / "compiled").glob("*.nbi")
    index.write_bytes(index.read_bytes()[:-20])
    assert run_compiled(tmp_path, small=SMALL) == ["41", "0", "1"]
    assert run_compiled(tmp_path, small=SMALL) == ["41", "1", "0"]
