"""Bundles land in the store wholly or not at all, with what they lack on record."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store import schema
from bbrscope.collect.store.store import Store, open_store
from bbrscope.probes.base.errors import BundleError, StoreError

Make = Callable[..., Path]
Lines = list[str]
SPUR = "v2_x_spur"
NAMED = Path(__file__).parents[1] / "record" / "debian_11"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "test.duckdb") as opened:
        yield opened


def rows(store: Store, query: str, *values: Any) -> list[tuple[Any, ...]]:
    return store.con.execute(query, list(values)).fetchall()


def content(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table, but for which views are installed."""
    return {
        table.name: sorted(
            (row for row in rows(store, f'FROM "{table.name}"') if row[0] != "views"), key=repr
        )
        for table in schema.TABLES
    }


def load(store: Store, path: Path, **options: Any) -> Any:
    """Load a bundle without its packets, which have tests of their own."""
    return ingest(store, path, packets=False, **options)


def test_why_events_cannot_be_stored_is_reported_and_the_stores_settings_stay(store: Store) -> None:
    """Not that DuckDB accepts nothing in a transaction that the error has made void."""
    limit = "SELECT current_setting('memory_limit')"
    before = store.con.execute(limit).fetchall()
    # Many runs loaded one after the other: DuckDB kept 4.6 GB of the file.
    assert before == [("320.0 MiB",)]
    store.con.execute("DROP TABLE events")
    store.con.execute("CREATE TABLE events (run_id INTEGER)")
    with pytest.raises(StoreError, match=r"events.* column"):
        ingest(store, fixtures.path("v2_single_1bdp"), packets=False)
    assert store.con.execute(limit).fetchall() == before


def test_the_row_counts_of_the_manifest_are_the_events_in_the_store(store: Store) -> None:
    outcome = load(store, fixtures.path("v2_single_1bdp"))
    assert (outcome.run, outcome.version, outcome.already) == ("v2_single_1bdp", "v2", False)
    assert dict(rows(store, "SELECT kind, count(*) FROM events GROUP BY kind")) == {
        "init": 2,
        "main": 10517,
        "cwnd_event": 1,
        "set_state": 5,
        "skb_marked_lost": 75,
        "ssthresh": 2,
    }
    assert rows(store, "SELECT count(*) FROM events WHERE NOT complete") == [(0,)]
    assert rows(store, "SELECT count(*) FROM capture_quality") == [(0,)]


def test_iperf3_and_the_kernel_name_the_same_connection(store: Store) -> None:
    load(store, fixtures.path("v2_single_1bdp"))
    assert rows(
        store,
        "SELECT local_address, local_port, remote_address, remote_port FROM flows ORDER BY flow",
    ) == [("10.1.1.2", 41778, "10.9.0.2", 5201), ("10.9.0.2", 5201, "10.1.1.2", 41778)]
    text = rows(store, "SELECT text FROM attachments WHERE name = 'iperf1.json'")[0][0]
    assert text.encode() == (fixtures.path("v2_single_1bdp") / "iperf1.json").read_bytes()


def test_parameters_settings_clocks_and_queue_land_in_their_tables(store: Store) -> None:
    load(store, fixtures.path("v2_single_1bdp"))
    assert rows(store, "SELECT flow, high_gain, beta, pacing_gain_1, undo FROM params") == [
        (1, 739, 76, 192, True),
        (2, 739, 76, 192, True),
    ]
    assert rows(store, "SELECT value FROM host_facts WHERE name = 'tcp_bbr2.ecn_enable'") == [
        ("N",)
    ]
    assert rows(store, "SELECT monotonic_ns FROM clocks ORDER BY point DESC") == [
        (62158068789,),
        (90846410937,),
    ]
    first = rows(store, "FROM queue_samples SELECT boottime_ns, ns, kind, sent_pkts LIMIT 1")
    assert first == [(60_890_000_000, 60_890_000_000 - 1584, "tbf", 5)]


def test_numbers_of_64_bits_stay_exact(store: Store) -> None:
    load(store, fixtures.path(SPUR))
    found = rows(store, "SELECT DISTINCT sk_max_pacing_rate FROM events WHERE kind = 'main'")
    assert found == [((1 << 64) - 1,)]
    assert rows(store, "SELECT rs_delivered, rs_interval_us FROM events WHERE seq = 0") == [
        (-1, -1)
    ]
    assert rows(store, "SELECT count(*) FROM events WHERE kind <> 'main' AND rs_rtt_us >= 0") == [
        (0,)
    ]


