"""A time-sequence graph draws each segment, ACK, window and loss where they were."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.packets.capture_file import pieces
from bbrscope.reports.cli import cli, main
from click.testing import CliRunner

RUN = "v2_single_1bdp"
KINDS = {"line": 4, "darrow": 2, "uarrow": 2, "dtick": 2, "diamond": 2}
TEXTS = ("atext", "btext", "rtext")
Points = dict[tuple[str, str], list[tuple[float, ...]]]


def drawn(path: Path) -> tuple[Points, list[str]]:
    """Numbers of commands by colour and kind, and the texts; any other line is an error."""
    lines = iter(path.read_text().splitlines())
    assert [next(lines) for _ in range(2)] == ["double double", "title"]
    assert len([next(lines) for _ in range(5)]) == 5
    found: Points = defaultdict(list)
    colour, texts = "", []
    for line in lines:
        kind, *numbers = line.split(" ")
        if kind in KINDS or kind in TEXTS:
            assert len(numbers) == KINDS.get(kind, 2)
            found[colour, kind].append(tuple(map(float, numbers)))
            if kind in TEXTS:
                texts.append(next(lines))
        elif not numbers and kind != "go":
            colour = kind
    assert line == "go"
    return found, texts


def export(store: Path, output: Path, *options: str) -> tuple[Points, list[str]]:
    args = ["export", "--store", str(store), "--format", "xplot", "-o", str(output)]
    said = CliRunner().invoke(cli, [*args, *options], catch_exceptions=False)
    assert said.exit_code == 0, said.output
    return drawn(output)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark")
def test_segments_acks_and_sacks_are_where_tshark_sees_them(
    shipped_path: Path, tmp_path: Path
) -> None:
    found, texts = export(shipped_path, tmp_path / "x.xpl", RUN)
    plain = tmp_path / "packets.pcap"
    packed = fixtures.path(RUN) / "packets.pcap.zst"
    plain.write_bytes(b"".join(piece for _, piece in pieces(packed)))
    fields = "tcp.srcport tcp.seq tcp.len tcp.ack tcp.options.sack_le tcp.options.sack_re".split()
    chosen = [part for field in fields for part in ("-e", field)]
    listing = subprocess.run(
        ["tshark", "-n", "-r", str(plain), "-T", "fields", *chosen, "-Y", "tcp.port == 41778"],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split("\t") for line in listing.stdout.splitlines()]
    segments = [
        (int(seq), int(seq) + int(length))
        for port, seq, length, *_ in rows
        if port == "41778" and int(length)
    ]
    again, first = found["red", "darrow"], found["white", "darrow"]
    assert len(again) + len(first) == len(segments)
    assert sorted(y for _, y in again + first) == sorted(seq for seq, _ in segments)
    with open_store(shipped_path, read_only=True) as store:
        repeated = store.con.execute(
            "SELECT pkt_retransmissions FROM metrics_by_flow WHERE run = ? AND flow = 1", [RUN]
        ).fetchall()
    assert [(texts.count("R"),)] == repeated == [(len(again),)]
    blocks = [
        (int(left), int(right))
        for port, *_, lefts, rights in rows
        if port == "5201"
        for left, right in zip(lefts.split(","), rights.split(","), strict=True)
        if left
    ]
    assert sorted((low, high) for _, low, _, high in found["purple", "line"]) == sorted(blocks)
    last = max(int(row[3]) for row in rows if row[0] == "5201" and row[3])
    assert max(y for *_, y in found["green", "line"]) == last
    assert {"STARTUP -> DRAIN", "inflight_hi 34 -> 42", "PROBE_BW_UP"} < set(texts)


def test_without_a_capture_the_senders_own_numbers_are_drawn(
    shipped_path: Path, tmp_path: Path
) -> None:
    found, texts = export(shipped_path, tmp_path / "x.xpl", "v3_x_tlp5", "--names", "draft")
    with open_store(shipped_path, read_only=True) as store:
        acked, lost = store.con.execute(
            "SELECT sum(acked_bytes), (SELECT count(*) FROM events e WHERE e.run_id ="
            " any_value(s.run_id) AND kind = 'skb_marked_lost') FROM flow_steps s"
            " WHERE run_id = (SELECT run_id FROM runs WHERE run = 'v3_x_tlp5') AND flow = 1"
        ).fetchall()[0]
    assert max(y for *_, y in found["green", "line"]) == acked
    assert texts.count("L") == lost > 0
    # The congestion window and the receive window lie above what is acknowledged.
    for colour in ("blue", "yellow", "white"):
        assert min(y for *_, y in found[colour, "line"]) >= 0
    assert any(text.startswith("ProbeBW_") for text in texts)


def test_a_window_of_time(shipped_path: Path, tmp_path: Path) -> None:
    found, _ = export(shipped_path, tmp_path / "x.xpl", RUN, "--between", "0.2s", "0.6s")
    times = [point[0] for points in found.values() for point in points]
    assert 0.2 <= min(times) < max(times) <= 0.6


def test_a_pipe_and_a_time_without_any_event_are_refused(
    shipped_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def refused(*options: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["export", RUN, "--store", str(shipped_path), "--format", "xplot", *options])
        assert ended.value.code == 1
        return capsys.readouterr().err

    assert "a device or a pipe" in refused("-o", str(pipe), "--force")
    assert pipe.is_fifo()
    late = ("--between", "100s", "101s")
    said = refused("-o", str(tmp_path / "late.xpl"), *late)
    assert f"nothing of {RUN} is recorded between 100 and 101 s" in said
    assert "from 0.000 to 25.104 s" in said
    assert list(tmp_path.iterdir()) == [pipe]
