"""Kill ``bbrscope collect`` while it records a flow and its packets over loopback."""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.record.output.stream import FLUSH_S, PART_NS, WINDOW_NS

from tests.fuzz.commands import run

from .victim import Victims

NAME = "collect with packets"
# What the collector may not have written yet when it is killed: rows that wait to be put in order,
# and those that wait to be compressed. And its tracers' time to end [s].
NOT_YET_WRITTEN = (WINDOW_NS + PART_NS) / 1e9 + FLUSH_S + 0.3
ENDING = 5.0


@contextmanager
def traffic() -> Iterator[int]:
    """Send under BBR over loopback all the time; yields the port."""
    stopping = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as sender:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
        sender.connect(server.getsockname())
        receiver, _ = server.accept()

        def send() -> None:
            while not stopping.wait(0.005):
                sender.sendall(b"x" * 20_000)
            sender.shutdown(socket.SHUT_WR)

        def receive() -> None:
            with receiver:
                while receiver.recv(1 << 16):
                    pass

        threads = [threading.Thread(target=target) for target in (send, receive)]
        for thread in threads:
            thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            stopping.set()
            for thread in threads:
                thread.join()


def campaign(folder: Path, seed: int, times: int, victims: Victims) -> tuple[str, list[str]]:
    """Kill so many recordings; return in a line what came of it, and what is amiss."""
    random = Random(f"{seed} {NAME}")
    failures: list[str] = []
    ended: dict[str, int] = {}
    with traffic() as port:
        seconds = _uninterrupted(folder, port, victims)
        for number in range(times):
            place = _place(folder)
            after, group = random.uniform(0, seconds), random.random() < 0.5
            status, _ = victims.run(_words(port), place, after, group)
            killed = time.monotonic_ns()
            try:
                came = _look(place, killed) if status == -9 else "had ended"
            except AssertionError as error:
                came = "amiss"
                shown = "with its children" if group else "alone"
                failures.append(f"{NAME} {number}, killed {shown} after {after:.3f} s: {error}")
            ended[came] = ended.get(came, 0) + 1
            shutil.rmtree(place)
    counts = "; ".join(f"{number} {came}" for came, number in sorted(ended.items()))
    return f"{NAME}: {seconds:.2f} s; {times} times: {counts}", failures


def _words(port: int) -> list[str]:
    return [*"collect --rung tcp_probe -i lo -d 3 -o r --port".split(), str(port)]


def _place(folder: Path) -> Path:
    place = folder / "place"
    (place / "tmp").mkdir(parents=True)
    return place


def _uninterrupted(folder: Path, port: int, victims: Victims) -> float:
    """Record once to the end; return how long it takes [s]."""
    place = _place(folder)
    status, seconds = victims.run(_words(port), place, None, False)
    said = (place / "said").read_text()
    assert status == 0, said
    assert not list((place / "tmp").iterdir())
    _load(place, "r")
    shutil.rmtree(place)
    return seconds


def _look(place: Path, killed: int) -> str:
    """See that no tracer lives on, and that what was recorded can be read; say what was left."""
    _wait_for_tracers(place)
    left = [name for name in ("r", "r.partial") if (place / name).is_dir()]
    # What is kept free for finishing is given back when the recording's time is over.
    recording = (place / "r.partial/reserve").exists()
    assert len(left) <= 1, left
    if not left:
        came = "left nothing"
    elif span := _load(place, left[0]):
        last, packets = span
        late = (killed - last) / 1e9
        assert not recording or late < NOT_YET_WRITTEN, f"the last {late:.1f} s are lost"
        came = f"left events of which {'some' if packets else 'no'} packets were recorded"
    else:
        came = "left no event"
    rest = {path.name for path in place.iterdir()} - {"said", "s.duckdb", "tmp", *left}
    assert not rest, rest
    assert not list((place / "tmp").iterdir()), list((place / "tmp").iterdir())
    return came


def _wait_for_tracers(place: Path) -> None:
    """Every process that the command started ends by itself: it has this folder as its TMPDIR."""
    deadline = time.monotonic() + ENDING
    while alive := list(_started_in(place)):
        assert time.monotonic() < deadline, f"still running: {alive}"
        time.sleep(0.05)


def _started_in(place: Path) -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={place}/tmp\0".encode() in (process / "environ").read_bytes():
                yield (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:100]
        except OSError:
            continue  # it has ended


def _load(place: Path, name: str) -> tuple[int, int] | None:
    """Load a recording; return the last event's time [ns] and how many packets; None: no event."""
    before = tempfile.tempdir
    try:
        tempfile.tempdir = f"{place}/tmp"
        store = place / "s.duckdb"
        done = run("ingest", "--salvage", "--store", store, "--as", "r", place / name)
        assert done.is_sound, done
        if done.status:
            assert not store.exists()
            assert re.search("no (whole )?event|no row|empty|no manifest", done.err), done.err
            return None
        with open_store(store, read_only=True) as opened:
            query = "SELECT max(ns), (SELECT count(*) FROM packets) FROM events"
            last, packets = opened.con.execute(query).fetchall()[0]
    finally:
        tempfile.tempdir = before
    return (last, packets) if last is not None else None
