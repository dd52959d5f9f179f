"""References made from what the program itself says: its commands' help, and its parameters.

``python -m bbrscope.reports.reference`` writes both anew, beside this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click

from .cli import COMMANDS, cli

WIDTH = 100
_HEAD = """\
# Command-line reference

What `bbrscope COMMAND --help` prints, of every command. Made by
`python -m bbrscope.reports.reference`; a test keeps it true.
"""
_PARAMETERS_HEAD = """\
# Parameters

Every number that tunes BBR, as the estimator has it (`analyze/bbr/params.py`), with its value in
each version; - where a version has none. `bbrscope replay RUN --set NAME=VALUE` replays under
another value, in these units or, for those in 1/256, in percent. What a recording brings itself
(`HZ`, module parameters) comes before these. Made by `python -m bbrscope.reports.reference`; a
test keeps it true.

| name | unit | v1 | v2 | v3 | meaning | 0 means |
|---|---|---|---|---|---|---|
"""


def reference() -> str:
    """Return the help of every command and of their subcommands as Markdown."""
    parts = [_HEAD]
    settings = {**cli.context_settings, "max_content_width": WIDTH}
    with cli.make_context("bbrscope", [], resilient_parsing=True, **settings) as root:
        links = [f"- [`{name}`](#bbrscope-{name}): {about}" for name, about in COMMANDS.items()]
        parts.append("\n".join(links) + "\n")
        for name in COMMANDS:
            command = cli.get_command(root, name)
            assert command is not None
            parts += _sections(command, name, root)
    return "\n".join(parts)


def _sections(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    """Yield the section of a command, and those of its subcommands."""
    with click.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH
    ) as context:
        lines = [line.rstrip() for line in command.get_help(context).splitlines()]
        yield f"## {context.command_path}\n\n```text\n" + "\n".join(lines) + "\n```\n"
        if isinstance(command, click.Group):
            for subname in command.list_commands(context):
                subcommand = command.get_command(context, subname)
                assert subcommand is not None
                yield from _sections(subcommand, subname, context)


def parameters() -> str:
    """Return a table of the estimator's parameters as Markdown."""
    from ..analyze.bbr.params import DEFAULTS, PARAMETERS

    rows = []
    for name, one in PARAMETERS.items():
        values = [DEFAULTS[version].get(name, "-") for version in ("v1", "v2", "v3")]
        shown = [", ".join(map(str, v)) if isinstance(v, list) else str(v) for v in values]
        rows.append(f"| `{name}` | {' | '.join([one.unit, *shown, one.meaning, one.zero])} |\n")
    return _PARAMETERS_HEAD + "".join(rows)


# What is beside this module, and what writes it.
PAGES: dict[str, Callable[[], str]] = {"REFERENCE.md": reference, "PARAMETERS.md": parameters}


def main() -> None:
    """Write the pages anew."""
    for name, page in PAGES.items():
        (Path(__file__).resolve().parent / name).write_text(page())


if __name__ == "__main__":
    main()
