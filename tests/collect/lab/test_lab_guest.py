"""The lab, end to end, on a stock Debian kernel in a guest: runs, verdicts, and a clean host.

One boot makes them all: an experiment of Song21 in quick form, shorter still, because each takes
minutes. Everything is recorded inside by the same `lab run` that a host runs as root. BBR beside
CUBIC runs where README has it (tests/test_readme_guest.py).
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.replay import keep_results as results
from bbrscope.analyze.replay import replay_runs as session
from bbrscope.analyze.study import claims, study
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect import guest
from bbrscope.collect.guest import kernel as guest_kernel
from bbrscope.collect.guest import root
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.lab import scenario, vm
from bbrscope.collect.store.store import Store

pytestmark = pytest.mark.slow

# What is run inside: (scenario, settings, congestion controls). Each needs the probes to attach
# once per run, which takes longer than the traffic.
EXPERIMENTS = (
    ("song-single-buffer", "duration=10s", "bbr"),  # shallow and deep
)

# What the paper says of these, by the claims' names; the others of the scenarios are about BBRv2.
CLAIMS = {
    "song-single-buffer": {"v1-full", "v1-shallow-loss"},
}

# Parts of the testbed that these do not use, each against an independent witness: TCP's own RTT
# for the delay, iperf3 for the rate, the receiver's and the qdiscs' counters for marks and drops.
PARTS = """
import json, tempfile, time
from pathlib import Path
from bbrscope.collect.lab import host, lab_points, scenario, testbed, traffic
from bbrscope.collect.lab import lab_run as run

def sh(ns, text):
    return host.call("ip", "netns", "exec", ns, "sh", "-c", text)

def trial(name="song-single-buffer", **settings):
    chosen = scenario.quick(scenario.load(name))
    settings = {"cc": "cubic", "duration": "3s", "buffer": "2bdp", **settings}
    chosen = scenario.override(chosen, {name: [value] for name, value in settings.items()})
    point = next(scenario.points(chosen))
    found = {}
    with testbed.built(point), tempfile.TemporaryDirectory() as name:
        with run.servers(point, Path(name)):
            told = json.loads(sh(testbed.SENDERS, " ".join(traffic.client(point, point.flows[0]))))
        there = json.loads((Path(name) / "server1.json").read_text())
        time.sleep(1)  # what is still under way arrives
        found["sent"] = told["end"]["sum_sent"]["bytes"]
        found["received"] = there["end"]["sum_received"]["bytes"]
        found["received_over_time"] = there["intervals"]
        found["bps"] = told["end"]["sum_received"]["bits_per_second"]
        found["retransmits"] = told["end"]["sum_sent"]["retransmits"]
        found["min_rtt_us"] = told["end"]["streams"][0]["sender"]["min_rtt"]
        found["mean_rtt_us"] = told["end"]["streams"][0]["sender"]["mean_rtt"]
        found["own_link"] = json.loads(sh(testbed.SENDERS, "tc -s -j qdisc show dev s0"))
        found["bottleneck"] = json.loads(sh(testbed.ROUTER, "tc -s -j qdisc show dev rd"))
        found["policer"] = sh(testbed.ROUTER, "tc -s filter show dev rd egress")
        found["access"] = json.loads(sh(testbed.ACCESS, "tc -s -j qdisc show dev ar"))
        found["sender"] = json.loads(sh(testbed.SENDERS, "nstat -asj"))["kernel"]
        found["receiver"] = json.loads(sh(testbed.RECEIVERS, "nstat -asj"))["kernel"]
    return found

with run.exclusively():
    host.require(set(lab_points.AQMS))
    host.congestion_controls(["cubic"])
    told = {
        "six": trial(ip="6"),
        "htb": trial(shaper="htb", buffer="0.5bdp"),
        "htb_codel": trial(shaper="htb", aqm="fq_codel", ecn="yes", threshold="5ms"),
        "policer": trial(aqm="policer", buffer="30kB"),
        "fq_codel": trial(aqm="fq_codel", ecn="yes", threshold="5ms"),
        "red": trial(aqm="red", ecn="yes", threshold="10ms", buffer="8bdp"),
        "reorder": trial(reorder="2%"),
        "loss": trial(loss="2%", duration="12s"),
        "own_link": trial(host="5mbit"),
        "fixed": trial("cao-latency", size="1MB", rate="10mbit", rtt="40ms", buffer="1MB"),
        "on_off": trial("draft-refill-applimited", on="1s", off="2s", duration="9s", cc="reno"),
    }
