"""The estimator along a stream: what it says as rows come is what a replay says afterwards."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random

import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.analyze.bbr.codes import BY_NAME
from bbrscope.analyze.live.follower import Follower
from bbrscope.analyze.live.live_events import EventAssembler, LiveEvent
from bbrscope.analyze.live.live_flows import LiveFlows
from bbrscope.analyze.live.live_replay import LiveReplay
from bbrscope.analyze.live.live_triggers import SqlCondition
from bbrscope.analyze.replay import replay_runs as session
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.events.read_events import EventReader
from bbrscope.collect.flight.event_ring import EventRing
from bbrscope.collect.flight.triggers import Happened
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.probes.base.errors import BbrscopeError, HostError
from bbrscope.reports.live.flight import watchers_of

from tests.live_stream import SILENT, batches, events_of, stream

SECOND = 1_000_000_000
SPAN_S = 3


def test_decisions_as_they_come_are_those_of_the_replay(shipped_path: Path) -> None:
    for name in ("v2_x_spur", "v3_x_tlp5"):
        bundle, follower, taken = fixtures.path(name), Follower(), Counter[tuple[int, ...]]()
        follower.begin({**json.loads((bundle / "manifest.json").read_text()), "rung": "fentry"})
        coming = list(batches(bundle))
        if name == "v3_x_tlp5":  # it ends where the rows do: no silence tells that all have come
            coming = coming[:-SILENT]
            assert coming[-1].rows
        followed = [follower.take(batch) for batch in coming]
        for one in (one for each in (*followed, follower.end()) for one in each.decisions):
            taken[(one.event.flow.number, one.event.ns, one.code, *one.evidence)] += 1
        with open_store(shipped_path, read_only=True) as store:
            known = store.con.execute(
                "SELECT d.flow, d.ns::BIGINT, d.code, e0, e1, e2, e3 FROM decisions d"
                " JOIN runs USING (run_id) WHERE run = ?",
                [name],
            ).fetchall()
        assert len(known) > 1000
        assert taken == Counter(known)
        assert follower.replay is not None
        assert follower.replay.exact == follower.replay.compared > 1000


@pytest.mark.parametrize("name", ["events/reused_addresses", "events/aborted", "record/debian_11"])
def test_events_of_flows_as_they_come_are_those_that_are_read_afterwards(name: str) -> None:
    """Addresses of sockets are given again, and what precedes init() is of the flow it begins."""
    bundle = Path(__file__).parents[2] / "collect" / name
    follower, live = Follower(wanted=()), Counter[tuple[int, str]]()
    follower.begin(json.loads((bundle / "manifest.json").read_text()))
    for batch in batches(bundle):
        live.update((one.flow.number, one.kind) for one in follower.take(batch).events)
    reader, read = EventReader(bundle / "events.csv.zst", "events.csv"), Counter[tuple[int, str]]()
    for rows in reader.batches():
        pairs = zip(rows["flow"].to_pylist(), rows["kind"].to_pylist(), strict=True)
        read.update(pairs)
    assert _per_flow(live) == _per_flow(read)
    assert live.total() > 50


@pytest.mark.parametrize("name", ["v1_x_lt", "v2_x_spur", "v3_x_tlp5"])
def test_events_whose_rows_were_lost_are_those_that_are_read_afterwards(
    name: str, tmp_path: Path
) -> None:
    """Half an entry is no event, and what the next call printed is no part of one before it."""
    heads, rows = stream(fixtures.path(name))
    dice = Random(7)
    kept = [line for _, line in rows if dice.random() < 0.8]
    assembler = EventAssembler(heads.splitlines())
    live = [*assembler.take(kept), *assembler.waiting(rows[-1][0] + 1)]
    events = tmp_path / "events.csv.zst"
    events.write_bytes(zstandard.compress(b"".join([heads, *kept])))
    read = Counter[tuple[int, str, int]]()
    for batch in EventReader(events, "events.csv").batches():
        columns = (batch[name].to_pylist() for name in ("ns", "kind", "exit_ns"))
        read.update((ns, kind, exit_ns or 0) for ns, kind, exit_ns in zip(*columns, strict=True))
    assert Counter((one.ns, one.kind, one.values.get("exit_ns", 0)) for one in live) == read
    assert len(kept) * 0.9 > len(live) > 1000


def test_rows_that_another_was_printed_over_end_nothing() -> None:
    """Cut, with a stranger's characters, or with more digits than a number of the kernel has."""
    bundle, dice = fixtures.path("v2_x_spur"), Random(3)
    document = {**json.loads((bundle / "manifest.json").read_text()), "rung": "fentry"}
    watchers, flows = watchers_of([*FIRES]), LiveFlows()
    follower = Follower()
    for one in (*(watcher for _, watcher in watchers), follower):
        one.begin(document)

    def broken(line: bytes) -> bytes:
        at = dice.randrange(30, len(line))
        faults = (line[:at], line[:at] + b"x" + line[at:], line[:at] + b"9" * 20 + line[at:])
        return dice.choice(faults).rstrip(b"\n") + b"\n" if dice.random() < 0.05 else line

    events = 0
    for batch in islice(batches(bundle), 12):
        mangled = replace(batch, rows=[broken(line) for line in batch.rows])
        followed = follower.take(mangled)
        flows.take(follower.version, followed)
        events += len(followed.events)
        for _, watcher in watchers:
            watcher.check(mangled)
    assert events > 500


