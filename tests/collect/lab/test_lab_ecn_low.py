"""The route feature that BBRv3 asks for, beside what iproute2 and the kernel say of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from bbrscope.collect.lab.ecn_low import ecn_low

NAMESPACE = f"bbrtest-{os.getpid()}"
# RTAX_FEATURE_ECN is the feature that iproute2 and every kernel know.
ECN = 1
UNKNOWN = 1 << 30

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


def inside(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["ip", "netns", "exec", NAMESPACE, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def add(feature: int) -> subprocess.CompletedProcess[str]:
    text = f"from bbrscope.collect.lab import ecn_low; print(ecn_low.add_feature({feature}))"
    return inside(sys.executable, "-c", text)


def routes() -> list[str]:
    return [line for ip in ("-4", "-6") for line in inside("ip", ip, "route").stdout.splitlines()]


@pytest.fixture
def network() -> Iterator[None]:
    subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
    try:
        for words in (
            "link add x type veth peer name y",
            "link set x addrgenmode none",
            "link set y addrgenmode none",
            "link set x up",
            "link set y up",
            "-4 addr add 10.1.0.1/24 dev x",
            "-6 addr add fd77:1::1/64 dev x nodad",
            "-4 route add 10.3.0.0/16 via 10.1.0.2",
            "-4 route add default via 10.1.0.3",
            "-6 route add fd77:3::2/128 via fd77:1::2",
            "-6 route add default via fd77:1::3",
        ):
            done = inside("ip", *words.split())
            assert done.returncode == 0, (words, done.stderr)
        yield
    finally:
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=True)


def test_every_route_via_a_gateway_gets_the_feature_and_stays_what_it_was(network: None) -> None:
    before = routes()
    assert add(ECN).stdout == "4\n"
    after = routes()
    assert [line.replace(" features ecn", "") for line in after] == before
    assert all(("features ecn" in line) == (" via " in line) for line in after)
    assert sum("features ecn" in line for line in after) == 4


def test_a_kernel_that_does_not_know_the_feature_says_so_and_keeps_its_routes(
    network: None,
) -> None:
    before = routes()
    done = add(UNKNOWN)
    assert done.returncode != 0
    assert f"this kernel ({os.uname().release}) refuses the route feature ecn_low" in done.stderr
    assert routes() == before


def test_the_feature_moved_when_6_7_took_its_bit() -> None:
    assert {release: ecn_low(release) for release in ("6.1.192", "6.4.0+", "6.6.9-x")} == {
        "6.1.192": 16,
        "6.4.0+": 16,
        "6.6.9-x": 16,
    }
    assert ecn_low("6.7.0") == ecn_low("6.13.7-v3") == ecn_low("7.0") == 32
