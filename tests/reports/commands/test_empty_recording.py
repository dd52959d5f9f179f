"""What `collect` says of a recording in which there is nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.reports.commands.collect import report


@pytest.mark.parametrize(
    ("filters", "fact"),
    [
        ({}, "no socket had BBR"),
        ({"phases": True}, "no socket had BBR"),
        ({"ports": [9]}, "no socket that the filters choose had BBR"),
    ],
)
def test_an_empty_recording_does_not_say_more_than_it_saw(
    filters: dict[str, Any], fact: str
) -> None:
    manifest = {
        "rung": "inet_diag",
        "polls": 3,
        "events": {},
        "events_lost": 0,
        "ended": "duration",
        "notes": [],
        "command_status": None,
        "setup": {"filters": filters},
    }
    with pytest.raises(BbrscopeError, match=f"is empty: {fact} while it was recorded"):
        report(Path("run"), manifest)
