"""Troubles that no recording has, made: told where raw rows say so, with their numbers, else not.

Of each trouble there is a path or a change of rows that has it, and one that nearly has.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from bbrscope.analyze.bbr import params
from bbrscope.analyze.diagnosis.engine import Diagnosis
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.collect.lab import scenario

from tests.truth.facts import Recording
from tests.truth.readers import EXCUSED, VERDICTS
from tests.truth.recomputed import Recomputed
from tests.truth.simulated import diagnosed, first_point
from tests.truth.test_hosts import HEALTHY, Put, Row, put

MS, S = 1_000, 1_000_000
PATH = 'rate = "10mbit"\nrtt = "40ms"\nbuffer = "{}bdp"'
RISES = '[[change]]\nat = "{}"\nwhat = "rate"\nvalue = "40mbit"\n'
SLOW_WRITER = 'kind = "rate-limited"\nrate = "{}mbit"'


def drawn(seconds: int, path: str, *flows: str, more: str = "") -> str:
    """A scenario file of some flows: their congestion control, and lines that say more of them."""
    head = f'title = "made"\nsource = "made"\nduration = "{seconds}s"\n[path]\n{path}\n'
    lines = []
    for flow in flows:
        cc, _, rest = flow.partition(" ")
        lines.append(f'[[flow]]\ncc = "{cc}"\n{rest}\n')
    return head + "".join(lines) + more


PATHS = {
    "rises_v2": drawn(22, PATH.format(2), "bbr2", more=RISES.format("30%")),
    "rises_late_v2": drawn(14, PATH.format(2), "bbr2", more=RISES.format("60%")),
    "rises_v3": drawn(16, PATH.format(2), "bbr3", more=RISES.format("30%")),
    "rises_unused_v2": drawn(
        16, PATH.format(2), "bbr2 " + SLOW_WRITER.format(8), more=RISES.format("30%")
    ),
    "starves_v1": drawn(14, PATH.format(0.3), "bbr", "reno"),
    "starves_no_writer_v1": drawn(14, PATH.format(0.3), "bbr", "reno " + SLOW_WRITER.format(0.5)),
    "beside_v3": drawn(14, PATH.format(0.3), "bbr3", "reno"),
    "seesaw_v1": drawn(60, PATH.format(2.5), "bbr", "reno"),
    "no_seesaw_v1": drawn(35, PATH.format(1.3), "bbr", "cubic"),
    "loses_few_v2": drawn(16, PATH.format(2) + '\nloss = "0.5%"', "bbr2"),
    "loses_few_v3": drawn(16, PATH.format(2) + '\nloss = "0.5%"', "bbr3"),
    "overflows_v2": drawn(16, PATH.format(0.1), "bbr2"),
    "loses_many_v3": drawn(10, PATH.format(2) + '\nloss = "3%"', "bbr3"),
    "jitters_v2": drawn(12, PATH.format(2) + '\njitter = "5ms"', "bbr2"),
    "overtakes_v2": drawn(12, PATH.format(2) + '\nreorder = "1%"', "bbr2"),
    "stalls_v2": drawn(5, PATH.format(2), 'bbr2 kind = "on-off"\non = "1s"\noff = "2s"'),
    "pauses_v2": drawn(8, PATH.format(2), 'bbr2 kind = "on-off"\non = "400ms"\noff = "700ms"'),
}
MARKING = PathSetup(40_000_000, 4 * MS, limit_bytes=100_000, marks_us=500, ecn=True)


def balanced(**settings: int) -> Setup:
    """A flow of v3 that asks for other paths, on one that marks most of its packets."""
    own = dict(params.DEFAULTS["v3"]) | {"plb_enabled": 1, "HZ": 1000} | settings
    return Setup(MARKING, (FlowSetup("v3", 0, 3 * S, ecn_low=True, parameters=own),), 3 * S, 7)


WORLDS = {"rehashes_v3": balanced(), "hardly_marked_v3": balanced(plb_cong_thresh=250)}

# When the healthy recording begins [ns], and the stamp of its least RTT from 0.5 s to 5.7 s on.
BEGINS, STAMP = 62_466_478_065, 4_294_730_085


def within(row: Row, first_s: float, last_s: float) -> bool:
    return BEGINS + first_s * 1e9 <= int(row["ns"]) < BEGINS + last_s * 1e9


def shrinks(size: int, until_s: float) -> Put:
    """Segments of another size from 10 s on, to a time."""

    def event(row: Row) -> Row:
        there = "tp.mss_cache" in row and within(row, 10, until_s)
        return {"tp.mss_cache": str(size)} if there else {}

    return Put(event=event)


def overdue(until_s: float) -> Put:
    """No new least RTT: each ACK may have been delayed, and came to a flow that was idle."""

    def event(row: Row) -> Row:
        if not within(row, 1, until_s):
            return {}
        mode = min(int(row.get("bbr.mode", 0)), 2)
        changed = {"bbr.probe_rtt_min_stamp": STAMP, "bbr.idle_restart": 1, "bbr.mode": mode}
        return {field: str(to) for field, to in changed.items() if field in row}

    return Put(event=event)


ROWS = {
    "smaller": shrinks(1000, 60),
    "smaller_for_4_s": shrinks(1300, 14),
    "one_option_more": shrinks(1380, 60),
    "overdue": overdue(60),
    "hardly_overdue": overdue(7.4),
}
TOLD = {
    "rises_v2": {"slow_ramp"},
    "rises_late_v2": {"slow_ramp"},
    "starves_v1": {"starves_others"},
    "seesaw_v1": {"seesaw"},
    "loses_few_v2": {"inflight_hi_alone"},
    "loses_few_v3": {"inflight_hi_alone"},
    "stalls_v2": {"stalled_start"},
    "rehashes_v3": {"plb_rehash"},
    "smaller": {"mss_drop"},
    "smaller_for_4_s": {"mss_drop"},
    "overdue": {"probe_rtt_missing"},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Recording, Diagnosis]]:
    """What is found in each, by its name here."""
    folder = tmp_path_factory.mktemp("made")
    names = {}
    for name, text in PATHS.items():
        (folder / f"{name}.toml").write_text(text)
        names[first_point(scenario.load(str(folder / f"{name}.toml")), folder)] = name
    for name, setup in WORLDS.items():
        write_bundle(setup, folder / name)
        names[folder / name] = name
    for name, change in ROWS.items():
        names[put(HEALTHY, change, folder / "put", name)] = name
    found = diagnosed(list(names), folder)
    return {names[bundle]: (Recording(bundle), diagnosis) for bundle, diagnosis in found}


def test_each_trouble_is_made_and_nearly_made() -> None:
    assert {rule for rules in TOLD.values() for rule in rules} == set(VERDICTS)
    assert TOLD.keys() < PATHS.keys() | WORLDS.keys() | ROWS.keys()


@pytest.mark.parametrize("name", [*PATHS, *WORLDS, *ROWS])
def test_a_trouble_is_told_where_it_was_made_and_raw_rows_have_it(
    name: str, made: dict[str, tuple[Recording, Diagnosis]]
) -> None:
    recording, diagnosis = made[name]
    numbers = Recomputed(VERDICTS, EXCUSED)
    numbers.verdicts(diagnosis, recording)
    told = [each for each in diagnosis.findings if each.rule.name in VERDICTS]
    assert {each.rule.name for each in told} == TOLD.get(name, set())
    for each in told:
        if each.rule.name == "slow_ramp":  # The decisions beside the sentence are those it counts.
            assert each.codes.get("DOWN_BY_QUEUE", 0) == each.values["queue_count"]
    numbers.check(replace(diagnosis, findings=told), recording)
    assert numbers.missing == set()
