"""A capture with decisions as comments is the same capture to tshark, and says what was decided."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.packets import capture_blocks
from bbrscope.collect.packets.capture_file import pieces
from bbrscope.probes.base.errors import BundleError
from bbrscope.reports.cli import cli, main
from click.testing import CliRunner

RUN = "v2_single_1bdp"
pytestmark = pytest.mark.skipif(
    shutil.which("tshark") is None or shutil.which("editcap") is None,
    reason="no tshark: apt-get install tshark",
)


def dissected(path: Path, *fields: str, where: str = "") -> list[list[str]]:
    """The fields of each packet as tshark reads them; several comments are one text."""
    chosen = [part for field in fields for part in ("-e", field)]
    command = ["tshark", "-n", "-r", str(path), "-T", "fields", "-E", "aggregator=|", *chosen]
    annotated = subprocess.run(
        [*command, *(["-Y", where] if where else [])], capture_output=True, text=True, check=True
    )
    return [line.split("\t") for line in annotated.stdout.splitlines()]


def export(store: Path, output: Path, *options: str) -> str:
    args = ["export", RUN, "--store", str(store), "--format", "pcapng", "-o", str(output)]
    said = CliRunner().invoke(cli, [*args, *options], catch_exceptions=False)
    assert said.exit_code == 0, said.output
    return said.output


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("capture") / "packets.pcap"
    packed = fixtures.path(RUN) / "packets.pcap.zst"
    path.write_bytes(b"".join(piece for _, piece in pieces(packed)))
    return path


def test_decisions_are_on_the_acks_that_caused_them_and_packets_stay_as_they_were(
    shipped_path: Path, original: Path, tmp_path: Path
) -> None:
    annotated = tmp_path / "story.pcapng"
    said = export(shipped_path, annotated, "--capture", str(fixtures.path(RUN)))
    fields = ("frame.time_epoch", "frame.len", "frame.cap_len", "tcp.seq_raw", "tcp.ack_raw")
    assert dissected(annotated, *fields) == dissected(original, *fields)
    with open_store(shipped_path, read_only=True) as store:
        decided = store.con.execute(
            "SELECT d.name, e.tp_snd_una, e.ns FROM decision_log d JOIN events e"
            " USING (run_id, flow, seq) WHERE d.run = ? AND d.about = 'inflight_hi' AND d.change"
            " ORDER BY d.ns",
            [RUN],
        ).fetchall()
        phases = store.con.execute("SELECT count(*) FROM transitions WHERE run = ?", [RUN])
        begun = phases.fetchall()[0][0]
    where = 'frame.comment contains "inflight_hi" and frame.comment contains "HI_"'
    rows = dissected(annotated, "tcp.ack_raw", "frame.comment", where=where)
    assert len(decided) == len(rows) >= 4
    for (name, una, _), (ack, comment) in zip(decided, rows, strict=True):
        assert (int(ack), name in comment) == (una, True)
    comments = [row[0] for row in dissected(annotated, "frame.comment", where="frame.comment")]
    changes = [text for comment in comments for text in comment.split("|")]
    assert sum(text.startswith("phase ") for text in changes) == begun - 1  # flow 2 is tiny
    assert f"{len(changes):,} comments" in said
    # Both were dropped before the capture; the ACKs that told of them were seen last.
    lost = [text for text in changes if text.startswith("LOSSROUND_MARK")]
    assert [text.count("(the lost packet is not in the capture;") for text in lost] == [1, 1]
    where = 'frame.comment contains "the lost packet is not" and tcp.options.sack_le'
    assert len(dissected(annotated, "frame.comment", where=where)) == 2
    timed = [text for text in changes if text.startswith("phase STARTUP begins")]
    assert [text.count("(by no packet;") for text in timed] == [1]


def test_a_flow_a_window_and_names_of_the_draft(
    shipped_path: Path, original: Path, tmp_path: Path
) -> None:
    annotated = tmp_path / "window.pcapng"
    options = ("--capture", str(original), "--flow", "1", "--between", "1s", "2.5s")
    export(shipped_path, annotated, *options, "--names", "draft")
    ports = {tuple(sorted(row)) for row in dissected(annotated, "tcp.srcport", "tcp.dstport")}
    assert ports == {("41778", "5201")}
    times = [float(row[0]) for row in dissected(annotated, "frame.time_epoch")]
    assert 1.4 < times[-1] - times[0] < 1.5
    (words,) = dissected(
        annotated, "frame.comment", where='frame.comment contains "HI_RAISE_SLOPE"'
    )[:1]
    assert "inflight_longterm 42 -> 43" in words[0]
    assert "inflight_hi" not in words[0]


def test_a_window_that_begins_between_an_ack_and_its_decision_has_both(
    shipped_path: Path, original: Path, tmp_path: Path
) -> None:
    with open_store(shipped_path, read_only=True) as store:
        packet, event, ack, zero = store.con.execute(
            "SELECT m.packet, t.ns, p.ns, s.zero_ns FROM transitions t"
            " JOIN ack_matches m USING (run_id, flow, seq) JOIN packets p USING (run_id, packet)"
            " JOIN senders s ON s.run_id = t.run_id AND s.flow = t.flow"
            " WHERE t.run = ? AND p.ns < t.ns ORDER BY t.seq",
            [RUN],
        ).fetchall()[0]
    assert ack < event
    window = ("--between", f"{(event - zero) / 1e9:.9f}s", f"{(event - zero) / 1e9 + 1:.9f}s")
    path = tmp_path / "window.pcapng"
    export(shipped_path, path, "--capture", str(original), *window)
    times = ("frame.time_epoch", "frame.comment")
    first = dissected(path, *times)[0]
    assert first[0] == dissected(original, "frame.time_epoch")[packet - 1][0]
    assert first[1].startswith("phase ")


def test_what_a_pcapng_has_beside_packets_stays(
    shipped_path: Path, original: Path, tmp_path: Path
) -> None:
    keys, noted, annotated = (tmp_path / name for name in ("keys", "noted.pcapng", "story.pcapng"))
    keys.write_text("CLIENT_RANDOM " + "ab" * 32 + " " + "cd" * 48 + "\n")
    beside = ["-a", "569:mine, ünïcode", "--inject-secrets", f"tls,{keys}"]
    subprocess.run(["editcap", "-F", "pcapng", *beside, str(original), str(noted)], check=True)
    said = export(shipped_path, annotated, "--capture", str(noted))
    assert "the capture's 1 block of decryption secrets" in said
    ((comment,),) = dissected(annotated, "frame.comment", where="frame.number == 569")
    assert comment.startswith("inflight_hi 34 -> 42: ")
    assert comment.endswith("|mine, ünïcode")
    (block,) = [
        one for one in capture_blocks.blocks(annotated) if one.kind == capture_blocks.SECRETS
    ]
    assert keys.read_bytes() in block.raw


def test_it_says_what_it_needs_and_takes_no_other_capture(
    shipped_path: Path, original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["export", "--store", str(shipped_path), "--format", "pcapng", "-o"]
    annotated = tmp_path / "story.pcapng"

    def refused(run: str, *options: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main([*args, str(annotated), run, *options])
        assert ended.value.code in (1, 2)
        assert list(tmp_path.glob("*told*")) == []
        return capsys.readouterr().err

    assert "no packet capture" in refused("v2_x_spur")
    assert "--capture PATH" in refused(RUN)
    later = tmp_path / "later.pcap"
    subprocess.run(["editcap", "-t", "0.000001", str(original), str(later)], check=True)
    assert "not the capture of" in refused(RUN, "--capture", str(later))
    half = tmp_path / "half.pcap"
    half.write_bytes(original.read_bytes()[:100_000])
    assert "not the capture of" in refused(RUN, "--capture", str(half))
    assert "--only is for --format parquet" in refused(RUN, "--only", "runs")


@pytest.mark.parametrize(
    "damage",
    [
        struct.pack("<II", 6, 1 << 31) + bytes(40),
        struct.pack("<II", 6, 44) + struct.pack("<IIIII", 7, 0, 0, 4, 4) + bytes(16),
        struct.pack("<II", 6, 44) + struct.pack("<IIIII", 0, 0, 0, 1 << 20, 4) + bytes(16),
        struct.pack("<II", 6, 16) + bytes(8),
    ],
)
def test_blocks_that_make_no_sense_are_refused(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "strange.pcapng"
    section = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    path.write_bytes(section + damage)
    with pytest.raises(BundleError, match="damaged"):
        list(capture_blocks.blocks(path))
