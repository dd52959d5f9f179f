"""Of flows whose hashes are neighbours, as Linux 6.15 and newer make them, as many are chosen."""

from __future__ import annotations

import itertools
import random

import pytest
from bbrscope.probes.flow_share import ASKED, BACKED_OFF, is_in_share

FLOWS = 6400


def of_a_host(seed: int) -> list[int]:
    """skc_hash of connections to one server, from ports as connect() takes them, every other."""
    base = random.Random(seed).getrandbits(32)
    return [base + 32768 + 2 * number & 0xFFFFFFFF for number in range(FLOWS)]


def chosen(hashes: list[int], of: int, factor: int) -> set[int]:
    text = is_in_share(str(of), factor).replace("(uint64)$sk->__sk_common.skc_hash", "each")
    return set(eval(f"[each for each in hashes if {text}]", {"hashes": hashes}))


@pytest.mark.parametrize("of", [1, 2, 3, 4, 64, 100])
@pytest.mark.parametrize("factor", [ASKED, BACKED_OFF])
def test_the_share_is_as_large_as_asked_for_every_server(of: int, factor: int) -> None:
    for seed in range(5):
        assert len(chosen(of_a_host(seed), of, factor)) == pytest.approx(FLOWS / of, rel=0.1)


def test_backing_off_halves_what_was_asked_and_keeps_no_flow_that_it_left_out() -> None:
    asked = chosen(of_a_host(1), 4, ASKED)
    halves = [chosen(sorted(asked), of, BACKED_OFF) for of in (1, 2, 4, 8)]
    assert halves[0] == asked
    for more, less in itertools.pairwise(halves):
        assert less < more
        assert len(less) == pytest.approx(len(more) / 2, rel=0.2)
