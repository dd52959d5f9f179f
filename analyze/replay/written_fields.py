"""Which fields each callback may write, read from the estimator's own source.

A callback that is missing in a recording explains a difference in these fields, and in no other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from threading import Lock

from ..bbr.loops import OUTPUTS
from ..bbr.records import STATE_COLUMNS, STATE_FIELDS

# Callbacks, by the functions of versions/ that carry them out; of cwnd_event, one for each cause.
MAIN, SET_STATE, UNDO_CWND = "bbr_main", "bbr_set_state", "bbr_undo_cwnd"
SKB_MARKED_LOST, TLP_RECOVERY = "bbr_skb_marked_lost", "bbr_run_loss_probe_recovery"
ECN_EVENT, INIT = "dctcp_ece_ack_update", "bbr_init"
SSTHRESH = {"v1": "bbr_save_cwnd", "v2": "bbr_ssthresh", "v3": "bbr_ssthresh"}
TX_START = {"v1": "bbr_cwnd_event", "v2": "tx_start", "v3": "tx_start"}
RESTART = "restart_from_idle"
CALLBACKS = (MAIN, SET_STATE, UNDO_CWND, "bbr_cwnd_event")

# CPython 3.11 counts the depth of trees for all threads in one place, and refuses what two of them
# build at once; and each of them would read the same files.
_READING = Lock()
_BBR = Path(__file__).parent.parent / "bbr"
_SHARED = ("control", "model", "modes")


@cache
def written_by(version: str, function: str) -> frozenset[str]:
    """Columns of struct bbr and outputs (loops.OUTPUTS) that a function, or what it calls, writes.

    Args:
        version: "v1", "v2" or "v3".
        function: one of the estimator's; one that this version lacks writes nothing.
    """
    functions = _functions(version)
    places: set[tuple[str, str]] = set()
    seen: set[str] = set()
    waiting = [function]
    while waiting:
        name = waiting.pop()
        if name in seen or name not in functions:
            continue
        seen.add(name)
        for node in ast.walk(functions[name]):
            places |= set(_assigned(node))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                waiting.append(node.func.id)
    states = {place for record, place in places if record == "bbr"}
    fields = {field.column for field in STATE_FIELDS if field.record_place[0] in states}
    return frozenset(fields | {name for name in OUTPUTS if ("tp", name) in places})


@cache
def written_by_callbacks(version: str) -> frozenset[str]:
    """What any callback but init() may write."""
    called = (*CALLBACKS, SSTHRESH[version], *([SKB_MARKED_LOST] if version != "v1" else []))
    return frozenset().union(*(written_by(version, name) for name in called))


EVERYTHING = frozenset((*STATE_COLUMNS, *OUTPUTS))


def _functions(version: str) -> dict[str, ast.FunctionDef]:
    """The functions of the estimator that a version may run, by name; its own come last."""
    with _READING:
        return _functions_read(version)


@cache
def _functions_read(version: str) -> dict[str, ast.FunctionDef]:
    files = [path for room in _SHARED for path in sorted((_BBR / room).glob("*.py"))]
    own = ["callbacks", *([] if version == "v1" else ["v2_v3"]), version]
    files += [_BBR / "tcp.py", *(_BBR / "versions" / f"{name}.py" for name in own)]
    return {
        node.name: node
        for path in files
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }


def _assigned(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (record, field) that a statement assigns: bbr.mode, tp.snd_cwnd, bbr.bw_hi[0] ..."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    for target in targets:
        for part in ast.walk(target):
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                yield part.value.id, part.attr
