"""Vega's JavaScript is made by a process of its own, and by this one where that cannot be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bbrscope.reports.html.charts import vega


def test_a_python_that_cannot_start_another_one_makes_the_same_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(vega, "_bundle", lambda: "made here")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert vega._script() == "made here"


def test_a_module_of_the_folder_one_works_in_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vl_convert.py").write_text("def javascript_bundle(code): return 'not ours'")
    monkeypatch.chdir(tmp_path)
    script = vega._script()
    assert script != "not ours"
    assert "window.vegaEmbed=" in script
    assert "</script" not in script.lower()
