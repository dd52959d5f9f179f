"""`bbrscope study`: real recordings as a small sweep, told, written and drawn."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from bbrscope.analyze.study import figures, study
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.lab import scenario as catalogue
from bbrscope.probes.base.errors import ScenarioError
from bbrscope.reports.cli import cli
from bbrscope.reports.html.charts import study_charts, vega
from bbrscope.reports.html.data.legible import legible
from bbrscope.reports.html.pages import study_page
from bbrscope.reports.text.claim_words import expected
from click.testing import CliRunner, Result

from tests import lab_bundles, lab_rows

NAME = "song-single-buffer"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with made-up runs, those of v1 with the most retransmissions."""
    made = tmp_path_factory.mktemp("study") / "study.duckdb"
    with open_store(made) as store:
        free = lab_rows.fill(store, catalogue.load(NAME))
        lab_rows.fill(store, catalogue.load("cao-grid640"), first=free)
    return made


def run(path: Path, *args: str) -> Result:
    return CliRunner().invoke(cli, ["study", *args, "--store", str(path)])


def test_it_tells_the_verdicts_and_writes_one_file(path: Path, tmp_path: Path) -> None:
    report = tmp_path / "study.html"
    done = run(path, NAME, "--quick", "-o", str(report))
    assert done.exit_code == 0, done.output
    claims = catalogue.load(NAME).claims
    for claim in claims:
        assert claim.text in done.output
    for number in (expected(claim) for claim in claims):
        assert not number or f"expected {number}" in done.output
    assert "expected \u2265 0.95 \u2212 0.05" in done.output
    html = report.read_text()
    assert all(f'data-claim="{claim.id}"' in html for claim in claims)
    assert "http://" not in html.split("<script>")[0]
    again = run(path, NAME, "--quick", "-o", str(report))
    assert getattr(again.exception, "fact", "") == f"{report} exists"
    assert run(path, NAME, "--quick", "-o", str(report), "--force").exit_code == 0


def test_the_page_heads_numbers_with_their_units(path: Path) -> None:
    """As the axes say them, or the ends of columns' names; data for programs keeps the names."""
    with open_store(path, read_only=True) as store:
        html = study_page.build(study.conduct(store, catalogue.load(NAME), quick=True))
    heads = set(re.findall(r"<th [^>]*>([^<]*)</th>", html.split("What the source says")[1]))
    assert {"buffer, BDP", "goodput, Mbit/s", "least", "most", "runs"} <= heads
    assert not [head for head in heads if head in ("x", "y", "lo", "hi", "n") or "_" in head]


