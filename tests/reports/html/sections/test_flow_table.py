"""The page's first table has the metrics' numbers, and what the page trusts is said once."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from bbrscope.analyze.diagnosis.engine import diagnose
from bbrscope.analyze.story.event_flows import EventFlow
from bbrscope.analyze.story.flow_stories import flows_of
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store
from bbrscope.reports.html.pages import page
from bbrscope.reports.text.findings.diagnosis_text import diagnosis_lines
from bbrscope.reports.text.stories import flow_story

from tests.two_flows import two_flows


def cells(html: str) -> list[str]:
    """The cells of the table of flows, without links."""
    (section,) = re.findall(r'<section id="flows">.*?</section>', html, re.DOTALL)
    return [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>.*?</td>", section)]


@pytest.mark.parametrize("run", ["v2_single_1bdp", "v1_x_lt"])
def test_the_first_table_is_of_the_metrics(run: str, shipped: Store) -> None:
    html = page.build(shipped.con, shipped.run_id(run))
    (row,) = shipped.con.execute(
        "SELECT goodput_mbps, rtt_p50_us, rtt_p95_us, rtt_p99_us, queue_delay_us"
        " FROM metrics_by_flow WHERE run = ? AND flow = 1",
        [run],
    ).fetchall()
    found = cells(html)
    assert found[0] == "1"
    # A hyphen before ">" would end a line of a phone: "101-" and ">119".
    (reasons,) = re.findall(r'<section id="charts">.*?</section>', html, re.DOTALL)
    assert "-&gt;" not in re.sub(r"<script.*?</script>", "", reasons, flags=re.DOTALL)
    assert re.search(r"\d→\d", reasons)
    assert found[1] == f"{row[0]:.3g} Mbit/s"
    assert [f"{us / 1e3:.1f}" for us in row[1:]] == found[-5:-1]
    limit, part = shipped.con.execute(
        "SELECT binding, share FROM binding_summary WHERE run = ? AND flow = 1 AND phase = 'ALL'"
        " ORDER BY share DESC LIMIT 1",
        [run],
    ).fetchall()[0]
    assert limit
    assert found[-1].endswith(f"({100 * part:.0f} % of the time)")


def test_shares_are_those_of_which_jains_index_is(tmp_path: Path) -> None:
    """The second flow carries three times as much as the first: 1 / (2 x (1/16 + 9/16)) = 0.8."""
    rates = [(10_000, 30_000)] * 5
    with open_store(tmp_path / "s.duckdb") as store:
        run_id = ingest(store, two_flows(tmp_path / "two.pcap", rates)).run_id
        html = page.build(store.con, run_id)
    found = cells(html)
    assert "Jain's index of these shares: 0.800" in html
    assert [cell for cell in found if cell in ("25 %", "75 %")] == ["25 %", "75 %"]


@pytest.mark.slow
def test_a_sender_without_events_stands_beside_the_others(traces: Path, tmp_path: Path) -> None:
    """iperf3 of the CUBIC flow knows what that connection sent."""
    bundle = traces / "v3_vs_cubic_2bdp"
    with open_store(tmp_path / "s.duckdb") as store:
        found = cells(page.build(store.con, ingest(store, bundle).run_id))
    place = found.index("connection 3 (no events)")
    sums = json.loads((bundle / "iperf2.json").read_text())["end"]["sum_received"]
    told = float(found[place + 1].removesuffix(" Mbit/s"))
    assert told == pytest.approx(sums["bits_per_second"] / 1e6, rel=0.03)
    shares = [int(cell[:-2]) for cell in (found[2], found[place + 2])]
    assert sum(shares) == pytest.approx(100, abs=1)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (0, "Ingest noted what is odd or missing: 1 x exits_stop."),
        (
            2,
            "The recording is incomplete: 2 rows were lost while recording. "
            "Ingest noted: 1 x exits_stop.",
        ),
    ],
)
def test_page_diagnosis_and_story_say_the_same_of_what_is_missing(
    lost: int, said: str, shipped_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "odd.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id("v2_single_1bdp")
        store.con.execute(
            "INSERT INTO capture_quality BY NAME"
            " SELECT ? AS run_id, 'exits_stop' AS kind, 'row 7' AS detail",
            [run_id],
        )
        store.con.execute("UPDATE runs SET lost_reported = ? WHERE run_id = ?", [lost, run_id])
        html = page.build(store.con, run_id)
        made = diagnose(store.con, run_id)
        flow = flows_of(store.con, run_id)[0]
    markup = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert isinstance(flow, EventFlow)
    lines = {
        "page": re.findall(r'class="verdict[^>]*>(.*?)</p>', markup),
        "diagnose": [line.strip() for line in diagnosis_lines(made)],
        "explain": flow_story.trust(flow),
    }
    for whose, lines_of_flow in lines.items():
        about = [line for line in lines_of_flow if "recording" in line or "ngest noted" in line]
        assert len(about) == 1, whose
        assert about[0].endswith(said[1:]), whose
    assert markup.count("The replay agrees with the kernel") == 1
