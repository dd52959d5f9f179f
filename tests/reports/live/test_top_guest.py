"""`bbrscope top` by kprobes on a distribution's kernel, beside what `ss` says of the same flow."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from bbrscope.collect import guest as runner

from tests.guest_packages import packages

pytestmark = pytest.mark.slow

SUITE = "bookworm"
# 84 packets a second: on a guest's processor the estimator as plain Python keeps up with them.
SCRIPT = """
export BBRSCOPE_PLAIN=1
RATE=1mbit LIMIT=60000
. /opt/bbrscope/tests/collect/guest/bottleneck.sh
ip netns exec d iperf3 -s -D
sleep 1
ip netns exec s1 iperf3 -c 10.0.2.2 -t 1000 > /dev/null & flow=$!
while sleep 0.1; do
  read -r up idle < /proc/uptime
  ip netns exec s1 ss -HOtin state established 'dport = :5201' | sed "s/^/$up /"
done > /out/ss & sampler=$!
bbrscope top --rung kprobe --netns s1 --once --json > /out/top 2> /out/said
echo $? > /out/status
kill $flow $sampler
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if lacking := runner.missing_tools():
        pytest.skip(f"needs QEMU: apt-get install {' '.join(lacking)}")
    folder = tmp_path_factory.mktemp("top")
    done = runner.run(SUITE, SCRIPT, folder, 1500, packages=packages(SUITE, folder))
    assert done.returncode == 0, done.stderr
    return folder


def number(text: str, pattern: str) -> float:
    found = re.search(pattern, text)
    assert found, (pattern, text)
    return float(found[1])


def test_top_says_what_ss_says_and_the_last_decision(out: Path) -> None:
    """The control connection is silent while top looks: there is one flow."""
    assert (out / "status").read_text() == "0\n", (out / "said").read_text()
    (shown,) = map(json.loads, (out / "top").read_text().splitlines())
    port = shown["flow"].split(" > ")[0].rpartition(":")[2]
    at_s = shown["ns"] / 1e9
    lines = [line.split(maxsplit=1) for line in (out / "ss").read_text().splitlines()]
    near = [said for up, said in lines if f":{port} " in said and abs(float(up) - at_s) < 0.5]
    # A window lasts for some 24 ms only, what it is made of for longer.
    assert any(
        number(said, r"mrtt:([\d.]+)") == shown["min_rtt_ms"]
        and number(said, r"bw:(\d+)") == pytest.approx(shown["bw_mbps"] * 1e6, rel=1e-4)
        for said in near
    ), (shown, near)
    gain = {"PROBE_RTT": 1.0}.get(shown["phase"]) or float(shown["phase"].rpartition("_")[2])
    # bbr_bw_to_pacing_rate(): 1 % below the bandwidth.
    assert shown["pacing_mbps"] == pytest.approx(shown["bw_mbps"] * gain * 0.99, rel=1e-3)
    assert 4 <= shown["cwnd"] < 40
    assert shown["rung"] == "kprobe"
    assert 0 < shown["delivered_mbps"] < 1
    assert shown["decision"]
    assert 0 <= shown["ns"] - shown["decided_ns"] < 1e9