print(json.dumps(told))
"""

# Everything that a path can change while a run goes on, under a flow that needs a third of it: so
# nothing is lost and nothing waits but for the changes. A file of the user's own.
PLANNED = (
    ("4s", "rtt", "100ms"),
    ("7s", "rtt", "40ms"),
    ("9s", "loss", "5%"),
    ("12s", "outage", "1s"),
    ("15s", "loss", "0"),
    ("17s", "rate", "1mbit"),
)
CHANGES = """
title = "Everything changes"
source = "nobody"
duration = "22s"

[path]
rate = "10mbit"
rtt = "40ms"
buffer = "2bdp"
shaper = "htb"

[[flow]]
cc = "cubic"
kind = "rate-limited"
rate = "3mbit"
"""
for at, what, value in PLANNED:
    CHANGES += f'[[change]]\nat = "{at}"\nwhat = "{what}"\nvalue = "{value}"\n'

STATE = """
state() { ip netns list; ip -o link; ip -o addr; tc qdisc show; lsmod | sort | cut -d' ' -f1
  sysctl net.ipv4.ip_forward net.ipv4.tcp_congestion_control net.ipv4.tcp_rmem; }
"""


# Returns when the traffic of the run $pid is under way.
RUNNING = """
running() {
  until grep -q ^1/ /out/$1.said && ip netns pids bbrlab-s 2> /tmp/none | grep -q .; do
    kill -0 $pid || return; sleep 0.2
  done
  sleep 1
}
"""


# Four loops that take the CPU while a run's traffic lasts. They begin when its process has started,
# before it counts CPU time.
HOGS = """
traffic() { pgrep -f '[.]lab[.]traffic' > /tmp/none; }
(until traffic; do sleep 0.1; done
 for n in 1 2 3 4; do sh -c 'while :; do :; done' & all="$all $!"; done
 while traffic; do sleep 0.1; done
 kill $all) & hogs=$!
