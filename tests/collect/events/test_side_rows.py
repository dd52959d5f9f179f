"""Rows beside the events: who a socket is, split parameters, marks and retransmissions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.replay import keep_results as results
from bbrscope.analyze.replay import replay_runs as session
from bbrscope.analyze.replay import run_params
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.events import skb_rows
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BundleError

MakeBundle = Callable[..., Path]
# What bpftrace 0.17 can print at once, ns and sk aside (probes/program.py VALUES_ON_STACK).
ON_STACK = 32
# The columns of a packet that v2's probes record.
SKB_OF_V2 = (
    "skb.in_flight,skb.lost,skb.is_app_limited,skb.delivered_mstamp,skb.gso_segs,skb.seq,"
    "skb.end_seq"
)


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
        f"#K,ns,sk,{SKB_OF_V2}",
        f"#R,ns,sk,{SKB_OF_V2}",
        "#N,ns,sk,sport,dport,daddr,family,saddr,saddr6,daddr6,netns,max_header",
    ]
    made = [line for line in lines if line.startswith("#")] + heads
    for number, line in enumerate(line for line in lines if not line.startswith("#")):
        tag, ns, sk, *_ = line.split(",")
        if number % 7 == 0 and tag in ("M0", "S0", "L0"):
            made += [f"K,{ns},{sk},3,0,0,5,1,10,20", f"R,{ns},{sk},3,0,0,5,1,10,20"]
            made.append(f"N,{ns},{sk},45290,46100,33556746,2,16845066,::,::,1,{header}")
        made.append(line)
    return made


def loaded(bundle: Path) -> Store:
    store = open_store(bundle / "s.duckdb")
    ingest(store, bundle)
    return store


def stored(store: Store) -> dict[str, Any]:
    """Everything that a replay reads of a run, and how it agreed with the kernel."""
    ids = [store.run_id(name) for name in store.runs()]
    for flows in session.replay_runs(store.con, ids):
        results.keep(store, flows)
    queries = {
        "events": "SELECT * EXCLUDE (line) FROM events ORDER BY flow, seq",
        "params": "SELECT * FROM params ORDER BY flow",
        "replays": "SELECT * EXCLUDE (first_divergence) FROM replays ORDER BY flow, mode",
        "flows": "SELECT * EXCLUDE (netns, retransmits) FROM flows ORDER BY flow",
        "quality_notes": "SELECT kind, seq FROM capture_quality ORDER BY kind, seq",
    }
    return {name: store.con.execute(query).fetchall() for name, query in queries.items()}


@pytest.fixture(scope="module")
def whole(spur_lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from tests.conftest import write_bundle

    bundle = write_bundle(tmp_path_factory.mktemp("whole") / "made", spur_lines, events_lost=1)
    with loaded(bundle) as store:
        return stored(store)


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
        same(stored(store), whole)


def test_marks_retransmissions_and_identities_change_no_event(
    spur_lines: list[str], whole: dict[str, Any], make_bundle: MakeBundle
) -> None:
    lines = with_rows_between(spur_lines)
    assert sum(line.startswith("K,") for line in lines) > 100
    with loaded(make_bundle(lines, count=False, events_lost=1)) as store:
        same(stored(store), whole)


HEAD = ["#M,ns,sk,tp.delivered,bbr.lt_bw", "#X,ns,sk,sk.cookie", "#E,ns,sk,event"]
SKB = "skb.is_app_limited,skb.delivered_mstamp,skb.gso_segs,skb.seq,skb.end_seq"


def test_marks_and_retransmissions_have_tables_of_their_own(make_bundle: MakeBundle) -> None:
    """A row may precede the first event of its socket, and be older than an event before it."""
    rows = [
        "R,5,b,0,4294967295,3,4294967000,1448",
        "M,20,a,7,0",
        "X,21,a,0",
        "K,10,a,1,0,65535,0,9",
    ]
    rows += ["R,22,a,0,1,2,10,20", "R,23,c,0,1,9,10,20", "E,30,b,1"]
    lines = [*HEAD, f"#K,ns,sk,{SKB}", f"#R,ns,sk,{SKB}"]
    with loaded(make_bundle([*lines, *rows])) as store:
        marks = store.con.execute("SELECT * EXCLUDE (run_id) FROM loss_marks").fetchall()
        again = store.con.execute(
            "SELECT flow, ns, line, skb_delivered_mstamp, skb_gso_segs, skb_seq, skb_end_seq "
            "FROM retransmits ORDER BY ns"
        ).fetchall()
        counted = store.con.execute("SELECT flow, retransmits FROM flows ORDER BY flow").fetchall()
    assert marks == [(1, 10, 9, None, None, 1, 0, 65535, 0, 9)]
    # Of socket c no event was recorded: it has no flow.
    assert again == [
        (2, 5, 6, 4294967295, 3, 4294967000, 1448),
        (1, 22, 10, 1, 2, 10, 20),
    ]
    assert counted == [(1, 2), (2, 3)]


def test_a_recording_without_such_rows_tells_of_no_count(make_bundle: MakeBundle) -> None:
    lines = [*HEAD, "M,20,a,7,0", "X,21,a,0"]
    for head, wanted in ([], None), (["#R,ns,sk,skb.seq"], 0):
        with loaded(make_bundle([*head, *lines], f"made{wanted}")) as store:
            stored = store.con.execute("SELECT retransmits, cookie, netns FROM flows").fetchall()
        assert stored == [(wanted, None, None)]


def test_so_many_marks_that_they_take_a_file_are_all_there(
    make_bundle: MakeBundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skb_rows, "MEMORY_BYTES", 1 << 10)
    monkeypatch.setattr(skb_rows, "ROWS_PER_BATCH", 100)
    rows = [f"K,{n},a,0,{n},1,{n},{n + 1}" for n in range(2000)]
    with loaded(make_bundle([*HEAD, f"#K,ns,sk,{SKB}", "M,1,a,7,0", *rows])) as store:
        found = store.con.execute("SELECT ns, skb_seq, skb_end_seq FROM loss_marks").fetchall()
    assert found == [(n, n, n + 1) for n in range(2000)]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("K,9,a,0,1,65536,0,1", "skb.gso_segs of K is 65536, outside 0..65535"),
        ("K,9,a,0,1,-1,0,1", "skb.gso_segs of K is -1, outside 0..65535"),
        ("K,9,a,0,1,1,0", "K has 6 columns, the header names 7"),
        ("K,9,xyz,0,1,1,0,1", "sk of K is 'xyz', not a number"),
        ("K,9,a,0,1,1,0,'); DROP TABLE flows", "skb.end_seq of K is"),
    ],
)
def test_an_impossible_mark_is_refused_with_its_line(
    row: str, words: str, make_bundle: MakeBundle
) -> None:
    bundle = make_bundle([*HEAD, f"#K,ns,sk,{SKB}", "M,1,a,7,0", row])
    with pytest.raises(BundleError) as refused:
        loaded(bundle)
    assert f"line 6: {words}" in refused.value.fact


def test_a_flow_has_its_sockets_cookie_and_namespace(make_bundle: MakeBundle) -> None:
    """The kernel makes the cookie when somebody first asks: later rows have it."""
    lines = [*HEAD, "#N,ns,sk,sport,dport,daddr,netns", "N,1,a,1,2,3,4026531840"]
    lines += ["M,2,a,7,0", "X,3,a,0", "M,4,a,7,0", "X,5,a,18446744073709551615"]
    with loaded(make_bundle(lines)) as store:
        stored = store.con.execute("SELECT netns, cookie FROM flows").fetchall()
    assert stored == [(4026531840, 18446744073709551615)]


@pytest.mark.parametrize("netns", ["-1", "4294967296", "x", "", "9" * 5000])
def test_an_impossible_namespace_is_refused(netns: str, make_bundle: MakeBundle) -> None:
    lines = [*HEAD, "#N,ns,sk,sport,dport,daddr,netns", f"N,1,a,1,2,3,{netns}", "M,2,a,7,0"]
    with pytest.raises(BundleError, match="line 5: no identity of a socket"):
        loaded(make_bundle(lines))


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
    # 45290 is 60080 in network byte order, 33556746 and 16845066 are 10.9.0.2 and 10.9.1.1.
    assert set(ends) == {("10.9.1.1", 60080, "10.9.0.2", 5300)}


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


def test_a_mark_is_repaired_by_the_next_retransmission_of_its_first_byte(
    make_bundle: MakeBundle,
) -> None:
    rows = ["M,1,a,7,0", "R,5,a,0,1,1,10,20", "K,6,a,0,1,2,10,30", "K,7,a,0,1,1,30,40"]
    rows += ["R,8,b,0,1,1,10,20", "R,9,a,0,1,1,10,20", "R,11,a,0,1,1,10,20", "M,12,b,7,0"]
    with loaded(make_bundle([*HEAD, f"#K,ns,sk,{SKB}", f"#R,ns,sk,{SKB}", *rows])) as store:
        stored = store.con.execute(
            "SELECT flow, t_ns, skb_seq, skb_end_seq, skb_gso_segs, resent_ns, repair_ns "
            "FROM repairs ORDER BY ns"
        ).fetchall()
    assert stored == [(1, 5, 10, 30, 2, 9, 3), (1, 6, 30, 40, 1, None, None)]
