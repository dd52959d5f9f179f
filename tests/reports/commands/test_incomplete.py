"""Recordings that lack something: every later command does its job, or says what it cannot tell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import duckdb
import pytest
import zstandard
from bbrscope import fixtures

from tests.fuzz.commands import about, run
from tests.fuzz.damages import DAMAGES, damaged, split

DAMAGED = (
    "no_exit_of_init no_init no_exits no_main rows_dropped hole init_again many_sockets one_time"
    " no_sizes"
).split()
# Columns that were not recorded: by a name that is not known, nothing of them is stored.
LEFT_OUT = {"no_sizes": r"tp.mss_cache|icsk_ca_state", "no_rtt": r"rs.rtt_us|tp.srtt_us"}
# A recording's first rows.
ROWS = 400


def bundle(folder: Path, recording: str, damage: str, most: int = ROWS) -> Path:
    """The beginning of a recording, damaged; its manifest tells of no counts."""
    source, made = fixtures.path(recording), folder / f"{recording}.{damage}"
    made.mkdir(parents=True)
    manifest = json.loads((source / "manifest.json").read_text())
    manifest = {k: v for k, v in manifest.items() if k not in ("events", "socket_samples")}
    (made / "manifest.json").write_text(json.dumps({**manifest, "name": made.name}))
    with (source / "events.csv.zst").open("rb") as raw:
        text = zstandard.ZstdDecompressor().stream_reader(raw).read().decode()
    heads, rows = split(text.splitlines())
    lines = [*heads, *rows[:most]]
    if damage in LEFT_OUT:
        lines = [re.sub(LEFT_OUT[damage], r"other.\g<0>", line) for line in lines]
    else:
        lines = damaged(lines, DAMAGES[damage], Random(1))
    (made / "events.csv.zst").write_bytes(zstandard.compress("\n".join([*lines, ""]).encode()))
    return made


# Each damage in one of two recordings.
NAMES = [
    f"{('v2_x_spur', 'v1_x_lt')[number % 2]}.{damage}" for number, damage in enumerate(DAMAGED)
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with recordings, each damaged in another way."""
    folder = tmp_path_factory.mktemp("incomplete")
    made = [bundle(folder, *name.split(".")) for name in NAMES]
    path = folder / "s.duckdb"
    done = run("ingest", "--jobs", "1", "--salvage", "--store", path, *made)
    assert (done.status, done.failure) == (0, ""), done.err
    done = run("replay", "--store", path)
    assert done.is_sound, done.failure or done.err
    return path


def test_every_incomplete_recording_goes_through_the_commands(store: Path, tmp_path: Path) -> None:
    """Each is explained; of the other commands about a run, each of them gets its share."""
    at = ("--store", str(store))
    for number, name in enumerate(NAMES):
        rest = list(about(name, at, tmp_path / str(number)))[number :: 2 * len(NAMES)]
        for words in (("explain", *at, "--", name), *rest):
            done = run(*words)
            assert done.is_sound, f"{words}: {done.failure or done.err}"
            assert done.status == 0 or done.out + done.err, words


def test_incomplete_recordings_go_through_the_commands_together(
    store: Path, tmp_path: Path
) -> None:
    at = ("--store", str(store))
    page = ("-o", str(tmp_path / "page.html"))
    for words in (
        ("diagnose", *at),
        ("diff", *at, "--a", "*no_ex*", "--b", "*o*"),
        ("report", *at, *page, "--where", "true"),
        ("report", *at, "-o", str(tmp_path / "one.html"), "--", NAMES[-1]),
        ("export", *at, "--views", "--parquet", str(tmp_path / "lab")),
    ):
        done = run(*words)
        assert done.is_sound, f"{words}: {done.failure or done.err}"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("no_init", "the recording starts in the middle of the flow"),
        ("no_exits", "  unknown begins"),
        ("hole", "in the recording hide"),
    ],
)
def test_what_cannot_be_reported_is_said(damage: str, words: str, store: Path) -> None:
    (name,) = [name for name in NAMES if name.endswith(f".{damage}")]
    done = run("explain", "--store", store, "--", name)
    assert words in done.out, done.out[:1500]


def test_what_nobody_knows_without_main_is_said_by_every_command(
    store: Path, tmp_path: Path
) -> None:
    (name,) = [name for name in NAMES if name.endswith(".no_main")]
    at, page = ("--store", store), tmp_path / "page.html"
    for words in (
        ("explain", *at, name),
        ("explain", *at, "--flow", "1", name),
        ("diagnose", *at, name),
        ("metrics", *at, name),
        ("what-if", *at, "--as", "v3", name),
        ("replay", *at, "--as", "v3", name),
    ):
        done = run(*words)
        assert done.is_sound, done.failure
        assert "main() was never recorded" in done.out + done.err, words
    assert run("report", *at, "-o", page, name).status == 0
    assert "The recording is incomplete: main() was never recorded" in page.read_text()
    done = run("replay", *at, name)
    assert "missing_main: tp.delivered grew by" in done.out