HEADERS = (
    "#S,ns,sk,seqno,new_state,tp.delivered,bbr.pacing_gain,bbr.lt_bw",
    "#I,ns,sk,sport,dport,daddr,seqno",
    "#IX,ns,sk,bbr.pacing_gain",
    "#M,ns,sk,seqno,tp.delivered,bbr.pacing_gain",
    "#X,ns,sk,tp.snd_cwnd",
)
OPENED = (
    "S,{0}1,a,0,0,0,0,0",
    "I,{0}2,a,{0},1,1,1",
    "IX,{0}2,a,739",
    "M,{0}3,a,2,1,739",
    "X,{0}4,a,10",
)


def _kinds(rows: list[str]) -> dict[int, list[str]]:
    """The kinds of each flow's events."""
    flows: dict[int, list[str]] = {}
    assembler = EventAssembler(head.encode() for head in HEADERS)
    for event in assembler.take(f"{row}\n".encode() for row in rows):
        flows.setdefault(event.flow.number, []).append(event.kind)
    return flows


def test_what_precedes_init_on_an_address_that_is_given_again_is_no_call_on_the_flow_before() -> (
    None
):
    """An accepted socket enters the state Open before init(); tcp_disconnect() looks alike."""
    opened = ["set_state", "init", "main"]
    rows = [row.format(port) for port in (1, 2) for row in OPENED]
    assert _kinds(rows) == {1: opened, 2: opened}
    assert _kinds([*rows, "S,30,a,3,0,0,0,0"]) == {1: opened, 2: opened}


def test_a_socket_that_init_takes_up_again_is_another_flow_also_in_its_midst() -> None:
    again = [row.format(1) for row in OPENED[1:]]
    assert _kinds(["M,9,a,0,1,739", "X,9,a,10", *again]) == {1: ["main"], 2: ["init", "main"]}
    assert _kinds(["M,9,a,0,1,0", "X,9,a,10", *again]) == {1: ["main", "init", "main"]}


def _per_flow(counts: Counter[tuple[int, str]]) -> Counter[tuple[tuple[str, int], ...]]:
    """How many flows have so many events of each kind; who is numbered first does not matter."""
    flows: dict[int, dict[str, int]] = {}
    for (flow, kind), count in counts.items():
        flows.setdefault(flow, {})[kind] = count
    return Counter(tuple(sorted(kinds.items())) for kinds in flows.values())


