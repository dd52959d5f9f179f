"""A socket's address is used again: every flow has its own events, ports and state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bbrscope.collect.events.read_events import EventReader

Lines = list[str]
Make = Callable[..., Path]

ENDS = "sport,dport,daddr"
HEAD = [
    "#M,ns,sk,seqno,tp.delivered,rs.acked_sacked,bbr.mode,bbr.lt_bw",
    "#X,ns,sk,tp.snd_cwnd",
    f"#I,ns,sk,{ENDS},seqno",
    "#IX,ns,sk,bbr.mode",
    "#S,ns,sk,seqno,new_state",
    f"#N,ns,sk,{ENDS}",
]
PEER = 33556746  # 10.9.0.2


def main(ns: int, number: int, delivered: int, mode: int = 1, sk: str = "a") -> Lines:
    """Rows of one call of main, whose delivered grew by one."""
    return [f"M,{ns},{sk},{number},{delivered},1,{mode},{mode}", f"X,{ns + 1},{sk},10"]


def opener(start: int, port: int, events: int = 3, sk: str = "a", named: bool = True) -> Lines:
    """An active opener: main() on the SYN-ACK with a zeroed struct bbr, init, then data."""
    ends = f"{port},20756,{PEER}"
    lines = [f"N,{start},{sk},{ends}"] if named else []
    lines += main(start, 0, 1, mode=0, sk=sk)
    lines += [f"I,{start + 10},{sk},{ends},1", f"IX,{start + 11},{sk},1"]
    for number in range(2, 2 + events):
        lines += main(start + 10 * number, number, number, sk=sk)
    return lines


def read(folder: Path) -> tuple[list[dict[str, Any]], EventReader]:
    reader = EventReader(folder / "events.csv.zst", "events.csv")
    return [row for batch in reader.batches() for row in batch.to_pylist()], reader


def flows(events: list[dict[str, Any]]) -> dict[int, list[str]]:
    """The kinds of each flow's events, in order."""
    kinds: dict[int, list[str]] = {}
    for event in events:
        kinds.setdefault(event["flow"], []).append(event["kind"])
    return kinds


WHOLE = ["main", "init", "main", "main", "main"]


def test_main_on_the_syn_ack_belongs_to_the_flow_that_init_begins(make_bundle: Make) -> None:
    lines = [line for n in range(3) for line in opener(1000 * (n + 1), 256 * (n + 1))]
    events, reader = read(make_bundle([*HEAD, *lines]))
    assert flows(events) == {1: WHOLE, 2: WHOLE, 3: WHOLE}
    assert [flow.addresses["sport"] for flow in reader.flows()] == [1, 2, 3]
    assert [flow.generation for flow in reader.flows()] == [0, 1, 2]
    assert [flow.pre_init for flow in reader.flows()] == [1, 1, 1]
    assert reader.notes == []


def test_number_0_is_enough_where_the_identity_was_lost(make_bundle: Make) -> None:
    lines = opener(1000, 256) + opener(2000, 512, named=False)
    events, reader = read(make_bundle([*HEAD, *lines]))
    assert flows(events) == {1: WHOLE, 2: WHOLE}
    assert reader.notes == []


def test_an_identity_is_enough_where_the_first_row_was_lost(make_bundle: Make) -> None:
    """The recording ends with main() on a SYN-ACK whose rows went missing, but for the identity."""
    lines = opener(1000, 256) + opener(2000, 512)
    lines = [line for line in lines if not line.startswith(("M,2000,", "X,2001,"))]
    events, reader = read(make_bundle([*HEAD, *lines]))
    assert flows(events) == {1: WHOLE, 2: WHOLE[1:]}
    assert [finding.code for finding in reader.notes] == ["sequence_gap"]
    assert reader.flows()[1].addresses["sport"] == 2


