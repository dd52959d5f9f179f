"""Compile hot loops with numba, or run the very same source as plain Python.

``BBRSCOPE_PLAIN=1`` makes `jit` the identity, so that a debugger can walk through the estimator.
Compiled code is cached per user, under a key of everything that can end up in it (code_key.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

PLAIN = os.environ.get("BBRSCOPE_PLAIN", "") not in ("", "0")


def jit(function: F) -> F:
    """Compile `function` in nopython mode on its first call; callees must be `jit` as well.

    Integers follow numba's rules: ``int64`` everywhere, ``uint64`` only where the kernel's u64 can
    pass 2**63, never the two in one expression (numba would make a float of it).
    """
    if PLAIN:
        return function
    from .compiled import CompiledFunction

    compiled: Any = CompiledFunction(function)
    return cast(F, compiled)


def inline(function: F) -> F:
    """Like `jit`, for helpers that take arrays: numba expands them wherever they are called.

    LLVM inlines all other helpers by itself; of these it would keep an atomic count of references
    per array and call. Expanding takes time to compile, so have it for what a loop calls once.
    """
    if PLAIN:
        return function
    from .compiled import CompiledFunction

    compiled: Any = CompiledFunction(function, inlined=True)
    return cast(F, compiled)
