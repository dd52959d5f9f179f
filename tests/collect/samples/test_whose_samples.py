"""Samples of sockets with equal ends: one after the other, or on two links at the same time."""

from __future__ import annotations

import pytest
from bbrscope.collect.samples.load_samples import Ends, Sample, SampledConnections
from bbrscope.collect.samples.ss_log import samples

ENDS = "fe80::1", 7000, "fe80::2", 7001
LINE = (
    "ESTAB 0 0 [fe80::1]%{link}:7000 [fe80::2]:7001 ino:1 sk:{cookie} <-> bbr cwnd:10 "
    "bytes_acked:{acked} bbr:(bw:1bps,mrtt:1)"
)


def polled(*cookies: str, acked: int = 5000) -> list[Sample]:
    """What three calls of ss tell of sockets with these cookies."""
    lines = []
    for poll in range(1, 4):
        lines.append(f"# monotonic_ns {poll * 1000}")
        lines += [LINE.format(link=f"v{c}", cookie=c, acked=acked * poll) for c in cookies]
    return list(samples(lines))


def of(connections: SampledConnections, found: list[Sample]) -> list[int]:
    return [connections.life_of(one, one.time[0]).flow for one in found if one.time is not None]


def test_two_links_may_have_the_same_addresses() -> None:
    known = SampledConnections(1, [(1, "a", 10, *ENDS), (2, "b", 20, *ENDS)])
    assert of(known, polled("b", "a")) == [2, 1] * 3
    assert known.count == 2
    # Samples alone, as of the rung inet_diag: no flow for each poll.
    alone = SampledConnections(1)
    assert of(alone, polled("b", "a")) == [1, 2] * 3
    assert alone.count == 2


def test_a_flow_that_had_the_ends_before_keeps_its_samples() -> None:
    known = SampledConnections(1, [(1, "a", 10, *ENDS), (2, "b", 2500, *ENDS)])
    assert of(known, [*polled("a")[:2], polled("b")[2]]) == [1, 1, 2]


@pytest.mark.parametrize("cookie", [None, "a"])
def test_without_cookies_or_with_the_same_one_it_is_the_flow_that_had_begun(
    cookie: str | None,
) -> None:
    """A socket that left BBR and came back is two flows; old recordings have no cookies."""
    known = SampledConnections(1, [(1, cookie, 10, *ENDS), (2, cookie, 2500, *ENDS)])
    found = [Sample(Ends(*ENDS), cookie, 1, (ns, "monotonic"), {}) for ns in (5, 1000, 3000)]
    assert of(known, found) == [1, 1, 2]
    assert known.count == 2
