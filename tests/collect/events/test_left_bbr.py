"""A socket that takes another congestion control: what it was before and after are two flows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bbrscope.collect.events.read_events import EventReader, FlowInfo
from bbrscope.collect.record.output import check

Lines = list[str]
Make = Callable[..., Path]

ENDS = "sport,dport,daddr"
PEER = 33556746  # 10.9.0.2
HEAD = [
    "#T,ns,sk,seqno,bbr.rtt_cnt,bbr.full_bw_reached",
    f"#N,ns,sk,{ENDS}",
    "#O,ns,sk",
    "#OX,ns,sk",
    f"#I,ns,sk,{ENDS},seqno",
    "#IX,ns,sk,bbr.full_bw_reached",
    "#M,ns,sk,seqno,tp.delivered,rs.acked_sacked,bbr.full_bw_reached",
    "#X,ns,sk,tp.snd_cwnd",
]


def name(ns: int, port: int) -> str:
    return f"N,{ns},a,{port},20756,{PEER}"


def sample(ns: int, number: int, rounds: int, full: int = 0) -> str:
    return f"T,{ns},a,{number},{rounds},{full}"


def read(folder: Path) -> tuple[dict[int, list[int]], list[FlowInfo], list[str]]:
    """The times of each flow's events, the flows, and the codes of the notes."""
    reader = EventReader(folder / "events.csv.zst", "events.csv")
    times: dict[int, list[int]] = {}
    rows: list[dict[str, Any]] = [row for b in reader.batches() for row in b.to_pylist()]
    for row in rows:
        times.setdefault(row["flow"], []).append(row["ns"])
    # What the recorder counts of its own rows is what is read of them afterwards.
    counted, flows = check.check(folder / "events.csv.zst"), reader.flows()
    assert counted.flows == len(flows)
    assert counted.left_bbr == sum(flow.left for flow in flows)
    return times, reader.flows(), [note.code for note in reader.notes]


def stays(flows: list[FlowInfo]) -> list[tuple[bool, int | None]]:
    return [(flow.left, flow.before) for flow in flows]


@pytest.mark.parametrize("back", [(0, 0), (6, 0)], ids=["rounds", "full_bw_reached"])
def test_samples_of_a_bbr_that_init_set_back_are_another_flow(
    make_bundle: Make, back: tuple[int, int]
) -> None:
    """No packet came while the socket had another congestion control: numbers go on."""
    lines = [name(1, 256), sample(1, 0, 0), sample(2, 1, 5, 1), sample(3, 2, *back)]
    times, flows, notes = read(make_bundle([*HEAD, *lines]))
    assert times == {1: [1, 2], 2: [3]}
    assert stays(flows) == [(True, None), (False, 1)]
    assert flows[0].addresses["sport"] == 1
    assert flows[1].addresses == flows[0].addresses
    assert notes == ["left_bbr", "back_to_bbr"]


@pytest.mark.parametrize(
    ("cookies", "flows"),
    [((7, 7), 1), ((7, 8), 2), ((0, 8), 1), ((7, 0), 1), ((0, 0), 1)],
)
@pytest.mark.parametrize("rounds", [0, 9])
def test_a_sample_with_another_cookie_is_of_another_socket(
    cookies: tuple[int, int], flows: int, rounds: int, make_bundle: Make
) -> None:
    """The kernel skipped the probe at its end: numbers go on, and no row names the new one.

    That BBR was set back tells the two apart where there is no cookie yet.
    """
    head = [line.replace("seqno,bbr.rtt", "seqno,sk.cookie,bbr.rtt") for line in HEAD[:1]]
    made = [name(1, 256), f"T,1,a,0,{cookies[0]},3,1", f"T,2,a,1,{cookies[1]},{rounds},1"]
    back = rounds < 3 and flows == 1
    times, found, notes = read(make_bundle([*head, *HEAD[1:], *made]))
    assert len(found) == (2 if back else flows)
    assert [flow.left for flow in found] == [back, *[False] * (len(found) - 1)]
    assert notes == (["left_bbr", "back_to_bbr"] if back else [])
    if flows == 2:
        assert times == {1: [1], 2: [2]}
        assert found[0].addresses["sport"] == 1
        assert found[1].addresses == {}


def begun(ns: int, port: int, number: int) -> list[str]:
    """A call of init(), and of main() after it."""
    return [
        f"I,{ns},a,{port},20756,{PEER},{number}",
        f"IX,{ns + 1},a,0",
        f"M,{ns + 2},a,{number + 1},1,1,1",
        f"X,{ns + 3},a,10",
    ]


@pytest.mark.parametrize(("port", "is_same"), [(256, True), (512, False)])
def test_a_socket_with_other_ends_is_not_one_that_came_back(
    make_bundle: Make, port: int, is_same: bool
) -> None:
    """Its numbers go on where the kernel skipped the probe at the end of the one before it."""
    times, flows, notes = read(make_bundle([*HEAD, *begun(10, 256, 0), *begun(20, port, 2)]))
    assert times == {1: [10, 12], 2: [20, 22]}
    assert stays(flows) == [(is_same, None), (False, 1 if is_same else None)]
    assert notes == (["left_bbr", "back_to_bbr"] if is_same else [])


