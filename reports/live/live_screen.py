"""`bbrscope top` in a terminal: a table of flows that is drawn anew, and the story of one."""

from __future__ import annotations

import contextlib
import curses
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ...probes.base.plurals import plural
from ..text import flow_screen
from ..text.print_table import printable

if TYPE_CHECKING:
    from ...analyze.live.live_flows import FlowNow
    from ...analyze.live.live_session import LiveSession

KEYS = "q quit  s/S sort  / filter  space freeze  up/down choose  enter story  esc back"
# Lines above the flows: what is shown, the keys, the names of the columns.
ABOVE = ("state", "keys", "heading")
UNCHANGED = "nothing has changed since it is watched"
GONE = "nothing comes of this flow any more: it ended, or stands still"
TICK_MS = 200
ESCAPE, ENTER, BACKSPACE = 27, (10, 13, curses.KEY_ENTER), (8, 127, curses.KEY_BACKSPACE)


class LiveScreen:
    """What is shown and how: sort, filter, frozen, chosen flow, and whose story is open."""

    def __init__(self, session: LiveSession, sort: str, words: str) -> None:
        self.session = session
        self.sort = sort
        self.words = words
        self.frozen = False
        self.typing = False
        self.chosen = ""
        self.story: str | None = None
        # All flows as they were at `taken_ns` (CLOCK_MONOTONIC), and what is shown of them.
        self.taken: list[FlowNow] = []
        self.taken_ns = 0
        self.flows: list[FlowNow] = []
        self.changes: list[tuple[int, str]] = []
        self.done = False

    def run(self, screen: curses.window, until: float) -> None:
        """Draw and obey keys until the user quits, the recording ends, or it is `until`.

        `until` is in seconds of time.monotonic().
        """
        with contextlib.suppress(curses.error):  # not every terminal can hide its cursor
            curses.curs_set(0)
        screen.timeout(TICK_MS)
        while not self.done and not self.session.ended and time.monotonic() < until:
            self.session.tick()
            self.look()
            self.draw(screen)
            if (key := screen.getch()) >= 0:
                self.press(key)

    def look(self) -> None:
        """Take the flows as they are now, unless the screen is frozen: they change as they are.

        Frozen ones can still be sorted and filtered: the first line says by what.
        """
        if not self.frozen:
            self.taken = [replace(flow) for flow in self.session.flows.flows]
            self.taken_ns = time.monotonic_ns()
            if self._is_alive:
                self.changes = self.session.flows.story(self.story or "")
        self.flows = flow_screen.ordered(self.taken, self.sort, self.words)

    def press(self, key: int) -> None:
        """Obey a key."""
        if self.typing:
            self._type(key)
        elif key == ord("q"):
            self.done = True
        elif key in (ord("s"), ord("S")):
            step = 1 if key == ord("s") else -1
            at = flow_screen.SORTS.index(self.sort) + step
            self.sort = flow_screen.SORTS[at % len(flow_screen.SORTS)]
        elif key == ord("/"):
            self.typing, self.words = True, ""
        elif key == ord(" "):
            self.frozen = not self.frozen
        elif key in (curses.KEY_UP, curses.KEY_DOWN):
            step = 1 if key == curses.KEY_DOWN else -1
            at = max(0, min(self.marked + step, len(self.flows) - 1))
            self.chosen = self.flows[at].flow if self.flows else ""
        elif key in ENTER and self.flows:
            self._open(self.flows[self.marked].flow)
        elif key == ESCAPE:
            self.story = None

    def _open(self, flow: str) -> None:
        """Show a flow's story; on a frozen screen the story until then."""
        self.story = flow
        changes = self.session.flows.story(flow)
        self.changes = [one for one in changes if not self.frozen or one[0] <= self.taken_ns]

    @property
    def _is_alive(self) -> bool:
        """Whether the flow whose story is open is among those that were taken."""
        return any(flow.flow == self.story for flow in self.taken)

    def _type(self, key: int) -> None:
        """Words of the filter, until Enter or Escape."""
        if key in ENTER or key == ESCAPE:
            self.typing = False
        elif key in BACKSPACE:
            self.words = self.words[:-1]
        elif 32 <= key < 127:
            self.words += chr(key)

    @property
    def marked(self) -> int:
        """The row of the chosen flow, wherever sorting has put it; the first if it is gone."""
        names = [flow.flow for flow in self.flows]
        return names.index(self.chosen) if self.chosen in names else 0

    def lines(self, height: int, width: int | None = None) -> list[str]:
        """The lines to draw, at most `height`, of at most `width` characters."""
        state = [f"{plural(len(self.flows), 'flow')} by {self.sort}", self.session.rung]
        state += [f"only /{self.words}"] if self.words or self.typing else []
        state += ["FROZEN"] if self.frozen else []
        top = ["bbrscope top: " + ", ".join(state), KEYS]
        if self.story is not None:
            return [*top, self.story, *self._story_lines(height - 3)][:height]
        wide = flow_screen.columns(self.flows, width)
        first = self._first(height)
        rows = [flow_screen.line(flow, wide) for flow in self.flows[first:]]
        return [*top, flow_screen.heading(wide), *rows][:height]

    def _first(self, height: int) -> int:
        """The first flow that is shown: the chosen one is always on the screen."""
        return max(0, self.marked - max(height - len(ABOVE), 1) + 1)

    def _story_lines(self, room: int) -> list[str]:
        gone = [] if self._is_alive else [GONE]
        shown = self.changes[max(len(self.changes) + len(gone) - max(room, 0), 0) :]
        lines = [f"{(ns - self.taken_ns) / 1e9:8.2f} s  {words}" for ns, words in shown]
        return [*(lines or [UNCHANGED]), *gone]

    def draw(self, screen: curses.window) -> None:
        """Draw; what does not fit is left out."""
        height, width = screen.getmaxyx()
        screen.erase()
        marked = len(ABOVE) + self.marked - self._first(height) if self.story is None else -1
        for row, text in enumerate(self.lines(height, width - 1)):
            style = curses.A_REVERSE if row == marked else curses.A_BOLD if row == 2 else 0
            screen.addnstr(row, 0, printable(text), max(width - 1, 0), style)
        screen.refresh()