"""


def script() -> str:
    # The host may use the testbed's own addresses: they are in other namespaces.
    lines = [vm.SETUP, "ip addr add 10.77.0.2/24 dev lo; ip addr add 10.79.0.1/16 dev lo"]
    lines += ["ip addr add fd77:1::2/64 dev lo; ip route add 10.78.0.0/24 dev lo"]
    lines += [STATE, "state > /out/before"]
    for name, setting, cc in EXPERIMENTS:
        words = f"{name} --quick --set {setting} --cc {cc} --inside -o /out/bundles"
        lines.append(f"bbrscope lab run {words} 2> /out/{name}.said; echo $? > /out/{name}.status")
    lines += ["state > /out/after", "python3 /out/parts.py > /out/parts.json"]
    run = "bbrscope lab run /out/changes.toml --inside -o /out/changed --no-events"
    lines += [f"{run} 2> /out/changed.said; echo $? > /out/changed.status"]
    # Something else has the CPU for two thirds of the traffic's time at least. The recording before
    # and after that counts as free time: at nice 10 it would get a fortieth of the CPU.
    run = "bbrscope lab run song-single-buffer --quick --cc cubic --set buffer=1bdp"
    run += " --set duration=2s --inside -o /out/hogged --no-events"
    lines += [HOGS, f"{run} 2> /out/hogged.said", "sleep 1; kill $hogs 2> /tmp/none"]
    run = "bbrscope lab run song-single-buffer --quick --cc bbr2 --inside -o /tmp/never"
    lines += [f"{run} 2> /out/lacking.said; echo $? > /out/lacking.status"]
    run = (
        "bbrscope lab run song-single-buffer --quick --cc cubic --set rate=2gbit --set buffer=1bdp"
    )
    lines += [f"{run} --inside -o /tmp/never 2> /out/fast.said; echo $? > /out/fast.status"]
    # Ctrl-C in the middle of a run; then a kill that leaves no time to clean up.
    run = "bbrscope lab run song-single-buffer --quick --cc cubic --inside -o /tmp/never"
    lines += [RUNNING, f"setsid {run} 2> /out/interrupted.said & pid=$!; running interrupted"]
    lines += ["kill -INT -$pid; wait $pid; echo $? > /out/interrupted.status"]
    lines += ["ls /tmp/never > /out/interrupted.kept; state > /out/interrupted.after"]
    # Without probes, which take a minute to attach: what is left of a run are its namespaces.
    lines += [f"setsid {run} --no-events 2> /out/killed.said & pid=$!; running killed"]
    lines += ["kill -9 -$pid; wait $pid"]
    lines += [f"{run} 2> /out/refused.said; echo $? > /out/refused.status"]
    lines += ["bbrscope lab clean > /out/cleaned; state > /out/cleaned.after"]
    return "\n".join([*lines, "exit 0"])


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the guest wrote."""
    if lacking := guest.missing_tools():
        pytest.skip(f"needs QEMU and debootstrap: apt-get install {' '.join(lacking)}")
    folder = tmp_path_factory.mktemp("lab")
    (folder / "parts.py").write_text(PARTS)
    (folder / "changes.toml").write_text(CHANGES)
    done = guest.run(vm.SUITE, script(), folder, 6000)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_bare_kernel_without_what_a_guest_needs_is_refused_in_words(tmp_path: Path) -> None:
    """Debian's own image: 9p and virtio are modules there."""
    if lacking := guest.missing_tools():
        pytest.skip(f"needs QEMU and debootstrap: apt-get install {' '.join(lacking)}")
    image = guest_kernel.newest_kernel(root.build_root(vm.SUITE)).image
    with pytest.raises(guest.GuestError, match="lacks 9p over virtio") as refused:
        guest.run(vm.SUITE, "true", tmp_path, 900, image)
    assert "CONFIG_9P_FS=y" in refused.value.way_out


@pytest.fixture(scope="module")
def path(out: Path) -> Path:
    """A store with the runs, replayed."""
    path = out / "lab.duckdb"
    with open_store(path) as store:
        for manifest in sorted(out.glob("bundles/*/manifest.json")):
            ingest(store, manifest.parent)
        ids = [store.run_id(name) for name in store.runs(with_events=True)]
        for flows in session.replay_runs(store.con, ids):
            results.keep(store, flows)
    return path


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path, read_only=True) as opened:
        yield opened


def test_every_experiment_was_made_and_is_valid(out: Path, store: Store) -> None:
    for name, _, _ in EXPERIMENTS:
        assert (out / f"{name}.status").read_text() == "0\n", (out / f"{name}.said").read_text()
    rows = store.con.execute(
        "SELECT scenario, count(*), bool_and(valid), string_agg(why_invalid), bool_and(quick),"
        " any_value(place) FROM lab_runs GROUP BY scenario ORDER BY scenario"
    ).fetchall()
    assert [row[:2] for row in rows] == [("song-single-buffer", 2)]
    assert all(row[2:] == (True, None, True, "vm") for row in rows), rows


def test_every_recording_of_bbr_replays_exactly(store: Store) -> None:
    rows = store.con.execute(
        "SELECT mode, count(*), sum(events), sum(exact), sum(gaps) FROM replays GROUP BY mode"
    ).fetchall()
    assert {row[0] for row in rows} == {"step", "free-run"}
    for _mode, flows, events, exact, gaps in rows:
        assert flows == 2
        assert events > 2 * 1000
        assert (exact, gaps) == (events, 0)