def test_loading_a_bundle_twice_changes_nothing(store: Store, tmp_path: Path) -> None:
    first = load(store, fixtures.path(SPUR))
    before = content(store)
    copied = tmp_path / "renamed"
    shutil.copytree(fixtures.path(SPUR), copied)
    plain = tmp_path / "run.tar"
    with tarfile.open(plain, "w") as tar:
        tar.add(copied, "run")
    packed = tmp_path / "run.tar.zst"
    packed.write_bytes(zstandard.compress(plain.read_bytes()))
    for again in (fixtures.path(SPUR), copied, packed):
        assert load(store, again) == replace(first, already=True)
    assert content(store) == before


def test_a_run_replaced_in_the_same_transaction_leaves_no_row(
    store: Store, make_bundle: Make, spur_lines: Lines
) -> None:
    """Few rows of a table wait for the end of the transaction: then their run may be no more."""
    other = make_bundle(spur_lines, SPUR)
    load(store, other)
    alone = {name: len(rows) for name, rows in content(store).items()}
    with store.transaction():
        store.delete_run(store.run_id(SPUR))
    both = [fixtures.path(SPUR), other]
    with store.joined():
        given = [load(store, path, replace=True) for path in both]
    assert [outcome.already for outcome in given] == [False, False]
    assert {name: len(rows) for name, rows in content(store).items()} == alone


def test_plain_python_loads_the_same_as_compiled_code(store: Store, tmp_path: Path) -> None:
    load(store, fixtures.path(SPUR))
    compiled = content(store)
    plain = tmp_path / "plain.duckdb"
    subprocess.run(
        [
            Path(sys.executable).with_name("bbrscope"),
            *("ingest", "--no-packets", "--store", plain, fixtures.path(SPUR)),
        ],
        env={**os.environ, "BBRSCOPE_PLAIN": "1"},
        check=True,
        capture_output=True,
    )
    with open_store(plain, read_only=True) as opened:
        assert content(opened) == compiled


def test_a_run_is_removed_wholly_and_no_other_with_it(store: Store) -> None:
    load(store, fixtures.path("v2_single_1bdp"))
    before = content(store)
    load(store, fixtures.path(SPUR))
    with store.transaction():
        store.delete_run(store.run_id(SPUR))
    assert content(store) == before


def test_another_bundle_of_the_same_name_needs_a_decision(
    store: Store, make_bundle: Make, spur_lines: Lines
) -> None:
    load(store, fixtures.path(SPUR))
    before = content(store)
    other = make_bundle(spur_lines, SPUR)
    with pytest.raises(StoreError, match="another run called 'v2_x_spur'") as caught:
        load(store, other)
    assert "--replace" in caught.value.way_out
    assert "--as NAME" in caught.value.way_out
    assert content(store) == before
    assert load(store, other, name="second").run == "second"
    assert store.runs() == [SPUR, "second"]
    assert load(store, other, replace=True).run == SPUR
    assert sorted(store.runs()) == ["second", SPUR]
    with pytest.raises(StoreError, match="cannot name a run"):
        load(store, other, name="../x")


def without(lines: Lines, tag: str, nth: int) -> tuple[Lines, int]:
    """Return the lines without the nth row of a tag, and that row's line number."""
    at = [i for i, line in enumerate(lines) if line.startswith(f"{tag},")][nth]
    return [*lines[:at], *lines[at + 1 :]], at + 1


