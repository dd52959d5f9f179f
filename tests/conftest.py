"""What all tests share: where recordings lie, and a store that holds the shipped ones."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.analyze.replay import keep_results as results
from bbrscope.analyze.replay import replay_runs as session
from bbrscope.analyze.views.materialize import materialize_replayed
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store import store
from bbrscope.collect.store.store import Store
from hypothesis import settings

from tests import new_stores

# The first call of a compiled function takes as long as its compilation: no deadlines.
settings.register_profile("bbrscope", deadline=None)
settings.load_profile("bbrscope")

_ROOT = Path(__file__).resolve().parents[1]

# What boots guests comes first, and in this order: two workers then end at about the same time.
GUESTS = (
    "test_record_guest.py",
    "test_lab_guest.py",
    "test_record_kernels.py",
    "test_flight_guest.py",
    "test_loading_guest.py",
    "test_phases_guest.py",
    "test_machine.py",
    "test_readme_guest.py",
)


# What a test's module imports if it starts programs, loads and replays recordings, or simulates
# (a simulated second takes several in plain Python).
COSTLY = frozenset(
    "subprocess bbrscope fixtures ingest ingest_many open_store Store store CliRunner pairing"
    " machine EventReader run_compiled simulate of_texts diagnosed Victims".split()
)


store._create = new_stores.copy


@pytest.fixture
def stores_from_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """New stores are made as the product makes them, table by table and view by view."""
    monkeypatch.setattr(store, "_create", new_stores.create)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="what tests/fast runs, nothing else")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(GUESTS)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
    if config.getoption("--fast"):
        dropped = [item for item in items if not is_fast(item)]
        items[:] = [item for item in items if is_fast(item)]
        config.hook.pytest_deselected(items=dropped)


def is_fast(item: pytest.Item) -> bool:
    """Whether a test is quick in plain Python and needs no programs of the system.

    What it uses says so: no fixture that many tests share for its cost, and nothing of `COSTLY`.
    """
    if item.get_closest_marker("slow") or not isinstance(item, pytest.Function):
        return False
    definitions = item._fixtureinfo.name2fixturedefs.values()
    shared = any(one[-1].scope == "session" and one[-1].baseid for one in definitions)
    return not shared and not COSTLY & set(vars(item.module))


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of all recordings, beside the repository or where BBRSCOPE_TRACES says."""
    folder = Path(os.environ.get("BBRSCOPE_TRACES", _ROOT.parent / "shared" / "traces"))
    if not (folder / "v2_single_1bdp" / "manifest.json").is_file():
        pytest.skip(f"no recordings in {folder}: put the run bundles there or set BBRSCOPE_TRACES")
    return folder


