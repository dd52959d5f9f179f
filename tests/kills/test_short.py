"""The campaign's short form: the first ingest, killed twice."""

from __future__ import annotations

from pathlib import Path

from .__main__ import Campaign
from .cases import CASES
from .victim import Victims


def test_a_killed_first_ingest_leaves_a_store_or_none(tmp_path: Path) -> None:
    campaign, victims = Campaign(tmp_path, seed=2), Victims()
    try:
        campaign.case(CASES[0], 2, victims)
    finally:
        victims.close()
    assert campaign.failures == []
    assert campaign.killed
