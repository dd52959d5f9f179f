"""M-Lab's tcp-info archives, written here by the kernel's own order of fields."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.bundle.recognise import recognise
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.ingest.outcome import Outcome
from bbrscope.collect.ingest.together import all_or_each
from bbrscope.collect.samples.tcp_info_lines import Archive, Rows
from bbrscope.collect.samples.tcp_info_rows import MESSAGE_BYTES, columns
from bbrscope.collect.store import waiting_rows
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BundleError
from bbrscope.reports.cli import cli
from bbrscope.reports.commands.ingest import describe
from click.testing import CliRunner

from tests.tcp_info import TCP_INFO, line, message, snapshot, tcp_info


def archive(path: Path, lines: list[str]) -> Path:
    path.write_bytes(zstandard.compress(("\n".join(lines) + "\n").encode()))
    return path


def test_an_archive_becomes_a_run_of_rung_inet_diag(tmp_path: Path) -> None:
    lines = ['{"Metadata": {"UUID": "x_1", "Sequence": 0}}', snapshot(1, 1), snapshot(2, 2)]
    broken = snapshot(3, 3).replace("bbr", "BBR")[:-30]
    lines += [snapshot(3, 1, 6000), broken, '{"RawIDM": "!", "Timestamp": 5}', '{"RawIDM": [[1]]}']
    path = archive(tmp_path / "x_1.00000.jsonl.zst", lines)
    assert recognise(path) == "tcp_info"
    with open_store(tmp_path / "s.duckdb") as store:
        outcome = ingest(store, path)
        assert (outcome.rung, outcome.run, outcome.flows) == ("inet_diag", "x_1.00000", 2)
        assert ", 3 samples of tcp-info" in describe(outcome, store.path)
        rows = store.con.sql("FROM samples ORDER BY flow, ns").pl().to_dicts()
        ends = "SELECT local_address, local_port, remote_address, remote_port FROM flows"
        assert store.con.execute(ends).fetchall()[0] == ("10.0.0.1", 5000, "10.0.0.2", 443)
        said = dict(store.con.execute("SELECT kind, detail FROM capture_quality").fetchall())
    assert "a pause says that nothing did" in said["samples_on_change"]
    assert said["samples_broken"].startswith("1 line with a snapshot cannot be read, the first")
    assert "line 5:" in said["samples_broken"]
    place = {name: number for number, (name, _) in enumerate(TCP_INFO)}
    first, second, other = rows
    assert (first["flow"], second["flow"], other["flow"]) == (1, 1, 2)
    assert first["ns"] == 1_563_311_341_000_000_001
    for column, name, scale in (
        ("mss", "snd_mss", 1),
        ("srtt_us", "rtt", 1),
        ("snd_cwnd", "snd_cwnd", 1),
        ("sk_pacing_rate", "pacing_rate", 8),
        ("bytes_acked", "bytes_acked", 1),
        ("tcp_min_rtt_us", "min_rtt", 1),
        ("delivery_rate", "delivery_rate", 8),
        ("delivered", "delivered", 1),
        ("delivered_ce", "delivered_ce", 1),
        ("bytes_retrans", "bytes_retrans", 1),
    ):
        assert first[column] == (1000 + place[name]) * scale, column
        assert second[column] == (2000 + place[name]) * scale, column
    assert first["busy_ms"] == (1000 + place["busy_time"]) // 1000
    assert first["snd_ssthresh"] is None
    assert first["app_limited"] is True
    assert first["in_flight"] == 1000 + place["unacked"] - 1
    # 0x180000000 bytes/s; 739 / 256 = 2.887, BBR's gain in STARTUP.
    assert (first["bw"], first["min_rtt_us"]) == (0x180000000 * 8, 20_000)
    assert first["phase"] == "STARTUP"


def test_what_limited_a_flow_and_what_it_sent_again_is_measured(tmp_path: Path) -> None:
    """The kernel counts both in every snapshot; it was told as not recorded."""
    bbr = struct.pack("<5I", 1_000_000, 0, 20_000, 256, 512)
    lines = [
        line(
            f"2019-07-16T21:09:{second:02d}.000Z",
            message(),
            tcp_info(
                {
                    "snd_mss": 1448,
                    "rtt": 20_000,
                    "bytes_acked": 1448 * 1000 * second,
                    "delivered": 1000 * second,
                    "total_retrans": 10 * second,
                    "rwnd_limited": 250_000 * second,
                    "sndbuf_limited": 125_000 * second,
                }
            ),
            bbr,
        )
        for second in range(11)
    ]
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, archive(tmp_path / "a.jsonl.zst", lines))
        asked = "lost_packets, loss_rate, rwnd_limited_share, sndbuf_limited_share"
        (found,) = store.con.execute(f"SELECT {asked} FROM metrics_by_flow").fetchall()
    assert found == (100, pytest.approx(100 / 10_100), pytest.approx(0.25), pytest.approx(0.125))


def test_the_story_claims_no_rhythm_of_snapshots_on_change(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "x_1.00000.jsonl.zst", [snapshot(1, 1), snapshot(2, 2), snapshot(9, 3)]
    )
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, path)
    words = ["explain", "x_1.00000", "--flow", "1", "--store", str(tmp_path / "s.duckdb")]
    told = CliRunner().invoke(cli, words, catch_exceptions=False).output
    assert "recorded by inet_diag: what `ss -ti` shows from time to time" in told
    assert "a second" not in told


def test_archives_put_together_become_a_run_of_their_flows(tmp_path: Path) -> None:
    parts = [[snapshot(second, 1, port) for second in range(5)] for port in (7000, 7001, 7002)]
    packed = [zstandard.compress(("\n".join(part) + "\n").encode()) for part in parts]
    path = tmp_path / "day.jsonl.zst"
    path.write_bytes(b"".join(packed))
    with open_store(tmp_path / "s.duckdb") as store:
        assert ingest(store, path).flows == 3
        counts = "SELECT flow, count(*), max(ns) - min(ns) FROM samples GROUP BY flow ORDER BY flow"
        assert store.con.execute(counts).fetchall() == [(n, 5, 4 * 10**9) for n in (1, 2, 3)]


def test_archives_that_are_loaded_together_have_the_rows_of_each_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones wait for the end of their transaction; one that fails takes no other with it."""
    paths = [
        archive(tmp_path / f"x_{k}.jsonl.zst", [snapshot(n, k) for n in range(1, 9 + k)])
        for k in (1, 2, 3)
    ]
    broken = tmp_path / "x_2b.jsonl.zst"
    broken.write_bytes(paths[1].read_bytes()[:-9])
    monkeypatch.setattr(waiting_rows, "MOST_IN_BATCHES", 15)
    with (
        open_store(tmp_path / "alone.duckdb") as alone,
        open_store(tmp_path / "all.duckdb") as all_,
    ):
        expected = [ingest(alone, path) for path in paths]
        together = [paths[0], paths[1], broken, paths[2]]
        made = all_or_each(all_, together, lambda path: loaded(all_, path))
        assert [one for one in made if one is not None] == expected
        for table in ("samples", "flows", "runs", "capture_quality"):
            rows = [
                store.con.sql(f"FROM {table} ORDER BY ALL").fetchall() for store in (alone, all_)
            ]
            assert rows[0] == rows[1], table


