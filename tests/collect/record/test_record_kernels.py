"""Recording BBR v2 and v3 on kernels that have them: no distribution ships one, so bring your own.

BBRSCOPE_KERNEL_V2, BBRSCOPE_KERNEL_V3 name folders that tests/collect/guest/build_kernel.sh makes;
that of v2 has mainline's v1 beside it.
"""

from __future__ import annotations

import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bbrscope.collect import guest

from tests.recordings import (
    bbrscope,
    check_retransmissions,
    lacks_nothing_unsaid,
    manifest,
    replays_exactly,
)

pytestmark = pytest.mark.slow

SUITE = "trixie"
CONTROLS = {"v2": "bbr2", "v3": "bbr"}

SCRIPT = """
. /opt/bbrscope/tests/collect/guest/bottleneck.sh
modprobe -q tcp_bbr2
[ $CC = bbr2 ] && rmmod tcp_bbr
ip netns exec d iperf3 -s -D; iperf3 -s -D; iperf3 -s -p 5202 -D
# NAME SECONDS COLLECTOR...
send() {
  name=$1 seconds=$2; shift 2
  "$@" -o /tmp/$name -- ip netns exec s1 \\
    iperf3 -c 10.0.2.2 -t $seconds -J --logfile /tmp/$name.json 2> /out/$name.said
  echo $? > /out/$name.status
  [ -d /tmp/$name ] && mv /tmp/$name.json /tmp/$name/iperf1.json && cp -r /tmp/$name /out/
}
bbrscope doctor --json > /out/doctor.json
send fentry 8 bbrscope collect -q --rung fentry --netns s1 -i r:rd
send kprobe 4 bbrscope collect -q --rung kprobe --no-packets
bbrscope collect --print-script > /tmp/collect.sh
sysctl -qw net.ipv4.tcp_congestion_control=$CC
sh /tmp/collect.sh -o /tmp/script -i lo -- iperf3 -c 127.0.0.1 -n 20M 2> /out/script.said
echo $? > /out/script.status; cp -r /tmp/script /out/
[ $CC = bbr ] && exit 0
# A queue that marks instead of dropping, and a v2 that heeds marks at any RTT.
ip netns exec s1 sysctl -qw net.ipv4.tcp_ecn=1
ip netns exec r tc qdisc replace dev rd root handle 1: tbf rate 10mbit burst 3028 limit 50000
ip netns exec r tc qdisc add dev rd parent 1:1 netem loss 2% ecn limit 1000
echo 1 > /sys/module/tcp_bbr2/parameters/ecn_enable
echo 0 > /sys/module/tcp_bbr2/parameters/ecn_max_rtt_us
send ecn 5 bbrscope collect -q --netns s1 -i r:rd
# v1 beside v2, a flow of each; the default congestion control says which is meant, or --bbr.
modprobe tcp_bbr
bbrscope doctor --json > /out/both.json
cat > both.sh <<'EOF'
iperf3 -c 127.0.0.1 -p 5202 -C bbr -n 5M & iperf3 -c 127.0.0.1 -C bbr2 -n 5M; wait $!
EOF
# NAME DEFAULT COLLECTOR...
choose() {
  name=$1; sysctl -qw net.ipv4.tcp_congestion_control=$2; shift 2
  "$@" -o /tmp/$name -- sh both.sh 2> /out/$name.said
  echo $? > /out/$name.status; [ -d /tmp/$name ] && cp -r /tmp/$name /out/
}
choose unclear cubic bbrscope collect -q --no-packets
choose told-v1 cubic bbrscope collect -q --no-packets --bbr v1
choose told-v2 cubic bbrscope collect -q --no-packets --bbr v2
choose default-v1 bbr bbrscope collect -q --no-packets
choose default-v2 bbr2 bbrscope collect -q --no-packets
choose script-v1 bbr sh /tmp/collect.sh -i lo
choose script-v2 bbr2 sh /tmp/collect.sh -i lo
choose script-unclear cubic sh /tmp/collect.sh -i lo
exit 0
"""


