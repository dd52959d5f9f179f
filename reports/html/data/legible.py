"""Texts of strangers as a page and a figure may show them: nothing in one changes how it reads."""

from __future__ import annotations

from ...text.print_table import printable

# XML allows these of the control characters; what we write ourselves has them.
_ALLOWED = "\n\t"


def legible(text: str) -> str:
    """Return a text with escapes for what is not seen: marks of direction, control characters.

    A mark of direction would have "txt.exe" read as "exe.txt", and with a control character a
    figure would not be XML.

    >>> legible("a\\u202egnp")
    'a\\\\u202egnp'
    """
    if text.isprintable():
        return text
    return "".join(char if char in _ALLOWED else printable(char) for char in text)


def legible_texts(value: object) -> object:
    """Return the same data with every text in it, keys too, made legible."""
    if isinstance(value, str):
        return legible(value)
    if isinstance(value, dict):
        return {legible_texts(key): legible_texts(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [legible_texts(one) for one in value]
    return value
