"""The hand-sized program prints the phase changes that a recording made beside it shows."""

from __future__ import annotations

import os
import re
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect import guest as runner

from tests.recordings import bbrscope

pytestmark = pytest.mark.slow

# An older bpftrace runs the program in test_phases.py. BBRSCOPE_SUITES chooses others.
SUITES = os.environ.get("BBRSCOPE_SUITES", "trixie").split()

# PROBE_RTT comes 10 s after the last smaller RTT, which may be that of a queue drained at 4 s, when
# the other flow has gone.
SCRIPT = """
. /opt/bbrscope/tests/collect/guest/bottleneck.sh
ip netns exec d iperf3 -s -D; ip netns exec d iperf3 -s -p 5202 -D
bpftrace -B line /opt/bbrscope/probes/bbr1phases.bt > /out/printed 2> /out/printed.err & tracer=$!
until grep -qs FLOW /out/printed; do sleep 1; done; sleep 2
cat > /tmp/flows.sh <<'EOF'
ip netns exec s1 iperf3 -c fd00:2::2 -p 5202 -t 3 > /out/iperf6 &
ip netns exec s1 iperf3 -c 10.0.2.2 -t 20 > /out/iperf4; wait
EOF
bbrscope collect -q --no-packets -o /tmp/beside -- sh /tmp/flows.sh 2> /out/beside.err
sleep 1; kill -INT $tracer; wait $tracer
cp -r /tmp/beside /out/
uname -r > /out/kernel; bpftrace --version > /out/bpftrace
"""

PRINTED = re.compile(
    r" *(?P<ms>\d+) +(?P<port>\d+) -> +(?P<address>\S+):(?P<to_port>\d+) +(?P<old>\S+) -> "
    r"(?P<new>\S+) +(?P<kbit>\d+) +(?P<rtt>\d+) +(?P<cwnd>\d+)"
)
PHASES = {0: "STARTUP", 1: "DRAIN", 3: "PROBE_RTT"}
CYCLE = {0: "UP", 1: "DOWN"}


@cache
def recorded(suite: str, folder: Path) -> Path:
    """Boot the suite, send two flows under both programs, and return the folder of their output."""
    if lacking := runner.missing_tools():
        pytest.skip(f"needs QEMU: apt-get install {' '.join(lacking)}")
    done = runner.run(suite, SCRIPT, folder / suite, 1500)
    assert done.returncode == 0, done.stderr
    bbrscope("ingest", "--store", str(folder / suite / "s.duckdb"), str(folder / suite / "beside"))
    return folder / suite


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("phases")


@pytest.fixture(params=SUITES)
def guest(request: pytest.FixtureRequest, shared: Path) -> Path:
    return recorded(request.param, shared)


def changes_printed(guest: Path) -> dict[tuple[str, int], list[re.Match[str]]]:
    """Lines of the program by remote address and local port."""
    lines = (guest / "printed").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if "FLOW" in line)
    matches = [PRINTED.fullmatch(line) for line in lines[start + 1 :] if line.strip()]
    flows: dict[tuple[str, int], list[re.Match[str]]] = {}
    for match in matches:
        assert match is not None
        flows.setdefault((match["address"], int(match["port"])), []).append(match)
    return flows


def changes_recorded(guest: Path) -> dict[tuple[str, int], list[tuple[str, int, int, int, int]]]:
    """Phase, ns, bw, min_rtt and cwnd of the first main() in each phase, from the recording."""
    query = (
        "SELECT remote_address, local_port, bbr_mode, bbr_cycle_idx, ns, bbr_bw_s_0_v,"
        " bbr_min_rtt_us, tp_snd_cwnd, tp_mss_cache FROM events JOIN flows USING (run_id, flow)"
        " WHERE kind = 'main' ORDER BY run_id, flow, seq"
    )
    with open_store(guest / "s.duckdb", read_only=True) as store:
        rows = store.con.execute(query).fetchall()
    flows = {}
    for key, events in groupby(rows, key=lambda row: (row[0], row[1])):
        phased = [
            (
                PHASES.get(mode) or CYCLE.get(index, "CRUISE"),
                ns,
                bw * mss * 8000 >> 24,
                rtt,
                cwnd,
            )
            for _, _, mode, index, ns, bw, rtt, cwnd, mss in events
        ]
        flows[key] = [next(same) for _, same in groupby(phased, key=lambda event: event[0])]
    return flows


def test_every_phase_change_of_the_recording_is_printed_with_its_values(guest: Path) -> None:
    printed, recorded_flows = changes_printed(guest), changes_recorded(guest)
    sending = {key: flow for key, flow in recorded_flows.items() if len(flow) > 2}
    assert {address for address, _ in sending} == {"10.0.2.2", "fd00:2::2"}
    for key, events in recorded_flows.items():
        lines = printed[key]
        assert [line["new"] for line in lines] == [phase for phase, *_ in events]
        assert [line["old"] for line in lines] == ["-", *(phase for phase, *_ in events[:-1])]
        values = [tuple(int(line[name]) for name in ("kbit", "rtt", "cwnd")) for line in lines]
        assert values == [event[2:] for event in events]
        pairs = zip(lines, events, strict=True)
        offsets = [int(line["ms"]) - event[1] / 1e6 for line, event in pairs]
        assert max(offsets) - min(offsets) < 5  # the two probes run one after the other
    longest = max(sending.values(), key=len)
    assert {"STARTUP", "DRAIN", "UP", "DOWN", "CRUISE", "PROBE_RTT"} == {p for p, *_ in longest}


def test_the_program_says_nothing_but_its_lines(guest: Path) -> None:
    assert "ERROR" not in (guest / "printed.err").read_text()
    assert "@" not in (guest / "printed").read_text()
