"""A variant of BBR in a user's own file: `bbr_init`, `dispatch`, and the version it begins from."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...probes.base.errors import BbrscopeError
from ..bbr import params
from ..bbr.replay_loop import Dispatch, Init

_HELP = "analyze/bbr/README.md shows one: BASE = 'v3', bbr_init, dispatch, and PARAMS if it has any"


@dataclass(frozen=True)
class OwnVariant:
    """What such a file has; `base` is v1, v2 or v3, `rules` its parameters, HZ open."""

    base: str
    rules: dict[str, Any]
    bbr_init: Init
    dispatch: Dispatch


@cache
def own_variant(path: str) -> OwnVariant:
    """Load a variant.

    Raises:
        BbrscopeError: the file is not there, raises, or lacks a part.
    """
    file = Path(path)
    if not file.is_file():
        raise BbrscopeError(f"there is no file {path}", _HELP)
    try:
        spec = importlib.util.spec_from_file_location(f"bbrscope_variant_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except Exception as error:
        raise BbrscopeError(
            f"{path} cannot be loaded: {type(error).__name__}: {error!s:.200}", _HELP
        ) from None
    return _checked(path, vars(module))


def _checked(path: str, names: dict[str, Any]) -> OwnVariant:
    base = names.get("BASE")
    if base not in ("v1", "v2", "v3"):
        raise BbrscopeError(f"{path}: BASE must be 'v1', 'v2' or 'v3'", _HELP)
    if not callable(names.get("bbr_init")) or not callable(names.get("dispatch")):
        raise BbrscopeError(f"{path} has no functions bbr_init and dispatch", _HELP)
    own = names.get("PARAMS", {})
    if not isinstance(own, dict) or not own.keys() <= params.PARAMETERS.keys():
        raise BbrscopeError(f"{path}: PARAMS must be a dict of parameters of BBR", _HELP)
    rules = params.DEFAULTS[base] | own
    return OwnVariant(base, rules, names["bbr_init"], names["dispatch"])