Make = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A function that has a store made by the first who wants it, for all workers.

    `tests/all` names a folder that its two runs of pytest share; else it is that of this run.
    """
    own = tmp_path_factory.getbasetemp()
    default = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    folder = Path(os.environ.get("BBRSCOPE_TESTS_STORES", default))

    def made(name: str, fill: Callable[[Path], None]) -> Path:
        path = folder / f"{name}.duckdb"
        with (folder / f"{name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                with tempfile.TemporaryDirectory(dir=folder) as aside:
                    fill(Path(aside) / path.name)
                    (Path(aside) / path.name).rename(path)
        return path

    return made


def replay_all(store: Store) -> None:
    """Replay every run of a store, and keep the results."""
    ids = [store.run_id(name) for name in store.runs()]
    for flows in session.replay_runs(store.con, ids):
        results.keep(store, flows)
    materialize_replayed(store, ids)


@pytest.fixture(scope="session")
def shipped_path(made_once: Make) -> Path:
    """A store with the shipped recordings, ingested and replayed; open it read-only or copy it."""

    def fill(path: Path) -> None:
        with open_store(path) as store:
            for name in fixtures.names():
                ingest(store, fixtures.path(name))
            replay_all(store)

    return made_once("shipped", fill)


def as_samples(lines: list[str]) -> list[str]:
    """What rung tcp_probe would have recorded at the main() calls of a recording: T for M rows."""
    kept: dict[str, list[int]] = {}
    numbers: dict[str, int] = {}
    made = []
    for line in lines:
        tag, *values = line.split(",")
        if tag.startswith("#M"):
            kept[tag[1:]] = [i for i, name in enumerate(values) if not name.startswith("rs.")]
            extra = ["seqno"] if tag == "#M0" else []
            made.append(",".join(["#T" + tag[2:], *(values[i] for i in kept[tag[1:]]), *extra]))
        elif tag in kept:
            extra = [str(numbers.setdefault(values[1], 0))] if tag == "M0" else []
            numbers[values[1]] += tag == "M0"
            made.append(",".join(["T" + tag[1:], *(values[i] for i in kept[tag]), *extra]))
    return made


def write_bundle(folder: Path, lines: list[str] | None, **manifest: Any) -> Path:
    """Write a bundle with these event lines, or without any."""
    folder.mkdir(parents=True)
    document = {"format": "bbrscope-bundle", "version": 1, "name": folder.name}
    document |= {"constants": {"HZ": 1000}}
    (folder / "manifest.json").write_text(json.dumps({**document, **manifest}))
    if lines is not None:
        text = "".join(f"{line}\n" for line in lines)
        (folder / "events.csv.zst").write_bytes(zstandard.compress(text.encode()))
    return folder


# As iproute2 6.1 prints it with -tienO, one line per socket.
SS_LINE = (
    "ESTAB 0       2163483          127.0.0.1:53778          10.0.0.2:5999  "
    "timer:(persist,184ms,0) ino:26883 sk:7f cgroup:/ <-> ts sack bbr wscale:10,10 rto:208 "
    "rtt:5.548/10.989 mss:65483 pmtu:65535 rcvmss:536 advmss:65483 cwnd:18 ssthresh:8 "
    "bytes_sent:22805717 bytes_retrans:65483 bytes_acked:{acked} segs_out:519 segs_in:180 "
    "data_segs_out:517 bbr:(bw:87310645848bps,mrtt:0.006,pacing_gain:{pacing},cwnd_gain:{cwnd}) "
    "send 1699630858bps lastsnd:60 lastrcv:996 lastack:24 pacing_rate 1069359043824bps "
    "delivery_rate 47624000000bps delivered:518 app_limited busy:76ms rwnd_limited:24ms(31.6%) "
    "unacked:20 retrans:0/1 dsack_dups:1 rcv_space:65495 rcv_ssthresh:65495 notsent:2163483 "
    "minrtt:0.006 snd_wnd:1024   "
)


def ss_text(gains: Sequence[tuple[float, float]]) -> str:
    """Samples of one socket, a second apart, with these pacing and cwnd gains; 10 Mbit/s acked."""
    text = ""
    for number, (pacing, cwnd) in enumerate(gains, 1):
        line = SS_LINE.format(pacing=pacing, cwnd=cwnd, acked=number * 1_250_000)
        text += f"# monotonic_ns {number * 10**9}\n{line}\n"
    return text


@pytest.fixture(scope="session")
def sampled_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with shipped recordings, and each again as rung tcp_probe would have made it."""
    path = tmp_path_factory.mktemp("sampled") / "sampled.duckdb"
    with open_store(path) as store:
        for name in ("v1_x_lt", "v3_x_tlp5"):
            ingest(store, fixtures.path(name))
            raw = (fixtures.path(name) / "events.csv.zst").read_bytes()
            reader = zstandard.ZstdDecompressor().stream_reader(raw)
            lines = as_samples(reader.read().decode().splitlines())
            made = write_bundle(path.parent / f"{name}_sampled", lines, rung="tcp_probe")
            ingest(store, made)
        alone = write_bundle(path.parent / "ss_alone", None, rung="inet_diag")
        text = ss_text([(2.88672, 2.88672), (0.34375, 2.88672), *[(1, 2)] * 8, (1, 1), (1, 2)])
        (alone / "ss.txt.zst").write_bytes(zstandard.compress(text.encode()))
        ingest(store, alone)
    return path


@pytest.fixture
def shipped(shipped_path: Path) -> Iterator[Store]:
    """The shipped recordings' store, read-only."""
    with open_store(shipped_path, read_only=True) as store:
        yield store


@pytest.fixture(scope="session")
def all_path(traces: Path, made_once: Make) -> Path:
    """A store with every recording, ingested and replayed."""

    def fill(path: Path) -> None:
        with open_store(path) as store:
            for manifest in sorted(traces.glob("*/manifest.json")):
                ingest(store, manifest.parent, packets=False)
            replay_all(store)

    return made_once("all", fill)


@pytest.fixture(scope="session")
def all_compared_path(traces: Path, all_path: Path, made_once: Make) -> Path:
    """The same store with the packets of recordings that have more than one sender."""

    def fill(path: Path) -> None:
        shutil.copy(all_path, path)
        with open_store(path) as store:
            for manifest in sorted(traces.glob("*/manifest.json")):
                if int(json.loads(manifest.read_text()).get("setup", {}).get("n", 1)) > 1:
                    ingest(store, manifest.parent)

    return made_once("compared", fill)


@pytest.fixture
def all_compared(all_compared_path: Path) -> Iterator[Store]:
    """Every recording's store, read-only, with the packets where senders are compared."""
    with open_store(all_compared_path, read_only=True) as store:
        yield store


@pytest.fixture
def all_runs(all_path: Path) -> Iterator[Store]:
    """Every recording's store, read-only."""
    with open_store(all_path, read_only=True) as store:
        yield store
