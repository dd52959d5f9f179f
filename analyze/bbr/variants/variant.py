"""What a variant of BBR consists of, in the form that its file hands it over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..records import Array
from ..replay_loop import Dispatch, Init

# Takes EVENT [n], in which it fills the draws, and int64 [n + 1, fields of STATE_COLUMNS], the
# state before each event and a last row that is not known.
FillDraws = Callable[[Array, Array], None]


@dataclass(frozen=True)
class Variant:
    """A variant of BBR.

    Attributes:
        base: v1, v2 or v3: whose inputs it reads, and whose parameters hold where it has none.
        params: the parameters that differ.
        bbr_init, dispatch: its callbacks, `jit`.
        fill_draws: settles the random draws of a recording's events that show in none of its
            version's fields; see `FillDraws`.
    """

    base: str
    params: dict[str, Any]
    bbr_init: Init
    dispatch: Dispatch
    fill_draws: FillDraws | None = None
