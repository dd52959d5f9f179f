"""The flight recorder on a distribution's kernel, for as long as BBRSCOPE_FLIGHT_S seconds say.

3600 of them are the hour that the recorder was made for: virtual time, in which a path fails once.
Before it does, a decision and a condition in SQL have a dump written, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect import guest as runner
from bbrscope.collect.store.store import Store

from tests.guest_packages import packages
from tests.recordings import bbrscope, exact_events, manifest

SUITE = os.environ.get("BBRSCOPE_FLIGHT_SUITE", "bookworm")
LONG_S = int(os.environ.get("BBRSCOPE_FLIGHT_S", "50"))
# A virtual second takes one or two of the machine's; what it needs to boot comes before.
GUEST_S = 2000 + 3 * LONG_S
pytestmark = [pytest.mark.slow, pytest.mark.timeout(GUEST_S + 600)]
FAULT_S = LONG_S * 7 // 10
LAST_S, AFTER_S, FAILS_S = min(60, LONG_S * 6 // 10), 1, 5
MEMORY = 16_000_000
SECOND = 1_000_000_000
# STARTUP ends once, some 3 s after its begin; of 17 packets a second, 250 are delivered after 15 s.
DECISION, CONDITION = "FULLBW_REACHED_PLATEAU", "tp_delivered BETWEEN 250 AND 260"

# The times are those of /proc/uptime. `rss` is the recorder's own memory, a few times.
SCRIPT = f"""
export BBRSCOPE_PLAIN=1
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
  --until {DECISION} --until 'sql:{CONDITION}' -o /tmp/flight -- \\
  sh /tmp/flow.sh 2> /out/said & recorder=$!
until grep -qs '^keeping' /out/said; do
  kill -0 $recorder || exit 1
  sleep 0.2
done
at attached
while sleep {LONG_S // 8}; do
  grep RssAnon /proc/$recorder/status >> /out/rss || break
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
        done = runner.run(SUITE, SCRIPT, out, GUEST_S, packages=packages(SUITE, folder))
        assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("flight"))


def times(out: Path) -> dict[str, int]:
    """When what happened, in ns after boot."""
    lines = (out / "times").read_text().splitlines()
    return {name: round(float(up) * SECOND) for name, up in map(str.split, lines)}


class Dumps:
    """What was written, by trigger: folder, and what the manifest says of the flight."""

    def __init__(self, out: Path, store: Store) -> None:
        self.store = store
        self.flights = {path: manifest(path)["flight"] for path in sorted(out.glob("flight-*"))}

    def first(self, trigger: str, since_ns: int = 0) -> tuple[Path, dict[str, Any]]:
        """The first dump of a trigger since then."""
        for path, flight in self.flights.items():
            if flight["trigger"] == trigger and flight["fired_ns"] >= since_ns:
                return path, flight
        raise AssertionError([flight["trigger"] for flight in self.flights.values()])

    def ask(self, path: Path, query: str) -> tuple[Any, ...]:
        """The first row that a query finds in a dump; RUN in it is that of the dump."""
        run = self.store.run_id(path.name)
        return tuple(self.store.con.execute(query.replace("RUN", str(run))).fetchall()[0])


@pytest.fixture(scope="module")
def dumps(out: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dumps]:
    """All dumps in a store, replayed exactly in both modes; a flow's last event may say nothing."""
    path = tmp_path_factory.mktemp("dumps") / "flight.duckdb"
    bbrscope("ingest", "--store", str(path), *map(str, sorted(out.glob("flight-*"))))
    exact = exact_events(path)
    with open_store(path, read_only=True) as store:
        ((events, flows),) = store.con.execute(
            "SELECT sum(events)::BIGINT, count(*) FROM flows WHERE events > 0"
        ).fetchall()
        assert exact >= 2 * (events - flows)
        yield Dumps(out, store)


def test_the_time_before_the_fault_is_there_whole(out: Path, dumps: Dumps) -> None:
    assert (out / "status").read_text() == "0\n"
    at = times(out)["fault"]
    path, flight = dumps.first("rto", at)
    assert flight["fired_ns"] < at + FAILS_S * SECOND
    assert flight["until_ns"] - flight["from_ns"] == (LAST_S + AFTER_S) * SECOND
    assert flight["from_ns"] < at - (LAST_S - FAILS_S) * SECOND
    count, first, last, gaps, packets = dumps.ask(
        path,
        "SELECT count(*), min(ns), max(ns), (SELECT count(*) FROM gaps WHERE run_id = RUN),"
        " (SELECT count(*) FROM packets WHERE run_id = RUN) FROM events WHERE run_id = RUN",
    )
    # 200 kbit/s are 17 packets a second; an ACK may cover two.
    assert count > LAST_S * 17 / 2
    assert gaps == 0
    assert packets > LAST_S * 17
    assert flight["from_ns"] <= first < flight["from_ns"] + SECOND
    assert at < last <= flight["until_ns"]


def test_a_decisions_dump_holds_it_and_is_of_its_time(dumps: Dumps) -> None:
    path, flight = dumps.first(DECISION)
    assert flight["until_ns"] == flight["fired_ns"] + AFTER_S * SECOND
    (first,) = dumps.ask(
        path,
        "SELECT min(ns) FROM decisions JOIN decision_codes USING (code)"
        f" WHERE run_id = RUN AND name = '{DECISION}'",
    )
    assert first == flight["fired_ns"]


def test_a_conditions_dump_holds_the_first_event_that_met_it(dumps: Dumps) -> None:
    path, flight = dumps.first(f"sql:{CONDITION}")
    assert flight["until_ns"] == flight["fired_ns"] + AFTER_S * SECOND
    (first,) = dumps.ask(path, f"SELECT min(ns) FROM events WHERE run_id = RUN AND {CONDITION}")
    assert first == flight["fired_ns"]


def test_memory_and_files_are_what_was_asked_for(out: Path, dumps: Dumps) -> None:
    for path, flight in dumps.flights.items():
        assert flight["kept_bytes"] < MEMORY
        assert sum(file.stat().st_size for file in path.iterdir()) < MEMORY
    own = [int(line.split()[1]) * 1024 for line in (out / "rss").read_text().splitlines()]
    assert len(own) > 2
    assert max(own) - own[0] < MEMORY
