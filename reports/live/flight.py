"""`collect --last`: from the options of the command line to the flight recorder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ...probes.base.errors import BbrscopeError
from ..text.screen import say

if TYPE_CHECKING:
    from ...collect.flight.flight_recorder import FlightPlan
    from ...collect.flight.triggers import Watcher
    from ...collect.record.plan import RecordingPlan
    from ..commands.collect import CollectRequest


def record_flight(plan: RecordingPlan, request: CollectRequest) -> NoReturn:
    """Record into memory until something ends it, and exit as COMMAND did.

    Raises:
        BbrscopeError: a trigger is not understood, or nothing could be recorded.
    """
    from ...collect.flight.flight_recorder import fly

    dumps, ended, status = fly(plan, flight_plan(request), lambda text: say(text, err=True))
    say(f"ended: {ended}; {len(dumps)} bundle{'' if len(dumps) == 1 else 's'}", err=True)
    if dumps:
        say(f"  next: bbrscope ingest {' '.join(map(str, dumps))}", err=True)
    if ended.startswith("bpftrace ended"):
        raise BbrscopeError(ended, "bbrscope doctor")
    sys.exit(status)


def flight_plan(request: CollectRequest) -> FlightPlan:
    """What to keep and what to wait for.

    Raises:
        BbrscopeError: a time or a trigger is not understood.
    """
    from ...collect.flight.flight_recorder import FlightPlan
    from ...collect.lab.units import time_us

    text = request.last or request.rotate or ""
    seconds = time_us(text) / 1e6
    if seconds < 1:
        raise BbrscopeError(f"{text} is too short a time to keep", "give a second or more: 60s")
    rotates = request.rotate is not None
    return FlightPlan(
        seconds * 2 if rotates else seconds,  # a rotation may come late, and loses nothing
        request.memory,
        watchers_of(request.until),
        0.0 if rotates else time_us(request.after) / 1e6,
        request.keep,
        seconds if rotates else None,
    )


def unit() -> str:
    """A systemd unit of a flight recorder."""
    return Path(__file__).with_name("bbrscope.service").read_text()


def watchers_of(texts: Sequence[str]) -> tuple[tuple[str, Watcher], ...]:
    """The watchers of triggers; those that need the estimator share one.

    Decisions and SQL conditions import the packages of the analysis; the other triggers do not, so
    that a host that only records needs none of them.

    Raises:
        BbrscopeError: there is no such trigger.
    """
    from ...collect.flight.triggers import of_rows

    watchers = {text: of_rows(text) for text in texts}
    if None in watchers.values():
        from ...analyze.live.follower import Follower
        from ...analyze.live.live_triggers import of_analysis

        follower = Follower(wanted=())  # each decision adds its own
        watchers = {text: one or of_analysis(text, follower) for text, one in watchers.items()}
    return tuple((text, one) for text, one in watchers.items() if one is not None)
