"""TCP small queues: what a slow link of the sender's own lets TCP send, and what waits there.

The kernels' numbers are of Debian's 6.1.0-50 and 6.12.117 in guests whose sender has a tbf of
10 Mbit/s on its own device (burst 3028 bytes, 40 ms, no other bottleneck): sk_wmem_alloc, truesize,
cwnd and packets_out at each ip_queue_xmit().
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bbrscope.analyze.simulate.sender.output import tcp_retransmit_skb
from bbrscope.analyze.simulate.sender.small_queue import (
    queue_in_host,
    skb_still_in_host_queue,
    tcp_small_queue_check,
    tcp_wfree,
)
from bbrscope.analyze.simulate.simulation import _begin, simulate
from bbrscope.analyze.simulate.world.coming import drop_first
from bbrscope.analyze.simulate.world.world_arrays import Arrays, arrays
from bbrscope.analyze.simulate.world.world_loop import run
from bbrscope.analyze.simulate.world.world_records import EV_LEAVE
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup

from .test_simulated_bundle import bbrscope

_S, _MS = 1_000_000, 1_000_000  # us, ns
_SLOW = 10_000_000
# Memory of an skb of two segments, as the kernels had it: 1280 or 960 bytes and twice 1448.
_PAIR, _PAIR_6_12 = 4176, 3856
# A full packet of 1514 bytes takes so long on the slow link.
_PACKET_NS = 1514 * 8 * 100


def _setup(cc: str, seconds: float, **more: Any) -> Setup:
    path = {"rate_bps": 1_000_000_000, "rtt_us": 40_000, "host_bps": _SLOW} | more
    flow = FlowSetup(cc, 0, round(seconds * _S))
    return Setup(PathSetup(**path), (flow,), round(seconds * _S))


def _world(cc: str) -> Arrays:
    """Twenty segments are in flight, in skbs of two."""
    memory = arrays(_setup(cc, 1), record=False)
    flow = memory.parts["flows"]
    flow["una"], flow["nxt"], flow["written"], flow["skb"] = 1, 21, 1 << 40, 10
    for segment in range(1, 21):
        memory.parts["segs"]["skb"][segment] = (segment + 1) // 2
    return memory


@pytest.mark.parametrize(
    ("cc", "rate", "segments", "factor", "limit"),
    [
        # Two skbs are more than 1,250,000 >> 10 = 1220 bytes.
        ("v1", 1_250_000, 2, 0, 2 * _PAIR),
        ("v3", 1_250_000, 2, 0, 2 * _PAIR_6_12),
        # What is sent again may have twice as much.
        ("v1", 1_250_000, 2, 1, 4 * _PAIR),
        # A millisecond of 289 Mbit/s, 36,125,000 >> 10, is more than two skbs of ten segments.
        ("v1", 36_125_000, 10, 0, 35_278),
        ("v1", 36_125_000, 12, 0, 2 * (1280 + 12 * 1448)),
        # Without pacing net.ipv4.tcp_limit_output_bytes is the most, and 10**10 >> 10 beyond it.
        ("cubic", 10**10, 2, 0, 1 << 20),
        ("cubic", 1_250_000, 2, 0, 2 * _PAIR_6_12),
    ],
)
def test_the_limit_is_two_skbs_or_a_millisecond(
    cc: str, rate: int, segments: int, factor: int, limit: int
) -> None:
    """sk_wmem_alloc counts one beyond what there is, and has to be more than the limit."""
    memory = _world(cc)
    flow = memory.parts["flows"]
    memory.parts["events"]["tp"]["sk_pacing_rate"] = rate
    for wmem, held in ((0, False), (limit - 1, False), (limit, True)):
        flow["wmem"], flow["throttled"] = wmem, 0
        assert tcp_small_queue_check(memory.sim, 0, 21, segments, factor) == held
        assert flow["throttled"][0] == held


def test_with_one_skb_that_is_not_acknowledged_the_next_always_goes() -> None:
    """tcp_rtx_queue_empty_or_single_skb()."""
    memory = _world("v1")
    flow = memory.parts["flows"]
    flow["wmem"] = 10 * _PAIR
    for una, held in ((17, True), (19, False), (20, False), (21, False)):
        flow["una"] = una
        assert tcp_small_queue_check(memory.sim, 0, 21, 2, 0) == held


def _leaving(memory: Arrays) -> list[int]:
    """When each that waits for the link leaves; they do."""
    times = []
    while memory.world["heap_size"][0]:
        first = memory.parts["heap"][0]
        at, kind, packet = (int(first[name]) for name in ("at", "kind", "argument"))
        drop_first(memory.sim)
        if kind == EV_LEAVE:
            times.append(at)
            memory.world["now"] = at
            tcp_wfree(memory.sim, packet)
    return times


def test_skbs_wait_for_the_links_tokens_and_count_until_they_leave() -> None:
    memory = _world("v1")
    flow = memory.parts["flows"]
    # The bucket of two packets begins empty here, as after a long backlog.
    for skb, first in ((11, 21), (12, 23)):
        flow["skb"] = skb
        queue_in_host(memory.sim, 0, first, 2, 0, 0)
    assert flow["wmem"][0] == 2 * _PAIR
    # An skb larger than the bucket goes in single packets, each with a head of its own.
    flow["skb"] = 13
    queue_in_host(memory.sim, 0, 25, 3, 0, 0)
    assert flow["wmem"][0] == 2 * _PAIR + 3 * (1280 + 1448)
    assert _leaving(memory) == [packets * _PACKET_NS for packets in (2, 4, 5, 6, 7)]
    assert (flow["wmem"][0], flow["left_skb"][0]) == (0, 13)


def test_what_waits_in_the_host_is_not_sent_again() -> None:
    """__tcp_retransmit_skb() says -EBUSY, and sends when it has left."""
    memory = _world("v1")
    flow, segs = memory.parts["flows"], memory.parts["segs"]
    flow["left_skb"] = 9
    assert skb_still_in_host_queue(memory.sim, 0, 19)
    assert not skb_still_in_host_queue(memory.sim, 0, 17)
    assert not tcp_retransmit_skb(memory.sim, 0, 19, 2, True)
    assert (flow["throttled"][0], flow["retrans_segs"][0]) == (1, 0)
    # One that the link's tbf has segmented is no clone of it any more.
    segs["skb"][18:21] = 10
    assert not skb_still_in_host_queue(memory.sim, 0, 19)


def _steps(setup: Setup, step_us: int) -> list[tuple[int, int]]:
    """Memory in the host, and its limit, each so many us."""
    memory = arrays(setup, record=False)
    _begin(memory, setup)
    flow, tp = memory.parts["flows"], memory.parts["events"]["tp"]
    seen = []
    for end_us in range(step_us, setup.duration_us + 1, step_us):
        memory.world["end_ns"] = end_us * 1000
        assert run(memory.sim) == 0
        seen.append((int(flow["wmem"][0]), int(tp["sk_pacing_rate"][0]) >> 10))
    return seen


@pytest.mark.parametrize(
    ("cc", "most", "usual"),
    [
        # 6.1 had 11,080 bytes at most, too: two skbs of two segments and one of one between them.
        ("v1", 11_080, 2 * _PAIR),
        ("v2", 11_080, 0),
        ("v3", 2 * _PAIR_6_12, 0),
        # 6.12 had 14,936: four packets of larger skbs, and one of three segments that is to come
        # apart, too.
        ("cubic", 14_936 - (960 + 3 * 1448) + 3 * (960 + 1448), 2 * _PAIR_6_12),
    ],
)
def test_the_queue_in_the_host_stays_as_short_as_the_kernels(
    cc: str, most: int, usual: int
) -> None:
    """v2 and v3 pace below the link's rate while they cruise, and leave the host empty."""
    seen = _steps(_setup(cc, 2.5), 500)
    assert max(wmem for wmem, _ in seen) == most
    late = [wmem for wmem, _ in seen[1000:]]
    assert late.count(usual) > len(late) / 5
    if usual:
        assert late.count(usual) > 0.9 * len(late)


