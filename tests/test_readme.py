"""README's commands do what it says, one after the other, as a reader would type them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[1]


def block_lines(language: str) -> list[str]:
    """The lines of README's code blocks in this language."""
    text = (_ROOT / "README.md").read_text()
    blocks = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


def typed(lines: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What becomes of these lines, up to the first that fails, with this bbrscope on the path."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = "\n".join(["set -e", *lines])
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_the_tours_commands_work_in_their_order(tmp_path: Path) -> None:
    tour = [line for line in block_lines("sh") if line.startswith(("bbrscope", "export", "eval"))]
    assert len(tour) >= 15
    (tmp_path / "fixtures").symlink_to(_ROOT / "fixtures")
    done = typed([f"echo '+ {n}'\n{line}" for n, line in enumerate(tour)], tmp_path)
    assert done.returncode == 0, f"{tour}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert (tmp_path / "report.html").stat().st_size > 100_000


@pytest.mark.slow
def test_the_first_command_ends_with_a_report_in_a_fresh_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(_ROOT), str(clone)], check=True)
    first = block_lines("sh")[0]
    assert first.endswith("bbrscope demo")
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        ["bash", "-c", first], cwd=clone, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    reports = list(clone.rglob("*.html"))
    assert any(report.stat().st_size > 100_000 for report in reports if "demo" in str(report))


def test_the_python_example_runs_and_shows_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "fixtures").symlink_to(_ROOT / "fixtures")
    program = "\n".join(block_lines("python"))
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for words in ("DRAIN_ENTER", "HI_CUT_RS_LOSS", "outage", "set_state"):
        assert words in done.stdout
    assert "vega" in (tmp_path / "volumes.html").read_text()


def test_the_second_command_is_the_one_that_ci_runs() -> None:
    assert block_lines("sh")[1] == "bash tests/all"
    assert "tests/all" in (_ROOT / ".ci" / "run").read_text()
