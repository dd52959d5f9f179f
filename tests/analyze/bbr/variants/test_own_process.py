"""A user's variant that raises, ends its process or never returns: a message, and nothing hangs."""

from __future__ import annotations

import os

import pytest
from bbrscope.analyze.bbr.variants.own_process import run_apart
from bbrscope.probes.base.errors import BbrscopeError


def _never_returns() -> int:
    while True:
        pass


def _raises() -> int:
    return 1 // 0


def test_what_comes_back_is_what_the_work_returned() -> None:
    assert run_apart("mine.py", lambda: {"goodput": 9.4}, 5) == {"goodput": 9.4}


@pytest.mark.parametrize(
    ("work", "fact"),
    [
        (_never_returns, r"mine.py did not come back: stopped after 1 s of processor time"),
        (_raises, "mine.py raised ZeroDivisionError"),
        (lambda: os._exit(3), r"mine.py ended the process that ran it \(3\)"),
    ],
)
def test_what_goes_wrong_is_said(work: object, fact: str) -> None:
    with pytest.raises(BbrscopeError, match=fact):
        run_apart("mine.py", work, 1)  # type: ignore[arg-type]
