"""Lines of an event stream that are no rows, and rows that cannot be: notes, or an error."""

from __future__ import annotations

import re

from ....probes.base.errors import BundleError
from ....probes.base.plurals import worded
from ...bundle.quality import CODES, QualityNote
from .text_source import SALVAGE

MAX_BAD_ROWS = 10_000
# Lines that are no rows (blank, or messages) and noted messages of losses: thousands of times what
# a recorder writes.
MAX_MESSAGES = 100_000
MAX_LOSS_NOTES = 1_000
MAX_LOST = 1 << 62

LOST = re.compile(r"Lost ([0-9]+) events")
# Lines that bpftrace prints among the rows; they carry no data.
CHATTER = re.compile(r"|Attach(ing|ed) .*|Lost .*|WARNING: .*|stdin:.*|@.*|\s+", re.DOTALL)


class LineNotes:
    """What the lines of one stream say besides their data.

    Attributes:
        notes: what is missing or odd, in the order of the lines.
        lost_reported: rows lost as the collector's messages say.
    """

    def __init__(self, shown: str, salvage: bool) -> None:
        self.shown = shown
        self.salvage = salvage
        self.notes: list[QualityNote] = []
        self.lost_reported = 0
        self._bad_rows = 0
        self._first_bad: BundleError | None = None
        self._messages = 0

    def foreign(self, number: int, what: str) -> BundleError:
        """Make the error for a file that no recorder writes."""
        return BundleError(
            f"{self.shown}, line {number}: {what}",
            "this is not a recording; BUNDLE.md describes the file",
        )

    def count_message(self, number: int) -> None:
        """Count a line that is no row.

        Raises:
            BundleError: there are more than any recorder writes.
        """
        self._messages += 1
        if self._messages > MAX_MESSAGES:
            raise self.foreign(number, f"more than {MAX_MESSAGES} lines that are no rows")

    def take_message(self, line: str, number: int) -> bool:
        """Take a line that bpftrace printed among the rows; tell whether it reports lost rows."""
        self.count_message(number)
        match = LOST.search(line)
        if match is None:
            return False
        self.lost_reported = min(self.lost_reported + int(match[1][:18]), MAX_LOST)
        if self._messages <= MAX_LOSS_NOTES:
            text = worded(CODES["lost_message"], text=line.strip()[:200])
            self.notes.append(QualityNote("lost_message", text, line=number))
        return True

    def refuse(self, what: str, number: int) -> None:
        """Note a row that is dropped because `what` is wrong with it.

        Raises:
            BundleError: the stream has too many such rows.
        """
        if self._first_bad is None:
            self._first_bad = BundleError(f"{self.shown}, line {number}: {what}", SALVAGE)
        self._bad_rows += 1
        if self._bad_rows > MAX_BAD_ROWS:
            raise BundleError(
                f"{self.shown}, line {number}: {what}, and {MAX_BAD_ROWS} bad rows before it",
                "this is not a recording that can be salvaged; record again",
            )
        detail = worded(CODES["bad_row"], what=what)
        self.notes.append(QualityNote("bad_row", detail, line=number))

    def settle(self) -> None:
        """Once all is read: that a stream can be salvaged is known, and no error stands before it.

        Raises:
            BundleError: there was a bad row, and the stream is not to be salvaged.
        """
        if self._first_bad is not None and not self.salvage:
            raise self._first_bad

    def note_cut(self, what: str, number: int) -> None:
        """Note that the stream ends early, and why."""
        self.notes.append(QualityNote("cut_off", worded(CODES["cut_off"], what=what), line=number))
