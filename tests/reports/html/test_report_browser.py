"""The page in a real Chromium: what is drawn, what can be clicked, and that it asks for nothing."""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.views.materialize import forget
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.reports.html.pages import page
from bbrscope.reports.html.sections import compared
from bbrscope.reports.html.sections.listing import MOST_ON_PAPER

pytestmark = pytest.mark.slow

pytest.importorskip("selenium.webdriver", reason="pip install selenium")

# Each panel of a v2 run, by its place on the page.
PANELS = ("lanes", "rates", "volumes", "rtt", "loss", "rounds", "sequence", "wire", "queue")
if shutil.which("tshark") is None:
    PANELS = tuple(panel for panel in PANELS if panel != "wire")


HOSTILE = "<script>alert(1)</script>' OR 1=1"


@pytest.fixture(scope="module")
def hostile_store(shipped_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped store with a run and a flow that carry such a name."""
    path = tmp_path_factory.mktemp("hostile") / "hostile.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id("v2_x_spur")
        forget(store.con, [run_id])
        store.con.execute(
            "UPDATE runs SET run = $1, kernel = $1 WHERE run_id = $2", [HOSTILE, run_id]
        )
        store.con.execute(
            "UPDATE flows SET local_address = $1 WHERE run_id = $2", [HOSTILE, run_id]
        )
    return path


class Opened:
    """A page that is open, and what a reader can see and do there."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser = browser
        browser.get("about:blank")
        for log in ("browser", "performance"):
            browser.get_log(log)
        browser.get(url)
        self.wait("window.bbrscope && bbrscope.panels.every((panel) => panel.view)")
        # The page begins with words: bring charts into sight, and make the others draw as well.
        browser.execute_script("document.querySelector('#charts').scrollIntoView()")
        browser.execute_script("for (const panel of bbrscope.panels) panel.refresh(true)")
        # Words come first: charts may be below the first screen.
        browser.execute_script("document.querySelector('.charts').scrollIntoView()")

    def run(self, script: str) -> Any:
        return self.browser.execute_script(f"return ({script})")

    def wait(self, condition: str, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, f"never: {condition}"
            time.sleep(0.05)

    def window(self) -> list[float]:
        """The window in view, once every chart in sight shows it."""
        time.sleep(0.2)
        self.wait(
            "bbrscope.panels.some((p) => p.seen) && bbrscope.panels.filter((p) => p.seen).every("
            "(p) => Math.abs(p.view.signal('t0') - bbrscope.win.t0) < 1e-9"
            " && Math.abs(p.view.signal('t1') - bbrscope.win.t1) < 1e-9)"
        )
        shown: list[float] = self.run("[bbrscope.win.t0, bbrscope.win.t1]")
        return shown

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]

    def requests(self) -> list[str]:
        asked = []
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                asked.append(message["params"]["request"]["url"])
        return [url for url in asked if not url.startswith(("file:", "data:", "about:"))]


def write(store_path: Path, run: str, folder: Path) -> str:
    with open_store(store_path, read_only=True) as store:
        html = page.build(store.con, store.run_id(run))
    path = folder / f"{run}.html"
    path.write_text(html, encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def url(shipped_path: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(shipped_path, "v2_single_1bdp", tmp_path_factory.mktemp("page"))


def marks(opened: Opened, panel: str, role: str) -> int:
    """Marks of a kind in a panel that have a shape on screen."""
    return int(
        opened.run(
            f"[...document.querySelectorAll('.panel.{panel} .{role}.role-mark path')]"
            ".filter((path) => (path.getAttribute('d') || '').length > 8"
            " && path.getBoundingClientRect().width + path.getBoundingClientRect().height > 0"
            ").length"
        )
    )


def test_it_is_drawn_without_complaint_or_request(browser: Any, url: str) -> None:
    opened = Opened(browser, url)
    opened.window()
    assert opened.run("[...document.querySelectorAll('.panel')].map((p) => p.classList[1])") == [
        *PANELS
    ]
    for panel in PANELS[1:]:
        signals = opened.run(f"document.querySelectorAll('.panel.{panel} button.chip').length")
        rules = f"[...document.querySelectorAll('.panel.{panel} .mark-rule.role-mark line')]"
        colours = opened.run(f"new Set({rules}.map((one) => one.getAttribute('stroke'))).size")
        drawn = marks(opened, panel, "mark-line") + int(colours)
        assert drawn == signals, panel
        assert marks(opened, panel, "mark-rect") > 40, f"no phase bands in {panel}"
    lanes = opened.run(
        "new Set([...document.querySelectorAll('.panel.lanes .mark-rect.role-mark path')]"
        ".map((path) => Math.round(path.getBoundingClientRect().top))).size"
    )
    assert lanes == 3
    assert opened.complaints() == []
    assert opened.requests() == []


def test_a_what_if_shows_three_courses_with_bands_on_one_axis(
    browser: Any, shipped_path: Path, tmp_path: Path
) -> None:
    from bbrscope.analyze.replay.run_info import run_info
    from bbrscope.analyze.simulate.closed_loop import predict
    from bbrscope.analyze.simulate.course import recorded_course
    from bbrscope.analyze.simulate.course_steps import over_time
    from bbrscope.analyze.simulate.recorded_world import recorded_world
    from bbrscope.reports.html.pages import what_if_page

    with open_store(shipped_path, read_only=True) as store:
        info = run_info(store.con, store.run_id("v2_single_1bdp"))
        world, course = recorded_world(store.con, info), recorded_course(store.con, info)
    flows = tuple(replace(flow, stop_us=2_000_000) for flow in world.setup.flows)
    short = replace(world, setup=replace(world.setup, flows=flows, duration_us=2_000_000))
    answer = predict(replace(short, run=HOSTILE), "v3", {})
    path = tmp_path / "what_if.html"
    path.write_text(what_if_page.build(answer, over_time(course, 1, 2_000_000), HOSTILE))
    opened = Opened(browser, path.as_uri())
    opened.window()
    assert answer.holds in opened.run("document.getElementById('fidelity').textContent")
    assert answer.verdicts["goodput_mbps"] in opened.run(
        "document.getElementById('verdict').textContent"
    )
    kinds = ["rate_kbps", "rtt_us", "lost", "lanes", "inflight", "bounds", "cwnd"]
    shown = opened.run("[...document.querySelectorAll('.panel')].map((p) => p.classList[1])")
    assert shown == kinds
    for panel in ("rate_kbps", "rtt_us", "lost", "inflight", "cwnd"):
        assert marks(opened, panel, "mark-area") == 2, panel
        assert marks(opened, panel, "mark-line") == 3, panel
    lanes = "[...document.querySelectorAll('.panel.lanes .mark-rect.role-mark path')]"
    tops = f"new Set({lanes}.map((path) => Math.round(path.getBoundingClientRect().top))).size"
    assert opened.run(tops) == 3
    assert opened.run("document.querySelector('h1').textContent").startswith(HOSTILE)
    assert opened.complaints() == []
    assert opened.requests() == []


def test_clicking_a_phase_change_zooms_all_charts_there(browser: Any, url: str) -> None:
    opened = Opened(browser, url)
    whole = opened.window()
    rows = "[...document.querySelectorAll('tr[data-a]')]"
    row = f"{rows}.find((row) => /DOWN_BY_QUEUE/.test(row.textContent))"
    at = float(opened.run(f"{row}.dataset.a"))
    browser.execute_script(f"{row}.querySelector('.why').click()")
    first, last = opened.window()
    assert whole[0] < first < at < last < whole[1]
    assert last - first < 3
    assert opened.run("location.hash").startswith("#t=")
    assert opened.run(f"{row}.classList.contains('inside')")
    assert opened.run("document.querySelector('#from').value") == f"{first:.3f}"
    drawn = opened.run(
        "bbrscope.panels[1].view.data('lines').map((row) => row.t).filter((t) => t < "
        f"{first - 0.1} || t > {last + 0.1}).length"
    )
    assert drawn == 0, "points outside the window are drawn"


def test_clicking_the_evidence_of_a_finding_opens_the_charts_of_its_flow_there(
    browser: Any, shipped_path: Path, tmp_path: Path
) -> None:
    opened = Opened(browser, write(shipped_path, "v2_x_spur", tmp_path))
    link = "document.querySelector('.finding[data-flow=\"1\"] li a')"
    at = float(opened.run(f"{link}.textContent").removesuffix(" s"))
    browser.execute_script(f"{link}.click()")
    opened.wait("location.hash.startsWith('#t=')")
    first, last = opened.window()
    assert first < at < last
    assert last - first < 3
    top = opened.run("document.querySelector('#flow-1 .charts').getBoundingClientRect().top")
    assert top < opened.run("innerHeight") - 200


def test_a_fragment_opens_its_window_and_a_new_one_moves_it(browser: Any, url: str) -> None:
    opened = Opened(browser, f"{url}#t=12.3-14.0")
    assert opened.window() == pytest.approx([12.3, 14.0])
    browser.execute_script("location.hash = '#t=3.5-4.25'")
    opened.wait("bbrscope.win.t0 === 3.5")
    assert opened.window() == pytest.approx([3.5, 4.25])
    browser.execute_script("document.querySelector('#whole').click()")
    assert opened.window() == pytest.approx(opened.run("[bbrscope.win.first, bbrscope.win.last]"))
    assert opened.complaints() == []


def test_drag_keys_and_legend_work(browser: Any, url: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    opened = Opened(browser, url)
    plot = browser.find_element("css selector", ".panel.volumes .plot")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    drag = ActionChains(browser).move_to_element_with_offset(plot, -200, 0)
    drag.click_and_hold().move_by_offset(150, 0).release().perform()
    first, last = opened.window()
    assert 2 < last - first < 5
    ActionChains(browser).move_to_element(plot).perform()
    chip = "document.querySelector('.panel.volumes .chip[data-key=cwnd]')"
    opened.wait(f"{chip}.querySelector('output').textContent")
    shown = opened.run(f"{chip}.querySelector('output').textContent")
    assert 10 <= int(shown) <= 120
    read = {
        key: opened.run(
            f"document.querySelector('.panel.volumes .chip[data-key={key}] output').textContent"
        )
        for key in ("inflight", "bdp")
    }
    readout = re.fullmatch(r"([\d.]+) \(inflight ([+\u2212])([\d.]+)\)", read["bdp"])
    assert readout is not None, read
    difference = float(read["inflight"]) - float(readout[1])
    assert (difference < 0) == (readout[2] == "\u2212")
    assert abs(difference) == pytest.approx(float(readout[3]), abs=0.1)
    plot.send_keys("+")
    closer = opened.window()
    assert closer[1] - closer[0] == pytest.approx((last - first) / 2, rel=0.01)
    plot.send_keys(Keys.ARROW_RIGHT)
    opened.wait("document.querySelector('#aloud').textContent.includes('cwnd')")
    plot.send_keys("0")
    assert opened.window()[0] == pytest.approx(0, abs=1e-3)
    before = marks(opened, "volumes", "mark-line")
    browser.find_element("css selector", ".panel.volumes .chip[data-key=cwnd]").click()
    opened.wait(f"{chip}.getAttribute('aria-pressed') === 'false'")
    assert marks(opened, "volumes", "mark-line") == before - 1
    assert opened.complaints() == []


def test_dark_and_light_differ_and_stay_readable(browser: Any, url: str) -> None:
    def luminance(colour: str) -> float:
        parts = [int(part) / 255 for part in colour[4:-1].split(",")[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    papers = []
    for theme in ("light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        opened = Opened(browser, url)
        paper = luminance(opened.run("getComputedStyle(document.body).backgroundColor"))
        papers.append(paper)
        lines = "[...document.querySelectorAll('.panel .mark-line.role-mark path')]"
        strokes = opened.run(f"{lines}.map((path) => getComputedStyle(path).stroke)")
        texts = opened.run(
            "['p', 'th', 'a', '.soft'].map((one) =>"
            " getComputedStyle(document.querySelector(`main ${one}`)).color)"
        )
        for colours, least in ((strokes, 2.5), (texts, 4.5)):
            for colour in colours:
                light, dark = sorted((luminance(colour), paper), reverse=True)
                assert (light + 0.05) / (dark + 0.05) > least, (theme, colour)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert papers[0] > 0.9
    assert papers[1] < 0.05


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Any, url: str) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        opened = Opened(browser, url)
        assert opened.run("document.documentElement.scrollWidth") <= 390
        widths = opened.run("[...document.querySelectorAll('.plot svg')].map((s) => s.clientWidth)")
        assert len(widths) == len(PANELS)
        assert all(250 < width <= 390 for width in widths)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_printing_draws_every_chart_to_fit_the_paper(browser: Any, url: str) -> None:
    opened = Opened(browser, url)
    # A4 with a margin of 1 cm; what is wider makes a browser shrink the page, or cut it.
    size = {"width": 718, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert opened.run("document.documentElement.scrollWidth") <= 718
    seen = ".filter((one) => one.getClientRects().length)"
    lists = "[...document.querySelectorAll('.list:has(.why)')]"
    rows = f"[...list.querySelectorAll('tr[data-a]')]{seen}.length"
    listed = f"{lists}.map((list) => [{rows}, list.querySelectorAll('tr[data-a]').length])"
    printed = opened.run(listed)
    assert any(whole > MOST_ON_PAPER for _, whole in printed)
    assert [part for part, _ in printed] == [min(whole, MOST_ON_PAPER) for _, whole in printed]
    notes = opened.run(
        f"[...document.querySelectorAll('.paper')]{seen}.map((one) => one.innerText)"
    )
    cut = [whole for _, whole in printed if whole > MOST_ON_PAPER]
    said = [re.findall(r"first (\d+) of ([\d,]+) changes", note) for note in notes]
    assert said == [[(f"{MOST_ON_PAPER}", f"{whole:,}")] for whole in cut]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    widths = opened.run("[...document.querySelectorAll('.plot svg')].map((s) => s.clientWidth)")
    assert len(widths) == len(PANELS)
    assert max(widths) <= 350
    assert opened.run("document.querySelectorAll('details:not([open])').length") == 0
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert opened.run("document.querySelectorAll('details:not([open])').length") > 0


def test_hostile_names_appear_as_text(
    browser: Any, hostile_path: Path, hostile: str, tmp_path: Path
) -> None:
    opened = Opened(browser, write(hostile_path, "v2_x_spur", tmp_path))
    assert hostile in opened.run("document.querySelector('dl.facts').textContent")
    assert hostile in opened.run("document.querySelector('main').textContent")
    assert opened.complaints() == []
    assert opened.requests() == []


RECORDINGS = {
    "v2_latecomer_2bdp": (2, 0),
    "v1_loss_1pct": (1, 0),
    "v3_bwchange": (1, 0),
    "lossy_v2_one_silent_miss": (1, 1),
}


@pytest.mark.parametrize("run", RECORDINGS)
def test_other_recordings_are_drawn_with_their_flows_and_gaps(
    run: str, browser: Any, all_path: Path, tmp_path: Path
) -> None:
    flows, gaps = RECORDINGS[run]
    opened = Opened(browser, write(all_path, run, tmp_path))
    assert opened.run("document.querySelectorAll('.flow:not(#all-flows)').length") == flows
    together = ["lanes", "shares", "jain", "convergence"] if flows > 1 else []
    shown = "[...document.querySelectorAll('#all-flows .panel')].map((p) => p.classList[1])"
    assert opened.run(shown) == ([*together, "queue"] if together else [])
    assert opened.run("document.querySelectorAll('.flow .panel.lanes').length") == flows + (
        flows > 1
    )
    assert opened.run("document.querySelectorAll('.panel.queue').length") == 1
    drawn = opened.run("bbrscope.panels.find((p) => !p.about.lanes).view.data('gaps').length")
    assert drawn == gaps
    assert opened.run("document.querySelectorAll('.plot svg').length") == (
        7 * flows + 1 + len(together)
    )
    assert opened.complaints() == []
    assert opened.requests() == []


@pytest.fixture(scope="module")
def comparison(hostile_store: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three runs of which one has a stranger's names, the run's own too."""
    path = tmp_path_factory.mktemp("comparison") / "comparison.html"
    with open_store(hostile_store, read_only=True) as store:
        names = ("v2_single_1bdp", HOSTILE, "v3_x_tlp5")
        html = compared.build(store.con, [store.run_id(name) for name in names])
    path.write_text(html, encoding="utf-8")
    return path.as_uri()


def test_the_comparison_draws_every_run_and_strangers_stay_text(
    browser: Any, comparison: str
) -> None:
    opened = Opened(browser, comparison)
    opened.wait("bbrscope.stills.length && bbrscope.stills[0].view")
    points = "document.querySelectorAll('[data-still=scatter] .mark-symbol path')"
    assert opened.run(f"{points}.length") == 3
    assert opened.run("[...document.querySelectorAll('.multiples > .flow')].length") == 3
    for place in range(3):
        drawn = opened.run(
            f"[...document.querySelectorAll('#run-{place} .mark-line.role-mark path')]"
            ".filter((path) => (path.getAttribute('d') || '').length > 8).length"
        )
        assert drawn >= 4, place
    shown = opened.run("document.querySelector('main').textContent")
    assert HOSTILE in shown
    named = opened.run("document.querySelector('[data-still=scatter]').textContent")
    assert HOSTILE in named.replace("…", "")
    assert opened.complaints() == []
    assert opened.requests() == []


def test_zooming_one_run_zooms_all_of_them(browser: Any, comparison: str) -> None:
    opened = Opened(browser, f"{comparison}#t=2.0-3.5")
    assert opened.window() == pytest.approx([2.0, 3.5])
    plot = browser.find_element("css selector", "#run-1 .srtts .plot")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    plot.send_keys("-")
    first, last = opened.window()
    assert last - first == pytest.approx(3.0, rel=0.01)
    assert opened.complaints() == []


# Names of values on axes of x that touch their neighbours.
_CLOSE_LABELS = """[...document.querySelectorAll('.plot svg .role-axis-label')].flatMap((axis) => {
  const boxes = [...axis.querySelectorAll('text')].filter((one) => one.style.opacity !== '0'
    && one.getAttribute('opacity') !== '0').map((one) => one.getBoundingClientRect());
  return boxes.slice(1).filter((box, n) => Math.abs(box.top - boxes[n].top) < 2
    && box.left - boxes[n].right < 3).map((box) => `${box.left}`);
})"""
# Names of points that reach past their chart.
_CUT_NAMES = """[...document.querySelectorAll('[data-still=scatter] .mark-text.role-mark text')]
  .filter((one) => one.getAttribute('opacity') !== '0' && one.getBoundingClientRect().right
    > one.closest('svg').getBoundingClientRect().right).length"""


def test_the_comparison_fits_a_phone_and_the_dark(browser: Any, comparison: str) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        opened = Opened(browser, comparison)
        assert opened.run("document.documentElement.scrollWidth") <= 390
        runs = "document.querySelector('header .scroll')"
        assert opened.run(f"{runs}.scrollWidth - {runs}.clientWidth") == 0
        assert opened.run(_CLOSE_LABELS) == []
        assert opened.run(_CUT_NAMES) == 0
        before = opened.run("getComputedStyle(document.body).backgroundColor")
        browser.execute_script("document.querySelector('#theme').click()")
        assert opened.run("getComputedStyle(document.body).backgroundColor") != before
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
