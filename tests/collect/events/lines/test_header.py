"""Header lines say what rows hold; any layout of known columns is understood."""

from __future__ import annotations

import pytest
from bbrscope.collect.events.lines import header
from bbrscope.probes.base.errors import BundleError


def parse(*lines: str) -> header.Header:
    return header.parse(list(enumerate(lines, 1)), "events.csv")


def test_parts_are_ordered_by_role_and_number_whatever_the_order_of_the_lines() -> None:
    found = parse("X,ns,sk,tp.snd_cwnd", "M10,ns,sk,bbr.full_bw", "M2,ns,sk,bbr.mode", "M,ns,sk")
    assert [tag.name for tag in found.tags] == ["M", "M2", "M10", "X"]
    assert [tag.part for tag in found.tags] == [1, 2, 4, 8]
    assert found.parts("main", (header.ENTRY,)) == 7


def test_init_takes_struct_bbr_from_its_exit_and_the_rest_from_its_entry() -> None:
    found = parse("I,ns,sk,tp.snd_cwnd,bbr.mode", "IX,ns,sk,tp.snd_cwnd,tp.lost,bbr.mode")
    targets = {tag.name: [c.target for c in tag.columns[2:]] for tag in found.tags}
    assert targets == {"I": ["tp_snd_cwnd", None], "IX": ["exit_snd_cwnd", None, "bbr_mode"]}


def test_unknown_columns_and_tags_are_named_and_known_side_rows_are_not() -> None:
    found = parse("M,ns,sk,tp.color", "Z,ns,sk", "N,ns,sk,sport", "K,ns,sk")
    assert dict(found.notes).keys() == {"unknown_column", "unknown_tag"}
    assert "tp.color" in dict(found.notes)["unknown_column"]
    assert set(found.skipped) == {"Z", "N"}
    assert [(tag.name, tag.kind) for tag in found.tags] == [("M", "main"), ("K", "loss_marks")]


def test_a_tag_of_single_rows_has_no_parts() -> None:
    found = parse("M,ns,sk", "R0,ns,sk", "R1,ns,sk")
    assert [tag.name for tag in found.tags] == ["M"]
    assert [code for code, _ in found.notes] == ["unknown_tag", "unknown_tag"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["M,sk,bbr.mode"], "line 1: the header has no column ns"),
        (["M,ns,bbr.mode"], "line 1: the header has no column sk"),
        (["M,ns,sk,bbr.mode,bbr.mode"], "'bbr.mode' appears twice"),
        (["M,ns,sk", "M,ns,sk"], "line 2: M is declared twice"),
        (["M0,ns,sk,bbr.mode", "M1,ns,sk,bbr.mode"], "M0 and M1 both have bbr.mode"),
        (["X,ns,sk"], "X is declared, but no entry row of main"),
        (["K,ns,sk", "Z,ns,sk"], "declares no rows of kernel events (only 'K', 'Z')"),
        (["M,ns,sk," + ",".join(f"c{i}" for i in range(300))], "more than 256 columns"),
    ],
)
def test_an_impossible_header_is_refused(lines: list[str], words: str) -> None:
    with pytest.raises(BundleError) as caught:
        parse(*lines)
    assert words in caught.value.fact
    assert caught.value.way_out


def test_rows_of_one_event_are_bounded() -> None:
    """Each has a bit of a number of 64."""
    with pytest.raises(BundleError, match="more than 60 rows"):
        parse("M,ns,sk", *(f"M{n},ns,sk" for n in range(1, 62)))
