"""The page's first table has the metrics' numbers, and what the page trusts is said once."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from bbrscope.reports.html import page


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
    assert found[1] == f"{row[0]:.3g} Mbit/s"
    assert [f"{us / 1e3:.1f}" for us in row[1:]] == found[-5:-1]
    limit, part = shipped.con.execute(
        "SELECT binding, share FROM binding_summary WHERE run = ? AND flow = 1 AND phase = 'ALL'"
        " ORDER BY share DESC LIMIT 1",
        [run],
    ).fetchall()[0]
    assert limit
    assert found[-1].endswith(f"({100 * part:.0f} % of the time)")


def test_what_is_odd_does_not_stand_below_that_nothing_is_missing(
    shipped_path: Path, tmp_path: Path
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
        html = page.build(store.con, run_id)
    markup = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert "ingest noted what is odd: 1 x exits_stop" in markup
    assert "Nothing is missing in the recording" not in markup
    assert markup.count("The replay agrees with the kernel") == 1
