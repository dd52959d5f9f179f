"""Compile a function and all that it calls as one LLVM module.

numba makes machine code of every callee by itself, and optimizes its code once more in each of its
callers. Here a callee stays LLVM's intermediate code until the function that Python calls has
everything beside it: optimized once, in half the time, and to faster code, since LLVM sees that
nothing outside calls the callees.
"""

from __future__ import annotations

from llvmlite.binding import Linkage, ModuleRef, ValueRef
from numba.core.codegen import CPUCodeLibrary, JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.cpu import CPUContext
from numba.core.environment import Environment, lookup_environment
from numba.core.typing.context import BaseContext

_ENVIRONMENT = "_ZN08NumbaEnv"  # begins the names of pointers that functions find theirs by


class _CalleeLibrary(JITCodeLibrary):
    """A callee's intermediate code, never made into machine code of its own."""

    def add_linking_library(self, library: CPUCodeLibrary) -> None:
        """Note a callee's callee; the outermost function links it."""
        self._linking_libraries.append(library)

    def finalize(self) -> None:
        """Let LLVM drop the function where all its callers have inlined it."""
        for function in self.defined():
            function.linkage = "linkonce_odr"
        self._finalized = True

    def defined(self) -> list[ValueRef]:
        """The functions that other modules see."""
        functions = self._final_module.functions
        return [one for one in functions if one.linkage == Linkage.external and _has_body(one)]

    def _get_module_for_linking(self) -> ModuleRef:
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        return self._final_module

    def get_pointer_to_function(self, name: str) -> int:
        """0: nothing calls it by its address."""
        return 0

    @property
    def codegen(self) -> _CalleeLibrary:
        """What is to set the environment: this library, for the machine code is not there yet."""
        return self

    def set_env(self, name: str, environment: Environment) -> None:
        """Leave it to the outermost function's library."""


class _OutermostLibrary(JITCodeLibrary):
    """Machine code of a function that Python calls, with all its callees."""

    def add_linking_library(self, library: CPUCodeLibrary) -> None:
        """Note a callee; with its own callees it is linked at the end."""
        library._ensure_finalized()  # type: ignore[no-untyped-call]
        if library not in self._linking_libraries:
            self._linking_libraries.append(library)

    def _optimize_final_module(self) -> None:
        """Tell LLVM first that nothing else calls the callees: it then inlines single calls."""
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr and _has_body(function):
                function.linkage = "internal"
        super()._optimize_final_module()  # type: ignore[no-untyped-call]

    def finalize(self) -> None:
        """Make machine code, and give the callees in it their environments.

        LLVM takes of a library what is called by that time and no more, so a library is linked
        after all those that call it.
        """
        self._linking_libraries = _callers_first(self._linking_libraries)
        super().finalize()  # type: ignore[no-untyped-call]
        self._check_whole()
        for variable in self._final_module.global_variables:
            if variable.name.startswith(_ENVIRONMENT):
                environment = lookup_environment(variable.name)  # type: ignore[no-untyped-call]
                if environment is not None:
                    self._codegen.set_env(variable.name, environment)  # type: ignore[attr-defined]

    def _check_whole(self) -> None:
        """Raise RuntimeError where a callee is missing: a call of it would end the process."""
        callees = set()
        for library in self._linking_libraries:
            if isinstance(library, _CalleeLibrary):
                callees |= {one.name for one in library._final_module.functions if _has_body(one)}
        functions = self._final_module.functions
        missing = [one.name for one in functions if not _has_body(one) and one.name in callees]
        if missing:
            raise RuntimeError(f"compiled without its callee {missing[0]}")


def _callers_first(libraries: list[CPUCodeLibrary]) -> list[CPUCodeLibrary]:
    """These libraries and all that they call, each after all that call it."""
    seen: set[CPUCodeLibrary] = set()
    callees_first: list[CPUCodeLibrary] = []

    def visit(library: CPUCodeLibrary) -> None:
        if library in seen:
            return
        seen.add(library)
        if isinstance(library, _CalleeLibrary):
            for inner in library._linking_libraries:
                visit(inner)
        callees_first.append(library)

    for library in libraries:
        visit(library)
    return callees_first[::-1]


def _has_body(function: ValueRef) -> bool:
    return not function.is_declaration


class _OwnLibrary(Compiler):
    """numba's compiler, with a library of another kind."""

    kind: type[JITCodeLibrary]

    def __init__(
        self,
        typing: BaseContext,
        target: CPUContext,
        library: CPUCodeLibrary | None,
        *others: object,
    ) -> None:
        if library is None:
            library = self.kind(target.codegen(), "bbrscope")  # type: ignore[no-untyped-call]
            library.enable_object_caching()  # type: ignore[no-untyped-call]
        super().__init__(typing, target, library, *others)  # type: ignore[no-untyped-call]


class CalleeCompiler(_OwnLibrary):
    """For functions that compiled code calls."""

    kind = _CalleeLibrary


class OutermostCompiler(_OwnLibrary):
    """For functions that Python calls."""

    kind = _OutermostLibrary