def test_verdicts_runs_and_figures_are_data_too(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = json.loads(run(path, NAME, "--quick", "--format", "json").stdout)
    assert {row["verdict"] for row in answer} <= {"reproduced", "not reproduced", "not comparable"}
    assert [row["id"] for row in answer] == [claim.id for claim in catalogue.load(NAME).claims]
    rows = json.loads(run(path, NAME, "--quick", "--format", "json", "--table", "runs").stdout)
    assert len(rows) == 6
    done = run(path, NAME, "--quick", "--format", "csv", "--table", "goodput-by-buffer")
    assert done.stdout.startswith("x,y,lo,hi,series,facet,n\n")
    missing = run(path, NAME, "--format", "json", "--table", "nosuch")
    assert "there are verdicts, runs, goodput-by-buffer" in getattr(
        missing.exception, "way_out", ""
    )
    assert list(tmp_path.iterdir()) == []


def test_every_chart_becomes_a_picture(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "simulated_of_many", lambda *_: {1: "never compared"})
    folder = tmp_path / "figures"
    args = ("cao-grid640", "--full", "--format", "csv", "--figures", str(folder))
    assert run(path, *args).exit_code == 0
    made = sorted(file.name for file in folder.iterdir())
    assert {name.split(".")[1] for name in made} == {"svg", "png"}
    assert any(name.startswith("gain-by-path") for name in made)
    for file in folder.glob("*.svg"):
        text = file.read_text()
        assert "var(--" not in text
        assert text.count("<path") > 5
        assert ">simulated runs; fidelity: never compared<" in text
    assert all(file.read_bytes()[1:4] == b"PNG" for file in folder.glob("*.png"))
    assert "exists" in getattr(run(path, *args).exception, "fact", "")


def drawn(kind: str, **more: list[Any]) -> str:
    """The svg of a figure with two flows of BBRv1, three rows of each."""
    rows = {"t": [0.0, 1.0, 2.0] * 2, "y": [1.0, 4.0, 2.0, 2.0, 2.0, 3.0]}
    rows |= {"series": ["v1 flow 1"] * 3 + ["v1 flow 2"] * 3, **more}
    figure = figures.Figure("f", "title", kind, "", y="packets")
    [(_, chart)] = study_charts.panels(study.Drawn(figure, pa.table(rows)))
    return study_charts.picture(chart, "svg").decode()


# The last ends a string of Vega's expressions, unless its backslash is escaped as its quote is.
@pytest.mark.parametrize(
    "text", ["\x07 \u202egnp.exe var(--nosuch) var(--ink)", 'a\\" + datum + "\\']
)
@pytest.mark.parametrize("kind", ["lines", "time", "steps", "area", "stack", "heatmap"])
def test_names_and_titles_stay_text(kind: str, text: str) -> None:
    rows = {"t": [0.0, 1.0, 2.0] * 2, "x": [1.0, 2.0, 3.0] * 2, "y": [1.0, 4.0, 2.0] * 2}
    named: dict[str, list[Any]] = {key: [text] * 6 for key in ("series", "panel", "facet")}
    named |= {"x": ["p", "q", text] * 2, "y": [text] * 6} if kind == "heatmap" else {}
    more = {"mark": ["line"] * 6, "value": [1.0] * 6}
    figure = figures.Figure("f", text, kind, "", x=text, y=text, value=text)
    [(_, chart)] = study_charts.panels(study.Drawn(figure, pa.table({**rows, **named, **more})))
    svg = study_charts.picture(chart, "svg").decode()
    shown = legible(text)
    assert shown in [one.text for one in ElementTree.fromstring(svg).iter() if one.text]
    compiled = json.dumps(vega.compiled(chart), ensure_ascii=False)
    assert shown.isprintable()
    assert "\u202e" not in compiled
    assert r"\u0007" not in compiled


def test_a_title_of_any_length_makes_no_larger_picture() -> None:
    def size(title: str) -> tuple[int, int]:
        rows = pa.table({"x": [0.0, 1.0], "y": [1.0, 4.0], "series": ["v1"] * 2})
        figure = figures.Figure("f", "title", "lines", "", x=title, y=title)
        [(_, chart)] = study_charts.panels(study.Drawn(figure, rows))
        svg = ElementTree.fromstring(study_charts.picture(chart, "svg").decode())
        return int(svg.attrib["width"]), int(svg.attrib["height"])

    width, height = size("W" * 150)
    assert width <= size("W" * 10)[0] + 40
    assert height <= 2 * size("W" * 10)[1]


def test_areas_stand_upon_each_other_in_two_shades() -> None:
    svg = drawn("area")
    assert svg.count('aria-roledescription="area mark"') == 2
    assert len(set(re.findall(r'fill-opacity="([0-9.]+)"', svg))) >= 2


def test_a_count_stays_until_it_changes() -> None:
    """A step goes right, then up: more points than there are rows."""
    paths = re.findall(r'aria-roledescription="line mark"[^>]* d="([^"]+)"', drawn("steps"))
    assert len(paths) == 2
    assert all(path.count("L") >= 4 for path in paths)


def test_panels_share_the_time_and_one_legend() -> None:
    panel = ["sent again"] * 3 + ["goodput, Mbit/s"] * 3
    svg = drawn("stack", panel=panel, mark=["raster"] * 3 + ["line"] * 3)
    assert svg.count(">time, s<") == 1
    assert svg.count(">goodput, Mbit/s<") == 1
    assert svg.count(">sent again<") == 1
    assert svg.count(">v1 flow 2<") == 1
    assert svg.count('aria-roledescription="tick"') == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nosuch"], "no scenario called"),
        ([NAME, "nosuch"], "no run called"),
        (["./missing.toml"], "there is no file"),
    ],
)
def test_mistakes_are_reported(path: Path, args: list[str], words: str) -> None:
    assert words in getattr(run(path, *args, "--format", "json").exception, "fact", "")


