"""Flows against the sampled queue's way: of them it says nothing, and of the others what it did.

Two simulated links, one for each direction between two hosts, of which one queue was sampled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bbrscope.analyze.diagnosis.engine import Diagnosis, diagnose, diagnose_together
from bbrscope.analyze.diagnosis.tables import prepare
from bbrscope.analyze.replay import keep_results as results
from bbrscope.analyze.replay import replay_runs as session
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.materialize import forget
from bbrscope.analyze.views.packets.bypass_views import QUEUE_BYPASSES
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store
from bbrscope.reports.text.findings.finding_text import sentence, text

MS, S = 1_000, 1_000_000
SECONDS = 10


def link(rate: float, delay_us: int, buffer: int, cc: str, flows: int, seed: int = 7) -> Setup:
    path = PathSetup(rate, delay_us, limit_bytes=buffer)
    senders = tuple(FlowSetup(cc, at * S, SECONDS * S) for at in range(flows))
    return Setup(path, senders, SECONDS * S, seed)


# Those of the sampled queue come first.
PAIRS = {
    # The other direction carries more than the queue lets go.
    "faster": (link(4e6, 40 * MS, 100_000, "v3", 2), link(10e6, 20 * MS, 300_000, "v3", 1)),
    # Either may be the queue's by itself; both together are more than it lets go.
    "equal": (link(10e6, 40 * MS, 100_000, "v3", 1), link(10e6, 40 * MS, 300_000, "v3", 1, 9)),
    # Of one link with all flows, flow 3 would have had half, and flow 2 a quarter of its part.
    "unequal": (link(20e6, 40 * MS, 200_000, "v3", 2), link(20e6, 40 * MS, 100_000, "v3", 1, 9)),
}


def join(store: Store, name: str, folder: Path) -> int:
    """Return a run with what two links of PAIRS carried, and the queue of the first one."""
    for part, setup in zip("ab", PAIRS[name], strict=True):
        write_bundle(setup, folder / f"{name}_{part}")
        ingest(store, folder / f"{name}_{part}")
    one, other = (store.run_id(f"{name}_{part}") for part in "ab")
    first = len(PAIRS[name][0].flows)
    moved = f"{one} AS run_id, flow + {first} AS flow"
    back = "remote_address AS local_address, '10.9.0.1' AS remote_address"
    for table, also in (("flows", f", {back}"), ("events", "")):
        store.con.execute(
            f"INSERT INTO {table} SELECT * REPLACE ({moved}{also}) FROM {table}"
            f" WHERE run_id = {other}"
        )
    store.con.execute("UPDATE runs SET setup = '{}'")
    forget(store.con, [one, other])
    for flows in session.replay_runs(store.con, [one]):
        results.keep(store, flows)
    return one


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, dict[str, int]]]:
    folder = tmp_path_factory.mktemp("directions")
    with open_store(folder / "s.duckdb") as store:
        yield store, {name: join(store, name, folder) for name in PAIRS}


def found(made: Diagnosis, name: str) -> dict[int | None, dict[str, object]]:
    return {each.flow: dict(each.values) for each in made.findings if each.rule.name == name}


def test_who_carried_more_than_a_queue_let_go_did_not_pass_it(
    joined: tuple[Store, dict[str, int]],
) -> None:
    store, runs = joined
    told = {
        name: store.con.sql(
            f"SELECT flow, sure FROM queue_bypasses WHERE run_id = {run} ORDER BY flow"
        ).fetchall()
        for name, run in runs.items()
    }
    assert told.pop("faster") == [(3, True)]
    assert told.pop("equal") == [(1, False), (2, False)]
    # Each link by itself: what its flows carried, the queue let go.
    assert store.con.sql(
        "SELECT count(*) FROM queue_bypasses JOIN runs USING (run_id) WHERE run LIKE '%b'"
    ).fetchall() == [(0,)]


def test_a_queue_says_nothing_of_flows_that_did_not_pass_it(
    joined: tuple[Store, dict[str, int]],
) -> None:
    store, runs = joined
    made = diagnose(store.con, runs["faster"])
    waits = found(made, "bufferbloat")
    assert {1, 2} <= set(waits)
    for flow, values in waits.items():
        assert ("by its own samples" in str(values["queue"])) == (flow in (1, 2)), values
    assert {number for number, flow in made.flows.items() if not flow.rate_is_known} == {3}
    sampled = store.con.sql(
        "SELECT flow, count(queue_sampled_us) > 0, count(utilisation) > 0,"
        " count(inflight_minus_bdp_packets) > 0 FROM (FROM metrics_by_flow UNION ALL BY NAME"
        " FROM metrics_by_second UNION ALL BY NAME FROM metrics_by_phase)"
        f" WHERE run_id = {runs['faster']} GROUP BY flow ORDER BY flow"
    ).fetchall()
    assert sampled == [(1, *[True] * 3), (2, *[True] * 3), (3, *[False] * 3)]


def test_a_queue_that_no_flow_is_known_to_pass_tells_of_none(
    joined: tuple[Store, dict[str, int]],
) -> None:
    store, runs = joined
    made = diagnose(store.con, runs["equal"])
    unchecked = [check.rule.name for check in made.outcomes("not checked")]
    assert "loss_outside_bottleneck" in unchecked
    for way in (1, 2):
        prepare(store.con, [runs["equal"]], [], way)
        assert store.con.sql("SELECT count(*) FROM this_queue").fetchall() == [(0,)]


def test_a_device_without_a_queue_denies_nothing(joined: tuple[Store, dict[str, int]]) -> None:
    """noqueue counts no packet, whatever passes the device."""
    store, runs = joined
    asked = f"SELECT count(*) FROM ({QUEUE_BYPASSES.sql}) WHERE run_id = {runs['faster']}"
    counts = []
    for kind in ("pfifo", "noqueue"):
        changed = f"kind = '{kind}', sent_bytes = 0 WHERE run_id = {runs['faster']}"
        store.con.execute(f"UPDATE queue_samples SET {changed}")
        counts += store.con.sql(asked).fetchall()
    assert counts == [(3,), (0,)]


def listed(made: Diagnosis, before: int = 0) -> list[tuple[object, ...]]:
    """What was found of flows whose numbers come after so many others, with all that it says."""
    found = []
    for one in made.findings:
        flow = one.flow and one.flow + before
        found.append((one.rule.name, flow, one.cost_s, sentence(made, replace(one, flow=flow))))
    return sorted(
        (name, flow or 0, round(cost_s or 0, 9), text(words)) for name, flow, cost_s, words in found
    )


def test_flows_of_opposite_directions_share_nothing(
    joined: tuple[Store, dict[str, int]],
) -> None:
    """Of both together is found what each link by itself has, and nothing of the two together."""
    store, runs = joined
    run = runs["unequal"]
    by_itself = [store.run_id(f"unequal_{part}") for part in "ab"]
    store.con.execute("DELETE FROM queue_samples")
    limits: list[int] = []
    (made,) = diagnose_together(
        store.con,
        [run],
        at_tables=lambda: limits.extend(
            flow for (flow,) in store.con.sql("SELECT DISTINCT flow FROM these_short").fetchall()
        ),
    )
    assert sorted(limits) == [1, 2, 3] == list(made.flows)
    one, other = (diagnose(store.con, run_id) for run_id in by_itself)
    assert listed(made) == sorted(listed(one) + listed(other, 2))
    assert "unequal_shares" in {name for name, *_ in listed(one)}
    shares = "SELECT jain, ratio, shared_seconds, goodput_mbps IS NOT NULL FROM metrics_by_run"
    of_run = [
        store.con.sql(f"{shares} WHERE run_id = {each}").fetchall() for each in (run, by_itself[0])
    ]
    assert of_run[0] == of_run[1]
    sent = store.con.sql(f"SELECT flow, way FROM senders WHERE run_id = {run} ORDER BY flow")
    assert sent.fetchall() == [(1, 2), (2, 2), (3, 1)]


@pytest.mark.parametrize(
    ("ends", "ways"),
    [
        # Nothing says that these are not one link.
        ([("a", "b"), ("c", "d"), (None, "e")], [1, 1, 1]),
        ([("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1"), ("::1", "::1")], [1, 1, 1]),
        ([("a", "a"), ("a", "b"), ("b", "b")], [1, 1, 1]),
        ([("a", "b"), ("c", "b"), ("b", "a")], [1, 1, 2]),
        ([(None, "b"), ("c", "b"), ("b", None)], [1, 1, 2]),
        ([("a", "b"), ("c", "d"), (None, "a")], [1, 1, 2]),
        # From hop to hop, no two pass the same way.
        ([("a", "b"), ("b", "c"), ("c", "a")], [1, 2, 3]),
        # Of two pairs neither of which tells of the other.
        ([("a", "b"), ("c", "d"), ("d", "c")], [1, 1, 2]),
    ],
)
def test_which_flows_are_opposite_their_addresses_say(
    ends: list[tuple[str | None, str]], ways: list[int], joined: tuple[Store, dict[str, int]]
) -> None:
    """The largest sender's way is the first; each next one takes the first that fits."""
    store, runs = joined
    run = runs["unequal"]
    sizes = store.con.sql(f"SELECT flow FROM senders WHERE run_id = {run} ORDER BY bytes DESC")
    flows = [flow for (flow,) in sizes.fetchall()]
    store.con.execute("BEGIN")
    try:
        for flow, pair in zip(flows, ends, strict=True):
            changed = "local_address = ?, remote_address = ? WHERE run_id = ? AND flow = ?"
            store.con.execute(f"UPDATE flows SET {changed}", [*pair, run, flow])
        found = dict(
            store.con.sql(f"SELECT flow, way FROM senders WHERE run_id = {run}").fetchall()
        )
    finally:
        store.con.execute("ROLLBACK")
    assert [found[flow] for flow in flows] == ways
