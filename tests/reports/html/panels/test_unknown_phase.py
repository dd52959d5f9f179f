"""A recording that lacks the row that tells a state is drawn, and says what it lacks."""

from __future__ import annotations

from pathlib import Path

from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.reports.html.pages import page
from bbrscope.reports.html.panels.palette import colour_of


def test_a_state_that_is_not_known_has_a_colour_of_its_own() -> None:
    assert colour_of("STARTUP") == "var(--STARTUP)"
    assert {colour_of(name) for name in (None, "", "PROBE_NOTHING")} == {"var(--unknown)"}


def test_a_flow_whose_first_phases_are_not_known_gets_its_report(tmp_path: Path) -> None:
    with open_store(tmp_path / "unknown.duckdb") as store:
        ingest(store, fixtures.path("v2_x_spur"))
        run_id = store.run_id("v2_x_spur")
        store.con.execute("UPDATE events SET bbr_mode = NULL WHERE seq < 40")
        unknown = "SELECT count(*) FROM phases WHERE phase IS NULL"
        assert store.con.execute(unknown).fetchall() != [(0,)]
        html = page.build(store.con, run_id)
    assert "</i>unknown</td>" in html
