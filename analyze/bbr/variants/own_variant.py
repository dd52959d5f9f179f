"""A variant of BBR, by name or in a user's own file: its callbacks, and what it begins from."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from ....probes.base.errors import BbrscopeError
from ....probes.base.jit import PLAIN
from ....probes.base.no_file import no_file
from .. import params
from ..replay_loop import Dispatch, Init
from . import catalogue
from .own_process import run_apart
from .variant import FillDraws

_HELP = "analyze/bbr/README.md shows one: BASE = 'v3', bbr_init, dispatch, and PARAMS if it has any"

_BASES = ("v1", "v2", "v3")
# Of processor time; loading the estimator takes about one second.
_LOADING_S = 20


@dataclass(frozen=True)
class OwnVariant:
    """A variant, as `Variant`; HZ may still be 0 in its `parameters`."""

    base: str
    parameters: dict[str, Any]
    bbr_init: Init
    dispatch: Dispatch
    fill_draws: FillDraws | None = None


def is_variant(name: str) -> bool:
    """Is this the name of a variant, or a file of the user's own?"""
    return name in catalogue.VARIANTS or name.endswith(".py")


def require_rules(name: str) -> None:
    """Refuse what is neither a version nor a variant; a file is looked at when it is loaded.

    Raises:
        BbrscopeError: it is not.
    """
    if name not in _BASES and not is_variant(name):
        known = ", ".join([*_BASES, *catalogue.VARIANTS])
        raise BbrscopeError(
            f"there are no rules {name!r:.60}", f"use {known}, or a file of your own: ./mybbr.py"
        )


def base_of(name: str) -> str:
    """v1, v2 or v3: the version itself, or what a variant begins from. Raises BbrscopeError."""
    require_rules(name)
    return own_variant(name).base if is_variant(name) else name


def parameters_under(rules: str, ran: str, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a recording under other rules.

    Under a variant of the version that ran: the recorded ones, except those that the variant
    changes. Else, unless `rules` ran: those of `rules`, with the recorded HZ.

    Args:
        rules: v1, v2 or v3, or a variant.
        ran: the same of what was recorded.
        recorded: the recorded parameters.
    """
    if rules == ran:
        return dict(recorded)
    base = base_of(rules)
    own = own_variant(rules).parameters if is_variant(rules) else params.DEFAULTS[rules]
    if ran != base:
        return own | {"HZ": recorded["HZ"]}
    usual = params.DEFAULTS[base]
    return {**recorded, **{name: value for name, value in own.items() if usual.get(name) != value}}


def digest_of(file: Path) -> str:
    """Tell a user's file from what it is after a change: the sha256 of what is in it."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


@cache
def own_variant(path: str) -> OwnVariant:
    """Load a variant: one of bbrscope's by its name, or a file.

    Raises:
        BbrscopeError: the file is not there, raises, or lacks a part.
    """
    if path in catalogue.VARIANTS:
        one = catalogue.load(path)
        parameters = params.DEFAULTS[one.base] | one.params
        return OwnVariant(one.base, parameters, one.bbr_init, one.dispatch, one.fill_draws)
    file = Path(path)
    if why := no_file(path):
        raise BbrscopeError(why, _HELP)
    # What a file does when it is loaded may crash, or not end.
    run_apart(path, lambda: _loaded(path, file).base, _LOADING_S)
    return _loaded(path, file)


def _loaded(path: str, file: Path) -> OwnVariant:
    try:
        spec = importlib.util.spec_from_file_location(f"bbrscope_variant_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except MemoryError:
        raise
    except Exception as error:
        raise BbrscopeError(
            f"{path} cannot be loaded: {type(error).__name__}: {error!s:.200}", _HELP
        ) from None
    return _checked(path, vars(module))


def _checked(path: str, names: dict[str, Any]) -> OwnVariant:
    base = names.get("BASE")
    if base not in _BASES:
        raise BbrscopeError(f"{path}: BASE must be 'v1', 'v2' or 'v3'", _HELP)
    if not callable(names.get("bbr_init")) or not callable(names.get("dispatch")):
        raise BbrscopeError(f"{path} has no functions bbr_init and dispatch", _HELP)
    begun_from = import_module(f"..versions.{base}", __package__)
    for function in ("bbr_init", "dispatch"):
        _check_callback(path, names[function], getattr(begun_from, function))
    own = names.get("PARAMS", {})
    if not isinstance(own, dict) or not own.keys() <= params.PARAMETERS.keys():
        raise BbrscopeError(f"{path}: PARAMS must be a dict of parameters of BBR", _HELP)
    parameters = params.DEFAULTS[base] | own
    try:
        params.make(parameters)
    except (ValueError, TypeError, OverflowError) as error:
        raise BbrscopeError(
            f"{path}: PARAMS has what no parameter of BBR can be: {error!s:.100}",
            "whole numbers in kernel units, and eight of them as pacing_gain",
        ) from None
    return OwnVariant(base, parameters, names["bbr_init"], names["dispatch"])


def _check_callback(path: str, own: Callable[..., None], usual: Callable[..., None]) -> None:
    """Refuse a callback that cannot stand in for that of the version."""
    name = usual.__name__
    if not PLAIN and not isinstance(own, type(usual)):
        raise BbrscopeError(
            f"{path}: {name} is not compiled",
            "write @jit above it and what it calls (from bbrscope.probes.base.jit import jit)",
        )
    wanted, has = (list(inspect.signature(one).parameters) for one in (usual, own))
    if len(has) != len(wanted):
        raise BbrscopeError(
            f"{path}: {name} takes ({', '.join(has)})", f"it is called with ({', '.join(wanted)})"
        )
