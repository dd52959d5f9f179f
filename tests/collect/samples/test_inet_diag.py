"""A run that has samples of ss only: rung inet_diag."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BundleError

from tests.conftest import ss_text, write_bundle

SECOND = 10**9
STARTUP, DRAIN, CRUISE, UP, PROBE_RTT = (
    (2.88672, 2.88672),
    (0.34375, 2.88672),
    (1, 2),
    (1.25, 2),
    (1, 1),
)


def store_of(folder: Path, text: str, lines: list[str] | None = None) -> Store:
    bundle = write_bundle(folder / "sampled", lines, rung="inet_diag")
    (bundle / "ss.txt.zst").write_bytes(zstandard.compress(text.encode()))
    store = open_store(folder / "s.duckdb")
    ingest(store, bundle)
    return store


@pytest.fixture
def sampled(tmp_path: Path) -> Iterator[Store]:
    gains = [STARTUP, STARTUP, DRAIN, UP, CRUISE, PROBE_RTT, CRUISE]
    with store_of(tmp_path, ss_text(gains)) as store:
        yield store


def test_modes_are_reported_by_the_gains_and_only_where_samples_are(sampled: Store) -> None:
    rows = sampled.con.execute(
        "SELECT mode, before_ns, first_ns, last_ns, samples FROM sampled_modes ORDER BY first_ns"
    ).fetchall()
    seconds = [(mode, *(ns and ns // SECOND for ns in at), n) for mode, *at, n in rows]
    assert seconds == [
        ("STARTUP", None, 1, 2, 2),
        ("DRAIN", 2, 3, 3, 1),
        ("PROBE_BW", 3, 4, 5, 2),
        ("PROBE_RTT", 5, 6, 6, 1),
        ("PROBE_BW", 6, 7, 7, 1),
    ]


def test_a_run_of_samples_alone_has_flows_a_rung_and_no_events(sampled: Store) -> None:
    run = sampled.con.execute(
        "SELECT rung, version, events, flows, duration_ns FROM runs"
    ).fetchall()
    assert run == [("inet_diag", None, 0, 1, 6 * SECOND)]
    flow = sampled.con.execute(
        "SELECT flow, local, remote, samples, acked_bytes, goodput_mbps, last_mode"
        " FROM sampled_flows"
    ).fetchall()
    # 1,250,000 bytes a second are 10 Mbit/s.
    ends = ("127.0.0.1:53778", "10.0.0.2:5999")
    assert flow == [(1, *ends, 7, 6 * 1_250_000, pytest.approx(10.0), "PROBE_BW")]


def test_samples_make_a_run_where_no_event_was_recorded_beside_them(tmp_path: Path) -> None:
    """As --sample leaves it that chose none of few flows, and a host whose flows were idle."""
    lines = ["#T,ns,sk,tp.delivered,bbr.rtt_cnt"]
    with store_of(tmp_path, ss_text([STARTUP, CRUISE]), lines) as store:
        found = store.con.execute("SELECT rung, events, flows FROM runs").fetchall()
        assert found == [("inet_diag", 0, 1)]
        assert store.con.execute("SELECT count(*) FROM samples").fetchall() == [(2,)]


def test_rows_that_are_gone_are_told_though_samples_are_there(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "gone", ["#T,ns,sk,tp.delivered,bbr.rtt_cnt"], events={"T": 3})
    (bundle / "ss.txt.zst").write_bytes(zstandard.compress(ss_text([STARTUP]).encode()))
    with (
        open_store(tmp_path / "s.duckdb") as store,
        pytest.raises(BundleError, match="T: 0 rows, the manifest says 3"),
    ):
        ingest(store, bundle)


def test_samples_beside_events_find_their_flow(tmp_path: Path) -> None:
    """Rows N, or I, say the ends; the sample names them as ss does."""
    lines = [
        "#N,ns,sk,sport,dport,daddr,family,saddr",
        "#T,ns,sk,tp.delivered,bbr.rtt_cnt",
        "N,1,ff,4818,28439,33554442,2,16777343",  # 127.0.0.1:53778 to 10.0.0.2:5999
        f"T,{SECOND // 2},ff,1,1",
    ]
    with store_of(tmp_path, ss_text([CRUISE]), lines) as store:
        found = store.con.execute("SELECT flow, ns FROM samples").fetchall()
        assert found == [(1, SECOND)]
        assert store.con.execute("SELECT rung FROM runs").fetchall() == [("tcp_probe",)]


def test_a_bundle_without_any_bbr_sample_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no sample of a BBR socket"):
        store_of(tmp_path, "# monotonic_ns 5\n\n# monotonic_ns 6\n")


def test_a_damaged_file_is_refused_with_its_name(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "sampled", None, rung="inet_diag")
    whole = zstandard.compress(ss_text([CRUISE] * 5000).encode())
    (bundle / "ss.txt.zst").write_bytes(whole[: len(whole) // 2])
    with open_store(tmp_path / "s.duckdb") as store, pytest.raises(BundleError, match="sampled"):
        ingest(store, bundle)