@pytest.mark.parametrize("name", CLAIMS)
def test_the_papers_qualitative_results_are_reproduced(name: str, path: Path) -> None:
    with open_store(path, read_only=True) as store:
        verdicts = study.conduct(store, scenario.load(name)).verdicts
    reached = {each.claim.id for each in verdicts if each.state == claims.REPRODUCED}
    assert reached == CLAIMS[name], [(each.claim.id, each.measured) for each in verdicts]


def test_goodput_is_what_the_kernel_delivered_and_the_queue_let_through(store: Store) -> None:
    """iperf3's bytes, the kernel's tp.delivered and the qdisc's counter tell one story."""
    rows = store.con.execute(
        "SELECT l.bytes, any_value(f.delivered) * 1448.0,"
        " (SELECT max(sent_bytes) FROM queue_samples q WHERE q.run_id = l.run_id)"
        " FROM lab_flows l JOIN lab_runs r USING (run_id)"
        " JOIN (SELECT run_id, flow, max(tp_delivered) AS delivered FROM events GROUP BY ALL) f"
        " USING (run_id, flow) WHERE r.flows = 1 GROUP BY l.run_id, l.bytes"
    ).fetchall()
    assert len(rows) == 2
    for received, delivered, sent in rows:
        assert received <= delivered <= 1.05 * received
        assert received * 1514 / 1448 <= sent <= 1.25 * received * 1514 / 1448


def means(out: Path, what: str) -> Callable[[float, float], list[float]]:
    """iperf3's own record of the run with all changes: values between two times, in s.

    Its intervals are of a second, from its first byte on: some round trips after its launch.
    """
    [path] = out.glob("changed/*/iperf1.json")
    intervals = [each["streams"][0] for each in json.loads(path.read_text())["intervals"]]
    return lambda begin, end: [
        each[what] for each in intervals if begin <= each["start"] and each["end"] <= end
    ]


def test_delay_loss_outage_and_rate_change_when_they_are_to(out: Path) -> None:
    """TCP's own RTT, its retransmissions, the qdisc's counter, and iperf3's rate."""
    assert (out / "changed.status").read_text() == "0\n", (out / "changed.said").read_text()
    rtt = means(out, "rtt")
    assert max(rtt(0.9, 3.1)) < 50_000
    assert min(rtt(4.9, 6.1)) > 95_000
    assert max(rtt(6.9, 8.1)) < 50_000
    again = means(out, "retransmits")
    assert sum(again(0, 8.1)) == 0
    assert sum(again(8.9, 11.1)) >= 3
    [bundle] = out.glob("changed/*/manifest.json")
    manifest = json.loads(bundle.read_text())
    assert manifest["lab"]["valid"], manifest["lab"]["why_invalid"]
    # The end of an outage is a change by itself.
    planned = sorted([*((what, float(at[:-1])) for at, what, _ in PLANNED), ("outage over", 13.0)])
    made = sorted((change["what"], change["at_s"]) for change in manifest["changes"])
    assert [what for what, _ in made] == [what for what, _ in planned]
    late = [at - before for (_, at), (_, before) in zip(made, planned, strict=True)]
    assert all(0 <= each < 0.5 for each in late), late
    changes = {change["what"]: change["at_s"] for change in manifest["changes"]}
    with open_store(out / "changed.duckdb") as store:
        ingest(store, bundle.parent)
        samples = store.con.execute(
            "SELECT boottime_ns / 1e9 - ? AS t, sent_bytes FROM queue_samples WHERE kind = 'htb'"
            " ORDER BY t",
            [manifest["traffic_start_uptime_s"]],
        ).fetchall()
    assert changes["outage over"] - changes["outage"] == pytest.approx(1, abs=0.1)
    dark = [sent for t, sent in samples if changes["outage"] + 0.1 < t < changes["outage over"]]
    assert len(dark) > 3
    assert len(set(dark)) == 1
    late = [(t, sent) for t, sent in samples if 18.5 < t < 21.5]
    seconds, sent = late[-1][0] - late[0][0], late[-1][1] - late[0][1]
    assert sent * 8 / seconds == pytest.approx(1e6, rel=0.05)


