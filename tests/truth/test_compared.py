"""What `diff` compares, worked out anew: numbers of runs by raw rows, statistics by definition."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

import polars as pl
import pytest
from bbrscope import fixtures
from bbrscope.analyze.compare import groups, run_windows
from bbrscope.analyze.compare.blocks import RunBlock
from bbrscope.analyze.compare.noise import Block, holm, interval, p_value
from bbrscope.collect.store.store import Store
from hypothesis import given
from hypothesis import strategies as st

from tests.truth import slices
from tests.truth.facts import Flow, Recording
from tests.truth.limits import held_by, in_flight

SECOND = 1_000_000_000
# From and to [s of the run's clock]: all, within, to after the end, of parts of a second.
WINDOWS = [(0, 99), (5, 9), (11.5, 99), (0.25, 3.125)]


def inside(rows: pl.DataFrame, begin: int, end: int) -> pl.DataFrame:
    return rows.filter((pl.col("ns") >= begin) & (pl.col("ns") < end))


def overlap(starts: Sequence[int], ends: Sequence[int], begin: int, end: int) -> list[int]:
    return [max(0, min(b, end) - max(a, begin)) for a, b in zip(starts, ends, strict=True)]


def metrics(flow: Flow, begin: int, end: int) -> dict[tuple[str, str], float | None]:
    """What a window's rows brought, and what held after them."""
    rows = inside(flow.spans.with_columns(flight=in_flight()), begin, end)
    rtts = rows.filter((pl.col("kind") == "M") & (pl.col("rs.rtt_us") > 0))["rs.rtt_us"]
    sampled = rows.filter(
        (pl.col("kind") == "M") & (pl.col("rs.delivered") > 0) & (pl.col("rs.interval_us") > 0)
    )
    rate = pl.col("rs.delivered") * pl.col("tp.mss_cache") * 8 / pl.col("rs.interval_us")
    lost, delivered = int(rows["lost"].sum()), int(rows["delivered"].sum())
    by = inside(held_by(flow), begin, end)
    whole = int(by["d"].sum())
    limited = {name: int(by.filter(by=name)["d"].sum()) / whole for name in LIMITED.values()}
    found = {
        "loss_rate": lost / (lost + delivered),
        "delivery_rate_mbps": sampled.select(rate.median()).item(),
        "rtt_p50_us": rtts.cast(pl.Float64).quantile(0.5, "linear"),
        "rtt_p95_us": rtts.cast(pl.Float64).quantile(0.95, "linear"),
        "queue_delay_us": max(0.0, float(rtts.mean()) - flow.base_us),  # type: ignore[arg-type]
        "inflight_packets": float((rows["flight"] * rows["d"]).sum()) / int(rows["d"].sum()),
        **{name: limited[limit] for name, limit in LIMITED.items()},
    }
    return {("metric", name): value for name, value in found.items()}


LIMITED = {"app_limited_share": "application", "rwnd_limited_share": "receive_window"}


def shares(flow: Flow, begin: int, end: int) -> dict[tuple[str, str], float]:
    """Shares of a window's time: of each phase, of each limit."""
    starts, names = slices.begun(flow, "phase")
    ends = [*starts[1:], int(flow.rows["ns"][-1])]
    found: dict[tuple[str, str], float] = {}
    lasted = overlap([int(ns) for ns in starts], [int(ns) for ns in ends], begin, end)
    held = held_by(flow)
    until = (held["ns"] + held["d"]).to_list()
    limited = overlap(held["ns"].to_list(), until, begin, end)
    for kind, labels, parts in (
        ("phase", names, lasted),
        ("limit", held["by"].to_list(), limited),
    ):
        for label, part in zip(labels, parts, strict=True):
            if part:
                key = kind, str(label)
                found[key] = found.get(key, 0) + part / sum(lasted)
    return found


def probes(flow: Flow, begin: int, end: int) -> float:
    """How often a minute it began to probe for bandwidth."""
    starts, names = slices.begun(flow, "phase")
    begun = [
        begin <= ns < end for ns, name in zip(starts, names, strict=True) if name == "PROBE_BW_UP"
    ]
    first = max(begin, int(flow.after_init["ns"][0]))
    return sum(begun) * 6e10 / (min(end, int(flow.rows["ns"][-1])) - first)


@pytest.mark.parametrize("window", WINDOWS)
def test_what_is_compared_of_a_run_is_what_its_rows_in_the_window_say(
    window: tuple[float, float], shipped: Store
) -> None:
    ids = {run: shipped.run_id(run) for run in shipped.runs()}
    first, last = (round(at * SECOND) for at in window)
    chosen = run_windows.between(shipped.con, list(ids.values()), first, last)
    measured = {
        (quantity.kind, quantity.name): values
        for quantity, values in groups.measure(shipped.con, list(ids.values()), chosen).items()
    }
    compared = 0
    for run, run_id in ids.items():
        (flow,) = Recording(fixtures.path(run)).flows
        ends = flow.zero + first, flow.zero + last
        parts = shares(flow, *ends)
        for key, want in {**metrics(flow, *ends), **parts}.items():
            assert measured[key][run_id] == pytest.approx(want, rel=1e-9), (run, key)
            compared += 1
        # What it never did is nothing, of every other run's phases and limits.
        for key, values in measured.items():
            if key[0] in ("phase", "limit") and key not in parts:
                assert values[run_id] == 0, (run, key)
        if flow.rows.columns.count("bbr.inflight_hi"):
            rate = measured["decision", "UP_ENTER"][run_id]
            assert rate == pytest.approx(probes(flow, *ends), rel=1e-9)
    assert compared > 60


