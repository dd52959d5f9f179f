"""What a trigger takes for trouble, and what only looks like it, by rows of each rung."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bbrscope.collect.flight.beginnings import columns_of
from bbrscope.collect.flight.triggers import LiveBatch, of_rows

SECOND = 1_000_000_000
COLUMNS = columns_of(
    (
        b"#M,ns,sk,tp.packets_out,tp.snd_una,tp.snd_nxt,icsk_ca_state\n",
        b"#T,ns,sk,tp.packets_out,tp.snd_una,tp.snd_nxt,icsk_ca_state\n",
        b"#S,ns,sk,new_state,icsk_ca_state\n",
        b"#R,ns,sk,skb.seq\n",
        b"#N,ns,sk\n",
    )
)


def fires(text: str, rows: Iterator[tuple[float, str]], until_s: float = 12.0) -> list[float]:
    """When a trigger fires that looks at rows five times a second: seconds."""
    watcher = of_rows(text)
    assert watcher is not None
    waiting, times = sorted(rows), list[float]()
    for look in range(1, round(until_s * 5) + 1):
        now = look * SECOND // 5
        come = [one for one in waiting if one[0] * SECOND < now]
        del waiting[: len(come)]
        lines = [
            ",".join([line[:1], str(round(at * SECOND)), "ff"]) + line[1:] + "\n"
            for at, line in come
        ]
        batch = LiveBatch(COLUMNS, list(map(str.encode, lines)), now)
        if watcher.check(batch) is not None:
            times.append(now / SECOND)
    return times


def acks(tag: str, until_s: float, left: int) -> Iterator[tuple[float, str]]:
    """ACKs of 80 kbit/s with much in flight, of the last of which `left` segments are left.

    A row of main() shows the socket after its ACK, a sample before it.
    """
    count = round(until_s * 10)
    for number in range(count):
        out = left if number == count - 1 else 40
        una = number * 1000
        yield number / 10, f"{tag},{out},{una},{una + out * 1000},0"


@pytest.mark.parametrize("tag", ["M", "T"])
def test_a_flow_that_is_slow_fires_while_it_has_something_in_flight(tag: str) -> None:
    assert 2 <= fires("rate<1mbit/2s", acks(tag, 10, 40))[0] < 2.5
    assert fires("rate<10kbit/2s", acks(tag, 10, 40)) == []


@pytest.mark.parametrize("tag", ["M", "T"])
def test_a_flow_that_was_closed_in_its_midst_is_not_slow(tag: str) -> None:
    """After a reset nothing comes any more, and nothing says so."""
    assert fires("rate<10kbit/2s", acks(tag, 3, 40)) == []


@pytest.mark.parametrize(("tag", "timer"), [("M", "S,4,0"), ("T", "R,7")])
def test_a_flow_of_which_nothing_comes_but_what_a_timer_sends_stands_still(
    tag: str, timer: str
) -> None:
    rows = [*acks(tag, 3, 40), (3.3, timer)]
    assert 4.9 <= fires("rate<1kbit/2s", iter(rows))[0] < 5.5
    # What the last ACK had sent again does not say that the flow is there still.
    assert fires("rate<10kbit/2s", iter([*acks(tag, 3, 40), (2.901, timer)])) == []


def test_a_flow_that_has_little_to_send_is_not_slow_though_each_sample_shows_it_in_flight() -> None:
    """A sample is taken before its ACK, which empties the pipe: the next request comes later."""
    requests = ((n / 2, f"T,1,{n * 100},{(n + 1) * 100},0") for n in range(20))
    assert fires("rate<1mbit/2s", requests) == []
    calls = ((n / 2, f"M,0,{n * 100},{n * 100},0") for n in range(20))
    assert fires("rate<1mbit/2s", calls) == []


@pytest.mark.parametrize(
    ("rows", "times"),
    [
        # It was in Loss when recording began, and is again.
        (["N", "M,9,0,9,4", "M,9,1,10,0", "S,4,0"], [4]),
        (["N", "S,4,0", "M,9,0,9,4"], [2]),
        # The timer of a flow that is in Loss expires again.
        (["S,4,4", "M,9,0,9,4"], []),
        # A sample does not show since when. It is since recording began if a timer has sent
        # something again since; of an old timeout, an ACK has.
        (["R,7", "N", "T,9,0,9,4", "T,9,0,9,4"], [3]),
        (["N", "T,9,0,9,4", "R,7", "T,9,1,9,4", "T,9,2,9,0", "T,9,2,9,4"], [6]),
    ],
)
def test_a_timeout_is_what_enters_loss_while_it_is_recorded(
    rows: list[str], times: list[float]
) -> None:
    """A row a second."""
    assert [round(at) for at in fires("rto", zip(range(1, 9), rows, strict=False))] == times
