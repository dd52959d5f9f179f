"""What figures draw over time, against the queue's own samples and iperf3's own counts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bbrscope.analyze.study import points
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store

from tests import lab_bundles

pytestmark = pytest.mark.slow
RUNS = {"song-cubic": "v2_vs_cubic_2bdp", "song-bwchange": "v1_bwchange"}


@pytest.fixture(scope="module")
def recorded(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of the testbed as runs of the lab, with the packets behind the bottleneck."""
    folder = tmp_path_factory.mktemp("over_time")
    if shutil.which("tshark") is None:
        pytest.skip("needs tshark: apt-get install tshark")
    with open_store(folder / "s.duckdb") as store:
        for scenario, name in RUNS.items():
            bundle = lab_bundles.bundle(traces / name, folder, scenario)
            packets = "packets.pcap.zst"
            shutil.copyfile(traces / name / packets, bundle / packets)
            ingest(store, bundle)
    return folder / "s.duckdb"


def asked(path: Path, scenario: str, sql: str) -> list[tuple[object, ...]]:
    def made(store: Store) -> list[tuple[object, ...]]:
        points.make(store, points.choose(store, scenario))
        return store.con.execute(sql).fetchall()

    with open_store(path, read_only=True) as store:
        return made(store)


@pytest.mark.parametrize("scenario", RUNS)
def test_the_flows_packets_in_the_queue_are_the_qdiscs_backlog_to_the_byte(
    scenario: str, recorded: Path
) -> None:
    """Found from the packets only. A sample may fall between a packet's dequeueing and capture."""
    [(samples, equal, most)] = asked(
        recorded,
        scenario,
        "WITH made AS (SELECT t, sum(y) AS y FROM queue_by_flow GROUP BY t)"
        " SELECT count(*), count_if(abs(m.y - b.y) < 0.001), max(b.y)"
        " FROM made m JOIN backlog_over_time b USING (t)",
    )
    assert samples > 100
    assert equal > 0.9 * samples
    assert most > 30


@pytest.mark.parametrize("scenario", RUNS)
def test_losses_and_retransmissions_are_as_many_as_iperf3_counts(
    scenario: str, recorded: Path
) -> None:
    rows = asked(
        recorded,
        scenario,
        "SELECT f.bbr, f.retransmits,"
        " (SELECT sum(y) FROM losses_over_time l WHERE l.series = f.label),"
        " (SELECT sum(y) FROM retransmits_over_time r WHERE r.series = f.label)"
        " FROM point_flows f",
    )
    assert rows
    for bbr, counted, lost, seen in rows:
        assert isinstance(counted, int)
        assert counted > 0
        # What was lost again did not get past the queue.
        assert 0.6 * counted < seen <= counted
        if bbr:
            # What is sent again was marked lost before; some of that arrives all the same.
            assert isinstance(lost, float)
            assert counted <= lost < 1.2 * counted
