"""What a variant of BBR consists of, in the form that its file hands it over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..replay_loop import Dispatch, Init


@dataclass(frozen=True)
class Variant:
    """A variant of BBR.

    Attributes:
        base: v1, v2 or v3: whose inputs it reads, and whose parameters hold where it has none.
        params: the parameters that differ.
        bbr_init, dispatch: its callbacks, `jit`.
    """

    base: str
    params: dict[str, Any]
    bbr_init: Init
    dispatch: Dispatch
