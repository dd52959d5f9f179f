"""A compiled function has all its callees in it, however deep, and calls none from elsewhere."""

from __future__ import annotations

from pathlib import Path

from .test_code_key import run_compiled

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import deep
print(*(deep.outer(x) for x in range(4)), deep.other(3), deep.middle(2))
try:
    deep.outer(-1)
except ValueError as error:
    print(str(error).replace(" ", "_"))
for function in (deep.outer, deep.other, deep.middle):
    stats = function.for_python.stats
    print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""
DEEP = """
import numpy as np
from bbrscope.probes.base.jit import inline, jit


@jit
def factorial(x):
    if x < 0:
        raise ValueError("none of", x)
    return 1 if x < 2 else x * factorial(x - 1)


@jit
def middle(x):
    return factorial(x) + 1


@inline
def total(values):
    return values.sum()


@jit
def other(x):
    return total(np.full(2, middle(x)))


@jit
def outer(x):
    return other(x) + 100 * factorial(x) + max(x, 2)
"""

# late() is a callee of early(), whose call of it LLVM drops, before it is one of outer().
DROPPED = """
from bbrscope.probes.base.jit import jit


@jit
def late(x):
    if x > 100:
        raise ValueError("too large")
    total = 0
    for i in range(x):
        total += i * i ^ total << 1
    return total


@jit
def early(x):
    if x < x - 1:
        return late(x)
    return x + 1


@jit
def last(x):
    return late(x) + late(2 * x)


@jit
def outer(x):
    return early(x) + last(x)
"""


def test_a_callee_is_there_though_its_first_caller_never_calls_it(tmp_path: Path) -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import dropped; print(dropped.outer(3))"
    assert run_compiled(tmp_path, program, dropped=DROPPED) == ["82"]


def test_callees_of_callees_in_a_diamond_are_compiled_in_and_kept(tmp_path: Path) -> None:
    expected = [str(2 * (f + 1) + 100 * f + top) for f, top in ((1, 2), (1, 2), (2, 2), (6, 3))]
    expected += ["14", "3", "('none_of',_-1)"]
    # Each of the three is called from Python and has everything for itself.
    assert run_compiled(tmp_path, PROGRAM, deep=DEEP) == expected + ["0", "1"] * 3
    assert run_compiled(tmp_path, PROGRAM, deep=DEEP) == expected + ["1", "0"] * 3
