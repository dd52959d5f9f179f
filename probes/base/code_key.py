"""What a compiled function is made of, as a key: its own code and all that the code reaches.

numba looks at the file of the outermost function only. It would run stale code after a change in
a callee, and compile everything again after a changed comment. The key made here follows bytecode,
constants, globals, closures and callees; docstrings, comments, line numbers and the texts of tables
are not in it, since none of them ends up in machine code.
"""

from __future__ import annotations

import enum
import hashlib
import sys
from collections.abc import Iterable
from types import CodeType, FunctionType, ModuleType

import numpy as np

# Of these only the name counts: they change with Python's or numba's version, which numba's own
# key has, and following them would mean to read the whole of numpy.
_FOREIGN = frozenset({"numpy", "numba", "llvmlite"}) | sys.stdlib_module_names


def key_of(function: FunctionType) -> str:
    """A hexadecimal key of 16 digits that changes when the function's machine code may change.

    Ask for it when all of the function's globals are defined, as they are at its first call.
    """
    parts = _Parts()
    parts.add_function(function)
    return hashlib.sha256("\n".join(parts.lines).encode()).hexdigest()[:16]


class _Parts:
    """Everything that one function reaches, line by line, each function once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers: dict[FunctionType, int] = {}

    def add_function(self, function: FunctionType) -> None:
        """Add code, defaults, closure and the globals that the code names."""
        if function in self._numbers:
            self.lines.append(f"function {self._numbers[function]}")
            return
        self._numbers[function] = len(self._numbers)
        # Cached code names the modules of all its functions, and is loaded by these names.
        self.lines.append(f"module {function.__module__}")
        names = self._add_code(function.__code__, function.__doc__)
        self._add_value("defaults", function.__defaults__, names)
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            self._add_value(name, cell.cell_contents, names)
        for name in names:
            if name in function.__globals__:
                self._add_value(name, function.__globals__[name], names)

    def _add_code(self, code: CodeType, docstring: str | None) -> list[str]:
        """Add bytecode and constants; return all names that the code uses."""
        names = list(code.co_names)
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self.lines.append(f"code {code.co_flags} {arguments} {names} {code.co_code.hex()}")
        for number, constant in enumerate(code.co_consts):
            if isinstance(constant, CodeType):
                names += self._add_code(constant, None)
            elif number == 0 and docstring is not None and constant == docstring:
                # The compiler keeps the first place for a docstring, with None in its stead.
                self.lines.append("constant NoneType None")
            else:
                self._add_value("constant", constant, ())
        return names

    def _add_value(self, name: str, value: object, names: Iterable[str]) -> None:
        """Add a global, a constant or what a closure holds, by what numba makes of it."""
        function = getattr(value, "py_func", value)
        if isinstance(function, FunctionType):
            self.lines.append(f"{name} calls {getattr(value, 'targetoptions', None)}")
            self.add_function(function)
        elif isinstance(value, ModuleType):
            self._add_module(name, value, names)
        elif isinstance(value, (tuple, list)):
            self.lines.append(f"{name} {type(value).__name__} of {len(value)}")
            for item in value:
                self._add_value(name, item, names)
        else:
            self.lines.append(f"{name} {_described(value)}")

    def _add_module(self, name: str, module: ModuleType, names: Iterable[str]) -> None:
        """Add what of a module may be meant: whatever bears one of the code's names."""
        self.lines.append(f"{name} module {module.__name__}")
        if module.__name__.partition(".")[0] in _FOREIGN:
            return
        for attribute in sorted(set(names)):
            if attribute in vars(module) and vars(module)[attribute] is not module:
                self._add_value(attribute, vars(module)[attribute], names)


def _described(value: object) -> str:
    """A value as text. Of a kind that numba cannot freeze into code, the kind's name suffices."""
    kind = type(value).__name__
    if isinstance(value, enum.Enum):
        return f"{kind} {value!r}"
    if isinstance(value, np.ndarray):
        return f"{kind} {value.dtype!r} {value.shape} {value.tobytes().hex()}"
    if isinstance(value, (int, float, complex, str, bytes, type(None), np.generic, np.dtype)):
        return f"{kind} {value!r}"
    if isinstance(value, (set, frozenset, dict)):
        items = value.items() if isinstance(value, dict) else value
        return f"{kind} {sorted(map(repr, items))}"
    if isinstance(value, type):
        members = list(map(repr, value)) if isinstance(value, enum.EnumMeta) else []
        return f"{kind} {value.__qualname__} {getattr(value, '_fields', ())} {members}"
    return kind