def damaged(lines: Lines, kind: str) -> tuple[Lines | bytes, int]:
    """Return damaged event lines and the line that the message must name."""
    at = next(i for i, line in enumerate(lines) if line.startswith("M0,") and i > 1000)
    if kind == "short row":
        return [*lines[:at], lines[at].rsplit(",", 1)[0], *lines[at + 1 :]], at + 1
    if kind == "out of range":
        fields = lines[at].split(",")
        fields[25] = "4294967296"
        return [*lines[:at], ",".join(fields), *lines[at + 1 :]], at + 1
    if kind == "out of order":
        fields = lines[at].split(",")
        fields[1] = "1"
        return [*lines[:at], ",".join(fields), *lines[at + 1 :]], at + 1
    text = "".join(f"{line}\n" for line in lines).encode()
    if kind == "cut line":
        head = "".join(f"{line}\n" for line in lines[:at]).encode()
        return zstandard.compress(head + lines[at].encode()[:50]), at + 1
    whole = zstandard.ZstdCompressor(write_checksum=True).compress(text)
    if kind == "corrupt":
        return whole[:50_000] + bytes(8) + whole[50_008:], 0
    return whole[: len(whole) // 2], 0  # cut off


@pytest.mark.parametrize(
    "kind", ["short row", "out of range", "out of order", "cut line", "cut off", "corrupt"]
)
def test_a_damaged_recording_is_refused_with_its_line_and_leaves_the_store_as_it_was(
    kind: str, store: Store, make_bundle: Make, spur_lines: Lines
) -> None:
    load(store, fixtures.path("v2_single_1bdp"))
    before = content(store)
    lines, line = damaged(spur_lines, kind)
    folder = make_bundle(lines, "damaged")
    with pytest.raises(BundleError) as caught:
        load(store, folder)
    place = f"{folder}/events.csv.zst, line {line}: " if line else f"{folder}/events.csv.zst, line "
    assert caught.value.fact.startswith(place)
    assert caught.value.way_out
    assert content(store) == before


def test_a_missing_half_is_refused_with_its_line_if_the_manifest_counts_it(
    store: Store, make_bundle: Make, spur_lines: Lines
) -> None:
    lines, line = without(spur_lines, "M1", 700)
    counted = [*spur_lines]
    folder = make_bundle(counted, "half")
    (folder / "events.csv.zst").write_bytes(
        zstandard.compress("".join(f"{text}\n" for text in lines).encode())
    )
    with pytest.raises(BundleError) as caught:
        load(store, folder)
    assert "M1: 5138 rows, the manifest says 5139" in caught.value.fact
    assert f"line {line - 1}: main at line {line - 1}: M0 recorded, M1 missing" in caught.value.fact
    assert store.runs() == []


def test_a_missing_half_is_refused_if_nobody_admits_a_loss(
    store: Store, make_bundle: Make, spur_lines: Lines
) -> None:
    lines, line = without(spur_lines, "M1", 700)
    with pytest.raises(BundleError) as caught:
        load(store, make_bundle(lines, count=False))
    assert f"line {line - 1}: main at line {line - 1}" in caught.value.fact
    assert "--salvage" in caught.value.way_out


@pytest.mark.parametrize("admits", ["counts", "manifest", "message"])
def test_a_missing_half_is_a_finding_if_the_recording_admits_a_loss(
    admits: str, store: Store, make_bundle: Make, spur_lines: Lines
) -> None:
    lines, line = without(spur_lines, "M1", 700)
    if admits == "message":
        lines = [*lines, "Lost 1 events"]
    lost = {"events_lost": 1} if admits == "manifest" else {}
    outcome = load(store, make_bundle(lines, count=admits == "counts", **lost))
    assert outcome.notes["half_event"] == 1
    found = rows(store, "SELECT flow, line FROM capture_quality WHERE kind = 'half_event'")
    assert found == [(1, line - 1)]
    assert rows(store, "SELECT half_events, salvaged FROM runs") == [(1, False)]


@pytest.mark.parametrize("kind", ["short row", "out of range", "out of order", "cut line"])
def test_salvage_keeps_every_whole_event_of_a_damaged_recording(
    kind: str, store: Store, make_bundle: Make, spur_lines: Lines
) -> None:
    load(store, fixtures.path(SPUR))
    lines, line = damaged(spur_lines, kind)
    load(store, make_bundle(lines, "damaged"), salvage=True)
    lost = rows(
        store,
        "SELECT line FROM events WHERE run_id = 1 AND line NOT IN "
        "(SELECT line FROM events WHERE run_id = 2)",
    )
    if kind == "cut line":
        assert min(lost)[0] == line
    else:
        assert lost == [(line,)]
    assert rows(store, "SELECT salvaged FROM runs WHERE run_id = 2") == [(True,)]


def test_salvage_of_a_cut_off_file_gives_the_events_up_to_the_cut(
    store: Store, make_bundle: Make, spur_lines: Lines
) -> None:
    load(store, fixtures.path(SPUR))
    lines, _ = damaged(spur_lines, "cut off")
    outcome = load(store, make_bundle(lines, "damaged"), salvage=True)
    assert 500 < outcome.events < 5266
    assert outcome.notes["cut_off"] == 1
    differing = rows(
        store,
        "SELECT count(*) FROM (SELECT * EXCLUDE (run_id, complete, exit_ns, exit_snd_cwnd, "
        "exit_sk_pacing_rate, exit_snd_ssthresh, exit_app_limited, exit_jiffies32) FROM events "
        "WHERE run_id = 2 EXCEPT SELECT * EXCLUDE (run_id, complete, exit_ns, exit_snd_cwnd, "
        "exit_sk_pacing_rate, exit_snd_ssthresh, exit_app_limited, exit_jiffies32) FROM events "
        "WHERE run_id = 1)",
    )
    assert differing == [(0,)]


def test_salvage_is_proposed_where_it_works_alone(make_bundle: Make, spur_lines: Lines) -> None:
    """A bad row comes first; that the data is corrupt as well shows only further on."""
    lines, _ = damaged(spur_lines, "short row")
    bundle = make_bundle(lines, "damaged")
    for corrupt, words in ((False, "--salvage"), (True, "restore the file from a copy")):
        path = bundle / "events.csv.zst"
        if corrupt:
            end = zstandard.compress("\n".join([*lines, ""]).encode())
            whole = path.read_bytes() + end
            path.write_bytes(whole[: -len(end) // 2] + bytes(64) + whole[-len(end) // 2 + 64 :])
        with open_store(bundle / "s.duckdb") as store, pytest.raises(BundleError) as refused:
            load(store, bundle)
        assert words in refused.value.way_out
    path.write_bytes(path.read_bytes()[:20])
    with open_store(bundle / "s.duckdb") as store, pytest.raises(BundleError) as refused:
        load(store, bundle)
    assert "cut off" in refused.value.fact
    assert "--salvage" not in refused.value.way_out


@pytest.mark.parametrize("name", ["", " ", "=1+1", "--help", "my run", ".."])
def test_a_name_that_names_nothing_is_refused(name: str, store: Store) -> None:
    with pytest.raises(StoreError, match="cannot name a run"):
        load(store, fixtures.path(SPUR), name=name)


def test_corrupt_data_is_not_salvaged(store: Store, make_bundle: Make, spur_lines: Lines) -> None:
    lines, _ = damaged(spur_lines, "corrupt")
    with pytest.raises(BundleError, match="corrupt"):
        load(store, make_bundle(lines, "damaged"), salvage=True)


def test_exits_that_stop_are_one_finding_and_single_ones_are_their_own(
    store: Store, make_bundle: Make, spur_lines: Lines
) -> None:
    lines, _ = without(spur_lines, "X", 100)
    outcome = load(store, make_bundle(lines))
    assert outcome.notes == {"exits_stop": 1, "missing_exit": 1}
    assert load(store, make_bundle(lines)) == replace(outcome, already=True)
    assert (
        "163 later events"
        in rows(store, "SELECT detail FROM capture_quality WHERE kind = 'exits_stop'")[0][0]
    )


def test_a_recording_from_the_middle_of_a_flow_says_so(
    store: Store, make_bundle: Make, spur_lines: Lines
) -> None:
    head = [line for line in spur_lines if line.startswith("#")]
    begins = next(i for i, line in enumerate(spur_lines) if i > 3000 and line.startswith("M0,"))
    outcome = load(store, make_bundle([*head, *spur_lines[begins:]]))
    assert outcome.notes == {"exits_stop": 1, "no_init": 1}
    assert load(store, make_bundle([*head, *spur_lines[begins:]])) == replace(outcome, already=True)
    assert rows(store, "SELECT has_init, note FROM flows") == [
        (False, "recording starts in the middle of this flow")
    ]


def test_a_recording_without_a_whole_event_or_a_known_layout_is_refused(
    store: Store, make_bundle: Make
) -> None:
    with pytest.raises(BundleError, match="has no whole event"):
        load(store, make_bundle(["#M,ns,sk,bbr.lt_bw"]))
    with pytest.raises(BundleError, match="none of the fields that tell BBR's versions apart"):
        load(store, make_bundle(["#M,ns,sk,bbr.mode", "M,1,a,0"]))
    assert store.runs() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind,dropped\ntbf,1\n", "line 1: no column uptime_s"),
        ("uptime_s,dropped\n1.5\n", "line 2: 1 column, the header names 2"),
        ("uptime_s,dropped\n1.5,1\n1.6,-1\n", "line 3: dropped is '-1', not a count"),
        ("uptime_s\nnan\n", "line 2: uptime_s is 'nan', not a time"),
    ],
)
def test_impossible_queue_samples_are_refused_with_their_line(
    text: str, words: str, store: Store, make_bundle: Make, spur_lines: Lines
) -> None:
    folder = make_bundle(spur_lines)
    (folder / "queue.csv.zst").write_bytes(zstandard.compress(text.encode()))
    with pytest.raises(BundleError) as caught:
        load(store, folder)
    assert words in caught.value.fact
    assert store.runs() == []


def test_the_kernel_recordings_load_with_exactly_the_losses_they_have(
    traces: Path, store: Store
) -> None:
    lossy = load(store, traces / "lossy_v3_ecn")
    assert lossy.lost == 38684
    assert {"half_event", "orphan_row", "missing_exit", "lost_declared"} <= set(lossy.notes)
    silent = load(store, traces / "lossy_v2_one_silent_miss")
    assert silent.notes == {"delivered_jump": 1}
    assert load(store, traces / "v1_x_lt").version == "v1"
    assert load(store, traces / "v3_x_gso2").notes == {}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_recording(tmp_path: Path) -> None:
    """Half a million events are 400 MB of text; the interpreter itself takes about 270 MiB."""
    program = Path(__file__).resolve().parents[2] / "bench" / "bench_ingest.py"
    big = tmp_path / "big"
    events = runpy.run_path(str(program))["enlarge"](fixtures.path("v2_single_1bdp"), big, 600_000)
    answer = subprocess.run(
        [sys.executable, program, big, "--measure", "whole"], check=True, capture_output=True
    )
    found = json.loads(answer.stdout)
    assert found["events"] == events > 500_000
    assert found["peak"] - found["before"] < 300


@pytest.mark.slow
def test_every_recording_loads_and_its_rows_add_up(traces: Path, store: Store) -> None:
    for manifest in sorted(traces.glob("*/manifest.json")):
        load(store, manifest.parent)
    odd = dict(
        rows(
            store,
            "SELECT run, list(DISTINCT kind ORDER BY kind) FROM capture_quality "
            "JOIN runs USING (run_id) GROUP BY run",
        )
    )
    del odd["lossy_v3_ecn"]
    assert odd == {
        "lossy_v2_one_silent_miss": ["delivered_jump"],
        "v2_ecn_codel": ["exits_stop"],
        "v2_x_spur": ["exits_stop"],
        "v3_ecn_codel": ["duplicate_row", "exits_stop", "orphan_row"],
        "v3_x_idle": ["exits_stop"],
    }
    assert rows(store, "SELECT count(*) FROM runs WHERE left(run, 2) <> version") == [(2,)]


@pytest.mark.parametrize("change", ["less", "more"])
def test_rows_that_name_sockets_are_as_many_as_the_manifest_says(
    change: str, store: Store, tmp_path: Path
) -> None:
    """N rows are of no event, and without one its flow has no name, or another's."""
    bundle = shutil.copytree(NAMED, tmp_path / "named")
    events = bundle / "events.csv.zst"
    lines = zstandard.decompress(events.read_bytes(), 1 << 27).splitlines(keepends=True)
    named = [at for at, line in enumerate(lines) if line.startswith(b"N,")]
    said = len(named)
    lines[named[0] : named[0] + 1] = [] if change == "less" else 2 * [lines[named[0]]]
    events.write_bytes(zstandard.compress(b"".join(lines)))
    found = said + (1 if change == "more" else -1)
    with pytest.raises(BundleError, match=rf": N: {found} rows?, the manifest says {said}"):
        load(store, bundle)
    load(store, bundle, salvage=True)
    assert rows(store, "SELECT kind FROM capture_quality WHERE kind = 'row_count'") != []
