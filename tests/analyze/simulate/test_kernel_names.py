"""Each function of the simulated sender and receiver names the one of the kernel it follows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from bbrscope.analyze.simulate import simulation

_ROOM = Path(simulation.__file__).parent
# The estimator is BBR's own; applications and the memory of callbacks are no part of TCP.
_NOT_TCP = {"__init__", "estimator", "slots", "application"}
_MODULES = [path for path in (_ROOM / "sender").glob("*.py") if path.stem not in _NOT_TCP]
_MODULES.append(_ROOM / "world" / "receiver.py")
_KERNEL = re.compile(r"\b_*(tcp|cubictcp|cubic|hystart|vegas|dctcp|icsk|jiffies|sk|inet_csk)_\w+")
# Of the engine's own memory: segments in a ring, blocks in a record.
_OWN = {"_sequence", "_same_skb", "_set_block"}


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: path.stem)
def test_compiled_functions_name_the_kernels(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    nameless = set()
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef) and function.decorator_list:
            first = function.decorator_list[0].lineno - 1
            above = [line for line in lines[max(0, first - 3) : first] if line.startswith("#")]
            said = [function.name, ast.get_docstring(function) or "", *above]
            if not _KERNEL.search(" ".join(said)):
                nameless.add(function.name)
    assert nameless <= _OWN
