"""Options and arguments that commands share, with completion of run names.

Completion comes with click: ``eval "$(_BBRSCOPE_COMPLETE=bash_source bbrscope)"`` in ~/.bashrc,
``zsh_source`` in ~/.zshrc, or ``_BBRSCOPE_COMPLETE=fish_source bbrscope | source`` for fish.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    _IntType = click.ParamType[int]
    _FloatType = click.ParamType[float]
else:
    _IntType = _FloatType = click.ParamType  # generic to type checkers alone before click 8.2

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_STORE = Path("bbrscope.duckdb")
STORE_VARIABLE = "BBRSCOPE_STORE"
FORMATS = ("table", "json", "csv", "parquet")


_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(s|ms|us|ns)?")
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


class Time(_IntType):
    """A time since a flow began: 12.3s, 12.3 or 850ms; becomes nanoseconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _TIME.fullmatch(str(value).strip())
        if not found:
            self.fail(f"{value!r} is not a time such as 12.3s or 850ms", param, ctx)
        number, unit = found.groups()
        return int(Decimal(number) * _NANOSECONDS[unit or "s"])


class Share(_FloatType):
    """A share: 10%, or 0.1."""

    name = "share"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        number = text.removesuffix("%").strip()
        if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", number):
            self.fail(f"{value!r} is not a share such as 10% or 0.1", param, ctx)
        return float(number) / (100 if text.endswith("%") else 1)


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete run names from the store; a store that cannot be read completes nothing."""
    from ..collect.errors import BbrscopeError
    from ..collect.store import open_store

    chosen = ctx.params.get("store") or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE
    try:
        with open_store(Path(chosen), read_only=True) as store:
            names = store.runs()
    except BbrscopeError:
        return []
    taken = ctx.params.get(param.name or "") or ()
    return [name for name in names if name.startswith(incomplete) and name not in taken]


store_option = click.option(
    "--store",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_STORE,
    show_default=True,
    envvar=STORE_VARIABLE,
    help=f"The DuckDB store (or set {STORE_VARIABLE}).",
    # Completion of RUN must know it even when it comes later on the line.
    is_eager=True,
)

run_argument = click.argument("run", shell_complete=complete_runs)

runs_argument = click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_runs)


def format_option(*formats: str) -> Callable[[F], F]:
    """Return the option ``--format`` (`output_format`); the first format is the default."""
    choices = formats or FORMATS
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        help="json, csv and parquet have every digit; parquet goes to a pipe or a file.",
    )


def names_option(function: F) -> F:
    """``--names``: the kernel's names, or those of draft-ietf-ccwg-bbr."""
    return click.option(
        "--names",
        type=click.Choice(["kernel", "draft"]),
        default="kernel",
        show_default=True,
        help="Names of the kernel, or of draft-ietf-ccwg-bbr.",
    )(function)