@pytest.mark.parametrize("state", [0, 1])
def test_a_main_on_a_zeroed_state_is_of_the_connection_that_init_begins_then(
    make_bundle: Make, state: int
) -> None:
    """Unless the state is another's."""
    synack = [f"M,18,a,2,1,1,{state}", "X,19,a,10"]
    lines = [*begun(10, 256, 0)[:-2], "M,12,a,1,5,1,1", "X,13,a,10", *synack]
    times, flows, notes = read(make_bundle([*HEAD, *lines, *begun(20, 512, 3)]))
    assert times == (
        {1: [10, 12], 2: [18, 20, 22]} if not state else {1: [10, 12, 18], 2: [20, 22]}
    )
    assert [flow.pre_init for flow in flows] == [0, int(not state)]
    assert stays(flows) == [(False, None), (False, None)]
    assert notes == ([] if not state else ["delivered_jump"])


def test_a_bbr_that_only_goes_on_is_one_flow(make_bundle: Make) -> None:
    """Also where an undo takes back the count of the plateau, and rounds stand still."""
    lines = [name(1, 256), *(sample(n + 1, n, 3 + n // 2, int(n > 4)) for n in range(9))]
    times, flows, _ = read(make_bundle([*HEAD, *lines]))
    assert len(times) == 1
    assert stays(flows) == [(False, None)]


@pytest.mark.parametrize("seen", [1, 5])
def test_a_packet_under_another_control_parts_flows_whatever_bbr_had_seen(
    make_bundle: Make, seen: int
) -> None:
    """The recorder numbers and introduces the socket anew; in between it sends no samples."""
    before = [sample(n + 1, n, 0) for n in range(seen)]
    lines = [name(1, 256), *before, "O,20,a", name(30, 256), sample(30, 0, 0), sample(31, 1, 1)]
    times, flows, notes = read(make_bundle([*HEAD, *lines]))
    assert times == {1: list(range(1, seen + 1)), 2: [30, 31]}
    assert stays(flows) == [(True, None), (False, 1)]
    assert flows[1].addresses["sport"] == 1
    assert notes == ["left_bbr", "back_to_bbr"]


def test_one_that_never_returns_has_left_and_no_later_socket_is_its_return(
    make_bundle: Make,
) -> None:
    """Left to the end of the recording, and left while its address goes to another connection."""
    lines = [name(1, 256), sample(1, 0, 0), "O,2,a"]
    assert stays(read(make_bundle([*HEAD, *lines], "end"))[1]) == [(True, None)]
    lines += [name(3, 512), sample(3, 0, 0)]
    _, flows, _ = read(make_bundle([*HEAD, *lines], "another"))
    assert stays(flows) == [(True, None), (False, None)]
    assert [flow.addresses["sport"] for flow in flows] == [1, 2]


def main(ns: int, number: int) -> Lines:
    return [f"M,{ns},a,{number},{ns},{ns},0", f"X,{ns},a,10"]


def init(ns: int, number: int, port: int = 256) -> Lines:
    return [f"I,{ns},a,{port},20756,{PEER},{number}", f"IX,{ns},a,0"]


def test_init_again_with_the_next_number_is_the_same_sockets_return(make_bundle: Make) -> None:
    lines = [*init(1, 0), *main(2, 1), *init(3, 2), *main(4, 3)]
    times, flows, _ = read(make_bundle([*HEAD, *lines]))
    assert times == {1: [1, 2], 2: [3, 4]}
    assert stays(flows) == [(True, None), (False, 1)]


def test_init_of_a_socket_that_was_recorded_in_its_midst_is_its_return(make_bundle: Make) -> None:
    """Before init only the SYN's ACK is a call of main(), on a zeroed struct bbr: its gain is 0."""
    midst = [f"M,{n},a,{n - 1},{n},1,1" for n in (1, 2)]
    _, flows, _ = read(make_bundle([*HEAD, *midst, *init(3, 2), *main(4, 3)], "midst"))
    assert stays(flows) == [(True, None), (False, 1)]
    once = ["#M,ns,sk,seqno,tp.delivered,rs.acked_sacked,bbr.full_bw_reached:1+bbr.pacing_gain:11"]
    once += [*init(3, 1), "M,4,a,2,2,1,5c8"]
    for state, left in (("5c8", True), ("0", False)):
        bundle = make_bundle([*HEAD[:-2], once[0], HEAD[-1], f"M,1,a,0,1,1,{state}", *once[1:]])
        assert stays(read(bundle)[1])[0] == (left, None)
    opened = ["M,1,a,0,1,1,0", "X,1,a,10"]
    _, flows, _ = read(make_bundle([*HEAD, *opened, *init(3, 1), *main(4, 2)], "opened"))
    assert stays(flows) == [(False, None)]


def test_packed_samples_of_a_bbr_that_init_set_back_are_counted_as_another_flow(
    make_bundle: Make,
) -> None:
    head = "#T,ns,sk,seqno,tp.lost:8+bbr.full_bw_reached:1,bbr.rtt_cnt:8"
    lines = [head, *HEAD[1:], name(1, 256), "T,1,a,0,0,0", "T,2,a,1,100,5", "T,3,a,2,0,1"]
    _, flows, _ = read(make_bundle(lines))
    assert stays(flows) == [(True, None), (False, 1)]


def test_init_of_another_socket_is_no_return(make_bundle: Make) -> None:
    """Numbers begin at 0, also after a socket that was destroyed under another control."""
    lines = [*init(1, 0), *main(2, 1), *init(3, 0, 512), "OX,4,a", *init(5, 0, 512)]
    _, flows, _ = read(make_bundle([*HEAD, *lines]))
    assert stays(flows) == [(False, None), (True, None), (False, None)]
    assert [flow.addresses["sport"] for flow in flows] == [1, 2, 2]
