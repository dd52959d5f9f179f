"""Each way that a claim can go, and what a study is about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.study import study
from bbrscope.analyze.study.claims import NOT_COMPARABLE, NOT_REPRODUCED, REPRODUCED, Verdict
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.lab import scenario as catalogue
from bbrscope.collect.lab.scenario import Scenario
from bbrscope.collect.lab.scenario_claims import Claim
from bbrscope.probes.base.errors import BbrscopeError, ScenarioError

from tests import lab_rows

NAME = "song-single-buffer"
SQL = """
SELECT min(utilisation) >= $expected - $tolerance AS reproduced,
  row('{:.0f} % at least', 100 * min(utilisation)) AS measured, count(*) AS n FROM points
"""
CLAIM = Claim("full", "it fills the link", "Song21, Fig 5a", SQL, expected=0.9, tolerance=0.01)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the quick and the full form; v1 leaves 10 % of the link unused in full form."""
    made = tmp_path_factory.mktemp("study") / "study.duckdb"

    def goodput(point: Any, flow: Any, version: str | None) -> float:
        return float((0.86 if version == "v1" and not point.quick else 0.95) * point.path.rate_bps)

    with open_store(made) as store:
        last = lab_rows.fill(store, catalogue.load(NAME), goodput)
        lab_rows.fill(store, catalogue.load("song-cubic"), first=last)
    return made


def scenario(*claims: Claim, name: str = NAME) -> Scenario:
    return replace(catalogue.load(name), claims=claims, figures=(), own_figures=())


def judged(path: Path, claim: Claim, quick: bool | None = None, name: str = NAME) -> Verdict:
    with open_store(path, read_only=True) as store:
        (verdict,) = study.conduct(store, scenario(claim, name=name), quick=quick).verdicts
    return verdict


def test_a_claim_that_the_runs_bear_out_is_reproduced_with_numbers(path: Path) -> None:
    found = judged(path, CLAIM, quick=True)
    assert (found.state, found.measured, found.why) == (REPRODUCED, "99 % at least", "")
    assert found.n == 6


def test_a_claim_that_they_do_not_bear_out_is_not_reproduced(path: Path) -> None:
    # 0.86 of the link's rate as payload is 90 % with headers; 0.95 was asked for.
    found = judged(path, replace(CLAIM, expected=0.95))
    assert (found.state, found.measured) == (NOT_REPRODUCED, "90 % at least")


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("'v1 {:.0f} to {:.0f} ms, v2 {} to {}', 72.6, 73.4, 1.5, 1.5", "v1 73 ms, v2 1.5"),
        ("'{:,d} of them, {:,.0f} to {:,.0f}', 7012, 7012.2, 7011.9", "7,012 of them"),
        ("'{:.1f} to {:.2f}, {:.0f} %', -0.01, -0.05, -0.2", "0.0 to -0.05, 0 %"),
        ("'{} to {} of {} to {:.2f}', 1050, 1050, 0.9, 0.9", "1050 of 0.9 to 0.90"),
        ("'{} and {}', 'few', NULL", ""),
    ],
)
def test_numbers_read_as_people_write_them(path: Path, row: str, text: str) -> None:
    sql = f"SELECT true AS reproduced, row({row}) AS measured"
    assert judged(path, replace(CLAIM, sql=sql)).measured == text


@pytest.mark.parametrize(
    "row", ["'{:99999999999}', 1", "'{0.real}', 1", "'{} {}', 1", "'{:d}', 0.5", "'{', 1", "1, 2"]
)
def test_words_that_do_not_fit_the_numbers_are_an_error(path: Path, row: str) -> None:
    sql = f"SELECT true AS reproduced, row({row}) AS measured"
    with pytest.raises(ScenarioError, match=r"claim 'full': .+"):
        judged(path, replace(CLAIM, sql=sql))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"cc": ("v1", "cubic")}, "no run with cubic: there is v1, v2, v3"),
        ({"full": True}, "its numbers are of the full form, and these runs are of the quick one"),
        (
            {"sql": "SELECT NULL AS reproduced, 'x' AS measured", "needs": "a buffer of 1 BDP"},
            "it needs a buffer of 1 BDP",
        ),
        ({"sql": "SELECT NULL AS reproduced, NULL AS measured"}, "these runs cannot tell"),
    ],
)
def test_a_claim_whose_needs_are_not_met_is_not_comparable_and_says_why(
    path: Path, changed: dict[str, Any], why: str
) -> None:
    found = judged(path, replace(CLAIM, **changed), quick=True)
    assert (found.state, found.why) == (NOT_COMPARABLE, why)


