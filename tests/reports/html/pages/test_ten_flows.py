"""A page with ten flows says of each what a page with one says: tables are cut, sentences not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from bbrscope.analyze.story.flow_stories import flows_of, story_of
from bbrscope.analyze.views import materialize
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from bbrscope.reports.html.pages import page

RUN = "v3_x_tlp5"
FLOWS = 10


@pytest.fixture(scope="module")
def ten_path(shipped_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped recording of one flow, as if ten flows had done the same."""
    path = tmp_path_factory.mktemp("ten") / "ten.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        con, run_id = store.con, store.run_id(RUN)
        tables = con.execute(
            "SELECT table_name FROM duckdb_columns() JOIN duckdb_tables() USING (table_name)"
            " WHERE column_name IN ('run_id', 'flow') GROUP BY table_name HAVING count(*) = 2"
        ).fetchall()
        materialize.forget(con, [run_id])
        for (table,) in tables:
            con.execute(
                f'INSERT INTO "{table}" SELECT t.* REPLACE (n AS flow) FROM "{table}" t,'
                f" range(2, {FLOWS + 1}) others(n) WHERE run_id = ? AND flow = 1",
                [run_id],
            )
    return path


def stories(html: str) -> list[str]:
    """The paragraphs and limits of each flow, without the links in them."""
    articles = re.findall(r'<article class="story">.*?</h3>(.*?)</article>', html, re.DOTALL)
    return [re.sub(r"<[^>]*>", "", article) for article in articles]


def test_ten_flows_are_reported_as_one_is(ten_path: Path, shipped: Store) -> None:
    (alone,) = stories(page.build(shipped.con, shipped.run_id(RUN)))
    with open_store(ten_path, read_only=True) as store:
        html = page.build(store.con, store.run_id(RUN))
    assert stories(html) == [alone] * FLOWS
    assert "only the first 150 can be listed" in html


def test_the_page_counts_what_the_store_has(ten_path: Path) -> None:
    """How often bounds changed, and the least of inflight_lo, asked of the view directly."""
    with open_store(ten_path, read_only=True) as store:
        changes, lowest, cuts = store.con.execute(
            "SELECT count(*) FILTER (bound = 'inflight_hi') - 1,"
            " min(new) FILTER (bound = 'inflight_lo' AND new < old AND name <> 'INFLO_CAP_HI'),"
            " count(*) FILTER (bound = 'inflight_lo' AND new < old AND name <> 'INFLO_CAP_HI')"
            " FROM bounds_history WHERE run = ? AND flow = 7",
            [RUN],
        ).fetchall()[0]
        html = page.build(store.con, store.run_id(RUN))
    story = stories(html)[6]
    assert changes > 100
    assert f"After that it changed {changes} times" in story
    assert f"set or cut inflight_lo {cuts} times, lowest {lowest} packets" in story


def test_facts_are_the_same_whatever_is_drawn(ten_path: Path, shipped: Store) -> None:
    (alone,) = flows_of(shipped.con, shipped.run_id(RUN))
    facts = story_of(shipped.con, alone).facts
    with open_store(ten_path, read_only=True) as store:
        for flow in flows_of(store.con, store.run_id(RUN)):
            assert story_of(store.con, flow).facts == facts
