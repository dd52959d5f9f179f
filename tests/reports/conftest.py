"""What the reports' tests share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.views.store_with_views import open_store

HOSTILE = "<script>alert(1)</script>' OR 1=1; --\" </table> &amp;"


_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run"
    " --disable-background-networking --disable-component-update --disable-sync"
    " --window-size=1280,1000"
).split()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium, with a log of what it complains about and of what it asks for."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="pip install selenium")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no chromium or chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    opened.execute_cdp_cmd("Network.enable", {})
    yield opened
    opened.quit()


@pytest.fixture
def hostile() -> str:
    """What a stranger may have put where a name or an address belongs."""
    return HOSTILE


@pytest.fixture
def unseen() -> str:
    """A text with what is obeyed and not shown: a mark of direction, a control character."""
    return "var(--nosuch) var(--ink) \x07 \u202egnp.exe "


@pytest.fixture
def hostile_path(shipped_path: Path, tmp_path: Path) -> Path:
    """The shipped store, with such names in the run v2_x_spur."""
    path = tmp_path / "hostile.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id("v2_x_spur")
        store.con.execute(
            "UPDATE runs SET kernel = $1, description = $1, decoded_as = $1 WHERE run_id = $2",
            [HOSTILE, run_id],
        )
        store.con.execute(
            "UPDATE flows SET local_address = $1, note = $1 WHERE run_id = $2", [HOSTILE, run_id]
        )
        store.con.execute("INSERT INTO host_facts VALUES ($2, $1, $1, $1)", [HOSTILE, run_id])
        store.con.execute(
            "INSERT INTO capture_quality BY NAME SELECT $2 AS run_id, $1 AS kind, $1 AS detail",
            [HOSTILE, run_id],
        )
    return path