ODD = {
    "lines": "SELECT * FROM (VALUES (1.5::DECIMAL(9,2), 2::HUGEINT, NULL), ('nan'::DOUBLE, 1, 'b'),"
    " ('inf'::DOUBLE, 1, 'c')) v(x, y, series)",
    "time": "SELECT NULL AS t, 1e300 AS y, DATE 'infinity' AS series, TIMESTAMP 'infinity' AS more",
    "area": "SELECT 'inf'::DOUBLE AS t, 1 AS y, 5 AS series, [TIMESTAMP 'infinity'] AS list",
    "stack": "SELECT NULL::INT AS t, NULL AS y, 'a' AS series, NULL AS panel, 'line' AS mark",
    "heatmap": "SELECT DATE 'infinity' AS x, 'y' AS y, 'nan'::DOUBLE AS value, 'b'::BLOB AS facet",
    "table": "SELECT TIMESTAMP 'infinity' AS a, {a: DATE '-infinity'} AS b, 'x'::BLOB AS c,"
    " MAP {1: INTERVAL 1 DAY} AS d, 1::DECIMAL(38, 9) AS e",
    "tree": "SELECT i::DOUBLE AS rate_mbps, 0 AS rtt_ms, 1e300 AS buffer_bytes, i AS bbr,"
    " NULL AS cubic FROM range(20) r(i)",
}
REFUSED = [
    ("lines", "SELECT TIMESTAMP 'infinity' AS x, 1 AS y, 's' AS series"),
    ("time", "SELECT 1 AS t, 'a' AS y, 's' AS series"),
    ("area", "SELECT 1 AS t, 2 AS y, [1] AS series"),
    ("heatmap", "SELECT 1 AS x, 1 AS y, true AS value"),
    ("table", "FROM range(1000002)"),
]


def test_the_numbers_of_a_heatmap_are_headed_with_their_unit() -> None:
    heatmaps = [one for one in figures.registry().values() if one.kind == "heatmap"]
    assert heatmaps
    assert all(", " in study_page._figure_heads(one)["value"] for one in heatmaps)


def test_figures_of_anybodys_are_drawn_or_refused(path: Path, tmp_path: Path) -> None:
    """No value of SQL's is more than a chart can bear, and what is no number is told."""
    text = (Path(catalogue.__file__).parent / "catalogue" / f"{NAME}.toml").read_text()
    head = text.split("[[claim]]", 1)[0].replace("figures =", "# figures =")
    own = tmp_path / "own.toml"
    own.write_text(head + "".join(own_figure(kind, sql) for kind, sql in ODD.items()))
    page, folder = tmp_path / "page.html", tmp_path / "figures"
    done = run(path, str(own), "--quick", "-o", str(page), "--figures", str(folder))
    assert done.exit_code == 0, (done.output, done.exception)
    answer = run(path, str(own), "--format", "json", "--table", "table")
    assert json.loads(answer.stdout)[0]["a"] == "infinity"
    with open_store(path, read_only=True) as store:
        for kind, sql in REFUSED:
            with pytest.raises(ScenarioError):
                figures.data(store.con, figures.Figure("f", "t", kind, sql))


def own_figure(kind: str, sql: str) -> str:
    head = f'[[figure]]\nname = "{kind}"\ntitle = "t"\nkind = "{kind}"\n'
    return f'{head}sql = """{sql}"""\n'


def hostile_study(folder: Path, text: str) -> study.Study:
    """A study in which every name and number that comes from outside is hostile."""
    loaded = catalogue.load(NAME)
    with open_store(folder / "hostile.duckdb") as store:
        lab_rows.fill(store, loaded, kernel=text, place=text)
        lab_rows.fill(store, loaded, first=1000, valid=False, why_invalid=text)
        store.con.execute("UPDATE runs SET run = ? || run_id", [text])
        store.con.execute("UPDATE lab_flows SET cc = ?, bbr_version = NULL", [text])
    claim = replace(
        loaded.claims[0] if loaded.claims else catalogue.Claim(text, text, text, ""),
        id=text,
        text=text,
        source=text,
        cc=(),
        full=False,
        sql="SELECT true AS reproduced, any_value(run) AS measured FROM points",
        expected=None,
        tolerance=None,
    )
    hostile = replace(loaded, title=text, about=text, source=text, claims=(claim,))
    with open_store(folder / "hostile.duckdb", read_only=True) as store:
        return study.conduct(store, hostile)


def test_hostile_names_stay_text(tmp_path: Path, hostile: str) -> None:
    html = study_page.build(hostile_study(tmp_path, hostile))
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "\\u003cscript\\u003ealert(1)" in html


# Their claims are not about the quick form: the recordings stand for runs of the full one.
FULL = ("ware-probetime",)


