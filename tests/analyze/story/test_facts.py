"""Facts say their units, and are the sums of the story they are made from."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
from bbrscope.analyze.story import facts
from bbrscope.analyze.story.flow_stories import flows_of, story_of
from bbrscope.collect.store.store import Store

UNITS = ("_ns", "_us", "_packets", "_bytes", "_bps", "_share", "_count")
RECORDS = [
    record
    for _, record in inspect.getmembers(facts, dataclasses.is_dataclass)
    if isinstance(record, type) and record.__module__ == facts.__name__
]


@pytest.mark.parametrize("record", RECORDS)
def test_every_number_names_its_unit(record: type) -> None:
    for field in dataclasses.fields(record):
        kinds = str(field.type).replace(" ", "").split("|")
        if {"int", "float"} & set(kinds):
            assert field.name.endswith(UNITS), f"{record.__name__}.{field.name}"


@pytest.mark.parametrize("run", ["v1_x_lt", "v2_single_1bdp", "v2_x_spur", "v3_x_tlp5"])
def test_facts_agree_with_the_views(run: str, shipped: Store) -> None:
    flow = flows_of(shipped.con, shipped.run_id(run))[0]
    stated = story_of(shipped.con, flow).facts
    probes, in_probe_rtt, startup = shipped.con.execute(
        "SELECT count(*) FILTER (phase IN ('PROBE_BW_UP', 'PROBE_BW_1.25')),"
        " coalesce(sum(duration_ns) FILTER (phase = 'PROBE_RTT'), 0),"
        " arg_min(duration_ns, seq) FILTER (phase = 'STARTUP')"
        " FROM phases WHERE run = ? AND flow = ?",
        [run, flow.flow],
    ).fetchall()[0]
    assert stated.startup is not None
    assert stated.probing is not None
    assert stated.startup.phase.span.duration_ns == startup
    assert stated.probing.probe_count == probes
    assert (stated.probe_rtt.total_ns if stated.probe_rtt else 0) == in_probe_rtt
    ended = sum(end.probe_count for end in stated.probing.ends)
    assert probes - 1 <= ended <= probes
    assert sum(limit.time_share for limit in stated.limits) == pytest.approx(1)