@pytest.mark.parametrize("damage", ["hole", "many_sockets", "rows_dropped"])
def test_every_command_says_what_a_recording_lacks(
    damage: str, store: Path, tmp_path: Path
) -> None:
    """Where only flows with next to no data are left, too, and beside numbers."""
    (name,) = [name for name in NAMES if name.endswith(f".{damage}")]
    at, to = ("--store", store), tmp_path / "out"
    for words in (
        ("explain", *at, name),
        ("diagnose", *at, name),
        ("metrics", *at, "--format", "json", name),
        ("diff", *at, name, name),
        ("plot", *at, "--spec", "rates", name),
        ("export", *at, "--format", "openmetrics", "-o", to, name),
        ("replay", *at, "--as", "v3", name),
        ("what-if", *at, "--as", "v3", name),
    ):
        done = run(*words)
        assert done.is_sound, done.failure
        assert "he recording is incomplete: " in done.out + done.err, words
        assert "delivered_jump" in done.out + done.err, words


def test_what_no_number_depends_on_is_not_said_beside_each(tmp_path: Path) -> None:
    """That the last exits of a whole recording are not there is said where the run is told of."""
    at = ("--store", tmp_path / "s.duckdb")
    assert run("ingest", *at, fixtures.path("v2_x_spur")).status == 0
    assert "exits_stop" not in run("metrics", *at).err
    assert "1 x exits_stop" in run("explain", *at, "v2_x_spur").out


def test_calls_that_are_missing_are_no_time_in_which_nothing_came(tmp_path: Path) -> None:
    """A third of a recording is not there: the flow did not stand still meanwhile."""
    made, at = bundle(tmp_path, "v2_single_1bdp", "hole", 3000), ("--store", tmp_path / "s.duckdb")
    assert run("ingest", *at, "--salvage", "--", made).status == 0
    (diagnosis,) = json.loads(run("diagnose", *at, "--format", "json", made.name).out)
    assert diagnosis["trust"]["missing"]["gaps"] == 1
    outcomes = {check["name"]: check["outcome"] for check in diagnosis["checks"]}
    assert outcomes["stalled_start"] == outcomes["outage"] == "clear"


def test_an_init_whose_exit_was_not_recorded_is_compared_with_what_the_next_event_found(
    store: Path,
) -> None:
    (first,) = [name for name in NAMES if name.endswith(".no_exit_of_init")]
    (all_exits,) = [name for name in NAMES if name.endswith(".no_exits")]
    done = run("replay", "--store", store, "--", first, all_exits)
    assert (done.status, done.failure) == (0, ""), done.out
    assert "diverge" not in done.out


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("no_main", "the recording shows no RTT: nothing can be compared"),
        ("zeros", "the recording shows no goodput and no RTT"),
        ("one_time", "as short as the recording, shows no"),
        ("clock_ahead", "flows paused, or the clock jumped"),
    ],
)
def test_a_what_if_compares_nothing_that_was_not_measured(
    damage: str, words: str, tmp_path: Path
) -> None:
    """The path is described, but an RTT of 0 told of kernels' RTTs of weeks."""
    made, at = bundle(tmp_path, "v2_single_1bdp", damage), ("--store", tmp_path / "s.duckdb")
    assert run("ingest", *at, "--salvage", "--", made).status == 0
    done = run("what-if", *at, "--as", "v3", "--", made.name)
    assert (done.status, done.failure) == (1, "")
    assert words in done.err


def test_a_flow_that_stalled_is_explained_where_no_rtt_was_recorded(tmp_path: Path) -> None:
    made, at = bundle(tmp_path, "v2_x_spur", "no_rtt", 5000), ("--store", tmp_path / "s.duckdb")
    assert run("ingest", *at, "--salvage", "--", made).status == 0
    done = run("explain", *at, "--", made.name)
    assert (done.status, done.failure) == (0, "")
    assert "Nothing was acknowledged for" in done.out


def test_the_page_of_a_run_of_a_strangers_store_stays_in_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bundle can be called that, but a store may say anything."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert run("ingest", "--store", "s.duckdb", fixtures.path("v1_x_lt")).status == 0
    with duckdb.connect("s.duckdb") as con:
        con.execute("UPDATE runs SET run = '../evil'")
    done = run("report", "--store", "s.duckdb", "--", "../evil")
    assert (done.status, done.failure) == (0, ""), done.err
    assert [path.name for path in tmp_path.iterdir()] == ["here"]
    assert (here / ".._evil.html").is_file()
