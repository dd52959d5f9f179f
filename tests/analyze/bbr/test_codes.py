"""The decision vocabulary: complete, stable, and exercised."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.analyze.bbr import codes
from bbrscope.collect.store.store import Store

_RARE = Path(__file__).with_name("test_rare_decisions.py")


def test_sentences_are_sentences() -> None:
    assert [code.name for code in codes.CODES.values() if not code.sentence.endswith(".")] == []


def test_numbers_and_names_are_unique_and_fit_their_column() -> None:
    assert len(codes.BY_NAME) == len(codes.CODES)
    assert all(0 < number < 65_536 for number in codes.CODES)


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