@cache
def recorded(version: str, folder: Path) -> Path:
    kernel = os.environ.get(f"BBRSCOPE_KERNEL_{version.upper()}")
    if not kernel:
        pytest.skip(
            f"needs a kernel with BBR {version}: tests/collect/guest/build_kernel.sh makes one,"
            f" then set BBRSCOPE_KERNEL_{version.upper()} to its folder"
        )
    if lacking := guest.missing_tools():
        pytest.skip(f"needs QEMU: apt-get install {' '.join(lacking)}")
    script = f"CC={CONTROLS[version]}\n{SCRIPT}"
    done = guest.run(SUITE, script, folder / version, 3000, Path(kernel))
    assert done.returncode == 0, done.stderr
    return folder / version


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(params=CONTROLS)
def kernel(request: pytest.FixtureRequest, shared: Path) -> Path:
    return recorded(request.param, shared)


@pytest.fixture
def v2(shared: Path) -> Path:
    return recorded("v2", shared)


def asked(store: Path, query: str) -> list[dict[str, Any]]:
    answer = bbrscope("sql", "--store", str(store), "--format", "json", query)
    rows = json.loads(answer)
    assert isinstance(rows, list)
    return rows


@pytest.mark.parametrize("name", ["fentry", "kprobe", "script"])
def test_v2_and_v3_replay_exactly_and_lack_nothing_unsaid(
    name: str, kernel: Path, tmp_path: Path
) -> None:
    complete(name, kernel, tmp_path)


def complete(name: str, kernel: Path, tmp_path: Path) -> None:
    assert manifest(kernel / name)["bbr"] == kernel.name
    lacks_nothing_unsaid(kernel, name)
    assert replays_exactly(kernel / name, tmp_path / "store.duckdb") > 2 * 300


def test_doctor_tells_the_version_by_the_struct(kernel: Path) -> None:
    size = {"v2": 216, "v3": 144}[kernel.name]
    row = (kernel / "doctor.json").read_text()
    assert f"{CONTROLS[kernel.name]} is {kernel.name}: " in row
    assert f"struct bbr of {size} bytes" in row
    assert json.loads(row)["best"] == "fentry"


def test_lost_packets_carry_what_their_kernel_noted_when_it_sent_them(
    kernel: Path, tmp_path: Path
) -> None:
    """tx.in_flight is at most what was in flight later on; every mark is one of tp.lost's."""
    store = tmp_path / "store.duckdb"
    bbrscope("ingest", "--store", str(store), str(kernel / "fentry"))
    (row,) = asked(
        store,
        "SELECT count(*) AS marks, min(skb_in_flight) AS least, max(skb_in_flight) AS most,"
        " max(skb_lost) AS lost, bool_and(skb_lost <= tp_lost) AS before,"
        " (SELECT max(tp_packets_out) FROM events) AS out,"
        " (SELECT sum(skb_gso_segs) FROM events WHERE kind = 'skb_marked_lost') AS segments,"
        " (SELECT max(tp_lost) FROM events) AS all_lost FROM events"
        " WHERE kind = 'skb_marked_lost' AND skb_delivered_mstamp > 0",
    )
    assert row["marks"] > 20
    assert 0 < row["least"] <= row["most"] <= row["out"]
    assert row["before"]
    assert row["lost"] > 0
    assert row["segments"] == row["all_lost"]


def test_the_kernel_sent_again_what_iperf_counts(kernel: Path, tmp_path: Path) -> None:
    store = tmp_path / "store.duckdb"
    bbrscope("ingest", "--store", str(store), str(kernel / "fentry"))
    assert check_retransmissions(kernel / "fentry", store) > 20


def test_every_ack_of_the_recording_is_joined_to_its_packet(kernel: Path, tmp_path: Path) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("packets need tshark: apt-get install tshark")
    store = tmp_path / "store.duckdb"
    bbrscope("ingest", "--store", str(store), str(kernel / "fentry"))
    (row,) = asked(store, "SELECT mains, mains_matched AS matched FROM captures")
    assert row["mains"] > 500
    assert row["matched"] == row["mains"]


