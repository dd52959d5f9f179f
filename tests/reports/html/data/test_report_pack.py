"""Columns survive packing, whatever their values; thinning keeps every extreme."""

from __future__ import annotations

import numpy as np
from bbrscope.reports.html.data.pack import pack
from bbrscope.reports.html.data.spans import Spans, coarse, spans
from bbrscope.reports.html.data.thin import outline, spaced, tallest, thin
from hypothesis import given
from hypothesis import strategies as st

from tests.packed_columns import unpack


@given(st.lists(st.integers(-(2**52), 2**52)))
def test_packed_columns_unpack_to_themselves(values: list[int]) -> None:
    assert unpack(pack(np.array(values, np.int64))) == values


def test_slowly_changing_columns_take_about_a_byte_per_value() -> None:
    assert len(pack(np.arange(10_000))) < 1.4 * 10_000


@given(st.lists(st.integers(-1, 50), min_size=1, max_size=400), st.integers(1, 20))
def test_each_column_keeps_its_first_last_smallest_and_largest(
    values: list[int], columns: int
) -> None:
    t, v = np.arange(len(values)) * 7, np.array(values)
    points = thin(t, v, columns, None, keep=False)
    kept = dict(zip(points.t.tolist(), points.v.tolist(), strict=True))
    assert all(values[when // 7] == value for when, value in kept.items())
    if points.exact:
        return
    assert len(points.t) <= 4 * columns
    assert {0, (len(values) - 1) * 7} <= kept.keys()
    assert {min(kept.values()), max(kept.values())} == {min(values), max(values)}


def test_no_line_crosses_the_time_in_which_no_round_trip_was_seen() -> None:
    """Two seconds of an outage between round trips of 50 ms; a second between those of 600 ms."""
    t = np.array([0, 50_000, 2_080_000, 2_090_000, 3_100_000])
    round_trips = np.array([50_000, 50_000, 2_030_000, 600_000, 650_000])
    in_flight = np.array([33, 40, 10, 12, 14])
    times, values = spaced(t, in_flight, round_trips, -1)
    assert times.tolist() == [0, 50_000, 50_001, 2_079_999, 2_080_000, 2_090_000, 3_100_000]
    assert values.tolist() == [33, 40, -1, -1, 10, 12, 14]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 50)), min_size=1, max_size=400),
    st.integers(1, 40),
)
def test_no_pixel_loses_its_smallest_or_largest_value(
    steps: list[tuple[int, int]], columns: int
) -> None:
    """Whatever the times are like, equal ones too; a pixel may be any of the spans or wider."""
    t = np.cumsum([step for step, _ in steps])
    v = np.array([value for _, value in steps])
    down = np.arange(len(v))
    span = max(int(t[-1] - t[0]), 1)
    pixel = (t - t[0]) * columns // (span + 1)
    for points in (thin(t, v, columns, None, keep=False), outline(t, v, down, columns, None)):
        kept = set(zip(points.t.tolist(), points.v.tolist(), strict=True))
        assert kept <= set(zip(t.tolist(), v.tolist(), strict=True))
        for number in set(pixel.tolist()):
            inside = v[pixel == number]
            found = [
                value for when, value in kept if (when - t[0]) * columns // (span + 1) == number
            ]
            assert points.exact or {min(found), max(found)} == {inside.min(), inside.max()}
        assert points.recorded == len(v)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=400), st.integers(1, 20))
def test_stems_keep_the_tallest_of_each_span(values: list[int], columns: int) -> None:
    t, v = np.arange(len(values)) * 3, np.array(values)
    points = tallest(t, v, columns, None)
    assert points.v.max() == v.max()
    assert len(points.t) <= max(len(v) if points.exact else 0, 4 * columns)
    assert set(points.t.tolist()) <= set(t.tolist())


@given(st.lists(st.integers(0, 3), min_size=1, max_size=300))
def test_dropping_repeats_leaves_every_step_where_it_was(values: list[int]) -> None:
    t, v = np.arange(len(values)), np.array(values)
    points = thin(t, v, 1, None, keep=True)
    assert points.exact
    held = np.searchsorted(points.t, t, side="right") - 1
    assert points.v[held].tolist() == values


def test_a_window_keeps_every_point() -> None:
    t = np.arange(10_000)
    v = np.arange(10_000) % 97
    points = thin(t, v, 10, (4000, 5000), keep=False)
    assert not points.exact
    inside = (points.t >= 4000) & (points.t <= 5000)
    assert points.t[inside].tolist() == list(range(4000, 5001))


def test_of_crowded_stems_the_tallest_stay() -> None:
    t = np.arange(5000)
    v = np.ones(5000, np.int64)
    v[[17, 2500, 4999]] = 9
    points = tallest(t, v, 5, None)
    assert len(points.t) <= 20
    assert {17, 2500, 4999} <= set(points.t.tolist())


def test_spans_join_and_end_where_the_next_begins() -> None:
    joined = spans(np.array([0, 5, 9, 12]), np.array(["a", "a", "b", "a"]), 20)
    assert joined.a.tolist() == [0, 9, 12]
    assert joined.b.tolist() == [9, 12, 20]
    assert joined.category == ["a", "b", "a"]


def test_coarse_spans_are_named_after_what_lasted_longest_and_keep_long_ones() -> None:
    starts = np.concatenate([np.arange(0, 1000, 2), np.array([1000])])
    names = np.array(["x", "x", "x", "y"] * 125 + ["long"])
    # x x x y: runs of x last 6, of y 2.
    fine = spans(starts, names, 2000)
    few = coarse(fine, 20, None)
    assert len(few.a) < 25
    assert few.category[-1] == "long"
    assert (few.a[-1], few.b[-1]) == (1000, 2000)
    assert set(few.category) == {"x", "long"}
    assert few.recorded == len(fine.a)
    assert (few.a[1:] == few.b[:-1]).all()


def test_a_few_spans_stay_as_they_are() -> None:
    fine = Spans(np.array([0, 4]), np.array([4, 9]), ["a", "b"], 2)
    assert coarse(fine, 2, None) is fine
