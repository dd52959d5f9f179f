"""One line on a terminal while recording."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TextIO

from ...probes.base.plurals import plural

EVENT_FIRST_ROWS = ("M", "M0", "T", "T0")


class Progress:
    """Elapsed time, events per second, flows, lost rows, size; nothing where nobody looks."""

    def __init__(self, stream: TextIO, quiet: bool) -> None:
        self.stream = stream
        self.shown = stream.isatty() and not quiet
        self._last = (0.0, 0)

    def show(self, elapsed_s: float, rows: Mapping[str, int], lost: int, written: int) -> None:
        """Write the line anew, at most once a second. `rows` counts by tag, `written` bytes."""
        if not self.shown or elapsed_s - self._last[0] < 1.0:
            return
        events = sum(count for tag, count in rows.items() if tag in EVENT_FIRST_ROWS)
        rate = (events - self._last[1]) / max(elapsed_s - self._last[0], 1e-9)
        self._last = (elapsed_s, events)
        flows = sum(rows.get(tag, 0) for tag in ("I", "I0", "N", "N0"))
        self._write(
            f"\r{elapsed_s:7.0f} s  {rate:8.0f} events/s  {plural(flows, 'flow')}  {lost} lost"
            f"  {written / 1e6:.1f} MB "
        )

    def done(self) -> None:
        """Leave the line."""
        if self.shown:
            self._write("\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal may go before the recording does
            self.stream.write(text)
            self.stream.flush()