def test_without_a_valid_run_nothing_is_comparable(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.duckdb") as store:
        lab_rows.fill(store, catalogue.load(NAME), valid=False, why_invalid="CPU-bound")
    found = judged(tmp_path / "s.duckdb", CLAIM)
    assert (found.state, found.why) == (NOT_COMPARABLE, "no valid run")
    with open_store(tmp_path / "s.duckdb", read_only=True) as store:
        chosen = study.conduct(store, scenario(CLAIM)).chosen
    assert chosen.run_ids == ()
    assert {why for _, why in chosen.invalid} == {"CPU-bound"}


def test_a_store_stays_open_for_one_study_after_another(path: Path) -> None:
    with open_store(path, read_only=True) as store:
        one, other = (study.conduct(store, scenario(CLAIM)).verdicts for _ in range(2))
    assert one == other


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT true AS reproduced, '' AS measured WHERE false",
        "FROM nosuch",
        "SELECT true AS reproduced, 'much' AS measured, 'three' AS n",
        "SELECT true AS reproduced, 'much' AS measured, 'infinity'::DOUBLE AS n",
        "SELECT count(*) > 0 AS reproduced, any_value(content) AS measured FROM"
        " read_text('/etc/passwd')",
        "DELETE FROM runs",
        "ATTACH 'other.duckdb'",
        "SET enable_external_access = true",
        "COPY (SELECT 1) TO 'STORE' (USE_TMP_FILE false)",
        "WITH a AS (COPY (SELECT 1) TO 'STORE' (USE_TMP_FILE false))"
        " SELECT true AS reproduced, '' AS measured FROM a",
        "WITH a AS (DELETE FROM points RETURNING *)"
        " SELECT true AS reproduced, '' AS measured FROM a",
    ],
)
def test_a_query_that_cannot_be_asked_is_reported_and_reaches_nothing(path: Path, sql: str) -> None:
    before = path.read_bytes()
    with pytest.raises(ScenarioError) as raised:
        judged(path, replace(CLAIM, sql=sql.replace("STORE", str(path))))
    assert "claim 'full'" in raised.value.fact
    assert path.read_bytes() == before


def test_a_study_is_of_the_full_form_if_there_is_one_and_of_the_scenarios_runs_alone(
    path: Path,
) -> None:
    with open_store(path, read_only=True) as store:
        found = study.conduct(store, scenario(CLAIM)).chosen
        names = dict(store.con.execute("SELECT run_id, run FROM runs").fetchall())
    assert not found.quick
    assert found.other_form == 6
    assert all(names[run_id].startswith(NAME) for run_id in found.run_ids)


def test_runs_can_be_chosen_by_name_but_only_those_of_the_scenario(path: Path) -> None:
    with open_store(path, read_only=True) as store:
        mine = [name for name in store.runs() if name.startswith(f"{NAME}.quick")][:2]
        other = next(name for name in store.runs() if name.startswith("song-cubic"))
        with pytest.raises(BbrscopeError, match="is no run of song-single-buffer"):
            study.conduct(store, scenario(CLAIM), [*mine, other])
        found = study.conduct(store, scenario(CLAIM), mine)
    assert len(found.chosen.run_ids) == 2
    assert found.verdicts[0].n == 2


def test_the_relations_say_what_the_flows_reached(path: Path) -> None:
    sql = """
    SELECT count(*) FILTER (abs(jain - 1) > 1e-9 OR abs(bbr_share - 0.5) > 1e-9
      OR algos NOT IN ('v1 + cubic', 'v2 + cubic', 'v3 + cubic')) = 0 AS reproduced,
      string_agg(DISTINCT label, '; ' ORDER BY label) AS measured
    FROM points JOIN point_flows USING (run_id)
    """
    found = judged(path, replace(CLAIM, sql=sql), quick=True, name="song-cubic")
    assert found.state == REPRODUCED
    versions = ("v1", "v2", "v3")
    beside = [f"cubic beside {bbr}" for bbr in versions] + [
        f"{bbr} beside cubic" for bbr in versions
    ]
    assert found.measured == "; ".join(beside)
