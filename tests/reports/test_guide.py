"""The guide says what is so, and its recipes work as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.analyze.replay import keep_results, replay_runs
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.lab import scenario
from bbrscope.reports.html.charts import figure
from bbrscope.reports.html.panels import flow_panels

from tests.test_readme import typed

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "reports" / "GUIDE.md"


def blocks(language: str) -> list[str]:
    """The guide's code blocks in a language, without their indent."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", GUIDE.read_text(), re.M | re.S)
    return [re.sub(f"^{indent}", "", text, flags=re.M) for indent, text in found]


def test_every_file_and_folder_that_the_guide_names_is_there() -> None:
    text = re.sub(r"^ *```.*?^ *```", "", GUIDE.read_text(), flags=re.M | re.S)
    named = re.findall(r"`((?:probes|collect|analyze|reports|tests)/[\w./]*)`", text)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_commands_show_the_field_on_its_way_from_the_probe_to_the_sentence(
    tmp_path: Path,
) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    done = typed([line for block in blocks("sh") for line in block.splitlines()], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    header = next(line for line in raw_lines() if line.startswith("#M0,")).split(",")
    row = next(line for line in done.stdout.splitlines() if line.startswith("M0,")).split(",")
    fields = dict(zip(header, row, strict=True))
    assert (fields["rs.tx_in_flight"], fields["rs.lost"]) == ("36", "35")
    assert re.search(r"^3875 +11519 +36 +35$", done.stdout, re.M)
    assert "HI_CUT_RS_LOSS" in done.stdout
    (sentence,) = blocks("text")
    output = " ".join(done.stdout.split())
    assert " ".join(sentence.split()) in output


def raw_lines() -> list[str]:
    """The lines of the recording that the guide follows."""
    import zstandard

    raw = (fixtures.path("v2_x_spur") / "events.csv.zst").read_bytes()
    return zstandard.ZstdDecompressor().stream_reader(raw).read().decode().splitlines()


def test_the_chart_of_the_recipe_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (recipe,) = blocks("python")
    names = dict(vars(flow_panels))
    exec(recipe, names)
    panel = names["UNDO"]
    monkeypatch.setattr(
        "bbrscope.reports.html.panels.flow_panels.FLOW_PANELS", (*flow_panels.FLOW_PANELS, panel)
    )
    monkeypatch.setattr(
        "bbrscope.reports.html.data.select.FLOW_PANELS", (*flow_panels.FLOW_PANELS, panel)
    )
    monkeypatch.setitem(figure._OF_FLOWS, panel.key, panel)
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, fixtures.path("v2_x_spur"))
        run_id = store.run_id("v2_x_spur")
        for flows in replay_runs.replay_runs(store.con, [run_id]):
            keep_results.keep(store, flows)
        drawn = figure.figure(store.con, "undo", [run_id])
    values = {row["value"] for row in drawn.rows}
    assert len(values) > 2
    assert {row["unit"] for row in drawn.rows} == {"packets"}


def test_the_scenario_of_the_recipe_is_one(tmp_path: Path) -> None:
    (recipe,) = blocks("toml")
    (tmp_path / "mine.toml").write_text(recipe)
    loaded = scenario.load(str(tmp_path / "mine.toml"))
    assert loaded.name == "mine"
    assert [claim.id for claim in loaded.claims] == ["bbr-is-ahead"]
