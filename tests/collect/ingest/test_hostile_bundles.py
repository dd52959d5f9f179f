"""Small files that hung, filled the memory or led elsewhere: each is refused, soon."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from bbrscope import fixtures

Make = Callable[..., Path]

HEAD = ["#M,ns,sk,bbr.mode,bbr.lt_bw"]
ROW = "M,1,a,0,7"
# One run in a process of its own, which ends when it takes this much time or memory.
SECONDS, MEMORY = 60, 1 << 30
# Its peak is VmHWM: ru_maxrss begins with what pytest's worker had before exec().
INGEST = """
import sys
from pathlib import Path
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import open_store
from bbrscope.probes.base.errors import BbrscopeError
with open_store(Path(sys.argv[2])) as store:
    try:
        print(ingest(store, Path(sys.argv[1]), packets=False))
    except BbrscopeError as error:
        print("refused:", error.fact)
    text = store.con.execute("SELECT coalesce(string_agg(text), '') FROM attachments").fetchone()
    assert "secret" not in text[0]
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print("peak", int(peak) << 10)
"""


def outcome(bundle: Path, folder: Path) -> str:
    """What ingest said of a bundle, after at most `SECONDS` and within `MEMORY`."""
    command = [sys.executable, "-c", INGEST, str(bundle), str(folder / "s.duckdb")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=4 * SECONDS, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    said, _, peak = done.stdout.rpartition("peak ")
    assert int(peak) < MEMORY
    return said


def tar_header(size: bytes, kind: bytes = b"0", name: bytes = b"manifest.json") -> bytes:
    head = bytearray(512)
    head[: len(name)] = name
    head[100:108], head[108:116], head[116:124] = b"0000644\0", b"0000000\0", b"0000000\0"
    head[124:136], head[136:148] = size.ljust(12, b"\0"), b"00000000000\0"
    head[156:157], head[257:265] = kind, b"ustar\x0000"
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


NEGATIVE = (-512).to_bytes(12, "big", signed=True)


@pytest.mark.parametrize("kind", [b"0", b"L", b"K", b"x", b"g", b"S", b"5"])
def test_an_archive_with_a_negative_size_is_refused(kind: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.zst"
    path.write_bytes(zstandard.compress(tar_header(NEGATIVE, kind) * 4))
    assert "refused:" in outcome(path, tmp_path)


def test_pax_records_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for number, record in enumerate((b"13 size=-5120\n", b"14 size=x12345\n", b"9 mtime=\n")):
        body = record.ljust(512, b"\0")
        data = tar_header(b"%011o\0" % len(record), b"x") + body + tar_header(b"00000000000\0")
        path = tmp_path / f"{number}.tar.zst"
        path.write_bytes(zstandard.compress(data + bytes(1024)))
        assert "refused:" in outcome(path, tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"uptime_s\n" + b"1\n" * 30_000_000, "more than 2000000 samples"),
        (b"uptime_s" + b",a" * 40_000_000 + b"\n1\n", "columns"),
        (b"uptime_s\n" + b"\n" * 60_000_000, "line 2: uptime_s is ''"),
        (b"uptime_s,sent_bytes\n1,%d\n" % (1 << 62), "line 2: sent_bytes is '4611686018427387904'"),
    ],
    ids=["samples", "columns", "blank", "counter"],
)
def test_a_queue_file_is_bounded(
    text: bytes, words: str, make_bundle: Make, tmp_path: Path
) -> None:
    bundle = make_bundle([*HEAD, ROW])
    (bundle / "queue.csv.zst").write_bytes(zstandard.compress(text))
    assert words in outcome(bundle, tmp_path)


@pytest.mark.parametrize(
    ("line", "count", "words"),
    [
        ("", 1_000_000, "no rows"),
        ("Lost 3 events", 1_000_000, "no rows"),
        (HEAD[0], 1_000_000, "no rows"),
        ("Z,1,a", 500_000, "unknown_tag"),
        ("Z,1,a", 10_000_000, "grows more than"),
    ],
    ids=["blank", "lost", "header", "unknown", "growth"],
)
def test_lines_that_are_no_rows_are_bounded(
    line: str, count: int, words: str, make_bundle: Make, tmp_path: Path
) -> None:
    text = "".join(f"{head}\n" for head in ["#Z,ns,sk", *HEAD, ROW]) + f"{line}\n" * count
    bundle = make_bundle(zstandard.compress(text.encode()), count=False)
    assert words in outcome(bundle, tmp_path)


def test_the_number_of_headers_is_bounded(make_bundle: Make, tmp_path: Path) -> None:
    lines = [*HEAD, *(f"#{'ABCDFG'[n % 6]}Q{n},ns,sk" for n in range(100_000)), ROW]
    assert "header lines" in outcome(make_bundle(lines, count=False), tmp_path)


@pytest.mark.parametrize("name", ["iperf1.json", "manifest.json", "events.csv.zst", "ss.txt.zst"])
@pytest.mark.parametrize("what", ["pipe", "zero", "link", "folder"])
def test_a_file_of_a_bundle_is_a_regular_file(
    what: str, name: str, make_bundle: Make, tmp_path: Path
) -> None:
    bundle = make_bundle([*HEAD, ROW])
    (bundle / name).unlink(missing_ok=True)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    if what == "pipe":
        os.mkfifo(bundle / name)
    elif what == "folder":
        (bundle / name).mkdir()
    else:
        (bundle / name).symlink_to("/dev/zero" if what == "zero" else secret)
    assert f"{name} is not a regular file" in outcome(bundle, tmp_path)


def test_attachments_are_bounded_in_size_and_number(make_bundle: Make, tmp_path: Path) -> None:
    bundle = make_bundle([*HEAD, ROW])
    with open(bundle / "iperf1.json", "wb") as file:
        file.truncate(1 << 30)
    assert "run='made'" in outcome(bundle, tmp_path)
    for number in range(2, 103):
        (bundle / f"iperf{number}.json").write_text("{}")
    assert "has 102 files iperfN.json" in outcome(bundle, tmp_path)


def test_a_whole_recording_is_within_all_bounds(tmp_path: Path) -> None:
    assert "run='v2_x_spur'" in outcome(fixtures.path("v2_x_spur"), tmp_path)
