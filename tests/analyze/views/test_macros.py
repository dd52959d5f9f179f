"""The kernel's arithmetic, against the same in Python; and nobody writes it a second time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import duckdb
import numpy as np
import pytest
from bbrscope.analyze.simulate.course import phase_places
from bbrscope.analyze.views.macros import MACROS
from bbrscope.analyze.views.phase_names import PHASES, phase_name
from hypothesis import given
from hypothesis import strategies as st

_ROOT = Path(__file__).resolve().parents[3]
U32 = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        for macro in MACROS:
            opened.execute(macro.ddl())
        yield opened


def value(con: duckdb.DuckDBPyConnection, call: str, *values: object) -> object:
    return con.execute(f"SELECT {call}", list(values)).fetchall()[0][0]


@given(earlier=U32, grown=U32)
def test_counters_of_32_bits_go_on_beyond_their_end(
    con: duckdb.DuckDBPyConnection, earlier: int, grown: int
) -> None:
    later = (earlier + grown) & 0xFFFFFFFF
    assert value(con, "increase32(?::UINTEGER, ?::UINTEGER)", later, earlier) == grown
    forward = grown < 2**31
    assert value(con, "growth32(?::UINTEGER, ?::UINTEGER)", later, earlier) == grown * forward
    # As the kernel's before(): (s32)(seq1 - seq2) < 0.
    signed = grown if forward else grown - 2**32
    assert value(con, "distance32(?::UINTEGER, ?::UINTEGER)", later, earlier) == signed


@given(out=U32, sacked=U32, lost=U32, retrans=U32)
def test_packets_in_flight_are_those_of_tcp_packets_in_flight(
    con: duckdb.DuckDBPyConnection, out: int, sacked: int, lost: int, retrans: int
) -> None:
    call = "packets_in_flight(?::UINTEGER, ?::UINTEGER, ?::UINTEGER, ?::UINTEGER)"
    assert value(con, call, out, sacked, lost, retrans) == max(out - (sacked + lost) + retrans, 0)


@given(srtt=st.integers(0, 2**30), rtt=st.integers(1, 2**26))
def test_a_round_trip_is_what_tcp_rtt_estimator_was_given(
    con: duckdb.DuckDBPyConnection, srtt: int, rtt: int
) -> None:
    later = srtt + (rtt - (srtt >> 3)) if srtt else rtt << 3
    found = value(con, "rtt_given(?::UINTEGER, ?::UINTEGER)", later, srtt)
    assert found == (None if later == srtt else rtt)


def test_unset_is_all_ones_and_has_no_value(con: duckdb.DuckDBPyConnection) -> None:
    assert value(con, "unset()") == 0xFFFFFFFF
    assert value(con, "if_set(4294967295::UINTEGER)") is None
    assert value(con, "if_set(4294967294::UINTEGER)") == 0xFFFFFFFE


def test_bandwidths_are_packets_per_us_shifted_by_24(con: duckdb.DuckDBPyConnection) -> None:
    # 10 packets of 1,448 bytes in 1 ms: 115.84 Mbit/s.
    bw = value(con, "bw_of_sample(10, 1000)")
    assert bw == 10 * 2**24 // 1000
    assert value(con, "bw_of_sample(10, -1)") is None
    assert value(con, "bw_to_mbps(?, 1448)", bw) == pytest.approx(115.84, rel=1e-4)
    assert value(con, "bw_to_bytes(?, 1448)", bw) == pytest.approx(14.48e6, rel=1e-4)
    greatest = value(con, "bw_to_bytes(4294967295::UINTEGER, 4294967295::UINTEGER)")
    assert greatest == pytest.approx((2**32 - 1) ** 2 * 1e6 / 2**24)
    assert value(con, "bw_to_packets(?, 40000)", bw) == pytest.approx(400, rel=1e-4)
    # v1 has one filter, v2 and v3 a pair.
    assert value(con, "max_bw(NULL, NULL, 7)") == 7
    assert value(con, "max_bw(3, 5, NULL)") == 5


def test_phases_are_named_alike_in_sql_in_python_and_in_arrays(
    con: duckdb.DuckDBPyConnection,
) -> None:
    states = [
        (version, *state)
        for version in ("v1", "v2", "v3")
        for state in product(range(4), range(8), range(2), (192, 256, 320))
    ]
    in_sql = [value(con, "phase_name(?, ?, ?, ?, ?)", *state) for state in states]
    assert in_sql == [phase_name(*state) for state in states]
    columns = np.array([state[1:] for state in states]).T
    names = ("mode", "cycle_idx", "lt_use_bw", "pacing_gain")
    first = np.array([version == "v1" for version, *_ in states])
    places = phase_places(dict(zip(names, columns, strict=True)), first)
    assert in_sql == [PHASES[place] for place in places]
    assert set(in_sql) == set(PHASES) - {"PROBE_BW"}
    assert value(con, "phase_name('v3', 4, 0, 0, 256)") is phase_name("v3", 4, 0, 0, 256) is None


def test_every_macro_says_what_it_is() -> None:
    assert all(macro.meaning for macro in MACROS)
    assert len({macro.name for macro in MACROS}) == len(MACROS)


# What the macros are for; hand-written, it would be a second place for one fact.
HAND_WRITTEN = re.compile(
    r"4294967295|16777216|packets_out[^,\n]*-[^,\n]*sacked_out|greatest\([a-z.]*bbr_bw_hi_0"
    r"|\+ 4294967296\) % 4294967296"
)
# Comments, documentation of columns, and arithmetic of packets that no kernel's field has.
ALLOWED = {
    "collect/packets/match.py",
    "analyze/views/macros.py",
    "analyze/views/view_parts.py",
    "analyze/story/sentences.py",
}

# What a page shows that a program printed, and nobody wrote.
OUTPUT = re.compile(r"^```text\n.*?^```", re.M | re.S)


def test_nobody_writes_the_kernels_arithmetic_by_hand() -> None:
    texts = [
        path
        for room in ("collect", "analyze", "reports")
        for path in (_ROOT / room).rglob("*")
        if path.suffix in (".py", ".toml", ".sql", ".md")
    ]
    assert len(texts) > 200
    found = {
        f"{path.relative_to(_ROOT)}: {match[0]}"
        for path in texts
        if str(path.relative_to(_ROOT)) not in ALLOWED and "analyze/bbr" not in str(path)
        for match in HAND_WRITTEN.finditer(OUTPUT.sub("", path.read_text()))
    }
    assert found == set()


# Within a flow these differ from row to row, or rows were made one each before.
ORDERS = {"seq", "ns", "start_ns", "place", "source"}


def test_no_rule_or_view_takes_any_of_equal_rows() -> None:
    """arg_max() gives any of equal rows: at_greatest() and at_smallest() give the first."""
    uses = re.compile(r"arg_m(?:ax|in)\(([^,()]+|[^,]+), ([\w.]+)\)")
    amounts = {
        f"{path.relative_to(_ROOT)}: {use[0]}"
        for folder in ("views", "diagnosis", "compare", "models", "lake", "live", "story", "study")
        for path in (_ROOT / "analyze" / folder).rglob("*")
        if path.suffix in {".py", ".toml"} and path.name != "macros.py"
        for use in uses.finditer(path.read_text("utf-8"))
        if use[2].split(".")[-1] not in ORDERS
    }
    assert not amounts


def test_of_equal_rows_the_first_counts(con: duckdb.DuckDBPyConnection) -> None:
    rows = "(VALUES (30, 7, 3), (20, 7, 2), (10, NULL, 1), (5, 4, 4), (6, 4, 5)) t(v, amount, ns)"
    query = f"SELECT at_greatest(v, amount, ns), at_smallest(v, amount, ns) FROM {rows}"
    assert con.execute(query).fetchall() == [(20, 5)]
