"""The numbers that a claim's query measured, and how they read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from string import Formatter

from ...probes.base.plurals import plural, worded

Value = int | float | Decimal | str | None

# What a place in a template may ask for: thousands, digits, and a kind, or the words that follow 1
# and every other count; no widths, which could ask for gigabytes, and no names, which could reach
# into objects.
_SPEC = re.compile(r",?(\.[0-9]{1,2})?[dfgs]?|[\w ]+\|[\w ]+")
# Least and most of what was measured stand left and right of it.
_RANGE = " to "


@dataclass(frozen=True)
class ClaimNumbers:
    """Numbers and the words around them.

    Attributes:
        template: words with a place such as ``{:.1f}``, ``{}`` or ``{:run|runs}`` for each of
            `values`, as probes.base.plurals.worded() has them.
        values: what was measured, in the units that the words name; None where nothing was.
    """

    template: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        """Check the template.

        Raises:
            ValueError: it asks for something else than `values`, or in another way.
        """
        places = [(name, spec) for _, name, spec, _ in self._parsed() if name is not None]
        if len(places) != len(self.values):
            raise ValueError(
                f"{plural(len(places), 'place')} for {plural(len(self.values), 'value')}"
            )
        for name, spec in places:
            if name or not _SPEC.fullmatch(spec or ""):
                raise ValueError(f"the place {{{name}:{spec}}} is not like {{:,.1f}}")

    def _parsed(self) -> list[tuple[str, str | None, str | None, str | None]]:
        return list(Formatter().parse(self.template))

    def text(self) -> str:
        """Return the sentence; empty if something was not measured.

        A range whose ends read alike is one number, and so is one that only repeats its mean.

        >>> ClaimNumbers("{:.0f} to {:.0f} ms", (49.8, 50.2)).text()
        '50 ms'
        >>> ClaimNumbers("{:,d} losses, {:,d} to {:,d}", (7012, 7012, 7012)).text()
        '7,012 losses'
        >>> ClaimNumbers("{} of {:run|runs}", (1, 1)).text()
        '1 of 1 run'
        """
        if any(value is None for value in self.values):
            return ""
        left, shown = self._pieces()
        for at in range(len(shown) - 1, 0, -1):
            if left[at] == _RANGE and shown[at] == shown[at - 1]:
                # What followed the range's end follows the one number now.
                del left[at], shown[at]
        if len(shown) == 2 and shown[0] == shown[1] and left[1].endswith(", ") and not left[2]:
            left[1:], shown[1:] = [left[1].removesuffix(", ")], []
        return "".join(word + value for word, value in zip(left, [*shown, ""], strict=True))

    def _pieces(self) -> tuple[list[str], list[str]]:
        """The words before each value and after the last one, and the values as text."""
        left, shown, values = [""], [], iter(self.values)
        for words, name, spec, _ in self._parsed():
            left[-1] += words
            if name is not None:
                shown.append(_shown(next(values), spec or ""))
                left.append("")
        return left, shown


def claim_numbers(measured: object) -> ClaimNumbers:
    """Return what a query gave as ``measured``: NULL, words, or ``row(template, value, ...)``.

    Raises:
        ValueError: it is none of these.
    """
    if measured is None:
        return ClaimNumbers("", ())
    if isinstance(measured, str):
        return ClaimNumbers("{}", (measured,))
    if not isinstance(measured, tuple) or not measured or not isinstance(measured[0], str):
        raise ValueError(f"measured is {measured!r:.40}, not row('words {{}}', value)")
    return ClaimNumbers(measured[0], _typed(measured[1:]))


def _typed(values: Sequence[object]) -> tuple[Value, ...]:
    for value in values:
        if value is not None and not isinstance(value, int | float | Decimal | str):
            raise ValueError(f"{value!r:.40} is neither a number nor a word")
    return tuple(values)  # type: ignore[arg-type]  # just checked


def _shown(value: Value, spec: str) -> str:
    """Return a value as its place asks; zero has no sign."""
    if "|" in spec:
        return worded(f"{{value:{spec}}}", value=value)
    text = format(value, spec)
    return text[1:] if text.startswith("-") and not text.strip("-0.,") else text
