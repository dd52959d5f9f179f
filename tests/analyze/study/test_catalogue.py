"""Every claim and every figure of the catalogue can be asked, of an empty and of a filled store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bbrscope.analyze.study import figures, study
from bbrscope.analyze.study.claims import NOT_COMPARABLE
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.lab import scenario as catalogue
from bbrscope.probes.base.errors import ScenarioError

from tests import lab_rows

NAMES = catalogue.names()


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "empty.duckdb"
    open_store(path).close()
    return path


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every scenario of the catalogue as if it had been run, with equal shares."""
    path = tmp_path_factory.mktemp("filled") / "filled.duckdb"
    with open_store(path) as store:
        free = 1
        for name in NAMES:
            free = lab_rows.fill(store, catalogue.load(name), first=free)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_without_runs_every_claim_is_not_comparable_and_nothing_is_drawn(
    name: str, empty: Path
) -> None:
    with open_store(empty, read_only=True) as store:
        found = study.conduct(store, catalogue.load(name))
    assert {verdict.state for verdict in found.verdicts} <= {NOT_COMPARABLE}
    assert {drawn.rows.num_rows for drawn in found.drawn} <= {0}


@pytest.mark.parametrize("quick", [True, False], ids=["quick", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_with_runs_every_claim_gets_an_answer_in_words_and_its_figures_have_rows(
    name: str, quick: bool, filled: Path
) -> None:
    loaded = catalogue.load(name)
    # All claims are asked, also those that these runs are not enough for.
    asked = tuple(replace(claim, cc=(), full=False) for claim in loaded.claims)
    with open_store(filled, read_only=True) as store:
        found = study.conduct(store, replace(loaded, claims=asked), quick=quick)
    for verdict in found.verdicts:
        assert verdict.measured or verdict.why, verdict.claim.id
        assert verdict.n <= len(found.chosen.run_ids), verdict.claim.id
    assert any(drawn.rows.num_rows for drawn in found.drawn)


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_names_its_source_and_every_scenario_draws_something(name: str) -> None:
    loaded = catalogue.load(name)
    assert figures.of_scenario(loaded)
    for claim in loaded.claims:
        assert claim.text
        assert claim.source
        assert set(claim.cc) <= {"v1", "v2", "v3", "cubic", "reno", "vegas", "dctcp"}


def test_a_scenario_may_draw_its_own_but_nothing_unknown() -> None:
    own = {"title": "t", "kind": "table", "sql": "SELECT 1 AS one"}
    base = replace(catalogue.load(NAMES[0]), figures=())
    (found,) = figures.of_scenario(replace(base, own_figures=(own,)))
    assert (found.name, found.kind) == ("figure-1", "table")
    for wrong in (
        {"own_figures": ({**own, "kind": "pie"},)},
        {"own_figures": ({**own, "colour": "red"},)},
        {"own_figures": ({**own, "name": "../../escape"},)},
        {"own_figures": ({**own, "name": "/tmp/escape"},)},
        {"own_figures": ({**own, "name": ".."},)},
        {"own_figures": ({**own, "name": "--help"},)},
        {"own_figures": ({**own, "name": "a\x1b[2Jb"},)},
        {"own_figures": ({"title": "t", "kind": "table"},)},
        {"own_figures": ({**own, "scale": "wide"},)},
        {"figures": ("goodput-by-bufer",)},
    ):
        with pytest.raises(ScenarioError):
            figures.of_scenario(replace(base, **wrong))  # type: ignore[arg-type]


def test_a_figure_whose_query_fails_or_lacks_a_column_is_reported(empty: Path) -> None:
    copy = f"COPY (SELECT 1) TO '{empty}' (USE_TMP_FILE false)"
    before = empty.read_bytes()
    for sql, words in (
        ("FROM nosuch", "nosuch"),
        ("SELECT 1 AS x", "lacks y, series"),
        ("FROM read_text('/etc/passwd')", "'read_text'"),
        (copy, "COPY is not a query"),
        (f"WITH a AS ({copy}) FROM a", "cannot hold COPY"),
    ):
        own = {"title": "t", "kind": "lines", "sql": sql}
        scenario = replace(catalogue.load(NAMES[0]), figures=(), own_figures=(own,), claims=())
        with open_store(empty, read_only=True) as store, pytest.raises(ScenarioError) as raised:
            study.conduct(store, scenario)
        assert words in raised.value.fact
        assert empty.read_bytes() == before


def test_decimals_of_a_query_become_numbers_that_a_chart_can_draw(filled: Path) -> None:
    own = {"title": "t", "kind": "lines"}
    own["sql"] = "SELECT 1.5 AS x, 2::DECIMAL(20, 3) AS y, 'a' AS series"
    scenario = replace(catalogue.load(NAMES[0]), figures=(), own_figures=(own,), claims=())
    with open_store(filled, read_only=True) as store:
        (drawn,) = study.conduct(store, scenario).drawn
    assert drawn.rows.to_pylist() == [{"x": 1.5, "y": 2.0, "series": "a"}]
    assert isinstance(drawn.rows["x"][0].as_py(), float)