_numbers = st.lists(st.integers(-9, 9), min_size=1, max_size=3)
_blocks = st.lists(st.tuples(_numbers, _numbers), min_size=1, max_size=3)


@given(_blocks)
def test_p_of_several_blocks_is_the_share_of_all_ways_to_deal_each(blocks: list[Block]) -> None:
    """Each block's values in every order, not only each choice of the first group."""

    def apart(dealt: Sequence[Sequence[float]]) -> float:
        means = [
            fmean(values[len(a) :]) - fmean(values[: len(a)])
            for values, (a, _) in zip(dealt, blocks, strict=True)
        ]
        return abs(fmean(means))

    measured = apart([[*a, *b] for a, b in blocks])
    orders = [
        [
            (*one, *(each for n, each in enumerate(whole) if n not in chosen))
            for chosen in itertools.combinations(range(len(whole)), len(a))
            for one in [tuple(whole[n] for n in chosen)]
        ]
        for a, b in blocks
        for whole in [[*a, *b]]
    ]
    ways = [apart(dealt) for dealt in itertools.product(*orders)]
    assert p_value(blocks) == pytest.approx(fmean(far >= measured - 1e-9 for far in ways))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holms_p_is_the_largest_of_those_before_it_times_what_is_left(p: list[float]) -> None:
    order = sorted(p)
    for one, got in zip(p, holm(p), strict=True):
        before = order[: order.index(one) + order.count(one)]
        want = max(min(1.0, (len(p) - n) * each) for n, each in enumerate(before))
        assert got == pytest.approx(want)


@pytest.mark.parametrize(
    "blocks",
    [
        [([1.0], [3.0]), ([2.0], [9.0]), ([4.0], [5.0]), ([7.0], [7.5])],
        [([1.0, 2.0, 4.0], [9.0, 15.0, 16.0])],
        [([5.0, 5.0, 5.0], [5.0, 5.0, 5.0])],
        [([0.0, 0.0, 3.0], [1.0, 2.0, 2.0]), ([4.0, 4.0, 9.0], [4.0, 5.0, 6.0])],
    ],
    ids=["pairs", "groups", "ties", "blocks of groups"],
)
def test_the_interval_is_that_of_every_resample(blocks: list[Block]) -> None:
    """Its ends are resamples' quantiles, as near as so many drawn at random tell them: four
    standard deviations of a share of 2.5 %."""
    if all(len(a) == 1 for a, _ in blocks):
        pairs = [b[0] - a[0] for a, b in blocks]
        every = [fmean(one) for one in itertools.product(pairs, repeat=len(pairs))]
    else:
        means = [
            [sign * fmean(one) for one in itertools.product(values, repeat=len(values))]
            for a, b in blocks
            for values, sign in ((a, -1), (b, 1))
        ]
        # How many resamples have each sum: there are 27 to the fourth in all.
        counts = Counter({0.0: 1})
        for some in means:
            sums: Counter[float] = Counter()
            for (total, n), one in itertools.product(counts.items(), some):
                sums[round(total + one, 9)] += n
            counts = sums
        every = [total / len(blocks) for total in counts.elements()]
    every.sort()
    low, high = interval(blocks) or (0, 0)
    spread = 4 * (0.025 * 0.975 / 2000) ** 0.5
    at = [
        every[min(len(every) - 1, int(share * len(every)))]
        for share in (0.025 - spread, 0.025 + spread, 0.975 - spread, 0.975 + spread)
    ]
    assert at[0] <= low <= at[1] + 1e-9
    assert at[2] - 1e-9 <= high <= at[3]


SPEED = groups.METRICS[0]


def test_a_quantity_that_one_side_lacks_is_compared_where_both_have_it() -> None:
    blocks = [RunBlock("first", (1,), (2,)), RunBlock("second", (3,), (4,))]
    (found,) = groups.differences({SPEED: {1: 10.0, 2: 8.0, 3: 99.0}}, blocks, 0.1)
    assert (found.a, found.b, found.a_mean, found.b_mean) == ([10.0], [8.0], 10.0, 8.0)
    assert (found.change, found.p, found.interval) == (pytest.approx(-0.2), None, None)
    assert groups.differences({SPEED: {1: 10.0, 4: 8.0}}, blocks, 0.1) == []


def test_from_nothing_changes_are_relative_to_the_least_that_counts() -> None:
    (found,) = groups.differences({SPEED: {1: 0.0, 2: 5.0}}, [RunBlock("", (1,), (2,))], 0.1)
    assert found.from_nothing
    assert found.change == pytest.approx(5.0 / SPEED.floor)
    (found,) = groups.differences({SPEED: {1: 0.0, 2: 0.0}}, [RunBlock("", (1,), (2,))], 0.1)
    assert (found.change, found.verdict) == (0.0, "same")
