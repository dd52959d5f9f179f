"""A host whose BBR is a module that nothing has loaded yet, as most are when recording starts."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from bbrscope.collect import guest as runner

from tests.recordings import manifest

pytestmark = pytest.mark.slow

SUITE = os.environ.get("BBRSCOPE_SUITES", "bookworm").split()[0]

# Without a timer, virtual time would leap while the host reads a file (guest/bottleneck.sh).
SCRIPT = """
python3 -c 'import time
while True: time.sleep(0.005)' &
iperf3 -s -D
# NAME OPTION...: record, and keep what was said and the status.
record() {
  name=$1; shift
  bbrscope collect -q --no-packets -o /tmp/$name "$@" > /dev/null 2> /out/$name.said
  echo $? > /out/$name.status
  [ -d /tmp/$name ] && cp -r /tmp/$name /out/
}
lsmod | grep bbr > /out/before
record refused -d 1
lsmod | grep bbr > /out/after
(until grep -qs '^waiting' /out/waited.said; do sleep 0.2; done
 exec iperf3 -c 127.0.0.1 -C bbr -t 600 -b 1M > /dev/null) & flow=$!
record waited --wait -d 3
kill $flow; wait $flow
for n in $(seq 50); do rmmod tcp_bbr 2> /dev/null && break; sleep 0.2; done
lsmod | grep bbr > /out/gone
record loaded --load-module -- sh -c 'iperf3 -c 127.0.0.1 -C bbr -n 200K > /dev/null; exit 7'
exit 0
"""


@cache
def recorded(folder: Path) -> Path:
    if lacking := runner.missing_tools():
        pytest.skip(f"needs QEMU: apt-get install {' '.join(lacking)}")
    done = runner.run(SUITE, SCRIPT, folder, 3000)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("loading"))


def status(out: Path, name: str) -> str:
    return (out / f"{name}.status").read_text().strip()


def test_without_the_module_the_reason_is_last_and_nothing_is_loaded(out: Path) -> None:
    assert (out / "before").read_text() == ""
    assert status(out, "refused") == "1"
    last = (out / "refused.said").read_text().strip().splitlines()[-2:]
    assert "BBR" in last[0]
    assert "--load-module" in last[1]
    assert "--wait" in last[1]
    assert not (out / "refused").exists()
    assert (out / "after").read_text() == ""


def test_the_first_socket_that_asks_for_it_ends_the_waiting(out: Path) -> None:
    assert status(out, "waited") == "0", (out / "waited.said").read_text()
    document = manifest(out / "waited")
    assert document["rung"] == "fentry"
    assert document["completeness"]["calls"]["M"] > 0
    assert document["completeness"]["exits_missing"] == {}


def test_it_is_loaded_where_that_is_asked_for_and_the_commands_status_is_passed_on(
    out: Path,
) -> None:
    assert (out / "gone").read_text() == ""
    assert status(out, "loaded") == "7", (out / "loaded.said").read_text()
    document = manifest(out / "loaded")
    assert document["rung"] == "fentry"
    assert document["command_status"] == 7
    assert document["completeness"]["calls"]["M"] > 0
