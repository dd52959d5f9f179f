"""Options and arguments that commands share, with completion of run names.

Completion comes with click: ``eval "$(_BBRSCOPE_COMPLETE=bash_source bbrscope)"`` in ~/.bashrc,
``zsh_source`` in ~/.zshrc, or ``_BBRSCOPE_COMPLETE=fish_source bbrscope | source`` for fish.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

F = TypeVar("F", bound=Callable[..., object])

DEFAULT_STORE = Path("bbrscope.duckdb")
STORE_VARIABLE = "BBRSCOPE_STORE"
FORMATS = ("table", "json", "csv", "parquet")


def gather(
    options: type[DataclassInstance],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hand a command its options as one object: its first argument.

    Put it next to the function, below the options. Those called like fields of the dataclass
    `options` become that object; the others stay arguments of the function.
    """
    names = [field.name for field in fields(options)]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def with_options(**values: object) -> None:
            gathered = options(**{name: values.pop(name) for name in names})
            function(gathered, **values)

        return with_options

    return decorate


# Words that a shell takes as they are: what a stranger's file calls something is not run.
_PLAIN_WORD = re.compile(r"[\w.:@%+,/=][\w.:@%+,/=-]*", re.ASCII)


def plain_words(words: Iterable[str], incomplete: str) -> list[str]:
    """Return the words that complete `incomplete` and mean nothing else to a shell.

    >>> plain_words(["loss", "$(reboot)", "-rf", "lo;ss"], "lo")
    ['loss']
    """
    return [word for word in words if word.startswith(incomplete) and _PLAIN_WORD.fullmatch(word)]


def complete_runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete run names from the store; a store that cannot be read completes nothing."""
    from ..analyze.views.store_with_views import open_store
    from ..probes.base.errors import BbrscopeError

    chosen = ctx.params.get("store") or os.environ.get(STORE_VARIABLE) or DEFAULT_STORE
    try:
        with open_store(Path(chosen), read_only=True) as store:
            names = store.runs()
    except BbrscopeError:
        return []
    taken = ctx.params.get(param.name or "") or ()
    return plain_words((name for name in names if name not in taken), incomplete)


def store_option_for(what: str) -> Callable[[F], F]:
    """Return the option ``--store`` (`store`) of a command that takes `what`."""
    return click.option(
        "--store",
        type=click.Path(path_type=Path),
        default=DEFAULT_STORE,
        show_default=True,
        envvar=STORE_VARIABLE,
        help=f"{what} (or set {STORE_VARIABLE}).",
        # Completion of RUN must know it even when it comes later on the line.
        is_eager=True,
    )


store_option = store_option_for("The DuckDB store, or a lake to read from")
# Of commands that write into it.
written_store_option = store_option_for("The DuckDB store")

run_argument = click.argument("run", shell_complete=complete_runs)

runs_argument = click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_runs)

_OF_ALL_FORMATS = (
    "json, csv and parquet have every digit; parquet goes to a pipe or a file. csv has a ' before"
    " text that a spreadsheet would run."
)


def format_option(*formats: str) -> Callable[[F], F]:
    """Return the option ``--format`` (`output_format`); the first format is the default."""
    choices = formats or FORMATS
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        help=_OF_ALL_FORMATS if "csv" in choices else "json has every digit.",
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


def as_option(function: F) -> F:
    """``--as`` (`as_version`): other rules than those that were recorded."""
    return click.option(
        "--as",
        "as_version",
        metavar="RULES",
        help="Rules instead of those recorded: v1, v2, v3, ./mybbr.py or a variant (listed by"
        " `bbrscope what-if --help`).",
    )(function)


def set_option(function: F) -> F:
    """``--set`` (`settings`): parameters with other values than those that were recorded."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Another value of a parameter (kernel units, or 5%). Repeatable.",
    )(function)
