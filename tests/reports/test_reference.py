"""The references say what the commands and the estimator say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bbrscope.analyze.bbr.params import PARAMETERS
from bbrscope.reports.cli import COMMANDS
from bbrscope.reports.reference import PAGES

FOLDER = Path(__file__).resolve().parents[2] / "reports"


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_is_what_the_program_says(name: str) -> None:
    # In a process of its own: click keeps what it made of a command's help when it was first asked.
    script = f"from bbrscope.reports.reference import PAGES; print(PAGES[{name!r}]())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    again = "make it anew: python -m bbrscope.reports.reference"
    assert f"{(FOLDER / name).read_text()}\n" == done.stdout, again + done.stderr


def test_every_command_and_its_options_are_in_the_reference() -> None:
    text = (FOLDER / "REFERENCE.md").read_text()
    for name in COMMANDS:
        assert f"\n## bbrscope {name}\n" in text
    for option in ("--between FROM TO", "--where SQL", "--salvage", "--set NAME=VALUE"):
        assert option in text


def test_every_parameter_has_a_unit_or_is_a_plain_number_and_says_what_it_does() -> None:
    text = (FOLDER / "PARAMETERS.md").read_text()
    assert len(PARAMETERS) >= 60
    for name, parameter in PARAMETERS.items():
        assert f"| `{name}` | {parameter.unit} |" in text
        assert len(parameter.meaning.split()) >= 3, name
