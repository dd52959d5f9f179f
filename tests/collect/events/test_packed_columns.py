"""Columns that hold several fields each say what the fields said by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.live.live_events import EventAssembler
from bbrscope.collect.events.read_events import EventReader
from bbrscope.collect.record.output.check import Checker
from bbrscope.probes import known
from bbrscope.probes.base.errors import BundleError
from bbrscope.probes.packed_columns import parts_of
from bbrscope.probes.shared_words import PACKED_ROWS, pack

from tests.packed_rows import unpacked

Lines = list[str]
Make = Callable[..., Path]
WORD = (1 << 64) - 1


def packed(lines: Lines, version: str) -> Lines:
    """The lines as `collect` would have had them printed; what words hold is made here by hand."""
    layout, heads, columns = known.layout(version), {}, {}
    made = []
    for line in lines:
        tag, *values = line.split(",")
        if tag.startswith("#"):
            tag = tag[1:]
            heads[tag] = values
            often = tag.rstrip("0123456789") in PACKED_ROWS
            columns[tag] = list(pack(dict.fromkeys(values, ""), layout)) if often else values
            made.append(",".join([f"#{tag}", *columns[tag]]))
        else:
            row = dict(zip(heads[tag], values, strict=True))
            made.append(",".join([tag, *(printed(column, row) for column in columns[tag])]))
    return made


def printed(column: str, row: dict[str, str]) -> str:
    if column in row:
        return row[column]
    word, shift = 0, 0
    for part in column.split("+"):
        name, bits = part.split(":")
        # A hole says nothing, whatever is in it.
        value = int(row[name]) if name else 0x5555555555555555
        word |= (value & (1 << int(bits)) - 1) << shift
        shift += int(bits)
    return f"{word & WORD:x}"


def events(folder: Path) -> tuple[list[dict[str, Any]], EventReader]:
    reader = EventReader(folder / "events.csv.zst", "events.csv")
    return [row for batch in reader.batches() for row in batch.to_pylist()], reader


@pytest.fixture(scope="module")
def packed_lines(spur_lines: Lines) -> Lines:
    return packed(spur_lines, "v2")


def test_packed_rows_become_the_same_events(
    spur_lines: Lines, packed_lines: Lines, make_bundle: Make
) -> None:
    heads = [line for line in packed_lines if line.startswith("#M")]
    assert sum(line.count(":") for line in heads) > 60
    plain, of_plain = events(make_bundle(spur_lines, "plain"))
    found, of_found = events(make_bundle(packed_lines, "packed"))
    assert len(plain) > 1000
    assert found == plain
    assert any(row["rs_delivered"] is not None and row["rs_delivered"] < 0 for row in found)
    assert of_found.header.columns() == of_plain.header.columns()
    assert [f.code for f in of_found.notes] == [f.code for f in of_plain.notes]


def test_packed_rows_taken_apart_by_other_means_are_the_plain_ones(
    spur_lines: Lines, packed_lines: Lines
) -> None:
    """tests/packed_rows.py is what recordings from guests are read with."""

    def named(lines: Lines) -> list[tuple[str, dict[str, str]]]:
        heads, rows = {}, []
        for line in lines:
            tag, *values = line.split(",")
            if tag.startswith("#"):
                heads[tag[1:]] = values
            else:
                rows.append((tag, dict(zip(heads[tag], values, strict=True))))
        return rows

    assert named(list(unpacked(packed_lines[:9000]))) == named(spur_lines[:9000])


def test_the_check_and_the_live_views_see_the_same_in_packed_rows(
    spur_lines: Lines, packed_lines: Lines
) -> None:
    checks, lives = [], []
    for lines in (spur_lines, packed_lines):
        checker = Checker()
        checker.read("\n".join(lines).encode())
        checks.append(checker.finish().as_dict())
        heads = [line.encode() for line in lines if line.startswith("#")]
        rows = [line.encode() for line in lines[:6000] if not line.startswith("#")]
        lives.append([(e.kind, e.ns, e.seqno, e.values) for e in EventAssembler(heads).take(rows)])
    assert checks[0] == checks[1]
    assert checks[0]["events"] > 1000 or checks[0]["calls"] == {}
    assert len(lives[0]) > 1000
    assert lives[0] == lives[1]


HEAD = "#M,ns,sk,tp.delivered,rs.losses:32+tp.lost:32,bbr.mode:3+:1+bbr.lt_rtt_cnt:7"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("M,1,a,7,xyz,0", "is 'xyz', not a number"),
        ("M,1,a,7,fffffffffffffffff,0", "not a number"),
        ("M,1,a,7,0,800", "is 800, outside 0..2047"),
        ("M,1,a,7,0", "M has 4 columns, the header names 5"),
        ("M,1,a,7,0,0,0,0,0,0", "M has 9 columns, the header names 5"),
        ("M,1,a,7,0,-1", "not a number"),
    ],
)
def test_an_impossible_word_is_refused(row: str, why: str, make_bundle: Make) -> None:
    with pytest.raises(BundleError) as error:
        events(make_bundle([HEAD, row]))
    assert why in error.value.fact


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("ns:64,sk", "has no column ns"),
        ("ns,sk,tp.lost:33", "tp.lost cannot be packed in 33 bits"),
        ("ns,sk,tp.lost:32+tp.snd_cwnd:32+bbr.mode:3", "1 to 64 bits"),
        ("ns,sk,tp.lost:", "has no width"),
        ("ns,sk,tp.lost:0", "1 to 64 bits"),
        ("ns,sk,:32", "names no field"),
        ("ns,sk,tp.lost:-3", "has no width"),
        ("ns,sk,tp.lost:32+tp.lost:32", "column 'tp.lost' appears twice"),
        ("ns,sk,tp.lost,tp.lost:32", "column 'tp.lost' appears twice"),
        ("ns,sk,saddr:32", "saddr cannot be packed"),
    ],
)
def test_impossible_words_in_a_header_are_refused(
    columns: str, why: str, make_bundle: Make
) -> None:
    with pytest.raises(BundleError) as error:
        events(make_bundle([f"#M,{columns}", "M,1,a,0"], count=False))
    assert why in error.value.fact


def test_a_field_that_no_table_knows_is_named_and_the_rest_of_its_word_is_stored(
    make_bundle: Make,
) -> None:
    head = "#M,ns,sk,tp.delivered,bbr.mode:3+bbr.new_thing:9+bbr.lt_rtt_cnt:7"
    (row,), reader = events(make_bundle([head, "M,1,a,7,ffa"]))
    assert row["bbr_mode"] == 2
    assert row["bbr_lt_rtt_cnt"] == 0
    assert "unknown_column" in [note.code for note in reader.notes]
    assert parts_of("bbr.mode:3+bbr.new_thing:9")[1].shift == 3
