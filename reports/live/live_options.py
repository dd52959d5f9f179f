"""Options of the commands that look on: which flows, and how to attach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from ...collect.bundle.rungs import LADDER

if TYPE_CHECKING:
    from ...collect.record.plan import RecordingPlan

F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class LiveRequest:
    """Which flows to look at, and how."""

    port: tuple[int, ...]
    address: tuple[str, ...]
    pid: tuple[int, ...]
    netns: str | None
    bbr: str | None
    rung: str | None
    wait: bool

    def plan(self) -> RecordingPlan:
        """What to attach to; nothing is written."""
        from ...collect.record.filters import Filters
        from ...collect.record.plan import RecordingPlan

        return RecordingPlan(
            output=Path("live"),
            select=Filters(self.port, self.address, self.pid, (), self.netns),
            bbr=self.bbr,
            rung=self.rung,
            packets=False,
            wait=self.wait,
        )


def live_options(function: F) -> F:
    """The options of `LiveRequest`."""
    options = (
        click.option(
            "--port", multiple=True, type=click.IntRange(1, 65535), help="Only this port."
        ),
        click.option("--address", multiple=True, help="Only this address, either end."),
        click.option(
            "--pid",
            multiple=True,
            type=click.IntRange(min=1),
            help="Only what this process connects, listens for or is handed.",
        ),
        click.option("--netns", help="Only this network namespace (ip netns list)."),
        click.option(
            "--bbr", type=click.Choice(["v1", "v2", "v3"]), help="Which BBR, if there are two."
        ),
        click.option(
            "--rung",
            type=click.Choice([rung.name for rung in LADDER]),
            help="Attach this way or not at all, instead of the best that holds.",
        ),
        click.option("--wait", is_flag=True, help="Wait until a socket asks for BBR, if none has."),
    )
    for option in reversed(options):
        function = option(function)
    return function
