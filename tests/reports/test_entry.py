"""The program's first lines: an old Python reads them and is told a way out."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bbrscope.reports import entry

TOP = Path(__file__).resolve().parents[2]
# What a Python runs before it can be told to be too old.
FIRST = ("reports/entry.py", "reports/__main__.py", "reports/__init__.py", "__init__.py")


def test_an_old_python_is_a_plain_sentence_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entry.sys, "version_info", (3, 9, 2, "final", 0))
    with pytest.raises(SystemExit) as ended:
        entry.main()
    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert said.startswith("bbrscope: this is Python 3.9.2, and bbrscope needs 3.11 or newer\n")
    assert "collect --print-script" in said
    requires = next(
        line for line in (TOP / "pyproject.toml").read_text().splitlines() if "requires-py" in line
    )
    assert requires == f'requires-python = ">={entry.OLDEST[0]}.{entry.OLDEST[1]}"'


@pytest.mark.parametrize("name", FIRST)
def test_old_pythons_can_read_what_comes_before_that_sentence(name: str) -> None:
    folder = TOP / ".dev/bbrscope" if name == "__init__.py" else TOP
    ast.parse((folder / name).read_text(), feature_version=(3, 9))


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_what_is_opened_next_never_gets_the_number_of_a_closed_stream(
    closed: str, shipped_path: Path
) -> None:
    """A store under number 1 would get what child processes print."""
    script = (
        "import os, sys; from bbrscope.reports import entry;"
        "sys.argv[1:] = ['runs', '--store', sys.argv[1]];"
        "ended = None\n"
        "try: entry.main()\n"
        "except SystemExit as error: ended = error.code\n"
        "sys.exit(ended or os.open(sys.argv[3], os.O_RDONLY) < 3)"
    )
    words = ["sh", "-c", f'exec "$0" -c "$1" "$2" {closed}', sys.executable, script]
    done = subprocess.run([*words, str(shipped_path)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("v2_single_1bdp" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))


@pytest.mark.parametrize("words", [["--last", "9s"], ["--rotate=9s"], []])
def test_a_signal_that_comes_before_the_flight_recorder_is_there_does_not_end_it(
    words: list[str],
) -> None:
    """A recording that is none has no use for it: there it does what it usually does."""
    script = (
        "import os, signal, sys\n"
        "class Sender:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'bbrscope.reports.cli': os.kill(os.getpid(), signal.SIGUSR1)\n"
        "from bbrscope.reports import entry\n"
        "sys.meta_path.insert(0, Sender())\n"
        "entry.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "collect", *words, "--help"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == (0 if words else -signal.SIGUSR1), done.stderr