def test_a_flow_is_judged_to_its_end_and_forgotten_while_others_go_on() -> None:
    """Sockets' addresses are given again: days of short flows hold no more than those open."""
    events, columns, manifest = events_of(fixtures.path("v2_x_spur"))
    replay = LiveReplay("v2", columns, manifest)
    end = max(event.ns for event in events)
    decided = [
        # A flow after the other on one socket; the last flow's end is awaited.
        replay.take([_of(event, number) for event in events], end + 1 if number == 3 else 0)
        for number in (1, 2, 3)
    ]
    once = LiveReplay("v2", columns, manifest).take(events, end + 1)
    assert len(once) > 1000
    for number in (1, 2, 3):
        told = [one for each in decided for one in each if one.event.flow.number == number]
        assert [(one.event.ns, one.code, one.evidence) for one in told] == [
            (one.event.ns, one.code, one.evidence) for one in once
        ]
    assert len(replay._flows) == 1
    assert not replay._waiting


def _of(event: LiveEvent, number: int) -> LiveEvent:
    """The event as that of another flow on the same socket."""
    return replace(event, flow=replace(event.flow, number=number))


def test_what_a_timeout_of_the_syn_brings_about_before_init_is_no_decision() -> None:
    """bbr2_ssthresh() saves the window in a struct bbr that init() then begins anew."""
    events, columns, manifest = events_of(fixtures.path("v2_x_spur"))
    events = events[[event.kind for event in events].index("init") :]
    then, end = events[0].ns - 10 * SECOND, events[-1].ns + 1
    zeroed = dict.fromkeys(events[1].values, 0)
    before = [
        replace(events[0], kind=kind, seqno=-1, ns=then, values=zeroed | found)
        for kind, found in (
            ("ssthresh", {"tp_snd_cwnd": 10}),
            ("cwnd_event", {"event": 4, "bbr_prior_cwnd": 10}),
            ("set_state", {"new_state": 4, "bbr_prior_cwnd": 10}),
        )
    ]
    replay = LiveReplay("v2", columns, manifest)
    assert not replay.take(before, events[0].ns - SECOND)
    told = replay.take(events, end)
    once = LiveReplay("v2", columns, manifest).take(events, end)
    assert [(one.event.ns, one.code) for one in told] == [(one.event.ns, one.code) for one in once]


def test_the_last_event_of_a_flow_is_judged_while_another_goes_on() -> None:
    bundle = fixtures.path("v2_x_spur")
    follower = Follower()
    follower.begin({**json.loads((bundle / "manifest.json").read_text()), "rung": "fentry"})
    for batch in islice(batches(bundle), 4):
        follower.take(batch)
    assert follower.replay is not None
    replay = follower.replay
    (waiting,) = replay._waiting.values()
    (pending,) = replay._flows.values()
    last = pending.events[-1]
    other = replace(last, ns=last.ns + SECOND, flow=replace(last.flow, number=2, sk="other"))
    decided = replay.take([other], last.ns + 1)
    assert waiting == last.ns
    assert {one.event.flow.number for one in decided} == {last.flow.number}
    assert {one.event.ns for one in decided} == {last.ns}


def test_a_dump_of_a_ring_replays_exactly_from_its_first_row_on(tmp_path: Path) -> None:
    """In both modes, with the parameters and the ends of the flow that began long before it."""
    with open_store(tmp_path / "store.duckdb") as store:
        for name in ("v1_x_lt", "v2_x_spur", "v3_x_tlp5"):
            ingest(store, dump_of(fixtures.path(name), tmp_path / f"{name}-late"))
            ingest(store, fixtures.path(name))
        for late in (name for name in store.runs() if name.endswith("-late")):
            (flow,) = next(session.replay_runs(store.con, [store.run_id(late)]))
            for mode in flow.passes.values():
                assert mode.exact == mode.compared >= flow.count - 1
            assert not flow.gaps
            assert not flow.has_init
            ends = "SELECT remote_port, remote_address, p.* EXCLUDE (run_id, flow, ns) FROM flows"
            ends += (
                " LEFT JOIN params p USING (run_id, flow) JOIN runs USING (run_id) WHERE run = ?"
            )
            whole = late.removesuffix("-late")
            of_late, of_whole = (store.con.execute(ends, [run]).fetchall() for run in (late, whole))
            assert of_late == of_whole
            notes = store.con.execute(
                "SELECT kind FROM capture_quality JOIN runs USING (run_id) WHERE run = ?", [late]
            ).fetchall()
            assert notes == [("no_init",)]


