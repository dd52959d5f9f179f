"""The flight recorder on a distribution's kernel, for as long as BBRSCOPE_FLIGHT_S seconds say.

3600 of them are the hour that the recorder was made for: virtual time, in which a path fails once.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect import guest as runner

from tests.recordings import manifest, replays_exactly

SUITE = os.environ.get("BBRSCOPE_FLIGHT_SUITE", "bookworm")
LONG_S = int(os.environ.get("BBRSCOPE_FLIGHT_S", "100"))
# A virtual second takes one or two of the machine's; what it needs to boot comes before.
GUEST_S = 1000 + 3 * LONG_S
pytestmark = [pytest.mark.slow, pytest.mark.timeout(GUEST_S + 600)]
FAULT_S = LONG_S * 7 // 10
LAST_S, AFTER_S, FAILS_S = 60, 1, 5
MEMORY = 16_000_000
SECOND = 1_000_000_000

# The times are those of /proc/uptime. `rss` is the recorder's resident memory, once a minute.
SCRIPT = f"""
RATE=200kbit LIMIT=60000
. /opt/bbrscope/tests/collect/guest/bottleneck.sh
ip netns exec d iperf3 -s -D
cat > /tmp/at.sh <<'EOF'
at() {{ read -r up idle < /proc/uptime; echo "$1 $up" >> /out/times; }}
EOF
. /tmp/at.sh
cat > /tmp/flow.sh <<'EOF'
. /tmp/at.sh
ip netns exec s1 iperf3 -c 10.0.2.2 -t {LONG_S} > /dev/null &
sleep {FAULT_S}
at fault
ip netns exec d tc qdisc change dev dr root netem delay 40ms loss 100% limit 100000
sleep {FAILS_S}
ip netns exec d tc qdisc change dev dr root netem delay 40ms loss 0% limit 100000
wait
EOF
at attaching
bbrscope collect -q --netns s1 -i r:rd --last {LAST_S}s --until rto --memory {MEMORY} \\
  -o /tmp/flight -- sh /tmp/flow.sh 2> /out/said & recorder=$!
until grep -qs '^keeping' /out/said; do
  kill -0 $recorder || exit 1
  sleep 0.2
done
at attached
while sleep 60; do
  grep VmRSS /proc/$recorder/status >> /out/rss || break
done
wait $recorder; echo $? > /out/status
cp -r /tmp/flight-* /out/
"""


@cache
def recorded(folder: Path) -> Path:
    """Boot, record for LONG_S seconds, and return the folder that holds the dumps."""
    if lacking := runner.missing_tools():
        pytest.skip(f"needs QEMU: apt-get install {' '.join(lacking)}")
    kept = os.environ.get("BBRSCOPE_FLIGHT_KEEP")
    out = Path(kept) if kept else folder
    if not (out / "status").exists():
        done = runner.run(SUITE, SCRIPT, out, GUEST_S)
        assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("flight"))


def times(out: Path) -> dict[str, int]:
    """When what happened, in ns after boot."""
    lines = (out / "times").read_text().splitlines()
    return {name: round(float(up) * SECOND) for name, up in map(str.split, lines)}


def of_fault(out: Path) -> Path:
    """The dump of the first timeout after the path failed."""
    at = times(out)["fault"]
    dumps = sorted(out.glob("flight-*"))
    (found,) = [
        dump for dump in dumps if at < manifest(dump)["flight"]["fired_ns"] < at + FAILS_S * SECOND
    ]
    return found


def test_the_minute_before_the_fault_is_there_whole(out: Path, tmp_path: Path) -> None:
    assert (out / "status").read_text() == "0\n"
    dump, at = of_fault(out), times(out)["fault"]
    document = manifest(dump)["flight"]
    assert document["trigger"] == "rto"
    assert document["until_ns"] - document["from_ns"] == (LAST_S + AFTER_S) * SECOND
    assert document["from_ns"] < at - (LAST_S - FAILS_S) * SECOND
    store = tmp_path / "flight.duckdb"
    # 200 kbit/s are 17 packets a second; an ACK may cover two.
    assert replays_exactly(dump, store) > 2 * LAST_S * 17 / 2
    with open_store(store, read_only=True) as opened:
        first, last, gaps, packets = opened.con.execute(
            "SELECT min(ns), max(ns), (SELECT count(*) FROM gaps), (SELECT count(*) FROM packets) "
            "FROM events"
        ).fetchall()[0]
    assert gaps == 0
    assert packets > LAST_S * 17
    assert document["from_ns"] <= first < document["from_ns"] + SECOND
    assert at < last <= document["until_ns"]


def test_memory_and_files_are_what_was_asked_for(out: Path) -> None:
    dumps = sorted(out.glob("flight-*"))
    assert dumps
    for dump in dumps:
        assert manifest(dump)["flight"]["kept_bytes"] < MEMORY
        assert sum(path.stat().st_size for path in dump.iterdir()) < MEMORY
    resident = [int(line.split()[1]) * 1024 for line in (out / "rss").read_text().splitlines()]
    assert max(resident) - resident[0] < MEMORY
