"""Links that open a window of the charts, in and out of text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class At:
    """A place in the charts: `text` opens the window from `a` to `b`, in seconds on the axis."""

    text: str
    a: float
    b: float

    @property
    def href(self) -> str:
        """The address fragment that opens the window."""
        return fragment(self.a, self.b)


# A paragraph: text and places, one after the other.
Linked = list[str | At]


def fragment(a: float, b: float) -> str:
    """Return the address fragment that opens a window of the charts.

    >>> fragment(12.3, 14)
    '#t=12.3000-14.0000'
    """
    return f"#t={a:.4f}-{b:.4f}"
