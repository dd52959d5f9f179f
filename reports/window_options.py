"""``--between`` and ``--steady``: the part of each run that a command measures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from ..probes.base.errors import BbrscopeError
from .parameter_types import TimeType
from .text.quantities import fixed

if TYPE_CHECKING:
    from ..analyze.compare.run_windows import RunWindows
    from ..collect.store.store import Store

F = TypeVar("F", bound=Callable[..., object])


def window_options(function: F) -> F:
    """Add both options."""
    steady = click.option(
        "--steady",
        is_flag=True,
        help="Only the steady state: from when every flow that counts (view senders) has left "
        "STARTUP and DRAIN until the first of them ends.",
    )
    between = click.option(
        "--between",
        nargs=2,
        type=TimeType(),
        metavar="FROM TO",
        help="Only this time of each run's clock, as in 5s 20s.",
    )
    return between(steady(function))


def check(between: tuple[int, int] | None, steady: bool) -> None:
    """Refuse both options at once, and a window that ends before it begins.

    Raises:
        click.UsageError: both are given, or the window ends before it begins.
    """
    if between and steady:
        raise click.UsageError("--between and --steady are two windows: choose one")
    if between and between[0] >= between[1]:
        raise click.BadParameter("FROM must be before TO", param_hint="--between")


def windows_of(
    store: Store, run_ids: Sequence[int], between: tuple[int, int] | None, steady: bool
) -> RunWindows | None:
    """Return the window of each run; `between` is in ns on its clock. None: measure whole runs.

    Raises:
        BbrscopeError: both are given, or a run has no steady state.
    """
    from ..analyze.compare import run_windows

    if between and steady:
        raise BbrscopeError("a time and the steady state are two windows", "give one of them")
    if steady:
        return run_windows.steady(store.con, run_ids)
    return run_windows.between(store.con, run_ids, *between) if between else None


def nanoseconds(between: tuple[float, float] | None) -> tuple[int, int] | None:
    """Return a window in ns; `between` is in seconds.

    >>> nanoseconds((0.5, 2))
    (500000000, 2000000000)
    """
    return (round(between[0] * 1e9), round(between[1] * 1e9)) if between else None


def window_notes(store: Store, windows: RunWindows | None) -> list[str]:
    """Return lines that say from when until when each run is measured; none for whole runs."""
    if windows is None:
        return []
    query = "SELECT run_id, run, zero_ns FROM run_clocks"
    lines = []
    for run_id, run, zero in store.con.execute(query).fetchall():
        if run_id in windows.ends:
            first, last = (fixed((ns - zero) / 1e9, 3) for ns in windows.ends[run_id])
            lines.append(f"{run}: measured from {first} s to {last} s")
    return lines
