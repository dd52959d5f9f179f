"""Each command's function takes the options that the command has, and has no other arguments."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator

import click
import pytest
from bbrscope.reports.cli import cli


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands(cli))


def test_there_are_commands() -> None:
    assert {"replay", "model ware", "lab run"} <= set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_commands_function_takes_its_options(name: str) -> None:
    command = COMMANDS[name]
    assert command.callback is not None
    takes = {parameter.name for parameter in command.params if parameter.expose_value}
    gathered: set[str] = set()
    function = command.callback
    while hasattr(function, "__wrapped__"):  # see options.gather
        options = inspect.getclosurevars(function).nonlocals.get("options")
        if dataclasses.is_dataclass(options):
            gathered |= {field.name for field in dataclasses.fields(options)}
        function = function.__wrapped__
    arguments = set(inspect.signature(function).parameters)
    # What is gathered arrives as one object: the first argument.
    first = {next(iter(arguments - takes), "")} if gathered else set()
    assert takes == (arguments - first) | gathered
