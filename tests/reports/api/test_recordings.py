"""`import bbrscope`, as a notebook uses it; the examples in its docstrings say the truth."""

from __future__ import annotations

import doctest
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import bbrscope
import polars
import pytest
from bbrscope import fixtures
from bbrscope.probes.base.errors import StoreError
from bbrscope.reports.api import recordings
from bbrscope.reports.cli import main


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bbrscope.Recordings]:
    """A store that was just made of one shipped recording."""
    path = tmp_path_factory.mktemp("lab") / "lab.duckdb"
    with bbrscope.ingest(fixtures.path("v2_x_spur"), store=path) as opened:
        yield opened


def test_every_example_in_the_docstrings_says_what_comes_out(lab: bbrscope.Recordings) -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner()
    examples = 0
    for test in finder.find(recordings, "recordings", globs={"lab": lab}):
        examples += len(test.examples)
        runner.run(test)
    assert runner.failures == 0
    assert examples >= 15


def test_every_frame_can_be_asked_for_after_every_other(lab: bbrscope.Recordings) -> None:
    """A story, a replay and a query each leave the connection ready for a relation."""
    asked = (
        lambda: lab.explain("v2_x_spur"),
        lambda: lab.replay_under("v2_x_spur", {"loss_thresh": "5%"}),
        lambda: lab.diagnose("v2_x_spur"),
        lambda: lab.sql("SELECT 1 FROM runs"),
        lambda: lab.events("v2_x_spur"),
    )
    for ask in asked:
        ask()
        assert lab.runs().height == 1


def test_every_public_method_has_an_example_or_leads_to_one() -> None:
    # what_if simulates for seconds: tests/analyze/simulate/test_closed_loop.py asks it.
    without = {"close", "relation", "figure", "what_if"}
    for name in dir(bbrscope.Recordings):
        method = getattr(bbrscope.Recordings, name)
        if not name.startswith("_") and callable(method) and name not in without:
            assert ">>>" in str(method.__doc__), name


def test_a_lazy_frame_says_what_the_table_says(lab: bbrscope.Recordings) -> None:
    lazy = lab.events()
    whole = lab.sql("FROM events ORDER BY seq")
    assert lazy.collect_schema() == whole.schema
    assert lazy.sort("seq").collect().equals(whole)
    main = lazy.filter(polars.col("kind") == "main").select("seq", "rs_rtt_us")
    assert main.collect().height == whole.filter(polars.col("kind") == "main").height
    # A limit after a filter counts what the filter leaves.
    assert main.head(7).collect().height == 7
    assert lazy.select("seq").head(5).collect().shape == (5, 1)


def test_a_store_that_is_there_opens_and_one_that_is_not_says_so(
    lab: bbrscope.Recordings, tmp_path: Path
) -> None:
    copy = shutil.copy(lab.path, tmp_path / "copy.duckdb")
    with bbrscope.open(copy) as opened:
        assert opened.names == ["v2_x_spur"]
        assert "1 run" in repr(opened)
        with bbrscope.open(copy) as again:
            assert again.sql("FROM runs").height == opened.sql("FROM runs").height
    with pytest.raises(bbrscope.BbrscopeError, match="no store"):
        bbrscope.open(tmp_path / "none.duckdb")


def test_mistakes_are_reported_and_leave_the_store_open(lab: bbrscope.Recordings) -> None:
    for wrong, words in (
        (lambda: lab.events("nosuch"), "no run called 'nosuch'"),
        (lambda: lab.sql("DELETE FROM runs"), "DELETE is not a query"),
        (lambda: lab.sql("FROM nosuch"), "nosuch does not exist"),
        (lambda: lab.chart("nosuch", "v2_x_spur"), "no chart called"),
        (lambda: lab.chart("rates"), "a chart is of a run"),
        (lambda: lab.explain("v2_x_spur", flow=9), "no flow 9"),
        (lambda: lab.replay("nosuch"), "no run called"),
        (lambda: lab.replay_under("v2_x_spur", {"nosuch": 1}), "no such parameter"),
        (lambda: lab.metrics(between=(1, 2), steady=True), "two windows"),
    ):
        with pytest.raises(bbrscope.BbrscopeError, match=words):
            wrong()
    assert lab.names == ["v2_x_spur"]


def test_what_was_closed_says_so_and_how_to_go_on(lab: bbrscope.Recordings) -> None:
    again = bbrscope.open(lab.path)
    again.close()
    again.close()
    assert repr(again).endswith(": closed>")
    for ask in (lambda: again.names, again.runs, again.metrics, lambda: again.sql("SELECT 1")):
        with pytest.raises(StoreError, match="was closed"):
            ask()


def test_the_command_line_prints_what_the_frames_hold(
    lab: bbrscope.Recordings, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, frame in (
        (["runs"], lab.runs()),
        (["metrics", "v2_x_spur"], lab.metrics("v2_x_spur")),
        (["diagnose", "v2_x_spur"], lab.findings("v2_x_spur")),
        (["sql", "FROM phases"], lab.sql("FROM phases")),
    ):
        with pytest.raises(SystemExit):
            main([*words, "--format", "csv", "--store", str(lab.path)])
        printed = polars.read_csv(capsys.readouterr().out.encode(), infer_schema_length=None)
        assert printed.columns == frame.columns
        assert printed.height == frame.height


def test_a_chart_is_one_that_a_notebook_shows(lab: bbrscope.Recordings) -> None:
    chart = lab.chart("volumes", "v2_x_spur")
    shown = chart._repr_mimebundle_()
    assert shown
    spec = chart.to_dict()
    assert sum(len(rows) for rows in spec["datasets"].values()) > 100


def test_the_import_alone_brings_nothing_heavy() -> None:
    program = (
        "import sys, bbrscope; assert dir(bbrscope) == bbrscope.__all__;"
        " print([name for name in ('numba', 'numpy', 'polars', 'duckdb', 'altair', 'click')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