def test_an_account_is_kept_by_collector_and_script_alike(kernel: Path) -> None:
    for name in ("fentry", "script"):
        probes = manifest(kernel / name)["accounting"]["probes"]
        assert probes["M"]["recorded"] > 100
        for counts in probes.values():
            assert counts["attempted"] == counts["recorded"] + counts["cut"]


def test_v2_replays_exactly_where_marks_tell_of_congestion(v2: Path, tmp_path: Path) -> None:
    """The queue marks 2 % of the packets; v2's ecn_alpha follows the marks."""
    complete("ecn", v2, tmp_path)
    (row,) = asked(
        tmp_path / "store.duckdb",
        "SELECT max(bbr_ecn_eligible) AS eligible, sum(rs_delivered_ce) AS marked,"
        " count(DISTINCT bbr_ecn_alpha) AS alphas FROM events WHERE kind = 'main'",
    )
    assert row["eligible"] == 1
    assert row["marked"] > 100
    assert row["alphas"] > 10


def test_doctor_names_both_bbrs_of_a_kernel(v2: Path) -> None:
    row = (v2 / "both.json").read_text()
    assert "bbr is v1: bbr_main() and struct bbr of 104 bytes in tcp_bbr" in row
    assert "bbr2 is v2: bbr2_main() and struct bbr of 216 bytes in tcp_bbr2" in row
    assert "bbr_cwnd_event is in more than one place" in row


@pytest.mark.parametrize("name", ["unclear", "script-unclear"])
def test_two_bbrs_without_a_choice_are_refused_with_both_names(name: str, v2: Path) -> None:
    assert (v2 / f"{name}.status").read_text() == "1\n"
    said = (v2 / f"{name}.said").read_text()
    assert "more than one" in said
    assert not (v2 / name).exists()
    assert {"unclear": "--bbr v2", "script-unclear": "tcp_bbr tcp_bbr2"}[name] in said


@pytest.mark.parametrize("bbr", ["v1", "v2"])
@pytest.mark.parametrize("how", ["told", "default"])
def test_of_two_bbrs_only_the_chosen_one_is_recorded(
    how: str, bbr: str, v2: Path, tmp_path: Path
) -> None:
    """Two flows at once. Whatever rung holds: if it is a replayable one, all replays exactly."""
    name = f"{how}-{bbr}"
    said = (v2 / f"{name}.said").read_text()
    assert (v2 / f"{name}.status").read_text() == "0\n", said
    row = manifest(v2 / name)
    assert row["bbr"] == bbr
    store = tmp_path / "store.duckdb"
    if row["rung"] == "fentry":
        replays_exactly(v2 / name, store)
    else:
        bbrscope("ingest", "--store", str(store), str(v2 / name))
        assert row["rung"] == "tcp_probe"
        assert "bbr_cwnd_event" in said
    if how == "told":
        # Both ends are here. ss, the witness, sees the sockets of either BBR: they have no events.
        ports = asked(
            store,
            "SELECT DISTINCT least(local_port, remote_port) AS port FROM flows WHERE events > 0",
        )
        assert ports == [{"port": {"v1": 5202, "v2": 5201}[bbr]}]


@pytest.mark.parametrize("bbr", ["v1", "v2"])
def test_the_script_records_the_right_one_of_two_bbrs_or_says_why_not(
    bbr: str, v2: Path, tmp_path: Path
) -> None:
    name = f"script-{bbr}"
    said = (v2 / f"{name}.said").read_text()
    if (v2 / f"{name}.status").read_text() == "1\n":
        assert "the kernel attached to another bbr_cwnd_event, by name only" in said
        assert not (v2 / name).exists()
        return
    assert manifest(v2 / name)["bbr"] == bbr
    replays_exactly(v2 / name, tmp_path / "store.duckdb")