def dump_of(bundle: Path, output: Path) -> Path:
    """The bundle that a flight recorder would have left in the middle of a recording."""
    heads, rows = stream(bundle)
    first, last = rows[0][0], rows[-1][0]
    until = first + (last - first) * 3 // 4
    ring = EventRing((SPAN_S + 2) * SECOND, 64 << 20)
    ring.write(heads)
    for at in range(0, len(rows), 500):
        ring.write(b"".join(line for ns, line in rows[at : at + 500] if ns < until + SECOND))
    parts: list[bytes] = []
    counts = ring.write_window(until - SPAN_S * SECOND, until, parts.append)
    output.mkdir()
    (output / "events.csv.zst").write_bytes(zstandard.compress(b"".join(parts)))
    document = json.loads((bundle / "manifest.json").read_text())
    document |= {"name": output.name, "events": counts}
    (output / "manifest.json").write_text(json.dumps(document))
    return output


# What each trigger must fire on, in v2_x_spur: a recovery found spurious, after timeouts.
FIRES = {
    "rto": "retransmission timeout",
    "rate<2mbit/1s": "less than 2",
    "losses>=20/1s": "lost 38 packets within 1 s",
    "PRTT_ENTER_EXPIRED": "No RTT renewed the minimum",
    "sql:tp_srtt_us/8 > 60000 AND kind = 'main'": "at a call of main",
}
NEVER = ("signal", "rate<1kbit/10s", "losses>=100000/1s", "sql:tp_delivered < 0")


# When it happened first, by the store's own tables.
SINCE = {
    "rto": "SELECT min(ns) FROM events WHERE kind = 'set_state' AND new_state = 4",
    "PRTT_ENTER_EXPIRED": "SELECT min(ns) FROM decision_log WHERE name = 'PRTT_ENTER_EXPIRED'",
    "sql:tp_srtt_us/8 > 60000 AND kind = 'main'": (
        "SELECT min(ns) FROM events WHERE tp_srtt_us / 8 > 60000 AND kind = 'main'"
    ),
}


def fired(texts: tuple[str, ...], step_s: float) -> dict[str, list[Happened]]:
    """What triggers say along v2_x_spur, if its rows are looked at so often."""
    bundle = fixtures.path("v2_x_spur")
    document = {**json.loads((bundle / "manifest.json").read_text()), "rung": "fentry"}
    watchers = watchers_of(texts)
    for _, watcher in watchers:
        watcher.begin(document)
    said: dict[str, list[Happened]] = {text: [] for text, _ in watchers}
    for batch in batches(bundle, round(step_s * SECOND)):
        for text, watcher in watchers:
            said[text] += [one] if (one := watcher.check(batch)) else []
    return said


def test_triggers_fire_when_it_happens_and_not_else() -> None:
    said = fired((*FIRES, *NEVER), 0.5)
    assert all(words in said[text][0].why for text, words in FIRES.items())
    # The only flow of this recording, by its own name.
    assert all("> 10.9.0.2:5300" in said[text][0].why for text in FIRES if "_" not in text)
    assert all(not said[text] for text in NEVER)


def test_a_trigger_is_of_the_time_of_its_row_however_late_it_is_looked_at(
    shipped_path: Path,
) -> None:
    """A host that is slow, or without compiled code, looks at what came seconds ago."""
    soon, late = (fired((*SINCE, "losses>=20/1s"), step_s) for step_s in (0.2, 7.0))
    assert {text: one[0].ns for text, one in soon.items()} == {
        text: one[0].ns for text, one in late.items()
    }
    with open_store(shipped_path, read_only=True) as store:
        run = store.run_id("v2_x_spur")
        for text, query in SINCE.items():
            (since,) = store.con.execute(f"{query} AND run_id = ?", [run]).fetchall()[0]
            assert soon[text][0].ns == since


