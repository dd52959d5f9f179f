"""The layout of struct bbr follows from the recorded fields only."""

from __future__ import annotations

import pytest
from bbrscope.collect.events.which_bbr import decide
from bbrscope.probes.base.errors import BundleError


@pytest.mark.parametrize(
    ("column", "version"),
    [
        ("bbr.bw.s[0].v", "v1"),
        ("bbr.lt_bw", "v1"),
        ("bbr.debug.event", "v2"),
        ("params.high_gain", "v2"),
        ("bbr.full_bw_now", "v3"),
        ("bbr.plb.pause_until", "v3"),
    ],
)
def test_one_field_of_its_own_tells_the_version(column: str, version: str) -> None:
    found = decide({"ns", "sk", "bbr.mode", column}, {"bbr": "v9"})
    assert found.version == version
    assert column in found.reason
    assert "the manifest says v9" in found.reason


def test_a_recording_without_telling_fields_says_what_is_missing() -> None:
    with pytest.raises(BundleError) as caught:
        decide({"ns", "sk", "bbr.mode"}, {})
    assert "none of the fields" in caught.value.fact
    assert "bbr.full_bw_now" in caught.value.way_out


def test_fields_of_two_versions_in_one_recording_are_refused() -> None:
    with pytest.raises(BundleError, match="more than one struct bbr"):
        decide({"bbr.lt_bw", "bbr.full_bw_now"}, {})