def test_a_run_for_which_the_cpu_was_too_busy_is_marked_invalid(out: Path) -> None:
    [bundle] = out.glob("hogged/*/manifest.json")
    lab = json.loads(bundle.read_text())["lab"]
    assert lab["cpu_busy"] > 0.95
    assert not lab["valid"]
    assert "CPU-bound" in lab["why_invalid"]
    assert "marked invalid: CPU-bound" in (out / "hogged.said").read_text()


def test_a_congestion_control_that_the_kernel_lacks_is_named(out: Path) -> None:
    assert (out / "lacking.status").read_text() == "1\n"
    said = (out / "lacking.said").read_text()
    assert "this kernel has no congestion control bbr2; it has " in said


def test_a_rate_that_the_machine_cannot_forward_is_measured_and_refused(out: Path) -> None:
    assert (out / "fast.status").read_text() == "1\n"
    said = (out / "fast.said").read_text()
    assert "refused: 2000 Mbit/s, but this machine forwards " in said
    assert "1 of 1 run could not be made" in said


def test_the_host_is_left_as_it_was_also_after_ctrl_c_and_after_clean(out: Path) -> None:
    before = (out / "before").read_text()
    assert (out / "after").read_text() == before
    assert (out / "interrupted.after").read_text() == before
    assert (out / "interrupted.status").read_text() == "1\n"
    assert "interrupted; finished runs are kept" in (out / "interrupted.said").read_text()
    assert (out / "interrupted.kept").read_text() == ""
    assert (out / "refused.status").read_text() == "1\n"
    assert "bbrscope lab clean" in (out / "refused.said").read_text()
    assert (out / "cleaned").read_text().startswith("removed bbrlab-")
    after = set((out / "cleaned.after").read_text().split())
    assert not any("bbrlab" in word for word in after)


