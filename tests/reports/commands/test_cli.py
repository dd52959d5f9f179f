"""The command line's own promises: lazy, complete in its help, and never a traceback."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import click
import duckdb
import pytest
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.reports import cli
from click.testing import CliRunner


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_has_help_that_begins_with_what_it_does(name: str) -> None:
    done = CliRunner().invoke(cli.cli, [name, "--help"])
    assert done.exit_code == 0
    assert f"{name} [OPTIONS]" in done.output
    assert len(done.output.splitlines()) > 5


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom bbrscope.reports import cli\n"
        "try:\n cli.cli.main(['--help'])\nexcept SystemExit:\n pass\n"
        "heavy = {'numba', 'polars', 'duckdb', 'altair', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_commands_that_only_read_import_no_compiler(shipped_path: Path) -> None:
    """numba takes half a second, as long as what they do."""
    run = "v2_x_spur"
    asked = [["sql", "SELECT 1"], ["metrics", run], ["explain", run], ["diagnose", run]]
    script = (
        "import sys\nfrom bbrscope.reports import cli\n"
        f"for words in {asked}:\n"
        " try:\n"
        f"  cli.cli.main([*words, '--store', {str(shipped_path)!r}])\n"
        " except SystemExit as end:\n"
        "  assert not end.code and 'numba' not in sys.modules, words\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _failing(error: Exception) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


def test_errors_are_fact_and_way_out_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "cli", _failing(BbrscopeError("the disk is full", "make room")))
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "bbrscope: the disk is full\n  make room\n"


def test_a_mistake_of_bbrscopes_own_is_no_traceback_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BBRSCOPE_TRACEBACK", raising=False)
    monkeypatch.setattr(cli, "cli", _failing(ZeroDivisionError("division by zero")))
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 1
    assert "internal error: ZeroDivisionError" in capsys.readouterr().err
    monkeypatch.setenv("BBRSCOPE_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main([])


def test_a_file_that_the_host_refuses_is_named_and_no_mistake_of_bbrscopes_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = PermissionError(errno.EACCES, "Permission denied", "/root/x.duckdb")
    monkeypatch.setattr(cli, "cli", _failing(refused))
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "bbrscope: cannot use /root/x.duckdb: Permission denied\n"


def test_wrong_usage_is_status_2() -> None:
    assert CliRunner().invoke(cli.cli, ["nosuch"]).exit_code == 2
    assert CliRunner().invoke(cli.cli, ["replay", "--nosuch"]).exit_code == 2


@pytest.mark.parametrize("option", ["--follow", "--anonymize", "--max-size=1M"])
def test_what_the_flight_recorder_does_not_do_is_refused_before_anything_is_attached(
    option: str,
) -> None:
    for kept in ("--last=5s", "--rotate=5s"):
        done = CliRunner().invoke(cli.cli, ["collect", kept, option])
        assert done.exit_code == 2
        assert option.partition("=")[0] in done.output
        assert "for a recording into one bundle" in done.output


# Ctrl-C as Python 3.11 tells it there.
WHILE_A_CLASS_WAS_MADE = RuntimeError("Error calling __set_name__ on 'Field' instance")
WHILE_A_CLASS_WAS_MADE.__cause__ = KeyboardInterrupt()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (duckdb.Error("Corrupt database file: computed checksum 1 does not match"), "is damaged"),
        (duckdb.IOException("Could not write file: No space left on device"), "is full"),
        (RuntimeError("Query interrupted"), "Aborted!"),
        (WHILE_A_CLASS_WAS_MADE, "Aborted!"),
        (OSError(errno.ENOSPC, "No space left on device"), "cannot use the output"),
    ],
)
def test_what_the_host_or_a_file_refuses_is_no_internal_error(
    error: Exception,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(cli.cli, "main", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main(["runs"])
    assert ended.value.code == 1
    message = capsys.readouterr().err
    assert words in message
    assert "internal error" not in message
