"""A pipe, socket, folder or device in the place of a file is called what it is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from bbrscope.probes.base.no_file import no_file

from tests.fuzz.commands import run

KINDS = {"pipe": "a pipe", "socket": "a socket", "folder": "a folder", "device": "a device"}


def made(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make one of `KINDS` there."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        # The path of a socket has at most 107 bytes.
        monkeypatch.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_called_what_it_is(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(kind, tmp_path / "x", monkeypatch)
    assert no_file(path) == f"{path} is {KINDS[kind]}, not a file"
    (tmp_path / "file").touch()
    assert no_file(tmp_path / "file") == ""
    assert no_file(tmp_path / "file" / "y") == f"cannot read {tmp_path}/file/y: Not a directory"
    assert no_file(tmp_path / "y") == f"there is no file {tmp_path}/y"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("ingest",), "x"),
        (("ingest", "--type", "ss"), "x"),
        (("lab", "list"), "./x.toml"),
        (("study",), "./x.toml"),
        (("simulate", "--path", "rate=20mbit,rtt=30ms", "-o", "out", "--cc"), "./x.py"),
        (("doctor", "--bundle"), "x"),
        (("runs", "--store"), "x"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_every_command_that_takes_a_file_says_what_it_got(
    kind: str, words: tuple[str, ...], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without waiting for a pipe or reading a device, and without a word of internal errors."""
    made(kind, tmp_path / name, monkeypatch)
    monkeypatch.chdir(tmp_path)
    done = run(*words, name)
    assert (done.status, done.failure) == (1, "")
    if words[0] in ("ingest", "runs") and kind == "folder" and len(words) < 3:
        # A folder may be a bundle; a store says in words of its own that it is none.
        assert "it is not a run bundle" in done.err or "is a folder, not a store" in done.err
    elif words[0] == "doctor":
        assert f"cannot read {name}/manifest.json: " in done.err
    else:
        assert f"{name.removeprefix('./')} is {KINDS[kind]}, not a file" in done.err
