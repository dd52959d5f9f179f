"""CDFs, boxes and the time to converge against numbers worked out from the recorded rows only."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store
from bbrscope.reports.commands.plot import command
from bbrscope.reports.html.charts import figure
from bbrscope.reports.html.data import convergence, distributions, select
from bbrscope.reports.html.sections.compared_stills import lines_of, stills
from click.testing import CliRunner, Result

from tests.two_flows import two_flows

RUN = "v2_single_1bdp"


def _plot(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--store", str(store)])


def _events(store: Store, columns: str) -> list[tuple[int, ...]]:
    query = f"SELECT {columns} FROM events JOIN runs USING (run_id) JOIN flows USING (run_id, flow)"
    where = " WHERE run = ? AND flow = 1 AND seq >= pre_init ORDER BY seq"
    return store.con.execute(query + where, [RUN]).fetchall()


def _told(path: Path, share: str) -> float:
    with open(path, newline="") as file:
        return next(float(row["value"]) for row in csv.DictReader(file) if row["share"] == share)


def test_the_quantiles_of_the_rtt_are_those_of_the_recorded_samples(
    shipped: Store, shipped_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "rtt.csv"
    assert _plot(shipped_path, "rtt-cdf", RUN, "--data", str(path)).exit_code == 0
    samples = sorted(rtt for kind, rtt in _events(shipped, "kind = 'main', rs_rtt_us") if kind and
                     rtt is not None and rtt > 0)  # fmt: skip
    for share in (0.05, 0.5, 0.99):
        place = share * (len(samples) - 1)
        low, part = samples[int(place)], place % 1
        between = low + part * (samples[min(int(place) + 1, len(samples) - 1)] - low)
        assert _told(path, str(share)) == pytest.approx(between / 1e3)


def test_data_in_flight_is_weighted_with_the_time_that_it_held(
    shipped: Store, shipped_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "inflight.csv"
    assert _plot(shipped_path, "inflight-cdf", RUN, "--data", str(path)).exit_code == 0
    columns = "ns, tp_packets_out, tp_sacked_out, tp_lost_out, tp_retrans_out"
    held: dict[int, int] = {}
    for (ns, out, sacked, lost, again), after in itertools.pairwise(_events(shipped, columns)):
        in_flight = out - sacked - lost + again
        held[in_flight] = held.get(in_flight, 0) + after[0] - ns
    for share in (0.25, 0.5, 0.95):
        value = int(_told(path, str(share)))
        below = sum(ns for v, ns in held.items() if v < value) / sum(held.values())
        assert below <= share <= below + held[value] / sum(held.values())


def test_no_goodput_is_above_the_link_and_windows_are_kept(shipped_path: Path) -> None:
    with open_store(shipped_path, read_only=True) as store:
        ids = [store.run_id(RUN)]
        whole = distributions.load(store.con, "goodput", ids)
        part = distributions.load(store.con, "goodput", ids, (5.0, 8.0))
        link = store.con.execute(
            "SELECT max(bits_per_s) / 1e6 FROM link_rates WHERE run_id = ?", ids
        ).fetchall()[0][0]
    assert whole.flows[0].values.max() <= 1.02 * link
    assert part.flows[0].values.max() <= whole.flows[0].values.max()
    assert part.flows[0].values.min() >= whole.flows[0].values.min()
    assert part.bin_ns == whole.bin_ns


def test_a_box_has_the_ranks_of_the_same_distribution(shipped_path: Path, tmp_path: Path) -> None:
    paths = [tmp_path / "cdf.csv", tmp_path / "box.csv"]
    for name, path in zip(("rtt-cdf", "rtt-box"), paths, strict=True):
        done = _plot(shipped_path, name, RUN, "--data", str(path), "--spec")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["title"]["text"] == RUN
    with open(paths[1], newline="") as file:
        (box,) = csv.DictReader(file)
    for share, column in ((0.05, "p5"), (0.25, "p25"), (0.5, "p50"), (0.99, "p99")):
        assert float(box[column]) == pytest.approx(_told(paths[0], str(share)))


def test_colours_are_those_of_the_runs_and_what_is_missing_is_said(
    shipped: Store, shipped_path: Path
) -> None:
    names = ["v1_x_lt", "v2_x_spur"]
    found, specs = stills(shipped.con, [shipped.run_id(name) for name in names], names)
    assert [still.key for still in found] == ["scatter", "rtt", "goodput", "inflight"] == [*specs]
    (rtt,) = (still for still in found if still.key == "rtt")
    assert [line.name.partition(",")[0] for line in rtt.lines] == names
    assert [line.colour for line in rtt.lines] == [
        f"flow{place + 1}" for place in range(len(names))
    ]
    failed = _plot(shipped_path, "rtt-box", RUN, "--flow", "77", "--spec")
    assert failed.exit_code == 1
    assert "no such flow" in str(failed.exception)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark: apt-get install tshark")
def test_the_chart_of_convergence_shows_known_shares(tmp_path: Path) -> None:
    """Equal from second 4 on: a mean over the next 2 s is so from there, and holds for 7 s."""
    rates = [(3000, 1000)] * 4 + [(2100, 1900)] * 11
    with open_store(tmp_path / "store.duckdb") as store:
        run_id = ingest(store, two_flows(tmp_path / "two.pcap", rates)).run_id
        found = convergence.load(store.con, select.load_run(store.con, run_id))
    assert found is not None
    assert (found.window_s, found.hold_s, found.converged_s) == (2, 7, 4)
    assert "converge: at 4 s (" in found.panel.title
    assert found.points[convergence.KEY].t.tolist() == [4_000_000]
    points = found.points["part1"]
    parts = dict(zip((points.t // 1_000_000).tolist(), points.v.tolist(), strict=True))
    # 3000 of 4000 is 1.5 equal parts; in second 3, half of that and half of what follows.
    assert parts[0] == 15_000
    assert parts[3] == round(1e4 * (3000 + 2100) / 4000)
    assert parts[4] == 10_500


@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark: apt-get install tshark")
def test_packets_alone_draw_the_rtt_that_their_table_tells(tmp_path: Path) -> None:
    packed = fixtures.path(RUN) / "packets.pcap.zst"
    capture = tmp_path / "alone.pcap"
    with open(packed, "rb") as source, open(capture, "wb") as target:
        zstandard.ZstdDecompressor().copy_stream(source, target)
    with open_store(tmp_path / "store.duckdb") as store:
        run_id = ingest(store, capture).run_id
        expected = store.con.execute(
            "SELECT max(pkt_rtt_p99_us) / 1e3 FROM metrics_by_flow WHERE run_id = ?", [run_id]
        ).fetchall()[0][0]
        rows = figure.figure(store.con, "rtt", [run_id]).rows
    drawn = [row["value"] for row in rows if row["signal"] == "echo_rtt"]
    assert max(drawn) >= expected > 1.2 * min(drawn)


def test_runs_that_share_a_colour_differ_in_dash() -> None:
    """The seventh of eight runs looked like the first."""
    flows = [distributions.Distribution(run, 1, "flow 1", np.array([1.0])) for run in range(8)]
    shown = distributions.Distributions(distributions.QUANTITIES["rtt"], flows)
    lines = lines_of(shown, {run: f"run {run}" for run in range(8)})
    assert lines[0].colour == lines[6].colour
    assert len({(line.colour, line.dash) for line in lines}) == 8
