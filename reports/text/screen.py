"""The one place that prints: whatever the text holds, a terminal obeys none of it."""

from __future__ import annotations

import re

import click

from .print_table import printable

# What click writes for bold text; nothing else that begins with ESC passes, no colour either: a
# stranger's black on black would hide what follows.
_STYLE = re.compile(r"(\x1b\[[01]m|\n)")


def say(
    text: str = "", err: bool = False, nl: bool = True, bold: bool = False, fg: str | None = None
) -> None:
    """Print a text, which may hold names and notes out of a stranger's file.

    Args:
        text: lines of text; control characters become escapes that can be read.
        err: to standard error; where nobody reads that any more, as after a terminal has gone,
            what is under way goes on all the same.
        nl: end with a new line.
        bold, fg: as `click.style`.
    """
    parts = _STYLE.split(text)
    clean = "".join(part if _STYLE.fullmatch(part) else printable(part) for part in parts)
    try:
        click.echo(click.style(clean, fg, bold=bold) if bold or fg else clean, err=err, nl=nl)
    except OSError:
        if not err:
            raise
