"""Rows beside the events: who a socket is, split parameters, marks and retransmissions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze import results, run_params, session
from bbrscope.collect.ingest import ingest
from bbrscope.collect.store import Store, open_store

MakeBundle = Callable[..., Path]
# What bpftrace 0.17 can print at once, ns and sk aside (probes/program.py VALUES_ON_STACK).
ON_STACK = 32


def split(lines: list[str], letters: str, width: int) -> list[str]:
    """The same recording with the rows of a tag in parts of at most `width` values."""
    made = []
    for line in lines:
        tag, *values = line.split(",")
        if tag.lstrip("#") != letters:
            made.append(line)
            continue
        (ns, sk), rest = values[:2], values[2:]
        for number, start in enumerate(range(0, len(rest), width)):
            # Each part is printed a little later.
            time = ns if tag.startswith("#") else str(int(ns) + 1000 * number)
            made.append(",".join([f"{tag}{number}", time, sk, *rest[start : start + width]]))
    return made


def with_rows_between(lines: list[str], header: int = 320) -> list[str]:
    """The same recording with marks, retransmissions and identities among its rows."""
    heads = [
        "#K,ns,sk,skb.delivered_mstamp,skb.gso_segs,skb.seq,skb.end_seq",
        "#R,ns,sk,skb.delivered_mstamp,skb.gso_segs,skb.seq,skb.end_seq",
        "#N,ns,sk,sport,dport,daddr,family,saddr,saddr6,daddr6,netns,max_header",
    ]
    made = [line for line in lines if line.startswith("#")] + heads
    for number, line in enumerate(line for line in lines if not line.startswith("#")):
        tag, ns, sk, *_ = line.split(",")
        if number % 7 == 0 and tag in ("M0", "S0", "L0"):
            made += [f"K,{ns},{sk},5,1,10,20", f"R,{ns},{sk},5,1,10,20"]
            made.append(f"N,{ns},{sk},20756,20756,33556746,2,16845066,::,::,1,{header}")
        made.append(line)
    return made


def loaded(bundle: Path) -> Store:
    store = open_store(bundle / "s.duckdb")
    ingest(store, bundle)
    return store


def told(store: Store) -> dict[str, Any]:
    """Everything that a replay reads of a run, and how it agreed with the kernel."""
    ids = [store.run_id(name) for name in store.runs()]
    for flows in session.replay_runs(store.con, ids):
        results.keep(store, flows)
    queries = {
        "events": "SELECT * EXCLUDE (line) FROM events ORDER BY flow, seq",
        "params": "SELECT * FROM params ORDER BY flow",
        "replays": "SELECT * EXCLUDE (first_divergence) FROM replays ORDER BY flow, mode",
        "flows": "SELECT * FROM flows ORDER BY flow",
        "findings": "SELECT kind, seq FROM capture_quality ORDER BY kind, seq",
    }
    return {name: store.con.execute(query).fetchall() for name, query in queries.items()}


@pytest.fixture(scope="module")
def whole(spur_lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from tests.conftest import write_bundle

    bundle = write_bundle(tmp_path_factory.mktemp("whole") / "made", spur_lines, events_lost=1)
    with loaded(bundle) as store:
        return told(store)


def same(made: dict[str, Any], whole: dict[str, Any]) -> None:
    assert whole["params"]
    assert whole["replays"]
    for name, rows in whole.items():
        assert made[name] == rows, name


def test_parameters_in_parts_are_one_row_and_replay_alike(
    spur_lines: list[str], whole: dict[str, Any], make_bundle: MakeBundle
) -> None:
    lines = split(spur_lines, "P", ON_STACK)
    assert {"P0", "P1"} <= {line.split(",")[0] for line in lines}
    with loaded(make_bundle(lines, count=False, events_lost=1)) as store:
        same(told(store), whole)


def test_marks_retransmissions_and_identities_change_no_event(
    spur_lines: list[str], whole: dict[str, Any], make_bundle: MakeBundle
) -> None:
    lines = with_rows_between(spur_lines)
    assert sum(line.startswith("K,") for line in lines) > 100
    with loaded(make_bundle(lines, count=False, events_lost=1)) as store:
        same(told(store), whole)


def test_a_socket_older_than_the_recording_has_the_ends_of_its_row_n(
    spur_lines: list[str], make_bundle: MakeBundle
) -> None:
    """Without the init rows; the row that names the socket comes before its first event."""
    kept = [line for line in spur_lines if line.lstrip("#").split(",")[0][:1] not in "IP"]
    lines = with_rows_between(kept)
    with loaded(make_bundle(lines, count=False, events_lost=1)) as store:
        ends = store.con.execute(
            "SELECT local_address, local_port, remote_address, remote_port FROM flows"
        ).fetchall()
    # 20756 is 5201 in network byte order, 33556746 and 16845066 are 10.9.0.2 and 10.9.1.1.
    assert set(ends) == {("10.9.1.1", 5201, "10.9.0.2", 5201)}


def test_the_build_constant_that_rows_tell_is_the_one_that_is_replayed_with(
    spur_lines: list[str], make_bundle: MakeBundle
) -> None:
    """Rows N say max_header 160 here; what a manifest says itself stays."""
    lines = with_rows_between(spur_lines, 160)
    for constants, wanted in ({"HZ": 1000}, 160), ({"HZ": 1000, "MAX_TCP_HEADER": 320}, 320):
        name = f"made{wanted}"
        bundle = make_bundle(lines, name, count=False, events_lost=1, constants=constants)
        with loaded(bundle) as store:
            values = run_params.of_run(store.con, store.run_id(name), "v2")
            assert values["max_tcp_header"] == wanted
