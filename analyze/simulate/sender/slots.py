"""Variants of BBR as the engine calls them: compiled once each, whatever else is compiled.

The engine calls them by address: a new variant compiles its callbacks and nothing of the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ....probes.base.jit import PLAIN, jit
from ...bbr.modes.transition import NO_MODE
from ...bbr.params import PARAMS, Params
from ...bbr.records import EVENT, INIT, STATE, Bbr, Event
from ...bbr.replay_loop import Dispatch, Init
from ...bbr.variants.own_process import compiling
from ...bbr.variants.own_variant import is_variant, own_variant
from ...bbr.versions import v1, v2, v3

Callback = Callable[[Bbr, Event, Params], int]
SLOTS = 4  # variants in one world
# Compiled callbacks, whose addresses worlds hold.
_KEPT: list[Any] = []
VERSIONS = {"v1": v1, "v2": v2, "v3": v3}


def bridge(bbr_init: Init, dispatch: Dispatch) -> Callback:
    """One function for all callbacks; init's argument is tcp_min_rtt()."""

    @jit
    def call(bbr: Bbr, ev: Event, p: Params) -> int:
        if ev.ctl.kind == INIT:
            bbr.mode = NO_MODE
            bbr_init(bbr, ev.tp, ev.ctl.arg, p, None)
        else:
            dispatch(bbr, ev, p, None)
        return 0

    return call


@cache
def callback(version: str) -> Any:
    """The callbacks of a version, of a variant, or of a user's file, as the engine takes them.

    Raises:
        BbrscopeError: a user's file cannot be loaded or compiled.
    """
    variant = own_variant(version) if is_variant(version) else VERSIONS[version]
    function = bridge(variant.bbr_init, variant.dispatch)
    if PLAIN:
        return function
    from ....probes.base.compiled import address_of

    _KEPT.append(function)

    def address() -> int:
        return address_of(function, (STATE, EVENT, PARAMS))

    return compiling(version, address) if version.endswith(".py") else address()


def slots(versions: tuple[str, ...]) -> tuple[Any, ...]:
    """The callbacks of these versions and variants, repeating the last, SLOTS in all.

    So every world has the same type, and the engine is compiled once.
    """
    names = (*versions, *[versions[-1] if versions else "v1"] * SLOTS)[:SLOTS]
    return tuple(callback(name) for name in names)
