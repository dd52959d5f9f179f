"""`bbrscope plot`: every chart as a file, with the data behind it."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import click
import pyarrow.parquet as pq
import pytest
from bbrscope.analyze.views.materialize import forget
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from bbrscope.reports.commands.plot import command, complete_names
from bbrscope.reports.html.charts.figure import NAMES
from bbrscope.reports.text import run_notes
from click.testing import CliRunner, Result

RUN = "v2_single_1bdp"
# Of packets, which take tshark to read.
WIRE = pytest.param(
    "wire",
    marks=pytest.mark.skipif(
        shutil.which("tshark") is None, reason="no tshark: apt-get install tshark"
    ),
)


def _plot(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--store", str(store)])


@pytest.mark.parametrize("name", [*(name for name in NAMES if name != "wire"), WIRE])
def test_every_chart_is_drawn_alone(name: str, shipped_path: Path, tmp_path: Path) -> None:
    output = tmp_path / "figure.svg"
    if name in ("jain", "mss", "convergence"):  # one flow, whose segments keep their size
        missing = _plot(shipped_path, name, RUN, "-o", str(output))
        assert missing.exit_code == 1
        assert "nothing to draw" in str(missing.exception)
        return
    done = _plot(shipped_path, name, RUN, "-o", str(output))
    assert done.exit_code == 0, done.output
    svg = output.read_text()
    assert len(re.findall(r'class="mark-(line|rule|rect|symbol|text) role-mark', svg)) >= 1
    assert len(re.findall(r"<path|<line", svg)) > 20
    assert "var(--" not in svg
    assert not re.search(r"""(href|src)=["']https?:""", svg)


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_figures_are_what_their_name_says(
    suffix: str, begins: bytes, shipped_path: Path, tmp_path: Path
) -> None:
    output = tmp_path / f"figure.{suffix}"
    assert _plot(shipped_path, "rtt", RUN, "-o", str(output)).exit_code == 0
    assert output.read_bytes().startswith(begins)


def test_the_data_are_those_of_the_store(
    shipped_path: Path, shipped: Store, tmp_path: Path
) -> None:
    output = tmp_path / "rows.csv"
    window = ("--between", "0s", "30s")
    assert _plot(shipped_path, "volumes", RUN, "--data", str(output), *window).exit_code == 0
    with open(output, newline="") as file:
        rows = list(csv.DictReader(file))
    values = {
        key: [float(row["value"]) for row in rows if row["signal"] == key and row["value"]]
        for key in ("cwnd", "inflight_hi")
    }
    largest, bounds = shipped.con.execute(
        "SELECT max(coalesce(exit_snd_cwnd, tp_snd_cwnd)), list(DISTINCT bbr_inflight_hi)"
        " FILTER (bbr_inflight_hi <> 4294967295) FROM events JOIN runs USING (run_id)"
        " WHERE run = ? AND flow = 1",
        [RUN],
    ).fetchall()[0]
    assert max(values["cwnd"]) == largest
    assert set(values["inflight_hi"]) == set(bounds)
    assert {row["unit"] for row in rows} == {"packets"}
    assert {row["run"] for row in rows} == {RUN}


def test_several_runs_stand_one_above_the_other(shipped_path: Path, tmp_path: Path) -> None:
    output = tmp_path / "rows.parquet"
    done = _plot(shipped_path, "rtt", "v2_*", "--data", str(output), "--spec")
    assert done.exit_code == 0
    spec = json.loads(done.stdout)
    assert [part["title"]["text"] for part in spec["vconcat"]] == [
        "v2_single_1bdp, flow 1",
        "v2_x_spur, flow 1",
    ]
    runs = pq.read_table(output).column("run").to_pylist()
    assert set(runs) == {"v2_single_1bdp", "v2_x_spur"}


