"""Every kernel, machine, number of CPUs and rung, over flows of every kind: `tests/matrix` runs it.

A boot takes many minutes, so none happens by itself: BBRSCOPE_MATRIX names them as
SUITE-MACHINE-CPUS, or is "whole"; BBRSCOPE_RUNGS chooses among the rungs. What a boot does is in
tests/collect/guest/matrix.sh. BBRSCOPE_MATRIX_KEEP is a folder whose recordings are taken as they
are, and where new ones go. BBRSCOPE_MATRIX_KERNEL boots a kernel of one's own under the suite's
files, with v2 or v3, say (as collect/guest takes it); BBRSCOPE_MATRIX_BBR is what it calls its BBR.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect import guest
from bbrscope.collect.guest.board import BOARDS
from bbrscope.collect.record import script
from bbrscope.collect.record.output import accounting

from tests.recordings import bbrscope, exact_events, lacks_nothing_unsaid, manifest

pytestmark = pytest.mark.slow

WHOLE = [
    f"{suite}-{machine}-{cpus}"
    for suite, machines in (
        ("bullseye", ("amd64",)),
        ("bookworm", ("amd64",)),
        ("trixie", ("amd64", "arm64")),
        ("sid", ("amd64",)),
    )
    for machine in machines
    for cpus in (1, 4)
]
ASKED = os.environ.get("BBRSCOPE_MATRIX", "")
BOOTS = WHOLE if ASKED == "whole" else ASKED.split()
for boot in BOOTS:
    if boot.count("-") != 2 or boot.split("-")[1] not in BOARDS:
        pytest.exit(f"{boot!r} is no SUITE-MACHINE-CPUS, MACHINE being {' or '.join(BOARDS)}", 4)
# Each with the rung of the recorder beside it, which is killed; "": none is.
RUNGS = {"fentry": "kprobe", "kprobe": "fentry", "tcp_probe": "fentry", "inet_diag": "tcp_probe"}
# Debian 11's Python is too old: the script without Python records, and has no rung inet_diag.
SCRIPTED = ("bullseye",)
# Where the kernel's tcp_probe does not name the socket, and bpftrace has no raw tracepoints.
FEWER = {
    "bullseye": {"kprobe": "kprobe"},
    "bookworm": {"fentry": "kprobe", "kprobe": "fentry", "inet_diag": "kprobe"},
}
KERNEL = os.environ.get("BBRSCOPE_MATRIX_KERNEL")
BBR = os.environ.get("BBRSCOPE_MATRIX_BBR", "bbr")
CHOSEN = os.environ.get("BBRSCOPE_RUNGS", " ".join(RUNGS)).split()
REPLAYED = ("fentry", "kprobe")


def rounds(suite: str) -> dict[str, str]:
    """The rungs of a suite that were asked for, each with the rung beside it."""
    return {rung: beside for rung, beside in FEWER.get(suite, RUNGS).items() if rung in CHOSEN}


CELLS = [(boot, rung) for boot in BOOTS for rung in rounds(boot.split("-")[0])]


@cache
def recorded(boot: str, shared: Path) -> Path:
    """Boot a guest and record by every rung in it."""
    suite, machine, cpus = boot.split("-")
    out = Path(os.environ.get("BBRSCOPE_MATRIX_KEEP") or shared) / boot
    if (out / "times").exists():
        return out
    if lacking := guest.missing_tools(BOARDS[machine]):
        pytest.skip(f"needs QEMU: apt-get install {' '.join(lacking)}")
    out.mkdir(parents=True, exist_ok=True)
    (out / "collect.sh").write_text(script.script())
    lines = [f"COLLECTOR={'script' if suite in SCRIPTED else 'bbrscope'} BBR={BBR}"]
    lines += [". /opt/bbrscope/tests/collect/guest/matrix.sh"]
    lines += [f"round {rung} {beside}" for rung, beside in rounds(suite).items()]
    kernel = Path(KERNEL) if KERNEL else None
    orders = "\n".join(lines)
    done = guest.run(suite, orders, out, 7200, kernel, architecture=machine, cpus=int(cpus))
    assert done.returncode == 0, done.stderr
    assert (out / "cpus").read_text().strip() == cpus
    return out


class Cell:
    """What was recorded by one rung in one boot, and its stores, made when they are asked for."""

    def __init__(self, boot: Path, rung: str, stores: Path) -> None:
        self.boot, self.rung, self.stores = boot, rung, stores

    @property
    def bundle(self) -> Path:
        return self.boot / self.rung

    @property
    def killed(self) -> Path:
        return self.boot / f"{self.rung}-killed.partial"

    def store(self, killed: bool = False) -> Path:
        path = self.stores / f"{self.boot.name}-{self.rung}-{killed}.duckdb"
        if not path.exists():
            words = ["--salvage", str(self.killed)] if killed else [str(self.bundle)]
            bbrscope("ingest", "--store", str(path), *words)
        return path

    def rows(self, query: str, killed: bool = False) -> list[tuple[Any, ...]]:
        with open_store(self.store(killed), read_only=True) as store:
            return store.con.execute(query).fetchall()

    def status_text(self, what: str) -> str:
        return (self.boot / f"{self.rung}.{what}").read_text()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matrix")


@pytest.fixture(params=CELLS, ids="-".join)
def cell(request: pytest.FixtureRequest, shared: Path) -> Cell:
    boot, rung = request.param
    return Cell(recorded(boot, shared), rung, shared)


def made(cell: Cell, *kinds: str) -> Counter[tuple[str, int, int]]:
    """Both ends of the flows that were made, as address, own port and the other's.

    A kernel gives a port again, so that of hundreds of short flows some have the same.
    """
    rows = [json.loads(line) for line in cell.status_text("json").splitlines()]
    assert {row[0] for row in rows} >= {"long", "short", "changing"}
    ends = [(row[1], row[2], row[3]) for row in rows if not kinds or row[0] in kinds]
    return Counter([*ends, *((address, far, near) for address, near, far in ends)])


def skipped(cell: Cell, killed: bool) -> int:
    """Runs of probes that the kernel skipped, as far as that is known: each may hide a flow.

    Of a recorder that was killed it is known by the exits that came without their entries.
    """
    if killed:
        query = "SELECT count(*) FROM capture_quality WHERE kind = 'orphan_row'"
        return int(cell.rows(query, killed)[0][0])
    return int(manifest(cell.bundle)["accounting"].get("missed_runs", 0))


def was_unloaded(cell: Cell) -> bool:
    """Whether the kernel let the module go while it was recorded."""
    return cell.status_text("rmmod").endswith("\n0\n") or cell.status_text("rmmod") == "0\n"


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed"])
def test_every_flow_is_there_with_its_own_ports(killed: bool, cell: Cell) -> None:
    if killed and not cell.killed.exists():
        pytest.skip("no recorder was killed beside this one")
    if not killed and cell.rung == "inet_diag":
        polled_flows_are_those_that_were_made(cell)
        return
    flows = Counter(
        cell.rows(
            "SELECT local_address, local_port, remote_port FROM flows WHERE events > 0", killed
        )
    )
    inside = {flow for flow in flows if flow[0].startswith("10.0.")}
    ends = made(cell)
    # Who takes BBR up again begins a new flow with the same ports.
    assert {*(flows - ends)} - inside <= {*made(cell, "changing")}
    assert (ends - flows).total() <= skipped(cell, killed)
    # One of namespaces, under BBR at both ends; nothing that nobody made.
    (port,) = {near for address, near, _ in inside if address == "10.0.1.2"}
    assert inside <= {("10.0.1.2", port, 5201), ("10.0.2.2", 5201, port)}
    assert {*flows} - {*ends} == inside


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed"])
def test_a_socket_that_left_bbr_and_came_back_is_told(killed: bool, cell: Cell) -> None:
    """It sent under cubic meanwhile: two flows with the same ports, and no other one left."""
    if (killed and not cell.killed.exists()) or (not killed and cell.rung == "inet_diag"):
        pytest.skip("nothing reads the state of its socket")
    if skipped(cell, killed):
        pytest.skip("what told it may have been skipped")
    told = Counter(
        cell.rows(
            "SELECT kind, local_address, local_port, remote_port FROM capture_quality"
            " JOIN flows USING (run_id, flow) WHERE kind IN ('left_bbr', 'back_to_bbr')",
            killed,
        )
    )
    rows = [json.loads(line) for line in cell.status_text("json").splitlines()]
    (ends,) = [tuple(row[1:]) for row in rows if row[0] == "changing"]
    assert told == Counter([("left_bbr", *ends), ("back_to_bbr", *ends)])


def polled_flows_are_those_that_were_made(cell: Cell) -> None:
    """ss sees what is open when it looks: all that stay open for long."""
    flows = set(cell.rows("SELECT DISTINCT local_address, local_port, remote_port FROM flows"))
    assert {*made(cell, "long")} <= flows
    assert {flow for flow in flows if not flow[0].startswith("10.0.")} <= {*made(cell)}


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed"])
def test_a_replay_of_every_event_is_exact(killed: bool, cell: Cell) -> None:
    bundle = cell.killed if killed else cell.bundle
    if not bundle.exists() or manifest(bundle)["rung"] not in REPLAYED:
        pytest.skip("nothing can be replayed")
    assert exact_events(cell.store(killed)) > 2 * 3000
    # MPTCP disconnects subflows, which clears struct bbr; nothing is missing there.
    gaps = cell.rows("SELECT count(*) FROM gaps WHERE kind != 'disconnected'", killed)[0][0]
    assert gaps <= skipped(cell, killed)


def test_what_was_lost_is_told(cell: Cell) -> None:
    status, said = cell.status_text("status"), cell.status_text("said")
    if cell.rung == "inet_diag":
        assert status == "0\n", said
        return
    if was_unloaded(cell):
        assert status == "1\n"
        assert "module tcp_bbr was unloaded" in said
    else:
        lacks_nothing_unsaid(cell.boot, cell.rung)
    for counts in manifest(cell.bundle)["accounting"]["probes"].values():
        assert counts["attempted"] == counts["recorded"] + counts["cut"]


def test_what_sigkill_left_says_so_and_lacks_nothing(cell: Cell) -> None:
    if not cell.killed.exists():
        pytest.skip("no recorder was killed beside this one")
    assert not (cell.boot / f"{cell.rung}-killed").exists()
    assert accounting.trouble(manifest(cell.killed))[0].startswith("the collector was killed")
    assert cell.status_text("left") == ""


def test_a_packets_state_is_what_the_next_event_was_entered_with(
    cell: Cell, tmp_path: Path
) -> None:
    """tcp_probe's rows against those of the fentry beside it: no callback came between, but for
    those that the kernel skipped."""
    if cell.rung != "tcp_probe" or not cell.killed.exists():
        pytest.skip("of tcp_probe and a recorder beside it")
    both = tmp_path / "both.duckdb"
    bbrscope("ingest", "--store", str(both), "--salvage", str(cell.bundle), str(cell.killed))
    with open_store(both, read_only=True) as store:
        described = store.con.execute("DESCRIBE events").fetchall()
        state = [name for name, *_ in described if name.startswith("bbr_")]
        differs = " OR ".join(f"s.{name} IS DISTINCT FROM e.{name}" for name in state)
        known = "SELECT * FROM events JOIN flows USING (run_id, flow) WHERE cookie > 0 AND kind"
        compared, different = store.con.execute(
            f"WITH s AS ({known} = 'sample'), e AS ({known} != 'sample') "
            f"SELECT count(*), count_if({differs}) "
            "FROM s ASOF JOIN e ON s.cookie = e.cookie AND s.ns <= e.ns WHERE e.kind != 'init'"
        ).fetchall()[0]
    assert compared > 1000
    assert different <= skipped(cell, killed=True)
