"""``bbrscope top``: this host's BBR flows as they are now."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

import click

from ...probes.base.errors import BbrscopeError
from ..live.live_options import LiveRequest, live_options
from ..options import gather
from ..text.screen import say

if TYPE_CHECKING:
    from ...analyze.live.live_session import LiveSession

SORTS = (
    "delivered_mbps flow phase bw_mbps pacing_mbps in_flight cwnd inflight_lo inflight_hi limit"
    " loss srtt_ms min_rtt_ms decision"
).split()


@click.command()
@live_options
@click.option("--sort", type=click.Choice(SORTS), default=SORTS[0], show_default=True)
@click.option("--filter", "words", default="", help="Only flows with this text in any column.")
@click.option("-d", "--duration", type=click.FloatRange(min=0.1), help="End after so many seconds.")
@click.option("--once", is_flag=True, help="Look for 3 seconds (or -d), print, and end.")
@click.option("--json", "as_json", is_flag=True, help="With --once: a line of JSON per flow.")
@gather(LiveRequest)
def command(
    request: LiveRequest,
    sort: str,
    words: str,
    duration: float | None,
    once: bool,
    as_json: bool,
) -> None:
    """Show this host's BBR flows as they are now, by the best rung that the host has.

    Of each flow: phase, delivered rate, BBR's bandwidth and pacing, what is in flight and its
    bounds, what limits, loss, RTT, and the last decision in words. A dash is what the rung does
    not tell: only fentry and kprobe see decisions, and ss sees neither bounds nor losses. Keys: s
    sorts, / filters, space freezes, Enter opens the story of the chosen flow, q quits.

    \b
    Examples:
      sudo bbrscope top
      sudo bbrscope top --port 443 --sort loss
      sudo bbrscope top --once --json | jq 'select(.loss > 0.01)'
      bbrscope top --rung inet_diag --once           (no root: what ss tells)
    """
    from ...analyze.live.live_session import LiveSession
    from ...collect.record.recording import ended_by_signals

    if as_json and not once:
        raise click.UsageError("--json needs --once")
    draws = not once and sys.stdout.isatty()
    if draws:
        require_terminal()
    session = LiveSession(request.plan(), lambda text: say(text, err=True))
    with ended_by_signals(session):
        try:
            session.start()
            if draws:
                _show(session, sort, words, duration)
            else:
                _print_once(session, sort, words, duration or 3.0, as_json)
        finally:
            session.stop()
    session.require_attached()


def _print_once(session: LiveSession, sort: str, words: str, seconds: float, as_json: bool) -> None:
    """Look for some seconds, and print the flows."""
    from ..text import flow_screen

    end = time.monotonic() + seconds
    while time.monotonic() < end and not session.ended:
        session.tick()
        time.sleep(0.2)
    flows = flow_screen.ordered(session.flows.flows, sort, words)
    if not flows:
        say(f"nothing came of any flow within {seconds:g} s: -d looks for longer", err=True)
    if as_json:
        for flow in flows:
            say(json.dumps({**flow.as_dict(), "rung": session.rung}))
        return
    wide = flow_screen.columns(flows)
    say(flow_screen.heading(wide))
    for flow in flows:
        say(flow_screen.line(flow, wide))


def require_terminal() -> None:
    """See that curses(3) knows the terminal, before anything is attached.

    Raises:
        BbrscopeError: it does not.
    """
    import curses

    try:
        curses.setupterm()
    except curses.error as error:
        raise BbrscopeError(
            f"cannot draw on the terminal {os.environ.get('TERM', '')!r}: {error}",
            "name one that this host knows (TERM=xterm), or use --once",
        ) from error


def _show(session: LiveSession, sort: str, words: str, duration: float | None) -> None:
    """Draw until the user quits."""
    import curses

    from ..live.live_screen import LiveScreen

    until = time.monotonic() + duration if duration else float("inf")
    os.environ.setdefault("ESCDELAY", "25")  # ms; curses waits a second to see what Escape begins
    curses.wrapper(lambda screen: LiveScreen(session, sort, words).run(screen, until))