def loaded(store: Store, path: Path) -> Outcome | None:
    try:
        return ingest(store, path)
    except BundleError:
        return None


@pytest.mark.parametrize("snapshots", [0, 1])
def test_an_archive_without_bbr_is_refused(tmp_path: Path, snapshots: int) -> None:
    """One without any snapshot was called damaged, or no .tar.zst."""
    line = json.loads(snapshot(1, 1))
    line["Attributes"][16] = None
    head = '{"Metadata":{"UUID":"x_1","Sequence":0,"StartTime":"2020-01-02T03:04:05Z"}}'
    path = archive(tmp_path / "a.jsonl.zst", [head, *[json.dumps(line)] * snapshots])
    with (
        open_store(tmp_path / "s.duckdb") as store,
        pytest.raises(BundleError, match="no sample of a BBR flow"),
    ):
        ingest(store, path)


def test_times_have_offsets_or_are_none(tmp_path: Path) -> None:
    usual = snapshot(1, 1)
    zone = usual.replace("21:09:01.000000001Z", "17:09:01.000000001-04:00")
    none = re.sub('(?<="Timestamp":")[^"]*', "0001-01-01T00:00:00Z", usual)
    path = archive(tmp_path / "a.jsonl.zst", [usual, zone, none, snapshot(0, 1)])
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, path)
        times = store.con.execute("SELECT ns, poll FROM samples ORDER BY poll").fetchall()
        said = dict(store.con.execute("SELECT kind, detail FROM capture_quality").fetchall())
    first = 1_563_311_341_000_000_001
    assert times == [(first, 1), (first, 2), (None, 3), (first - 10**9, 4)]
    assert said["samples_undated"].startswith("of 4 samples 1 has no time")
    assert said["samples_backwards"].startswith("1 sample is older")


