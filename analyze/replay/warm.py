"""Compile a version's replay loop ahead of its use: ``python -m bbrscope.analyze.replay.warm v2``.

Compilation takes some ten seconds, once per machine and release. A process of its own lets it run
beside other work: numba holds the interpreter's lock, and keeps what it compiled on disk.
"""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np

from ..bbr import params
from ..bbr.records import EVENT, STATE_COLUMNS
from .passes import run_pass
from .prepare import FlowEvents


def compile_loop(version: str, decisions: bool = True) -> None:
    """Replay a single init on zeros, so that the loop is compiled, or loaded from the cache."""
    events = np.zeros(1, EVENT)
    states = np.zeros((2, len(STATE_COLUMNS)), np.int64)
    compared = np.zeros(len(STATE_COLUMNS), np.int64)
    flow = FlowEvents(states, events, {}, compared)
    record = params.make(params.DEFAULTS[version] | {"HZ": 1000})
    run_pass(flow, version, record, "step", decisions)


def start(version: str) -> subprocess.Popen[bytes]:
    """Begin to compile beside the caller's work; wait for it before the first replay."""
    command = [sys.executable, "-m", __name__, version]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    gc.disable()  # a compiler makes much and drops little, and this process ends with it
    compile_loop(sys.argv[1])