@pytest.fixture(scope="module")
def parts(out: Path) -> dict[str, Any]:
    loaded = json.loads((out / "parts.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def kind(found: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The one qdisc of this kind."""
    [one] = [each for each in found if each["kind"] == name]
    return one


# Packets that are not TCP's at most: neighbours and groups are asked for, too, and dropped as well.
OTHERS = 5


def lost(found: dict[str, Any]) -> int:
    """TCP's segments that left the sender, sent again or not, and did not reach the receiver.

    The kernel's own counters of both ends; iperf3's count ends with its last write.
    """
    sender, receiver = found["sender"], found["receiver"]
    sent = sender["TcpOutSegs"] + sender.get("TcpRetransSegs", 0)
    return int(sent - receiver["TcpInSegs"])


CARRIED_BPS = 10e6 * 1448 / 1514


@pytest.mark.parametrize("name", ["six", "reorder", "htb"])
def test_a_full_path_carries_its_rate(name: str, parts: dict[str, Any]) -> None:
    assert 0.9 * CARRIED_BPS < parts[name]["bps"] <= CARRIED_BPS


def test_a_path_with_red_carries_its_rate_while_there_is_a_queue(parts: dict[str, Any]) -> None:
    """How long that is, is chance: RED's average outlives the queue that slow start made.

    It goes on marking, each mark takes 30 % of CUBIC's window, and no queue is left for a second.
    So the receiver's upper quartile of tenths of a second is asked; each has 82 packets and a part.
    """
    red = parts["red"]
    assert red["bps"] <= CARRIED_BPS
    tenths = [each["sum"]["bits_per_second"] for each in red["received_over_time"]]
    upper = statistics.quantiles(tenths, n=4)[2]
    assert upper == pytest.approx(CARRIED_BPS, rel=2 / 82)


@pytest.mark.parametrize("name", ["policer", "fq_codel", "htb_codel", "loss"])
def test_a_path_without_a_queue_has_its_delay(name: str, parts: dict[str, Any]) -> None:
    """iperf3 tells smoothed RTTs, of ACKs for two segments, which the path carries in 2.4 ms."""
    assert 40_000 <= parts[name]["min_rtt_us"] < 40_000 + 2 * 1514 * 8 / 10 + 500


def test_small_queues_keep_what_waits_for_the_senders_own_link_short(parts: dict[str, Any]) -> None:
    """CUBIC would fill any queue: here it has two skbs of two packets, and one more for a while."""
    own = parts["own_link"]
    assert 0.9 * CARRIED_BPS / 2 < own["bps"] <= CARRIED_BPS / 2
    assert own["retransmits"] == kind(own["own_link"], "tbf")["drops"] == 0
    assert own["mean_rtt_us"] < 40_000 + 3 * 2 * 1514 * 8 / 5
    assert all(each["kind"] != "tbf" for each in parts["six"]["own_link"])


def test_a_transfer_of_a_fixed_size_arrives_but_for_its_end(parts: dict[str, Any]) -> None:
    """iperf3 is done with its last write, not with its arrival.

    Not counted: what the sender may hold unsent and the last block, 16 KiB each, and what lies
    unread in the receiver's socket when it reads on the other connection that all is over: less
    than two round trips of a link with 50 kB in each.
    """
    sent, received = parts["fixed"]["sent"], parts["fixed"]["received"]
    assert 10**6 <= sent < 10**6 + 16384
    assert sent - 2 * 16384 - 2 * 50_000 <= received <= sent


def test_an_on_off_flow_is_silent_in_between(parts: dict[str, Any]) -> None:
    """On for 1 s and off for 2 s: the receiver's tenths of a second are full or empty."""
    rates = [each["sum"]["bits_per_second"] for each in parts["on_off"]["received_over_time"]]
    assert sum(rate < 1e6 for rate in rates) > 0.4 * len(rates)
    assert sum(rate > 8e6 for rate in rates) > 0.2 * len(rates)


def test_a_policer_drops_what_is_too_much_and_queues_nothing(parts: dict[str, Any]) -> None:
    policed = parts["policer"]
    dropped = max(int(count) for count in re.findall(r"dropped (\d+)", policed["policer"]))
    assert 0 <= dropped - lost(policed) <= OTHERS < dropped
    assert policed["bps"] <= 10e6
    assert all(each["kind"] != "tbf" for each in policed["bottleneck"])


def test_htb_holds_the_rate_and_its_queue_the_buffer(parts: dict[str, Any]) -> None:
    """Half a BDP is full as soon as the flow has 1.5: its drops are what does not arrive."""
    queue = kind(parts["htb"]["bottleneck"], "bfifo")
    assert queue["options"]["limit"] == 25_000
    assert 0 <= queue["drops"] - lost(parts["htb"]) <= OTHERS < queue["drops"]
    assert all(each["kind"] != "tbf" for each in parts["htb"]["bottleneck"])


def test_marks_of_the_queue_reach_the_receiver(parts: dict[str, Any]) -> None:
    """As many packets arrive with CE as the AQM says it has marked."""
    for name in ("fq_codel", "htb_codel"):
        codel = kind(parts[name]["bottleneck"], "fq_codel")
        assert codel["ce_mark"] > 0
        assert parts[name]["receiver"]["IpExtInCEPkts"] == codel["ce_mark"]
    red = kind(parts["red"]["bottleneck"], "red")
    assert red["marked"] > 0
    assert parts["red"]["receiver"]["IpExtInCEPkts"] == red["marked"]
    assert "IpExtInCEPkts" not in parts["six"]["receiver"]


def test_loss_and_reordering_are_what_the_sender_sees(parts: dict[str, Any]) -> None:
    """netem throws dice: 2 % within 4.5 standard deviations, which one run in 100,000 exceeds."""
    netem = kind(parts["loss"]["access"], "netem")
    packets = netem["packets"] + netem["drops"]
    assert packets > 1500
    assert abs(netem["drops"] - 0.02 * packets) < 4.5 * math.sqrt(0.02 * 0.98 * packets)
    assert 0 <= netem["drops"] - lost(parts["loss"]) <= OTHERS
    assert parts["reorder"]["sender"]["TcpExtTCPSACKReorder"] > 0
    assert kind(parts["reorder"]["access"], "netem")["drops"] == 0
    assert parts["reorder"]["min_rtt_us"] >= 40_000
