"""Terminals that go while it records, and shells that ask to be outlived."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from bbrscope.collect.record.progress import Progress
from bbrscope.collect.record.recording import ended_by_signals

from tests.collect.record.test_record_host import Traffic, collect, manifest, needs_bbr


@pytest.mark.parametrize("ignored", [False, True])
def test_a_hang_up_ends_a_recording_unless_nohup_asked_to_ignore_it(ignored: bool) -> None:
    recording = SimpleNamespace(ended="")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with ended_by_signals(recording):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert recording.ended == ("" if ignored else "SIGHUP")


@needs_bbr
def test_a_recording_goes_on_though_nobody_reads_what_it_says(tmp_path: Path) -> None:
    words = ("--rung", "inet_diag", "--no-packets", "--rotate", "1s", "-d", "3")
    with Traffic() as flow:
        words = (*words, "--port", str(flow.port), "-o", str(tmp_path / "run"))
        running = subprocess.Popen(collect(*words), stderr=subprocess.PIPE, text=True)
        assert running.stderr is not None
        assert "watching" in running.stderr.readline()
        running.stderr.close()
        assert running.wait(200) == 0
    assert len({manifest(dump)["flight"]["until_ns"] for dump in tmp_path.glob("run-*")}) >= 2


def test_progress_goes_on_without_its_terminal() -> None:
    terminal, end = os.openpty()
    stream = open(end, "w", buffering=1)  # noqa: SIM115 (closing it fails, too)
    progress = Progress(stream, quiet=False)
    os.close(terminal)
    progress.show(2.0, {"M": 7}, 0, 1000)
    progress.done()
    with pytest.raises(OSError, match="Input/output"):
        stream.close()
