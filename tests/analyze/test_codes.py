"""The decision vocabulary: complete, stable, and exercised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bbrscope.analyze.bbr import codes
from bbrscope.collect.store import Store

_SOURCES = Path(codes.__file__).parent
_RARE = Path(__file__).with_name("test_rare_decisions.py")


def test_every_code_is_noted_somewhere_in_the_estimator() -> None:
    text = "".join(path.read_text() for path in _SOURCES.glob("*.py") if path.name != "codes.py")
    unused = [name for name in codes.BY_NAME if f"codes.{name}" not in text]
    assert unused == []


def test_evidence_is_named_by_the_sentence() -> None:
    for code in codes.CODES.values():
        assert re.findall(r"{(\w+)}", code.sentence)[: len(code.evidence)] or not code.evidence
        assert len(code.evidence) <= codes.EVIDENCE
        assert code.sentence.endswith(".")


def test_numbers_and_names_are_unique_and_fit_their_column() -> None:
    assert len(codes.BY_NAME) == len(codes.CODES)
    assert all(0 < number < 65_536 for number in codes.CODES)


def test_v2_functions_carry_their_own_prefix() -> None:
    cut = codes.BY_NAME["HI_CUT_RS_LOSS"]
    assert codes.kernel_function(cut, "v2") == "bbr2_handle_inflight_too_high"
    assert codes.kernel_function(cut, "v3") == "bbr_handle_inflight_too_high"
    assert codes.kernel_function(codes.BY_NAME["DRAIN_ENTER"], "v2") == "bbr_check_drain"


@pytest.mark.slow
def test_every_code_is_exercised_by_a_recording_or_by_a_hand_made_input(
    all_runs: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = set(
        all_runs.con.execute(
            "SELECT DISTINCT version, code FROM decisions JOIN runs USING (run_id)"
        ).fetchall()
    )
    hand_made = _RARE.read_text()
    lines, untested = [], []
    for code in codes.CODES.values():
        missing = [f"v{v}" for v in code.versions if (f"v{v}", code.number) not in seen]
        if missing:
            covered = f'"{code.name}"' in hand_made
            lines.append(
                f"  {code.name:24} {','.join(missing):9} {'hand-made' if covered else '-'}"
            )
            if not covered:
                untested.append(code.name)
    total = sum(len(code.versions) for code in codes.CODES.values())
    with capsys.disabled():
        print(f"\ndecision codes exercised by the recordings: {len(seen)} of {total}; the others:")
        print("\n".join(lines))
    assert untested == []
