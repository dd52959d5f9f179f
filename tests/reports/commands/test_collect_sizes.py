"""Sizes as `collect` takes them: --buffer, --memory, --max-size."""

from __future__ import annotations

import click
import pytest
from bbrscope.reports.commands.collect import command, parse_size

PARAM = click.Option(["--size"])


@pytest.mark.parametrize(
    ("text", "size"),
    [("500", 500), ("500M", 500 * 10**6), ("1.5GB", 1_500_000_000), ("64MiB", 64 << 20),
     ("2Gi", 2 << 30), ("8kb", 8_000)],
)  # fmt: skip
def test_a_size_is_what_its_unit_says(text: str, size: int) -> None:
    assert parse_size(click.Context(command), PARAM, text) == size


@pytest.mark.parametrize("text", ["", "M", "5iB", "1e9", "-1M", "9" * 400])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a size"):
        parse_size(click.Context(command), PARAM, text)