def test_a_condition_reads_its_columns_however_it_names_them() -> None:
    """Only those that it can mean are made."""
    rest = "/ 8 > 60000 AND kind = 'main'"
    names = ("tp_srtt_us", "TP_SRTT_US", "COLUMNS('tp_srtt.*')", "batch_of_events.tp_srtt_us")
    said = fired(tuple(f"sql:{name} {rest}" for name in names), 0.5)
    assert len({tuple(one.ns for one in happened) for happened in said.values()}) == 1
    assert all(said.values())


def test_the_estimator_runs_for_the_decisions_that_are_asked_for_and_else_not() -> None:
    """A condition of SQL reads what was recorded: on a slow host the estimator would delay it."""
    condition, code = "sql:tp_srtt_us/8 > 60000 AND kind = 'main'", "PRTT_ENTER_EXPIRED"
    bundle = fixtures.path("v2_x_spur")
    document = {**json.loads((bundle / "manifest.json").read_text()), "rung": "fentry"}
    told: dict[str, Counter[int]] = {}
    for texts in ([condition], [condition, code]):
        ((_, watcher), *_rest) = watchers = watchers_of(texts)
        assert isinstance(watcher, SqlCondition)
        follower = watcher.follower
        for _, one in watchers:
            one.begin(document)
        taken = [one for b in batches(bundle) for one in follower.take(b).decisions]
        assert (follower.replay is None) == (texts == [condition])
        told[texts[-1]] = Counter(one.code for one in taken)
    assert not told[condition]
    assert list(told[code]) == [BY_NAME[code].number]


def test_a_condition_that_some_values_do_not_allow_says_so_and_does_not_end_the_recording() -> None:
    said = fired(("sql:tp_srtt_us::UTINYINT > 200",), 0.5)
    (told,) = said.values()
    assert "tp_srtt_us::UTINYINT > 200 is not understood: Conversion Error" in told[0].why


@pytest.mark.parametrize(
    ("rung", "deaf"),
    [
        ("kprobe", []),
        ("tcp_probe", ["PRTT_ENTER_EXPIRED"]),
        ("phases", ["rto", "rate<2mbit/1s", "losses>=20/1s", "PRTT_ENTER_EXPIRED"]),
        ("inet_diag", list(FIRES)),
    ],
)
def test_a_trigger_that_would_never_fire_is_refused(rung: str, deaf: list[str]) -> None:
    """fentry and kprobe alone see decisions; phases lack most ACKs, inet_diag has no events."""
    document = {"rung": rung, "constants": {"HZ": 250}}
    for text, watcher in watchers_of([*FIRES, "signal"]):
        if text not in deaf:
            watcher.begin(document)
            continue
        with pytest.raises(HostError, match=f"until {re.escape(text)} never fires by {rung}"):
            watcher.begin(document)


@pytest.mark.parametrize("text", ["rot", "sql:no such thing", "rate<fast/1s", "losses>=5/0s"])
def test_what_is_no_trigger_is_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(BbrscopeError) as refused:
        watchers_of([text])
    assert refused.value.way_out


def test_a_call_on_a_cleared_socket_is_no_event_of_its_flow() -> None:
    """What tcp_disconnect() brings about is left out, as where the recording is loaded."""
    aborted = Path(__file__).parents[2].joinpath("collect", "events", "aborted")
    follower = Follower()
    follower.begin({**json.loads((aborted / "manifest.json").read_text()), "rung": "fentry"})
    followed = [*(follower.take(batch) for batch in batches(aborted)), follower.end()]
    events = [event for each in followed for event in each.events]
    assert len(events) == 91
    assert (events[-1].kind, events[-1].values["tp_delivered"]) == ("main", 92)
