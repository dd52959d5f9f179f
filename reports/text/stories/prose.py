"""Text with places in time: what is said, and where in the run it can be seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class TimedText:
    """Words about a time of the run, from `start_ns` to `end_ns` [CLOCK_MONOTONIC]."""

    text: str
    start_ns: int
    end_ns: int


# A paragraph: text and places, one after the other.
Prose = list[str | TimedText]


def plain(prose: Iterable[str | TimedText]) -> str:
    """Return a paragraph as plain text.

    >>> plain(["It was in ", TimedText("STARTUP", 0, 10), "."])
    'It was in STARTUP.'
    """
    return "".join(part if isinstance(part, str) else part.text for part in prose)