def test_a_number_that_went_back_is_of_another_socket(make_bundle: Make) -> None:
    """Identity and first event of the second flow are lost, and init as well."""
    lost = ("N,2000,", "M,2000,", "X,2001,", "I,2010,", "IX,2011")
    lines = opener(1000, 256, 9) + opener(2000, 512)
    lines = [line for line in lines if not line.startswith(lost)]
    events, reader = read(make_bundle([*HEAD, *lines]))
    assert flows(events) == {1: [*WHOLE[:2], *["main"] * 9], 2: ["main"] * 3}
    gaps = [(f.code, f.detail.split()[3], f.flow) for f in reader.notes]
    assert gaps == [("sequence_gap", "2", 2)]


def test_a_connection_that_failed_does_not_give_its_event_to_the_next(make_bundle: Make) -> None:
    """A SYN that is never answered: set_state(Loss) only, numbered 0 like the next main()."""
    lines = ["S,500,a,0,4", *opener(1000, 256)]
    events, reader = read(make_bundle([*HEAD, *lines]))
    assert flows(events) == {1: ["set_state"], 2: WHOLE}
    assert [flow.addresses.get("sport") for flow in reader.flows()] == [None, 1]


def test_a_recorder_that_has_no_room_to_count_makes_no_flow_of_every_event(
    make_bundle: Make,
) -> None:
    """Its map of sockets is full: each event is number 0, and each main() names its socket."""
    lines: Lines = []
    for n in range(1, 6):
        lines += [f"N,{n * 100},a,256,20756,{PEER}", *main(n * 100, 0, n)]
    events, reader = read(make_bundle([*HEAD, *lines]))
    assert flows(events) == {1: ["main"] * 5}
    assert reader.flows()[0].addresses["sport"] == 1


def test_init_again_in_the_middle_begins_a_flow_and_misses_nothing(make_bundle: Make) -> None:
    """A socket that leaves BBR and comes back: numbers go on."""
    ends = f"256,20756,{PEER}"
    lines = [*opener(1000, 256), f"I,1100,a,{ends},5", "IX,1101,a,1", *main(1200, 6, 9)]
    events, reader = read(make_bundle([*HEAD, *lines]))
    assert flows(events) == {1: WHOLE, 2: ["init", "main"]}
    assert [note.code for note in reader.notes] == ["left_bbr", "back_to_bbr"]


def test_other_ends_at_an_address_are_another_flow_without_numbers_too(make_bundle: Make) -> None:
    head = ["#M,ns,sk,bbr.mode", f"#N,ns,sk,{ENDS}"]
    rows = ["M,1,a,1", f"N,2,a,256,20756,{PEER}", "M,3,a,1", f"N,4,a,512,20756,{PEER}", "M,5,a,1"]
    events, reader = read(make_bundle([*head, *rows]))
    assert flows(events) == {1: ["main"] * 2, 2: ["main"]}
    assert [flow.addresses["sport"] for flow in reader.flows()] == [1, 2]


def test_a_recording_of_short_connections_has_every_flow_on_its_own() -> None:
    """12 connections at one socket address beside a long one, Debian 12, path of 10 Mbit/s."""
    events, reader = read(Path(__file__).parent / "reused_addresses")
    found = reader.flows()
    assert len(found) == 13
    assert reader.notes == []
    assert [flow.generation for flow in found if flow.sk == "ff34911fdcbdb600"] == list(range(12))
    ends = {(flow.addresses["sport"], flow.addresses["dport"]) for flow in found}
    assert len(ends) == 13
    assert {flow.pre_init for flow in found} == {1}
    for flow in found:
        mains = [e for e in events if e["flow"] == flow.flow and e["kind"] == "main"]
        delivered = mains[-1]["tp_delivered"] - mains[0]["tp_delivered"]
        seconds = (mains[-1]["ns"] - mains[0]["ns"]) / 1e9
        assert 0 < delivered * mains[-1]["tp_mss_cache"] * 8 / seconds < 10e6
