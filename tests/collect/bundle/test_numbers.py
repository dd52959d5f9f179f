"""Numbers that no 64 bits hold, and times that nobody records, are refused where they come in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bbrscope.collect.bundle.numbers import MAX_NS, fitting, load_json
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.packets.tshark_text import nanoseconds_at
from bbrscope.collect.samples import ss_log
from bbrscope.collect.samples.load_samples import type_and_limit
from bbrscope.collect.samples.log_times import at_start
from bbrscope.collect.store.schema.samples import SAMPLES
from bbrscope.collect.store.store import open_store
from bbrscope.probes.base.errors import BundleError

Make = Callable[..., Path]
HEAD = ["#M,ns,sk,bbr.mode,bbr.lt_bw"]
ROW = "M,1,a,0,7"
CLOCKS = ("realtime", "monotonic", "boottime")


@pytest.mark.parametrize(
    "number", ["1e999", "-1e999", "NaN", "Infinity", str(1 << 64), str(-(1 << 63) - 1), "9" * 5000]
)
def test_json_with_a_number_beyond_64_bits_is_none(number: str) -> None:
    with pytest.raises(ValueError, match=r"does not fit|too large|no number"):
        load_json(f'{{"a": [{number}]}}')


def test_json_with_the_largest_numbers_is_read() -> None:
    assert load_json(f"[{(1 << 64) - 1}, {-(1 << 63)}, 1e308]") == [
        (1 << 64) - 1,
        -(1 << 63),
        1e308,
    ]


@pytest.mark.parametrize(
    ("value", "sql_type", "kept"),
    [
        ((1 << 63) - 1, "BIGINT", True),
        (1 << 63, "BIGINT", False),
        (1 << 64, "UBIGINT", False),
        (-1, "UINTEGER", False),
        (255, "UTINYINT", True),
        (float("inf"), "DOUBLE", False),
        ("text", "VARCHAR", True),
    ],
)
def test_a_value_fits_its_column_or_is_left_out(value: Any, sql_type: str, kept: bool) -> None:
    assert fitting(value, sql_type) == (value if kept else None)


def test_a_number_that_no_connection_has_is_left_out() -> None:
    numbers = "bytes_acked:9223372036854775807 unacked:4294967296 sacked:7 mss:9223372036854775807"
    lines = [
        "# monotonic_ns 42000000000",
        "ESTAB 0 0 192.0.2.1:5000 192.0.2.2:80",
        f"\t bbr cwnd:10 bbr:(bw:9e+30bps,mrtt:40) {numbers}",
    ]
    [sample] = ss_log.samples(lines)
    table = {column.name: type_and_limit(column) for column in SAMPLES.columns}
    kept = {name: fitting(value, *table[name]) for name, value in sample.values.items()}
    assert kept["sacked"] == 7
    assert {kept[name] for name in ("bytes_acked", "unacked", "mss", "bw")} == {None}


@pytest.mark.parametrize(
    "line",
    [
        "0001-01-01T00:00:00+14:00 ESTAB",
        "1969-12-31T23:59:59Z ESTAB",
        "9999-12-31T23:59:59-14:00 ESTAB",
        "9999999999999999999 ESTAB",
        "# monotonic_ns 9999999999999999999",
    ],
)
def test_a_time_before_1970_or_after_2116_is_no_time(line: str) -> None:
    assert at_start(line) is None


@pytest.mark.parametrize("text", ["9999999999.5", "4611686018.999999999", "-1.5", "1e10"])
def test_a_packets_time_beyond_2116_is_no_time(text: str) -> None:
    assert nanoseconds_at(np.frombuffer(text.encode(), np.uint8), 0, len(text)) == -1


@pytest.mark.parametrize("ns", [MAX_NS + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_row_of_an_impossible_time_is_refused_with_its_line(ns: int, make_bundle: Make) -> None:
    bundle = make_bundle([*HEAD, ROW, f"M,{ns},b,0,7"])
    with open_store(bundle / "s.duckdb") as store, pytest.raises(BundleError) as refused:
        ingest(store, bundle)
    assert f"line 3: ns of M is {ns}, outside 0..{MAX_NS}" in refused.value.fact


@pytest.mark.parametrize(
    "change",
    [
        {"constants": {"HZ": 1000, "GSO_MAX_SIZE": 1 << 64}},
        {"constants": {"HZ": 1000, "GSO_MAX_SIZE": 1 << 32}},
        {"sysctls": {"net.ipv4.tcp_rmem": float("inf")}},
        {"sysctls": {"net.ipv4.tcp_plb_rehash_rounds": "18446744073709551615"}},
        {"rules": {"cwnd_min_target": -(1 << 31) - 1}},
        {
            "clocks": {
                "start": dict.fromkeys(("realtime_ns", "monotonic_ns", "boottime_ns"), 1 << 62)
            }
        },
        {"events_lost": 1 << 63},
        {"accounting": {"probes": {"M": {"lost": -1}}}},
        {"accounting": {"missed_runs": 1 << 63}},
        {"polls": -1},
        {"packets": {"snaplen": -1}},
        {"traffic_start_uptime_s": -0.5},
        {"setup": {"rate": float("nan")}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_manifest_with_an_impossible_number_is_refused(
    change: dict[str, Any], make_bundle: Make
) -> None:
    bundle = make_bundle([*HEAD, ROW], **change)
    with open_store(bundle / "s.duckdb") as store, pytest.raises(BundleError) as refused:
        ingest(store, bundle)
    assert "manifest.json" in refused.value.fact


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('"constants": {"HZ": 1000},\n"events_lost": -1', "line 5: events_lost must be"),
        ('"a": {"HZ": 9},\n"constants": {"X": {"HZ": 8},\n"HZ": 0}', "line 6: constants.HZ must"),
        (
            '"constants": {"HZ": 1000},\n"sysctls": {\n"net.ipv4.tcp_x": 4294967296}',
            "line 6: sysctls.net.ipv4.tcp_x is 4294967296, which 32 bits do not hold",
        ),
        ('"a": "1e999 -1",\n"constants": {\n"HZ": 1e999}', "line 6: 1e999 is too large"),
        (
            '"constants": {"HZ": null},\n"lab": {"flows": [{},\n{},\n{"flow_no": 1}, 4]}',
            "line 7: lab.flows[3] is no object",
        ),
    ],
)
def test_a_wrong_value_of_a_manifest_is_refused_with_its_line(
    text: str, what: str, make_bundle: Make
) -> None:
    bundle = make_bundle([*HEAD, ROW])
    head = '{"format": "bbrscope-bundle",\n"version": 1,\n"name": "x",\n'
    (bundle / "manifest.json").write_text(f"{head}{text}\n}}\n")
    with open_store(bundle / "s.duckdb") as store, pytest.raises(BundleError) as refused:
        ingest(store, bundle)
    assert what in refused.value.fact


def test_a_log_with_impossible_numbers_is_loaded_without_them(tmp_path: Path) -> None:
    most = (1 << 63) - 1
    flow = "ESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n"
    log = tmp_path / "ss.log"
    log.write_text(
        "0001-01-01T00:00:00Z\n" + flow + f"\t bbr wscale:7,7 cwnd:10 unacked:{most}"
        f" retrans:{most}/{most} bytes_acked:{10**18 * 9} rtt:1e300/inf bbr:(bw:9e+300bps)\n"
    )
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, log)
        row = store.con.execute("SELECT ns, unacked, in_flight, snd_cwnd FROM samples").fetchall()
        assert row == [(None, None, None, 10)]