def lines_of_all_kinds() -> Iterator[str]:
    """Snapshots as the kernels of ten years send them, and what was made of them by chance."""
    info, bbr = bytes(range(232)), struct.pack("<5I", 7, 0, 20_000, 320, 512)
    time = "2020-02-29T23:59:59.123456789Z"
    for size in (0, 7, 8, 104, 149, 192, 216, 232):
        yield line(time, message(), info[:size], bbr)
    for stamp in ("2019-12-31T00:00:00Z", "2020-01-01T00:00:00.5Z", "2100-03-01T12:30:00.25Z"):
        yield line(stamp, message(6000, 1), info, bbr + bytes(20))
    for stamp in ("2019-02-29T00:00:00Z", "2020-01-01T24:00:00Z", "2020-01-01T00:00:00.1+02:00"):
        yield line(stamp, message(), info, bbr)
    for stamp in ("0001-01-01T00:00:00Z", "2300-01-01T00:00:00Z", "2020-01-01 00:00:00Z", ""):
        yield line(stamp, message(), info, bbr)
    yield line(time, bytes([2]) + message()[1:], info, bbr)
    yield line(time, message()[:52], info, b"")
    for socket in (bytes(72), message()[:51], b""):
        yield line(time, socket, info, bbr)
    record = json.loads(line(time, message(), info, bbr))
    yield json.dumps(record)
    yield json.dumps({"Snapshot": record})
    yield json.dumps(dict(reversed(record.items())))
    yield from ('{"Metadata":{"UUID":"x"}}', "", " ", "null", '"RawIDM"', "[" * 5000)
    usual = line(time, message(), info, bbr)
    yield from (usual + " \r", f" {usual}\t", usual + "x", usual[:-1], usual.replace("Z", "\u00fc"))
    chance = random.Random(1)
    for _ in range(1500):
        place, kind = chance.randrange(len(usual)), chance.randrange(4)
        put = chance.choice('"=+/[]{},:\\0AZn \t\x00\x7f\u20ac')
        after = place + (kind > 0) * chance.choice((1, 1, 2, 30))
        yield usual[:place] + (put if kind < 2 else put * 4 if kind == 2 else "") + usual[after:]


def test_both_ways_to_read_a_line_give_the_same_rows(tmp_path: Path) -> None:
    text = "".join(each + "\n" for each in lines_of_all_kinds()).encode()
    found = []
    for read in (Archive._scan, Archive._read_each):
        archive, rows = Archive(tmp_path), Rows.of(text)
        rows.raw[:] = 0
        read(archive, text, rows)
        used = slice(0, rows.count)
        arrays = columns(rows.raw[used], rows.info_sizes[used])
        numbers = [each[used].tolist() for each in (rows.times, rows.info_sizes, rows.polls)]
        messages = rows.raw[used, :MESSAGE_BYTES].tolist()
        values = {name: each.to_pylist() for name, each in arrays.items()}
        found.append((rows.count, archive.broken, archive.first_broken, numbers, messages, values))
    assert found[0] == found[1]
    count, broken, *_ = found[0]
    assert min(count, broken) > 300


def test_the_usual_line_needs_no_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usual = [snapshot(second, 1) for second in range(9)]
    text = "".join(each + "\n" for each in ['{"Metadata":{"UUID":"x"}}', *usual]).encode()
    monkeypatch.setattr(Archive, "_read", None)
    rows = Rows.of(text)
    Archive(tmp_path)._scan(text, rows)
    assert rows.polls[: rows.count].tolist() == list(range(2, 11))
