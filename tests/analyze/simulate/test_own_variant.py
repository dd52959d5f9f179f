"""A user's own variant: what the file must have, and that its rules are the ones that run."""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from pathlib import Path

import click
import pytest
from bbrscope.analyze.bbr import params
from bbrscope.analyze.bbr.variants import own_process
from bbrscope.analyze.bbr.variants import own_variant as own
from bbrscope.analyze.bbr.variants.own_variant import own_variant
from bbrscope.analyze.simulate.closed_loop import LEAST_SEEDS, under
from bbrscope.analyze.simulate.sender.slots import callback
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.reports.commands.what_if import command

GOOD = """
from bbrscope.analyze.bbr.versions.v2 import bbr_init, dispatch
BASE = "v2"
PARAMS = {"beta": 51}
"""
JIT = "from bbrscope.probes.base.jit import jit\n"


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("BASE = 'v9'", "BASE must be"),
        ("BASE = 'v3'", "no functions"),
        ("1 / 0", "cannot be loaded: ZeroDivisionError"),
        (GOOD + "PARAMS = {'alpha': 1}", "PARAMS must be"),
        (GOOD + "PARAMS = {'loss_thresh': 'x'}", "PARAMS has what no parameter of BBR can be"),
        (GOOD + "PARAMS = {'pacing_gain': [1, 2]}", "PARAMS has what no parameter of BBR can be"),
        (GOOD + "PARAMS = {'loss_thresh': 1 << 70}", "PARAMS has what no parameter of BBR can be"),
        (GOOD + "def dispatch(bbr, ev, p, log): pass", "dispatch is not compiled"),
        (GOOD + JIT + "@jit\ndef dispatch(bbr, ev): pass", r"dispatch takes \(bbr, ev\)"),
        ("raise SystemExit", "ended the process that ran it"),
        ("while True: pass", "did not come back: stopped after 1 s of processor time"),
        ("x = []\nwhile True: x.append(bytes(1 << 28))", "asked for more than 4 GB of memory"),
    ],
)
def test_a_file_that_lacks_something_is_refused(
    tmp_path: Path, text: str, fact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "_LOADING_S", 1)
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(BbrscopeError, match=fact):
        own_variant(str(path))


def test_a_file_that_keeps_all_memory_is_told_so() -> None:
    kept = []

    def takes_all() -> None:
        for size in (1 << 20, 1 << 16, 1 << 9):
            with suppress(MemoryError):
                while True:
                    kept.append(bytes(size))
        raise MemoryError

    with pytest.raises(BbrscopeError, match=r"mine\.py asked for more than 4 GB of memory$"):
        own_process.run_apart("mine.py", takes_all, 5)


def test_a_file_that_waits_for_ever_is_stopped_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses no processor time, which is what is limited otherwise."""
    monkeypatch.setattr(own_process, "_WAITING_S", 1)
    path = tmp_path / "mine.py"
    path.write_text("import time; time.sleep(1000)")
    with pytest.raises(
        BbrscopeError, match=r"did not come back: stopped when it had waited for 1 s$"
    ):
        own_variant(str(path))


def test_a_file_that_works_is_not_taken_for_one_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_process, "_WAITING_S", 1)
    end = time.monotonic() + 1.3

    def works() -> str:
        while time.monotonic() < end:
            pass
        return "done"

    assert own_process.run_apart("mine.py", works, 5) == "done"


def test_a_file_that_gets_no_cpu_is_not_taken_for_one_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The host has other work: the file is ready to run, and hardly ever does."""
    monkeypatch.setattr(own_process, "_WAITING_S", 1)
    cpu = min(os.sched_getaffinity(0))
    busy = multiprocessing.get_context("fork").Process(target=_keeps_busy, args=(cpu,))
    end = time.monotonic() + 1.3

    def works() -> float:
        os.sched_setaffinity(0, {cpu})
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while time.monotonic() < end:
            pass
        return time.process_time()

    busy.start()
    try:
        assert own_process.run_apart("mine.py", works, 5) < 0.65
    finally:
        busy.kill()
        busy.join()


def _keeps_busy(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    while True:
        pass


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("bbr.no_such_field", "cannot be compiled: KeyError: 'no_such_field'"),
        ("{}.foo(bbr)", "cannot be compiled: line 8: Unknown attribute 'foo'"),
        ("log.no_such_method()", "cannot be compiled: line 8: "),
    ],
)
def test_what_the_compiler_refuses_is_said_in_a_line(tmp_path: Path, line: str, fact: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"{GOOD}{JIT}@jit\ndef dispatch(bbr, ev, p, log):\n    {line}\n")
    with pytest.raises(BbrscopeError, match=fact) as refused:
        callback(str(path))
    assert len(refused.value.fact.splitlines()) == 1


def test_a_command_takes_as_many_seeds_as_an_answer_needs() -> None:
    (seeds,) = (one for one in command.params if one.name == "seeds")
    assert isinstance(seeds.type, click.IntRange)
    assert seeds.type.min == LEAST_SEEDS


def test_flows_with_bbr_get_the_variant_and_its_parameters(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GOOD)
    flows = (
        FlowSetup("v3", 0, 1000, parameters=params.V3 | {"HZ": 250}),
        FlowSetup("cubic", 0, 1000),
    )
    world = Setup(PathSetup(10_000_000, 40_000, limit_packets=33), flows, 1000)
    bbr, cubic = under(world, str(path), {}).flows
    assert bbr.slot == str(path)
    assert bbr.version == "v2"
    assert (bbr.parameters["beta"], bbr.parameters["HZ"]) == (51, 250)
    assert cubic.slot is None


def test_what_a_file_prints_is_kept_from_standard_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GOOD + "print('loaded')\n")
    own_variant(str(path))
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "loaded" in printed.err
