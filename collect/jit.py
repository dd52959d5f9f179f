"""Compile hot loops with numba, or run the very same source as plain Python.

``BBRSCOPE_PLAIN=1`` makes `jit` the identity, so that a debugger can walk through the estimator.
Compiled code is cached per user in a folder named after the content of `SOURCES`, every file that
can end up in it: numba itself looks only at the file of the outermost function, and would keep a
stale loop after a change in a callee.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

SOURCES = (
    "analyze/bbr/*.py",
    "collect/jit.py",
    "collect/rows.py",
    "collect/pairing.py",
    "collect/plan.py",
    "collect/header.py",
    "collect/findings.py",
    "collect/errors.py",
    "collect/packets_fields.py",
    "collect/packets_records.py",
    "collect/packets_text.py",
    "collect/schema/fields.py",
    "collect/schema/model.py",
    "collect/schema/recording.py",
)

PLAIN = os.environ.get("BBRSCOPE_PLAIN", "") not in ("", "0")


def _cache_dir() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for pattern in SOURCES:
        for source in sorted(package.glob(pattern)):
            digest.update(source.relative_to(package).as_posix().encode())
            digest.update(source.read_bytes())
    return root / "bbrscope" / digest.hexdigest()[:16]


@cache
def _numba() -> Any:
    os.environ.setdefault("NUMBA_CACHE_DIR", str(_cache_dir()))
    import numba

    return numba


def jit(function: F) -> F:
    """Compile `function` in nopython mode on its first call; callees must be `jit` as well.

    Integers follow numba's rules: ``int64`` everywhere, ``uint64`` only where the kernel's u64 can
    pass 2**63, never the two in one expression (numba would make a float of it).
    """
    if PLAIN:
        return function
    compiled: F = _numba().njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled


def inline(function: F) -> F:
    """Like `jit`, for the smallest helpers: always expanded where they are called.

    LLVM would inline them by itself only if it had their code, which it lacks for functions that
    were loaded from the cache.
    """
    if PLAIN:
        return function
    compiled: F = _numba().njit(cache=True, nogil=True, error_model="numpy", inline="always")(
        function
    )
    return compiled
