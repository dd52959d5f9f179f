"""Calls of the host's small tools, whose failure means that they have nothing to say."""

from __future__ import annotations

import subprocess


def how_ended(status: int) -> str:
    """How a process ended, in a word and a number; `status` as subprocess has it."""
    return f"status {status}" if status >= 0 else f"signal {-status}"


def output_of(command: list[str]) -> str:
    """A tool's output, "" when it fails or does not answer within 20 s."""
    return answer_of(command) or ""


def answer_of(command: list[str]) -> str | None:
    """A tool's output, None when it fails or does not answer within 20 s."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=20,
            check=False,
            process_group=0,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
