"""One row of text becomes numbers, or is refused for a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bbrscope.collect.events.lines import header
from bbrscope.collect.events.loop import column_plan as plan
from bbrscope.collect.events.loop import rows
from hypothesis import given, settings
from hypothesis import strategies as st

SIGNED, UNSIGNED = (-(1 << 63), (1 << 63) - 1), (1 << 64) - 1


def as_text(text: str) -> Any:
    return np.frombuffer(bytearray(text.encode("latin-1") + b"\n"), np.int8)


def both(function: Any) -> list[Any]:
    """Return the compiled function and its plain source."""
    return [function, getattr(function, "py_func", function)]


@settings(deadline=None)  # the first call compiles
@given(st.integers(-(1 << 65), 1 << 65), st.sampled_from([",", "\n", "\r\n"]))
def test_every_number_of_64_bits_is_read_exactly_and_no_other(value: int, after: str) -> None:
    text = as_text(f"{value}{after}")
    for parse in both(rows.parse_decimal):
        found, end, big = parse(text, 0)
        if SIGNED[0] < value <= UNSIGNED:
            assert found & UNSIGNED == value & UNSIGNED
            assert end == len(str(value))
            assert big == (value > SIGNED[1])
        else:
            assert end == 0


@pytest.mark.parametrize("text", ["", "-", "x", " 1", "+1", "\u00e9", "--1"])
def test_what_is_no_number_is_not_read(text: str) -> None:
    for parse in both(rows.parse_decimal):
        assert parse(as_text(text), 0)[1] == 0


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, UNSIGNED), st.booleans(), st.booleans())
def test_every_address_is_read_exactly(value: int, prefix: bool, upper: bool) -> None:
    digits = f"{value:X}" if upper else f"{value:x}"
    text = ("0x" if prefix else "") + digits
    for parse in both(rows.parse_hex):
        found, end = parse(as_text(text + ","), 0)
        assert found & UNSIGNED == value
        assert end == len(text)


@pytest.mark.parametrize("text", ["", "0x", "g", "1" * 17])
def test_what_is_no_address_is_not_read(text: str) -> None:
    for parse in both(rows.parse_hex):
        assert parse(as_text(text + ","), 0)[1] == 0


HEADER = header.parse(
    [
        (1, "M,ns,sk,rs.rtt_us,rs.losses,sk.sk_pacing_rate,tp.snd_cwnd,bbr.mode"),
        (2, "I,ns,sk,daddr,tp.snd_cwnd"),
    ],
    "test",
)
PLAN = plan.make_plan(HEADER, 64)


def parse_rows(parse: Any, text: str) -> tuple[list[list[int]], int, int]:
    """Return the rows that were read, why reading stopped, and the column at fault."""
    raw = as_text(text)
    state = np.zeros(16, np.int64)
    values, heads = np.zeros((8, 7), np.int64), np.zeros((8, rows.HEAD_SIZE), np.int64)
    count = parse(raw, len(raw), PLAN.tags, PLAN.columns, values, heads, state)
    return values[:count].tolist(), int(state[rows.WHY]), int(state[rows.COLUMN])


GOOD = "M,1,ff,-1,-2147483648,18446744073709551615,4294967295,7"


def test_a_good_row_gives_its_values() -> None:
    for parse in both(rows.parse_rows):
        for text in (GOOD, GOOD + "\r"):
            found, why, _ = parse_rows(parse, text)
            assert found == [[1, 255, -1, -(1 << 31), -1, (1 << 32) - 1, 7]]
            assert why == rows.GOOD


@pytest.mark.parametrize(
    ("row", "why", "column"),
    [
        ("M,1,ff,-1,0,0,0", rows.TOO_SHORT, 5),
        ("M,1", rows.TOO_SHORT, 0),
        ("M,", rows.TOO_SHORT, 0),
        (GOOD + ",0", rows.TOO_LONG, 7),
        (GOOD + ",", rows.TOO_LONG, 7),
        ("M,1,ff,-1,0,0,0,8", rows.OUT_OF_RANGE, 6),
        ("M,1,ff,-1,0,0,4294967296,0", rows.OUT_OF_RANGE, 5),
        ("M,1,ff,-1,0,0,-1,0", rows.OUT_OF_RANGE, 5),
        ("M,1,ff,-1,0,-1,0,0", rows.OUT_OF_RANGE, 4),
        ("M,1,ff,-1,2147483648,0,0,0", rows.OUT_OF_RANGE, 3),
        ("M,1,ff,-1,-2147483649,0,0,0", rows.OUT_OF_RANGE, 3),
        ("M,-1,ff,-1,0,0,0,0", rows.OUT_OF_RANGE, 0),
        ("M,1,ff,9223372036854775808,0,0,0,0", rows.OUT_OF_RANGE, 2),
        ("M,1,ff,-1,0,18446744073709551616,0,0", rows.NOT_A_NUMBER, 4),
        ("M,1,zz,-1,0,0,0,0", rows.NOT_A_NUMBER, 1),
        ("M,1,ff,,0,0,0,0", rows.NOT_A_NUMBER, 2),
        ("M,1,ff,1.5,0,0,0,0", rows.NOT_A_NUMBER, 2),
        ("M,1,ff,-1,0,0,0,7x", rows.NOT_A_NUMBER, 6),
        ("Q,1,ff", rows.OTHER_LINE, None),
        ("Lost 3 events", rows.OTHER_LINE, None),
        ("", rows.OTHER_LINE, None),
        ("#M,ns", rows.OTHER_LINE, None),
    ],
)
def test_an_impossible_row_stops_the_reader_with_its_reason(
    row: str, why: int, column: int | None
) -> None:
    for parse in both(rows.parse_rows):
        found, stopped, where = parse_rows(parse, f"{GOOD}\n{row}\n{GOOD}")
        assert len(found) == 1
        assert stopped == why
        assert column is None or where == column


def test_text_values_are_kept_as_their_place() -> None:
    text = "I,5,a,fe80::1,10"
    for parse in both(rows.parse_rows):
        found, why, _ = parse_rows(parse, text)
        place, size = found[0][2] >> 16, found[0][2] & 0xFFFF
        assert why == rows.GOOD
        assert text[place : place + size] == "fe80::1"
