"""The comparison of several runs: its numbers, what it escapes, how runs are chosen."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.views.materialize import forget
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from bbrscope.reports.commands.report import command
from bbrscope.reports.html.charts import beside
from bbrscope.reports.html.sections import compared
from click.testing import CliRunner, Result

from tests.packed_columns import unpack
from tests.page_data import data_of

RUNS = ("v2_single_1bdp", "v3_x_tlp5", "v1_x_lt")


@pytest.fixture(scope="module")
def html(shipped_path: Path) -> str:
    with open_store(shipped_path, read_only=True) as store:
        return compared.build(store.con, [store.run_id(run) for run in RUNS])


def _report(store: Path, folder: Path, *arguments: str) -> Result:
    output = folder / "out.html"
    return CliRunner().invoke(command, [*arguments, "--store", str(store), "-o", str(output)])


def test_every_run_has_its_charts_and_its_row(html: str) -> None:
    data = data_of(html)
    assert len(data["flows"]) == len(RUNS) + 1
    for entry in data["flows"][:-1]:
        assert {"share1", "together", "srtt1", "inflight1"} <= {
            signal["key"] for signal in entry["signals"]
        }
        assert entry["lanes"]
    together = {signal["key"] for signal in data["flows"][-1]["signals"]}
    assert {f"together-run{place}" for place in range(len(RUNS))} <= together
    for place in range(len(RUNS)):
        assert f'id="run-{place}"' in html
    assert html.count('<th scope="row">') >= len(RUNS)
    (numbers,) = re.findall(r'<section id="numbers">.*?</thead>', html, re.DOTALL)
    heads = re.findall(r'<th scope="col" class="number">.*?</span>(.*?)</th>', numbers)
    assert [head.replace("<wbr>", "") for head in heads] == list(RUNS)
    assert all("<wbr>" in head for head in heads), "a narrow column breaks them anywhere"


def test_of_a_simulated_run_it_says_how_far_it_holds(
    shipped: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [shipped.run_id(run) for run in RUNS]
    monkeypatch.setattr(compared, "simulated_of_many", lambda *_: {ids[1]: "never compared"})
    about: Any = compared._values(shipped.con, ids, [])["runs"]
    said = "; simulated, fidelity: never compared"
    assert [run["trust"].endswith(said) for run in about] == [False, True, False]


def test_the_numbers_are_those_of_the_store(html: str, shipped: Store) -> None:
    found = dict(shipped.con.execute("SELECT run, goodput_mbps FROM metrics_by_run").fetchall())
    first = found[RUNS[0]]
    for run in RUNS[1:]:
        assert f"{found[run]:.3g} Mbit/s" in html
        assert f"{100 * (found[run] / first - 1):+.0f} %" in html


def test_runs_share_their_axes(html: str) -> None:
    data = data_of(html)
    specs = {
        about["spec"]
        for about in data["panels"]
        if about["flow"] < len(RUNS) and about["spec"].startswith("srtts")
    }
    assert len(specs) == 1


def test_a_run_that_ended_is_drawn_no_further(html: str) -> None:
    *runs, over = data_of(html)["flows"]
    ends = [run["end"] for run in runs]
    assert max(ends) > min(ends) + 1
    for place, end in enumerate(ends):
        (line,) = [one for one in over["signals"] if one["key"] == f"together-run{place}"]
        times, levels = unpack(line["t"]), unpack(line["v"])
        assert levels[-1] == -1
        assert times[-1] / 1e6 == pytest.approx(end, abs=(times[1] - times[0]) / 1e6)


def test_nothing_asks_the_network_and_strangers_stay_text(hostile_path: Path) -> None:
    with open_store(hostile_path) as store:
        forget(store.con, [store.run_id("v2_x_spur")])
        store.con.execute("UPDATE runs SET run = kernel WHERE run = 'v2_x_spur'")
        built = compared.build(store.con, [store.run_id(run) for run in store.runs()])
    assert "<script>alert(1)" not in built
    assert "&lt;script&gt;alert(1)" in built
    assert built.count("<script") == 3
    markup = re.sub(r"<script.*?</script>", "", built, flags=re.DOTALL)
    assert not re.search(r"https?://", markup)


def test_a_condition_chooses_runs(shipped_path: Path, tmp_path: Path) -> None:
    done = _report(shipped_path, tmp_path, "--where", "version = 'v2'")
    assert done.exit_code == 0, done.output
    text = (tmp_path / "out.html").read_text()
    assert "2 runs compared" in text
    assert "v1_x_lt" not in text


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("version = 'v9'", "no run fits"),
        ("nonsense = 1", "nonsense"),
        ("EXISTS (FROM read_csv('/etc/passwd'))", "'read_csv'"),
        ("true) OR (true", "syntax error"),
        ("run IN (WITH a AS (COPY runs TO 'x.duckdb') FROM a)", "cannot hold COPY"),
    ],
)
def test_a_condition_that_fits_nothing_or_reaches_out_is_refused(
    condition: str, said: str, shipped_path: Path, tmp_path: Path
) -> None:
    done = _report(shipped_path, tmp_path, "--where", condition)
    assert done.exit_code == 1
    assert said in str(getattr(done.exception, "fact", done.exception))
    assert not (tmp_path / "out.html").exists()


@pytest.mark.parametrize(
    "arguments",
    [(), ("v2_x_spur", "--where", "true"), ("v2_*", "--between", "1s", "2s")],
)
def test_wrong_usage_is_status_2(
    arguments: tuple[str, ...], shipped_path: Path, tmp_path: Path
) -> None:
    assert _report(shipped_path, tmp_path, *arguments).exit_code == 2


def test_runs_that_were_not_replayed_are_first(shipped_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "bare.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id("v2_x_spur")
        for table in ("replays", "replay_fields", "decisions", "gaps"):
            store.con.execute(f"DELETE FROM {table} WHERE run_id = ?", [run_id])
    done = _report(path, tmp_path, "v2_x_spur", "v3_x_tlp5")
    assert done.exit_code == 0, done.output
    assert "not replayed" not in (tmp_path / "out.html").read_text()


def test_runs_of_samples_stand_beside_runs_of_events(sampled_path: Path) -> None:
    with open_store(sampled_path, read_only=True) as store:
        names = store.runs()
        built = compared.build(store.con, [store.run_id(name) for name in names])
    data = data_of(built)
    assert len(data["flows"]) == len(names) + 1
    for name, entry in zip(names, data["flows"][:-1], strict=True):
        assert {"srtt1", "inflight1"} <= {signal["key"] for signal in entry["signals"]}, name


@pytest.mark.parametrize("wide", [beside.NARROW, 400, 700])
def test_names_of_points_are_whole_on_a_phone_and_up(wide: int) -> None:
    """Laid out for a phone, they reach past neither edge of a wider chart, and cover nothing."""
    rows: list[beside.ScatterRow] = [
        {"label": name, "rtt": rtt, "goodput": goodput, "c": "run-1"}
        for name, rtt, goodput in (
            ("v2_single_1bdp, flow 1", 44.2, 9.3),
            ("v1_loss_1pct, flow 1", 50.6, 9.4),
            ("v2_latecomer_2bdp, flow 1", 64.7, 14.0),
            ("v2_latecomer_2bdp, flow 3", 46.0, 7.5),
        )
    ]
    boxes = []
    for row, side in beside.sided(rows, beside.NARROW):
        x, y = wide * row["rtt"] / 65, beside.HEIGHT * (1 - row["goodput"] / 14)
        boxes.append(side.box(x, y, beside.LETTER * len(row["label"])))
    assert all(0 < left < right < wide + beside.PAST for left, right, _, _ in boxes)
    assert not any(beside._meet(one, other) for n, one in enumerate(boxes) for other in boxes[:n])


def test_names_of_points_that_lie_together_cover_neither_each_other_nor_points() -> None:
    rows = [
        {"label": f"run_number_{n}, flow 1", "rtt": 40 + 3 * n, "goodput": 9.3 + 0.01 * n}
        for n in range(5)
    ]
    sides = beside.sided([*rows, {"label": "far away", "rtt": 65, "goodput": 14}])
    spots = [
        (beside.WIDTH * row["rtt"] / 65, beside.HEIGHT * (1 - row["goodput"] / 14))
        for row, _ in sides
    ]
    boxes = [
        side.box(*spot, beside.LETTER * len(row["label"]))
        for spot, (row, side) in zip(spots, sides, strict=True)
    ]
    for place, (left, right, top, bottom) in enumerate(boxes):
        assert 0 < left < right < beside.WIDTH + beside.PAST
        assert not any(left < x < right and top < y < bottom for x, y in spots), sides
        for other in boxes[:place]:
            apart = right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
            assert apart, sides


@pytest.mark.parametrize(("most", "end"), [(47.8, 50), (9.33, 10), (64.7, 65), (14.2, 16), (1, 1)])
def test_names_are_laid_out_for_the_axis_that_vega_draws(most: float, end: float) -> None:
    """A name at the right of the largest RTT was cut off where the axis ends close behind it."""
    assert beside._end(most) == pytest.approx(end)
    row: beside.ScatterRow = {"label": "v1_single_1bdp", "rtt": most, "goodput": 9, "c": "run-1"}
    ((_, side),) = beside.sided([row])
    x = beside.WIDTH * most / end
    assert side.box(x, 0, beside.LETTER * len(row["label"]))[1] < beside.WIDTH + beside.PAST