def test_v1_has_the_kernels_round_trips_behind_a_slow_link_of_its_own() -> None:
    """After 3 s the kernel's cwnd was 78, 35 packets were out before each skb, srtt 44.8 ms."""
    events: list[Any] = []
    simulate(_setup("v1", 6), lambda pieces, _states, _rows: events.append(pieces.copy()))
    late = np.concatenate(events)["tp"][-1000:]
    assert np.median(late["snd_cwnd"]) == pytest.approx(78, abs=3)
    assert np.median(late["packets_out"]) == pytest.approx(36, abs=2)
    assert np.median(late["srtt_us"] >> 3) == pytest.approx(44_850, rel=0.01)


def test_a_queue_that_small_queues_keep_short_is_not_in_the_path(tmp_path: Path) -> None:
    """The same rate at the bottleneck has two BDP in flight in STARTUP, and drops packets."""
    own = simulate(_setup("v1", 3, rate_bps=2 * _SLOW, limit_packets=33))
    path = simulate(_setup("v1", 3, rate_bps=_SLOW, limit_packets=33, host_bps=0))
    assert own.flows["dropped"][0] == 0
    assert path.flows["dropped"][0] > 50
    assert own.flows["rcv_nxt"][0] == pytest.approx(path.flows["rcv_nxt"][0], rel=0.03)


def test_the_flows_of_one_extra_round_trip_share_a_link() -> None:
    flows = [FlowSetup("v3", 0, 3 * _S, extra_rtt_us=extra) for extra in (0, 0, 5000)]
    path = PathSetup(1_000_000_000, 40_000, host_bps=_SLOW)
    outcome = simulate(Setup(path, tuple(flows), 3 * _S))
    got = outcome.flows["rcv_nxt"] * 1514 * 8 / 3
    assert got[:2].sum() == pytest.approx(_SLOW, rel=0.1)
    assert got[2] == pytest.approx(_SLOW, rel=0.1)


def test_losses_behind_a_slow_link_replay_exactly_in_both_modes(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    words = ["--path", "rate=10mbit,rtt=20ms,buffer=0.5bdp,loss=1%,host=11mbit", "--cc", "v3"]
    made = []
    for plain in (True, False):
        made.append(tmp_path / f"plain_{plain}" / "sim")
        one = [*words, "--duration", "0.9s", "-o", str(made[-1])]
        bbrscope("simulate", *one, store=store, plain=plain)
    for file in ("events.csv.zst", "queue.csv.zst", "manifest.json"):
        assert (made[0] / file).read_bytes() == (made[1] / file).read_bytes()
    assert json.loads((made[0] / "manifest.json").read_text())["setup"]["host"] == "11000000"
    bbrscope("ingest", str(made[0]), store=store)
    for each in json.loads(bbrscope("replay", "--json", store=store))["runs"][0]["flows"]:
        assert each["exact"] == each["events"] > 200