@pytest.fixture(scope="module")
def recorded(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the recordings of the testbed as runs of the lab."""
    folder = tmp_path_factory.mktemp("recorded")
    with open_store(folder / "recorded.duckdb") as store:
        for name in sorted({name for names in lab_bundles.SCENARIOS.values() for name in names}):
            for bundle in lab_bundles.bundles(traces, folder, name, name not in FULL):
                ingest(store, bundle)
    return folder / "recorded.duckdb"


def verdicts(path: Path, name: str) -> dict[str, dict[str, Any]]:
    form = [] if name in FULL else ["--quick"]
    done = run(path, name, *form, "--format", "json")
    assert done.exit_code == 0, done.output
    return {row["id"]: row for row in json.loads(done.stdout)}


YES, OPEN = "reproduced", "not comparable"
# What eye and calculator found in iperf3's own numbers, the queue's and the captures of the
# recordings: 10 Mbit/s, 40 ms, 20 to 25 s, one run of each. (Retransmissions of v1 and v2 at
# 0.2 BDP: 644 and 153; of the later of two v2 flows 31 % of the goodput; and so on.)
RECORDED = {
    "song-single-buffer": {
        "v1-full": YES,
        "v1-shallow-loss": YES,
        "v2-full": YES,
        "v2-fails-at-0.1": OPEN,
        "v2-fewer": YES,
        "v2-small-cwnd-when-shallow": OPEN,
    },
    "song-bwchange": {
        "v1-rise": YES,
        "v1-fall": YES,
        "v2-rise": OPEN,
        "v2-settles-in-9-s": OPEN,
        "v1-settles-sooner": YES,
    },
    "song-randomloss": {
        "v1-stays": YES,
        "cubic-falls": OPEN,
        "cubic-falls-at-0.01": OPEN,
        "v1-withstands": OPEN,
        "v2-below": YES,
        "v2-above": OPEN,
    },
    "song-intra-2flow": {
        "v1-equal": YES,
        "v1-full": YES,
        "v2-fair-when-shallow": OPEN,
        "v2-unequal": YES,
        "v2-second-behind-at-2": YES,
    },
    "song-cubic": {
        "v1-small": OPEN,
        "v1-falls": OPEN,
        "v2-milder": YES,
        "v2-worse-when-deep": OPEN,
    },
    "song-intra-2flow-inflight": {"v2-second-bounded-at-2": YES, "v2-second-free-at-4": OPEN},
    "song-cubic-trace": {
        "v1-dominates-at-0.2": OPEN,
        "v1-rtprop-swings-at-2": YES,
        "cubic-ahead-at-8": OPEN,
        "v2-even-at-0.2": OPEN,
        "v2-loses-when-deep": OPEN,
    },
    "ware-probetime": {"within-8-s": YES},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_recordings_of_real_kernels_get_the_verdicts_that_their_numbers_ask_for(
    name: str, recorded: Path
) -> None:
    found = verdicts(recorded, name)
    assert {key: row["verdict"] for key, row in found.items()} == RECORDED[name]
    assert all(row["why"] for row in found.values() if row["verdict"] == OPEN)
    assert all(row["measured"] and row["runs"] for row in found.values() if row["verdict"] == YES)


@pytest.fixture(scope="module")
def pages(recorded: Path, path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Pages of recordings, of a grid, of nothing, and of hostile names."""
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, store, scenario in (
        ("recorded", recorded, "song-bwchange"),
        ("grid", path, "cao-grid640"),
        ("nothing", path, "ware-cap"),
    ):
        page = folder / f"{name}.html"
        assert run(store, scenario, "-o", str(page)).exit_code == 0
        made[name] = page.as_uri()
    hostile = folder / "hostile.html"
    hostile.write_text(study_page.build(hostile_study(folder, "<img src=x onerror=boom()>")))
    return made | {"hostile": hostile.as_uri()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recorded", "grid", "nothing", "hostile"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_draws_every_chart_without_complaint_or_request(
    browser: Any, pages: dict[str, str], name: str, width: int
) -> None:
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(pages[name])
    end = "window.bbrscope && window.bbrscope.ready"
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 30).until(lambda seen: seen.execute_script(f"return {end}"))
    charts = browser.execute_script(
        "return [...document.querySelectorAll('[data-chart]')].map((chart) =>"
        " [...chart.querySelectorAll('.role-mark path, .role-mark rect, .role-mark line')]"
        ".filter((mark) => { const box = mark.getBoundingClientRect();"
        " return box.width + box.height > 0; }).length)"
    )
    assert bool(charts) == (name != "nothing")
    assert all(charts), charts
    assert browser.get_log("browser") == []
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    paper = "return getComputedStyle(document.body).backgroundColor"
    before = browser.execute_script(paper)
    browser.execute_script("document.getElementById('theme').click()")
    assert browser.execute_script(paper) != before
