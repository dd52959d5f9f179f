"""README's commands that need other files, root or a guest: typed as it has them.

Those after `$` are run here; those after `#`, which change a host's kernel and network, as root of
a Debian guest, where the name of README's receiver is the guest's own.
"""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path

import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.collect import guest
from bbrscope.collect.lab import vm

from tests.conftest import ss_text
from tests.test_readme import block_lines, typed

pytestmark = pytest.mark.slow

# As tcp_bbr2.c bbr_debug() has it, after dmesg's time.
KERNEL_LOG = "".join(
    f"[ 62.{506488 + 62372 * number}] BBR 10.9.0.2:5201      {number},448:1448    O G 11"
    " br  0 cr  7 rtt 40082 d  1 i 40082 mrtt 40037 _bw 0 bw 289 lb 0 ib 0 qb 8267 a 1 if 10 . *"
    " dl 3 l 0 al 0 # 0 t 99 . O lr 0 er 0 ea 0 bwl -1 il -1 ih -1 c -1 v 2 . 0 I Y\n"
    for number in range(5)
)

# The guest's own loopback is the path: 20 Mbit/s, 20 ms. BBR is what its sockets begin with.
HOST = """
mkdir /tmp/readme; cd /tmp/readme; modprobe tcp_bbr
cp /etc/hosts /tmp/hosts; echo 127.0.0.1 receiver.example >> /tmp/hosts
mount --bind /tmp/hosts /etc/hosts
tc qdisc add dev lo root netem delay 10ms rate 20mbit
sysctl -qw net.ipv4.tcp_congestion_control=bbr
iperf3 -s -D
"""


def commands(prompt: str) -> list[str]:
    """README's commands that follow this prompt."""
    lines = block_lines("console")
    assert all(line.startswith(("$ ", "# ")) for line in lines)
    return [line[2:] for line in lines if line.startswith(prompt)]


def need_qemu() -> None:
    if lacking := guest.missing_tools():
        pytest.skip(f"needs QEMU and debootstrap: apt-get install {' '.join(lacking)}")


def test_what_needs_no_root_works_here(tmp_path: Path) -> None:
    need_qemu()
    packed = (fixtures.path("v2_single_1bdp") / "packets.pcap.zst").read_bytes()
    pcap = tmp_path / "server.pcap"
    pcap.write_bytes(zstandard.ZstdDecompressor().stream_reader(packed).read())
    subprocess.run(["editcap", "-F", "pcapng", pcap, tmp_path / "server.pcapng"], check=True)
    ng = (tmp_path / "server.pcapng").read_bytes()
    (tmp_path / "server.pcapng.gz").write_bytes(gzip.compress(ng))
    (tmp_path / "ss.log").write_text(ss_text([(1.0, 2.0)] * 5))
    (tmp_path / "dmesg.txt").write_text(KERNEL_LOG)
    lines = commands("$")
    assert {line.split()[1] for line in lines} >= {"ingest", "lab", "study", "model"}
    done = typed([*lines, "bbrscope runs --format csv > runs.csv"], tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    runs = (tmp_path / "runs.csv").read_text()
    assert all(f"\n{name}," in runs for name in ("server", "ss", "dmesg"))
    assert runs.count("\nsong-cubic.quick") == 2
    verdicts = json.loads((tmp_path / "verdicts.json").read_text())
    reached = {one["id"] for one in verdicts if one["verdict"] == "reproduced"}
    assert reached == {"v1-small", "v1-falls"}
    assert (tmp_path / "study.html").stat().st_size > 100_000


def test_what_needs_root_works_on_a_debian_host(tmp_path: Path) -> None:
    """The guest has bbrscope's files only: no DuckDB, so the lab leaves bundles (--inside).

    There the lab's runs are made without probes, which take longer to attach than the traffic; with
    them tests/collect/lab/test_lab_guest.py makes its own.
    """
    need_qemu()
    lines = [
        f"{line} --inside --no-events -o /out/lab" if " lab run " in line else line
        for line in commands("#")
    ]
    [bundle] = [words for line in lines for words in re.findall(r"--bundle (\S+)", line)]
    # README's bundle has the time of another day.
    at = next(number for number, line in enumerate(lines) if bundle in line)
    lines.insert(at, f"mv bbr-2* {bundle}; cp -r {bundle} /out/")
    script = "\n".join([vm.SETUP, HOST, "set -e", *lines, "cp collect.sh /out/"])
    done = guest.run(vm.SUITE, script, tmp_path, 3000)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (tmp_path / bundle / "manifest.json").exists()
    assert (tmp_path / "collect.sh").read_text().startswith("#!")
    assert len(list(tmp_path.glob("lab/cao-cliff.quick*/manifest.json"))) == 2
