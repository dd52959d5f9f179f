"""Each note() hands over just the evidence that its code declares, in the declared order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from bbrscope.analyze.bbr import codes

_ROOM = Path(codes.__file__).parent

# What sentences call otherwise than the kernel calls the field that is handed over.
_FIELDS = {
    "cwnd": "snd_cwnd",
    "pacing_rate": "sk_pacing_rate",
    "bw": "sample_bw",
    "cnt": "bw_probe_up_cnt",
    "round": "bw_probe_up_rounds",
}
_CASTS = frozenset(["i64", "s32"])


def _functions() -> Iterator[tuple[Path, ast.FunctionDef]]:
    for path in sorted(_ROOM.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                yield path, node


def _notes() -> Iterator[tuple[str, ast.FunctionDef, ast.Call]]:
    for path, function in _functions():
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "note":
                yield f"{path.relative_to(_ROOM)}:{node.lineno}", function, node


def _codes_of(value: ast.expr, function: ast.FunctionDef) -> list[str]:
    """Names of the codes that an expression can be; a local name is what was assigned to it."""
    if isinstance(value, ast.Attribute):
        return [value.attr]
    if isinstance(value, ast.IfExp):
        return _codes_of(value.body, function) + _codes_of(value.orelse, function)
    assert isinstance(value, ast.Name), ast.dump(value)
    assigned = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and any(isinstance(to, ast.Name) and to.id == value.id for to in node.targets)
    ]
    return [name for each in assigned for name in _codes_of(each, function)]


def _name_of(argument: ast.expr) -> str:
    """What an argument is called: a variable, a field, or an element of one."""
    if isinstance(argument, ast.Call) and ast.unparse(argument.func) in _CASTS:
        return _name_of(argument.args[0])
    if isinstance(argument, ast.Name):
        return argument.id
    if isinstance(argument, ast.Attribute):
        return argument.attr
    if isinstance(argument, ast.Subscript) and isinstance(argument.slice, ast.Constant):
        return f"{_name_of(argument.value)}_{argument.slice.value}"
    return f"no name: {ast.unparse(argument)}"


def mismatches(place: str, function: ast.FunctionDef, call: ast.Call) -> list[str]:
    """Differences between what a call hands over and what its codes declare."""
    given = [_name_of(argument) for argument in call.args[2:]]
    assert not call.keywords, place
    found = []
    for name in _codes_of(call.args[1], function):
        declared = list(codes.BY_NAME[name].evidence)
        wanted = [(each, _FIELDS.get(each, each)) for each in declared]
        if len(given) != len(wanted) or any(
            one not in names for one, names in zip(given, wanted, strict=False)
        ):
            found.append(f"{place} {name}: declared {declared}, given {given}")
    return found


def test_every_note_hands_over_the_declared_evidence_by_name_and_in_order() -> None:
    calls = list(_notes())
    assert len(calls) > 150
    assert [text for call in calls for text in mismatches(*call)] == []


def test_every_code_is_noted() -> None:
    noted = {name for _, function, call in _notes() for name in _codes_of(call.args[1], function)}
    assert noted == set(codes.BY_NAME)


@pytest.mark.parametrize(
    "call",
    [
        "note(log, codes.DRAIN_STAY, target, in_net)",
        "note(log, codes.DRAIN_STAY, in_net)",
        "note(log, codes.DRAIN_STAY, in_net, target, target)",
        "note(log, codes.DRAIN_STAY, in_net, bbr.inflight_hi)",
        "note(log, codes.DRAIN_STAY, in_net, 2 * target)",
        "note(log, codes.BWHI_ADVANCE, bbr.bw_hi[0], bbr.bw_hi[1])",
        "note(log, codes.CWND_HOLD, target, tp.snd_cwnd)",
    ],
)
def test_wrong_evidence_is_found(call: str) -> None:
    function = ast.parse(f"def example():\n    {call}").body[0]
    assert isinstance(function, ast.FunctionDef)
    statement = function.body[0]
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    assert mismatches("here", function, statement.value)


def test_declared_evidence_is_what_the_sentence_names_in_its_order() -> None:
    for code in codes.CODES.values():
        named = [re.split("[:}]", part)[0] for part in code.sentence.split("{")[1:]]
        assert list(dict.fromkeys(named)) == list(code.evidence), code.name
        assert len(code.evidence) <= codes.EVIDENCE
