"""What could be carried on a path whose policer drops what no queue holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.analyze.diagnosis.engine import diagnose
from bbrscope.analyze.diagnosis.tables import prepare
from bbrscope.analyze.views.store_with_views import open_store

from tests.analyze.diagnosis.test_diagnosis_fires import RULES, Alter, alter
from tests.truth.simulated import loaded, of_texts

__all__ = ["alter"]

RUN = "v1_x_lt"
# Its counter beside a queue that drops nothing.
SAMPLES = (
    "INSERT INTO queue_samples BY NAME SELECT run_id, ns, '{kind}' AS kind, 0 AS backlog_bytes,"
    " 0 AS backlog_pkts, {dropped} AS dropped FROM events"
    " WHERE {{run}} AND flow = 1 AND seq % 20 = 0 AND kind = 'main'"
)
POLICED = (
    SAMPLES.format(kind="tbf", dropped="0"),
    SAMPLES.format(kind="clsact", dropped="tp_lost"),
)


@pytest.mark.parametrize("policed", [True, False])
def test_alone_behind_a_policer_a_flow_could_have_had_what_it_carried_at_best(
    alter: Alter, policed: bool
) -> None:
    """What it believes in is what the bucket let pass, in a burst; and where nothing is known of a
    policer, all that there is."""
    with alter(RUN, POLICED if policed else ()) as store:
        store.con.execute("UPDATE runs SET setup = NULL")
        prepare(store.con, [store.run_id(RUN)], [])
        parts = "SELECT max(full_bytes / covered_s) FROM this_seconds WHERE covered_s > 0.9"
        (part,) = store.con.execute(parts).fetchall()[0]
        most = "SELECT max(bytes) FROM this_seconds"
        (carried,) = store.con.execute(most).fetchall()[0]
        assert (part == pytest.approx(carried)) == policed
        assert part >= carried * 0.999


LOSES = """
title = "Loss in every round"
source = "test"
duration = "10s"
[path]
rate = "20mbit"
rtt = "30ms"
buffer = "1bdp"
loss = "1.5%"
[[flow]]
cc = "bbr3"
"""


def test_bounds_that_a_policers_drops_set_are_said_to_be_its(tmp_path: Path) -> None:
    """The same losses, counted by a policer and by nobody."""
    causes = []
    (bundle,) = of_texts({"loses": LOSES}, tmp_path)
    with open_store(tmp_path / "s.duckdb") as store:
        (run_id,) = loaded(store, [bundle])
        for statements in ((), POLICED[1:]):
            for statement in statements:
                store.con.execute(statement.format(run=f"run_id = {run_id}"))
            (one,) = diagnose(store.con, run_id, [RULES["stuck_at_lower_bounds"]]).findings
            causes.append((one.causes[0], len(one.remedies)))
    assert "random loss" in causes[0][0]
    assert "a policer on the path" in causes[1][0]
    assert causes[1][1] == causes[0][1] + 1
