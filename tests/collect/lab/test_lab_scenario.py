"""Scenarios as data: what they mean, and what is refused."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from bbrscope.collect.lab import estimate, lab_points, scenario, units
from bbrscope.probes.base.errors import ScenarioError

SMALL = """
title = "t"
source = "s"
duration = "20s"
[path]
rate = "10mbit"
rtt = "40ms"
buffer = "2bdp"
[params]
cc = "bbr"
later = "2s"
[[flow]]
cc = "$cc"
[[flow]]
cc = "cubic"
start = "$later"
count = 2
every = "1s"
extra_rtt = "10ms"
[[change]]
at = "50%"
what = "rate"
value = "5mbit"
[sweep]
buffer = ["100pkt", "50kB"]
[quick]
duration = "8s"
sweep = { cc = ["bbr", "bbr2", "cubic"] }
"""


@pytest.fixture
def small(tmp_path: Path) -> scenario.Scenario:
    return load(tmp_path, SMALL)


def load(folder: Path, text: str) -> scenario.Scenario:
    (folder / "small.toml").write_text(text)
    return scenario.load(str(folder / "small.toml"))


@pytest.mark.parametrize("name", scenario.names())
def test_every_scenario_of_the_catalogue_makes_runs_in_both_forms(name: str) -> None:
    """Names of runs are all different and fit the store; the quick form is the shorter one."""
    loaded = scenario.load(name)
    full, quick = list(scenario.points(loaded)), list(scenario.points(scenario.quick(loaded)))
    for points in (full, quick):
        names = [point.run_name("6.1.0-50-amd64") for point in points]
        assert len(set(names)) == len(names) > 0
        assert max(map(len, names)) <= 100
    assert sum(p.duration_us for p in quick) <= sum(p.duration_us for p in full)
    # "Minutes on 2 cores": the traffic only, before what attaching costs.
    assert sum(estimate.traffic_s(p) for p in quick) <= 600
    assert loaded.source
    assert all(claim.sql.strip() for claim in loaded.claims)


def test_a_sweep_is_all_combinations_and_repetitions_go_round_last(
    small: scenario.Scenario,
) -> None:
    wide = scenario.override(small, {"cc": ["bbr", "cubic"]})
    made = [(p.rep, p.params["buffer"], p.params["cc"]) for p in scenario.points(wide)]
    assert made == [
        (1, "100pkt", "bbr"),
        (1, "100pkt", "cubic"),
        (1, "50kB", "bbr"),
        (1, "50kB", "cubic"),
    ]


def test_a_point_has_every_quantity_in_one_unit(small: scenario.Scenario) -> None:
    point = next(scenario.points(small))
    assert (point.path.rate_bps, point.path.rtt_us) == (10**7, 40_000)
    assert point.path.bdp_bytes == 50_000
    assert point.path.buffer_bytes == 100 * 1514
    assert [(f.flow_no, f.cc, f.start_us, f.extra_rtt_us) for f in point.flows] == [
        (1, "bbr", 0, 0),
        (2, "cubic", 2_000_000, 10_000),
        (3, "cubic", 3_000_000, 10_000),
    ]
    assert point.changes == (lab_points.PathChange(10_000_000, "rate", 5e6),)


def test_a_buffer_may_be_a_sum_and_a_parameter_a_part_of_it(
    small: scenario.Scenario, tmp_path: Path
) -> None:
    sums = {"1bdp+50kB": 100_000, "50kB + 1pkt+1B": 51_515, "1.5bdp+53.6kB": 128_600}
    for text, size in sums.items():
        [point] = scenario.points(scenario.override(small, {"buffer": [text]}))
        assert point.path.buffer_bytes == size
    part = SMALL.replace('buffer = "2bdp"', 'buffer = "$limit+1kB"')
    part = part.replace("[params]", '[params]\nlimit = "1bdp"').replace("buffer = [", "limit = [")
    made = scenario.points(load(tmp_path, part))
    assert [point.path.buffer_bytes for point in made] == [152_400, 51_000]
    wrong = scenario.override(small, {"buffer": ["$later+1kB"]})
    with pytest.raises(ScenarioError, match="size '2s' is not understood"):
        next(scenario.points(wrong))


def test_the_senders_own_link_has_a_rate_only_where_it_is_asked_for(
    small: scenario.Scenario, tmp_path: Path
) -> None:
    """A run that does not have it says nothing of it."""
    point = next(scenario.points(small))
    assert (point.path.host_bps, "host" in point.params) == (0, False)
    asked = next(scenario.points(scenario.override(small, {"host": ["3mbit"]})))
    assert asked.path.host_bps == 3_000_000
    assert "host=3mbit" in asked.label
    swept = load(tmp_path, SMALL.replace("[sweep]", '[sweep]\nhost = ["none", "3mbit"]'))
    made = [(p.path.host_bps, p.params["buffer"]) for p in scenario.points(swept)]
    assert made == [(0, "100pkt"), (0, "50kB"), (3_000_000, "100pkt"), (3_000_000, "50kB")]
    with pytest.raises(ScenarioError, match="host is 1bit"):
        next(scenario.points(scenario.override(small, {"host": ["1bit"]})))


def test_quick_replaces_the_sweep_and_parts_of_the_duration_follow(
    small: scenario.Scenario,
) -> None:
    points = list(scenario.points(scenario.quick(small)))
    assert [p.params["cc"] for p in points] == ["bbr", "bbr2", "cubic"]
    assert {p.changes[0].at_us for p in points} == {4_000_000}
    assert {p.path.buffer_bytes for p in points} == {100_000}


def test_setting_a_parameter_shows_in_the_name_and_ends_its_axis(
    small: scenario.Scenario,
) -> None:
    points = list(scenario.points(scenario.override(small, {"buffer": ["1bdp"], "loss": ["1%"]})))
    assert [p.run_name("6.1.0") for p in points] == ["small+buffer=1bdp+loss=1pct+r1@6.1.0"]


def test_a_run_has_one_name_however_it_was_asked_for(small: scenario.Scenario) -> None:
    swept = [p.label for p in scenario.points(small)]
    named = [
        p.label
        for text in ("100pkt", "50kB")
        for p in scenario.points(scenario.override(small, {"buffer": [text], "cc": ["bbr"]}))
    ]
    assert swept == named == ["small+buffer=100pkt", "small+buffer=50kB"]


def test_the_same_point_has_the_same_seed_and_others_have_others(
    small: scenario.Scenario,
) -> None:
    seeds = [p.seed for p in scenario.points(small)]
    assert seeds == [p.seed for p in scenario.points(small)]
    assert len(set(seeds)) == len(seeds)


def test_unknown_names_are_reported_with_those_that_look_alike(small: scenario.Scenario) -> None:
    with pytest.raises(ScenarioError) as error:
        scenario.load("song-single-bufer")
    assert "song-single-buffer" in error.value.way_out
    with pytest.raises(ScenarioError) as error:
        scenario.override(small, {"bufer": ["1bdp"]})
    assert "buffer" in error.value.way_out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('rate = "10mbit"', 'rate = "fast"', "rate 'fast'"),
        ('rate = "10mbit"', 'rate = "10"', "rate '10'"),
        ('rate = "10mbit"', 'rate = "1bit"', "rate is 1bit"),
        ('cc = "$cc"', 'cc = "$ccc"', "no parameter called 'ccc'"),
        ('cc = "cubic"', 'cc = "; rm"', "cc is"),
        ('later = "2s"', 'later = "30s"', "flow 2 starts at 30 s"),
        ("count = 2", "count = 1000", "count is"),
        ('at = "50%"', 'at = "100%"', "a change at 20 s"),
        ('what = "rate"', 'what = "weather"', "no what called 'weather'"),
        ("[sweep]", "[sweeps]", "no key of a scenario called 'sweeps'"),
        ('rtt = "40ms"', 'rtt = "40ms"\nqueue = 1', "no key of [path] called 'queue'"),
        ('duration = "20s"', 'duration = "5h"', "time '5h'"),
        ('title = "t"', "title =", "cannot read"),
        ('rate = "10mbit"', 'rate = "1e999999999mbit"', "rate '1e999999999mbit' is not understood"),
        ('rate = "10mbit"', f'rate = "{"9" * 5000}mbit"', "is not understood"),
        ('rate = "10mbit"', 'rate = "1e99gbit"', "rate '1e99gbit' is too large"),
        ('rtt = "40ms"', 'rtt = "99999999999s"', "time '99999999999s' is too large"),
        ('later = "2s"', 'later = "1e90%"', "time '1e90%' is too large"),
        ('buffer = "2bdp"', 'buffer = "1e80bdp"', "size '1e80bdp' is too large"),
        ("count = 2", 'count = "٣"', "count is"),
        ("count = 2", f"count = {'9' * 4000}", "count is"),
        ('later = "2s"', f'later = "{"$later" * 9}"', "no parameter called"),
        ('later = "2s"', f'later = "{"2" * 2000}s"', "start is too long"),
    ],
)
def test_what_a_scenario_cannot_mean_is_refused_with_its_file(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError) as error:
        load(tmp_path, SMALL.replace(old, new))
    assert said in error.value.fact
    assert "small.toml" in error.value.fact
    assert error.value.way_out


def test_units() -> None:
    assert units.rate("1.5gbit") == 1_500_000_000
    assert units.time_us("500us") == 500
    assert units.time_us("25%", 4000) == 1000
    assert units.size("0.5bdp", 1000) == 500
    assert units.size("2KiB") == 2048
    assert units.share("2%") == 0.02
    assert units.share("1e-4") == 0.0001
    for wrong in ("101%", "2pkt", "-1", "nan"):
        with pytest.raises(ScenarioError):
            units.share(wrong)


def test_a_sweep_of_gigabytes_is_refused_at_once(small: scenario.Scenario, tmp_path: Path) -> None:
    """Three hundred values on each of three axes; and four of a thousand by the user."""
    values = ", ".join(f'"{n}kB"' for n in range(1, 301))
    axes = f"buffer = [{values}]\nsize = [{values}]\nother = [{values}]\n"
    wide = SMALL.replace("[params]", '[params]\nsize = "1kB"\nother = "1kB"')
    before = time.process_time()
    with pytest.raises(ScenarioError, match="the sweep is 27,000,000 runs"):
        load(tmp_path, wide.replace("[sweep]\n", f"[sweep]\n{axes}#"))
    many = {name: [f"{n}ms" for n in range(1, 1001)] for name in ("rtt", "jitter", "aggregation")}
    with pytest.raises(ScenarioError, match="the sweep is"):
        next(scenario.points(scenario.override(small, many)))
    assert time.process_time() - before < 10


@pytest.mark.parametrize(
    ("sweep", "fact"),
    [
        ("buffer = [" + '"1kB", ' * 1001 + "]", "axis buffer has 1,001 values"),
        ("\n".join(f'a{n} = ["1"]' for n in range(17)), "the sweep has 17 axes"),
        ("# " + "x" * (1 << 20), "larger than 1 MiB"),
    ],
)
def test_what_nobody_has_the_time_for_is_refused(sweep: str, fact: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=fact):
        load(tmp_path, SMALL.replace("[sweep]\n", f"[sweep]\n{sweep}\n#"))


@pytest.mark.parametrize("wrong", ["3", '"a"', "[]", "true"])
def test_a_quick_form_whose_sweep_is_no_table_is_refused(wrong: str, tmp_path: Path) -> None:
    text = re.sub(r"(?ms)^\[quick\].*?(?=^\[|\Z)", "", SMALL)
    with pytest.raises(ScenarioError, match="sweep must be a table"):
        load(tmp_path, f"{text}\n[quick]\nsweep = {wrong}\n")
