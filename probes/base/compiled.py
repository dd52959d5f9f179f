"""numba's dispatcher and its cache on disk, as `jit` uses them.

Importing this module imports numba, which takes half a second.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from threading import Lock
from typing import Any

from numba.core import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.registry import CPUDispatcher
from numba.np import numpy_support

from . import one_module
from .code_key import key_of
from .one_module import CalleeCompiler, OutermostCompiler

_OPTIONS = {"nopython": True, "nogil": True, "error_model": "numpy"}
# Machine code depends on how modules are put together, too.
_LINKING = hashlib.sha256(Path(one_module.__file__).read_bytes()).hexdigest()[:8]
# Code through which Python calls a function: a quarter of all machine code, if each had its own.
_NO_WRAPPERS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class CompiledFunction(CPUDispatcher):
    """A function in nopython mode, for other compiled functions and for Python.

    Callees are compiled into their callers, without wrappers and without files of their own
    (one_module.py). What Python calls gets a second dispatcher, which has a wrapper and is kept on
    disk whole.
    """

    def __init__(self, py_func: Any, inlined: bool = False) -> None:
        options = _OPTIONS | _NO_WRAPPERS | {"inline": "always" if inlined else "never"}
        super().__init__(py_func, targetoptions=options, pipeline_class=CalleeCompiler)
        self._for_python: Any = None
        self._lock = Lock()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call it from Python; the first call compiles, or loads from the cache."""
        return self.for_python(*arguments, **named)

    @property
    def for_python(self) -> Any:
        """The dispatcher that Python calls."""
        with self._lock:
            if self._for_python is None:
                self._for_python = CPUDispatcher(
                    self.py_func, targetoptions=_OPTIONS, pipeline_class=OutermostCompiler
                )
                if cache_folder():
                    self._for_python._cache = _Cache(self.py_func)  # type: ignore[no-untyped-call]
        return self._for_python


def address_of(function: Any, kinds: tuple[Any, ...]) -> int:
    """The address of a `jit` function that takes records of these numpy types: it returns an int64.

    A caller that gets an address need not be compiled again for each function. The code lives as
    long as `function` does.
    """
    arguments = tuple(numpy_support.from_dtype(kind) for kind in kinds)
    dispatcher = function.for_python
    dispatcher.compile(arguments)
    compiled = dispatcher.overloads[arguments]
    name = compiled.fndesc.llvm_cfunc_wrapper_name
    return int(compiled.library.get_pointer_to_function(name))


def cache_folder() -> Path | None:
    """Where compiled code is kept: NUMBA_CACHE_DIR, else bbrscope's own; None if it cannot be."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(chosen) if chosen else root / "bbrscope" / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


class _Place(_CacheLocator):
    """Names cached code by `key_of`: a file is never stale, it is found or it is not."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file = py_file
        self._key = key_of(py_func) + _LINKING

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Place:
        """numba's way to make one."""
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        """The folder."""
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        """Nothing besides the key, which stands in the file's name."""
        return ""

    def get_disambiguator(self) -> str:
        """The part of the file's name that tells functions of one name apart."""
        return self._key


class _CacheFiles(CompileResultCacheImpl):
    _locator_classes = [_Place]  # noqa: RUF012  # as the base class has them


class _Cache(FunctionCache):
    _impl_class = _CacheFiles

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Compiled code for these types; None, as if there were none, where it cannot be read."""
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:
            self.flush()  # type: ignore[no-untyped-call]
            return None

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        """Argument types and processor; code and closure are in the file's name already."""
        return tuple(map(_described, sig)), codegen.magic_tuple()


def _described(argument: Any) -> str:
    """A numba type in full. numba tells named tuples apart by class and types, not by fields."""
    if isinstance(argument, types.BaseNamedTuple):
        named: Any = argument
        kind = named.instance_class
        fields = zip(named.fields, named.types, strict=True)
        inner = ", ".join(f"{name}: {_described(field)}" for name, field in fields)
        return f"{kind.__module__}.{kind.__qualname__}({inner})"
    return str(argument)