@pytest.mark.parametrize(
    "arguments", [("rtt", RUN), ("rtt", RUN, "v2_x_spur"), ("rtt-cdf", RUN), ("scatter", RUN)]
)
def test_a_figure_of_a_simulated_run_says_how_far_it_holds(
    arguments: tuple[str, ...],
    shipped_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holds = "does not hold here: no recording has this rate, <nor> this round trip; never compared"
    monkeypatch.setattr(run_notes, "simulated_of_many", lambda *_: {1: holds})
    output = tmp_path / "figure.svg"
    done = _plot(shipped_path, *arguments, "-o", str(output), "--force")
    assert done.exit_code == 0, done.output
    texts = [element.text for element in ElementTree.parse(output).iter() if element.text]
    assert f"1 simulated run; fidelity: {holds}" in " ".join(texts)


def test_a_window_has_its_points_and_no_others(shipped_path: Path, tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    window = ("--between", "12s", "13s")
    assert _plot(shipped_path, "rtt", RUN, "--data", str(output), *window).exit_code == 0
    with open(output, newline="") as file:
        times = [float(row["t_s"]) for row in csv.DictReader(file)]
    # A line enters the window from the point before it.
    assert 11 < min(times) < 12.05
    assert 12.95 < max(times) <= 13


def test_names_of_strangers_stay_text(hostile_path: Path, hostile: str, tmp_path: Path) -> None:
    with open_store(hostile_path) as store:
        forget(store.con, [store.run_id("v2_x_spur")])
        store.con.execute("UPDATE runs SET run = ? WHERE run = 'v2_x_spur'", [hostile])
    for name in ("rates", "shares", "scatter"):
        output = tmp_path / f"{name}.svg"
        done = _plot(hostile_path, name, hostile, "-o", str(output))
        assert done.exit_code == 0, done.output
        svg = output.read_text()
        assert "<script" not in svg
        assert "&lt;script" in svg


def test_a_name_is_no_formula_in_the_data(hostile_path: Path, tmp_path: Path) -> None:
    with open_store(hostile_path) as store:
        forget(store.con, [store.run_id("v2_x_spur")])
        store.con.execute("UPDATE runs SET run = '=1+1' WHERE run = 'v2_x_spur'")
    data = tmp_path / "data.csv"
    for name in ("rates", "scatter"):
        done = _plot(hostile_path, name, "--data", str(data), "--force", "=1+1")
        assert done.exit_code == 0, done.output
        with open(data, newline="") as file:
            cells = {cell for row in csv.reader(file) for cell in row if "=1+1" in cell}
        assert cells
        assert all(cell.startswith("'=1+1") for cell in cells)


def test_a_name_that_is_no_text_is_drawn_as_its_escapes(
    hostile_path: Path, unseen: str, tmp_path: Path
) -> None:
    """A control character ended the process, and an unknown colour's name failed within itself."""
    with open_store(hostile_path) as store:
        forget(store.con, [store.run_id("v2_x_spur")])
        store.con.execute("UPDATE runs SET run = ? WHERE run = 'v2_x_spur'", [unseen + "W" * 200])
    for name in ("rates", "goodput-box"):
        output = tmp_path / f"{name}.svg"
        done = _plot(hostile_path, name, unseen + "W" * 200, "-o", str(output))
        assert done.exit_code == 0, done.output
        svg = output.read_text()
        root = ElementTree.fromstring(svg)
        assert r"var(--nosuch) var(--ink) \x07 \u202egnp" in svg
        assert float(root.attrib["width"]) < 800


@pytest.mark.parametrize(
    "arguments",
    [
        ("rates", RUN),
        ("nonsense", RUN, "--spec"),
        ("rates", "--spec"),
        ("rates", RUN, "-o", "figure.bmp"),
        ("rates", RUN, "--data", "rows.xlsx"),
        ("rates", RUN, "--spec", "--between", "2s", "1s"),
    ],
)
def test_wrong_usage_is_status_2(arguments: tuple[str, ...], shipped_path: Path) -> None:
    assert _plot(shipped_path, *arguments).exit_code == 2


def test_a_figure_is_never_overwritten_unasked(shipped_path: Path, tmp_path: Path) -> None:
    output = tmp_path / "figure.svg"
    output.write_text("mine")
    refused = _plot(shipped_path, "rtt", RUN, "-o", str(output))
    assert refused.exit_code == 1
    assert output.read_text() == "mine"
    assert _plot(shipped_path, "rtt", RUN, "-o", str(output), "--force").exit_code == 0


def test_a_flow_that_is_not_there_is_named(shipped_path: Path) -> None:
    done = _plot(shipped_path, "rtt", RUN, "--spec", "--flow", "77")
    assert done.exit_code == 1
    assert "flow 77" in str(done.exception)


def test_charts_are_listed_and_completed(shipped_path: Path) -> None:
    listed = CliRunner().invoke(command, ["--list"])
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.output.splitlines()] == list(NAMES)
    context = click.Context(command)
    names = ["rates", "rtt", "rounds", "rtt-cdf", "rtt-box"]
    assert complete_names(context, command.params[0], "r") == names
