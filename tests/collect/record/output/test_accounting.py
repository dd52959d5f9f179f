"""attempted = recorded + cut + lost: from the collector to the store, and to whoever asks."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bbrscope.collect.bundle import accounts
from bbrscope.collect.bundle.bundle import Manifest
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.record.host import bpf_stats
from bbrscope.collect.record.output import accounting, check
from bbrscope.collect.record.output import manifest as manifest_writer
from bbrscope.collect.record.plan import RecordingPlan
from bbrscope.collect.record.tracer import TracerEnd
from bbrscope.collect.store.store import open_store
from bbrscope.reports.cli import main

MakeBundle = Callable[..., Path]
HEAD = ["#T0,ns,sk,seqno,tp.delivered,bbr.rtt_cnt", "#T1,ns,sk,bbr.mode"]
LOSSY: dict[str, Any] = {
    "rung": "tcp_probe",
    "events_lost": 3,
    "ended": "bpftrace ended by itself (signal 9)",
    "ladder": [{"rung": "fentry", "outcome": "ruled out", "reason": "no fentry here"}],
    "accounting": {
        "probes": {"T": {"attempted": 8, "recorded": 4, "cut": 1, "lost": 3}},
        "lost": 3,
        "runs": 20,
        "missed_runs": 2,
        "complete": False,
    },
    "settings_changed": ["net.ipv4.tcp_ecn: 2 -> 1"],
    "notes": ["no packets: not root"],
    "packets": {"where": "eth0", "ended": "signal 9"},
}


def rows(numbers: list[int]) -> list[str]:
    made = list(HEAD)
    for number in numbers:
        made += [f"T0,{number + 1}000000,ff,{number},1,1", f"T1,{number + 1}000100,ff,0"]
    return made


def account(attempted: dict[str, int], recorded: dict[str, int], cut: dict[str, int]) -> Any:
    events = SimpleNamespace(attempted=attempted, rows=Counter(recorded), cut=Counter(cut), lost=0)
    programs = [{"run_cnt": 7, "recursion_misses": 1}, {"run_cnt": 2}]
    return accounting.account(events, TracerEnd(programs, counted=True))


def test_every_probe_is_accounted_by_the_first_row_of_its_events() -> None:
    made = account({"M": 9, "X": 9}, {"M0": 6, "M1": 6, "X": 7}, {"M0": 2, "X": 2})
    counts = {"attempted": 9, "recorded": 6, "cut": 2, "lost": 1, "lost_rows": 4}
    assert made["probes"]["M"] == counts
    counts = {"attempted": 9, "recorded": 7, "cut": 2, "lost": 0, "lost_rows": 0}
    assert made["probes"]["X"] == counts
    assert (made["lost"], made["runs"], made["missed_runs"]) == (4, 9, 1)
    assert made["complete"]


def test_rows_that_continue_an_event_are_accounted_for_too() -> None:
    """All first rows arrived, and half of the second ones did not."""
    made = account({"M": 10, "X": 10}, {"M0": 10, "M1": 5, "X": 10}, {})
    assert made["probes"]["M"]["lost"] == 0
    assert made["lost"] == made["probes"]["M"]["lost_rows"] == 5


def test_exits_that_were_never_attempted_are_in_the_account() -> None:
    made = account({"M": 10, "I": 1, "S": 3}, {"M0": 10, "I": 1, "S": 3}, {})
    assert made["probes"]["X"]["attempted"] == made["probes"]["IX"]["attempted"] == 0
    assert "IX" not in account({"M": 10}, {"M": 10}, {})["probes"]


PAIRED = [
    *("#M,ns,sk,seqno,tp.delivered", "#X,ns,sk,tp.snd_cwnd"),
    *("#I,ns,sk,seqno,sport,dport", "#IX,ns,sk,tp.snd_cwnd"),
]


def calls(*, exits: bool, begun: int = 3) -> list[str]:
    """One socket: init, and calls of main() with or without what they left."""
    made = [*PAIRED, "I,100,ff,0,5201,5202", *(["IX,101,ff,10"] if exits else [])]
    for number in range(1, begun + 1):
        made.append(f"M,{number}000,ff,{number},{number}")
        if exits:
            made.append(f"X,{number}001,ff,10")
    return made


def test_every_call_must_have_its_exit_row(make_bundle: MakeBundle) -> None:
    whole = check.check(make_bundle(calls(exits=True), "whole") / "events.csv.zst")
    assert (whole.calls, whole.exits_missing) == ({"I": 1, "M": 3}, {})
    gone = check.check(make_bundle(calls(exits=False), "gone") / "events.csv.zst")
    assert gone.exits_missing == {"I": 1, "M": 3}
    last = check.check(make_bundle(calls(exits=True)[:-1], "last") / "events.csv.zst")
    assert last.exits_missing == {"M": 1}


def test_a_recording_without_exits_is_not_complete_wherever_it_is_asked(
    make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    """As kprobes on arm64 recorded once; such a bundle says nothing of exits by itself."""
    whole = {"probes": {"M": {"attempted": 3, "recorded": 3, "cut": 0, "lost": 0}}}
    document = {"accounting": whole | {"missed_runs": 0, "complete": True}, "ended": "duration"}
    bundle = make_bundle(calls(exits=False), rung="kprobe", **document)
    status, out, err = ran(capsys, "doctor", "--bundle", str(bundle))
    assert status == 1
    assert "main() was recorded at entry 3 times and at exit 0 times" in out
    assert "init() was recorded at entry 1 time and at exit 0 times" in err
    assert ran(capsys, "doctor", "--bundle", str(make_bundle(calls(exits=True), "b")))[0] == 0


def test_a_recording_without_main_says_so_wherever_it_is_asked(
    make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other calls are there, so that nothing else looks wrong; init() alone is no sign."""
    lines = [*calls(exits=True, begun=0), "#S,ns,sk,seqno,new_state"]
    bundle = make_bundle([*lines, "S,2000,ff,1,3", "S,3000,ff,2,0"], "two", rung="fentry")
    assert check.check(bundle / "events.csv.zst").without_main == 2
    said = "main() was never recorded, 2 other calls were"
    status, out, err = ran(capsys, "doctor", "--bundle", str(bundle))
    assert (status, said in out, said in err) == (1, True, True)
    for other in (calls(exits=True), calls(exits=True, begun=0)):
        whole = make_bundle(other, "whole")
        assert check.check(whole / "events.csv.zst").without_main == 0
        shutil.rmtree(whole)


def test_the_account_reaches_the_store_and_what_went_wrong_is_a_finding(
    make_bundle: MakeBundle,
) -> None:
    bundle = make_bundle(rows([0, 1, 5, 6]), **LOSSY)
    with open_store(bundle / "s.duckdb") as store:
        ingest(store, bundle)
        assert store.con.execute("SELECT * EXCLUDE (run_id) FROM accounting").fetchall() == [
            ("T", 8, 4, 1, 3)
        ]
        found = dict(store.con.execute("SELECT kind, detail FROM capture_quality").fetchall())
        assert "counted 8 events, 4 were recorded, 3 lost" in found["probe_lost"]
        assert "3 of its socket are missing" in found["sequence_gap"]
        assert "skipped 2 runs" in found["runs_missed"]
        assert "signal 9" in found["not_counted"]
        assert "tcp_ecn: 2 -> 1" in found["setting_changed"]
        assert "signal 9): later packets" in found["packets_ended"]


@pytest.mark.parametrize(
    "hostile",
    [
        {"accounting": []},
        {"accounting": {"probes": 5}},
        {"accounting": {"probes": {"T": 7, "M": {"lost": "x", "attempted": [1 << 62]}}}},
        {"accounting": {"missed_runs": "many", "complete": "yes"}},
        {"settings_changed": "all", "notes": {"a": 1}, "ended": ["x"]},
        {"settings_changed": [{"<b>": [1]}, None, "x" * 10_000]},
    ],
)
def test_a_manifest_that_anybody_wrote_is_taken_for_what_it_is(
    hostile: dict[str, Any], make_bundle: MakeBundle
) -> None:
    bundle = make_bundle(rows([0, 1]), **hostile)
    with open_store(bundle / "s.duckdb") as store:
        ingest(store, bundle)
        longest = store.con.execute("SELECT max(length(detail)) FROM capture_quality").fetchall()
        assert (longest[0][0] or 0) < 500


def ran(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_doctor_tells_the_account_of_a_bundle_and_fails_where_events_were_lost(
    make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = make_bundle(rows([0, 1, 5, 6]), **LOSSY)
    status, out, err = ran(capsys, "doctor", "--bundle", str(bundle))
    assert status == 1
    assert out.splitlines()[3].split() == ["T", "8", "4", "1", "3"]
    assert "fentry ruled out: no fentry here" in out
    assert "3 numbers missing" in out
    assert "3 rows were lost" in err
    assert "skipped 2 runs" in err


@pytest.mark.parametrize("to", ["", "/dev/zero", "/etc/hostname"])
def test_doctor_reads_no_manifest_that_is_no_regular_file(
    to: str, make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = make_bundle(rows([0, 1]))
    (bundle / "manifest.json").unlink()
    if to:
        (bundle / "manifest.json").symlink_to(to)
    else:
        os.mkfifo(bundle / "manifest.json")
    status, _, err = ran(capsys, "doctor", "--bundle", str(bundle))
    assert status == 1
    assert "manifest.json is not a regular file" in err


def test_doctor_is_content_with_a_whole_bundle(
    make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {"probes": {"T": {"attempted": 3, "recorded": 3, "cut": 0, "lost": 0}}}
    document = {"accounting": whole | {"missed_runs": 0, "complete": True}, "ended": "duration"}
    bundle = make_bundle(rows([0, 1, 2]), rung="tcp_probe", **document)
    assert ran(capsys, "doctor", "--bundle", str(bundle))[0] == 0
    status, out, _ = ran(capsys, "doctor", "--json", "--bundle", str(bundle))
    assert status == 0
    assert json.loads(out)["completeness"]["sequence_missing"] == 0


def test_doctor_finds_what_the_manifest_does_not_admit(
    make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = make_bundle(rows([0, 1, 5]), rung="tcp_probe")
    status, _, err = ran(capsys, "doctor", "--bundle", str(bundle))
    assert status == 1
    assert "3 sequence numbers are missing" in err


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        # Nothing but the count tells of a recording's last rows, and of rows without a number.
        ([0, 1], "T0: 2 rows, the manifest says 3; T1: 2 rows, the manifest says 3"),
        ([0, 1, 1, 2], "1 event is out of order, or there twice; T0: 4 rows, the manifest says 3"),
        ([1, 0, 2], "1 event is out of order, or there twice"),
        ([0, 1, 2], "N: 0 rows, the manifest says 1"),
    ],
)
def test_doctor_finds_rows_that_are_gone_or_twice_or_out_of_order(
    numbers: list[int], said: str, make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = {"T0": 3, "T1": 3} | ({"N": 1} if said.startswith("N") else {})
    bundle = make_bundle(rows(numbers), rung="tcp_probe", events=counted)
    status, _, err = ran(capsys, "doctor", "--bundle", str(bundle))
    assert status == 1
    assert said in err
    assert "missing" not in err


def test_doctor_finds_that_all_rows_are_gone(
    make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = make_bundle(rows([0, 1]), rung="tcp_probe")
    (bundle / "events.csv.zst").unlink()
    status, _, err = ran(capsys, "doctor", "--bundle", str(bundle))
    assert status == 1
    assert "events.csv.zst is missing, with 4 rows" in err


@pytest.mark.parametrize(
    "changes",
    [
        {"accounting": {"probes": {"T": 1}}},
        {"ladder": [1]},
        {"accounting": "x"},
        {"accounting": [1]},
        {"completeness": [1]},
        {"completeness": {"calls": 5, "exits_missing": {"M": 1}}},
        {"notes": 5},
        {"notes": [7]},
    ],
)
def test_doctor_tells_an_account_that_makes_no_sense(
    changes: dict[str, Any], make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = make_bundle(rows([0]), **changes)
    (bundle / "events.csv.zst").unlink()  # else its rows are counted anew
    status, _, err = ran(capsys, "doctor", "--bundle", str(bundle))
    assert status == 1
    assert "makes no sense" in err


def test_doctor_keeps_what_a_manifest_says_in_its_line(
    make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "bpftrace ended\nruns of the probes: 1; skipped: 0\x1b[1m\u202e"
    said = {"ended": hostile, "settings_changed": [hostile], "notes": [f"{hostile} unloaded"]}
    bundle = make_bundle(rows([0]), rung=hostile, **said)
    status, out, err = ran(capsys, "doctor", "--bundle", str(bundle))
    assert status == 1
    assert all(line.isprintable() for line in (out + err).splitlines())
    assert not [line for line in (out + err).splitlines() if line.startswith("runs of the probes")]


def test_explain_says_that_rows_were_lost(
    make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = make_bundle(rows([0, 1, 5, 6]), **LOSSY)
    path = bundle / "s.duckdb"
    with open_store(path) as store:
        ingest(store, bundle)
    status, out, err = ran(capsys, "explain", "made", "--flow", "1", "--store", str(path))
    assert status == 0, err
    assert "3 rows were lost while recording" in out
    _, out, _ = ran(capsys, "runs", "--format", "json", "--store", str(path))
    (run,) = json.loads(out)
    assert (run["attempted"], run["events_lost"], run["rows_lost"]) == (8, 3, 3)
    assert run["ended"].startswith("bpftrace ended by itself")


def test_the_kernel_counts_runs_while_asked_to_and_its_settings_stay() -> None:
    setting = Path("/proc/sys/kernel/bpf_stats_enabled")
    before = setting.read_text() if setting.exists() else ""
    descriptor = bpf_stats.enable()
    if descriptor is None:
        pytest.skip("needs root and Linux 5.8 or newer")
    import os

    assert (setting.read_text() if setting.exists() else "") == before
    os.close(descriptor)


def test_run_counts_are_read_as_the_kernel_prints_them() -> None:
    text = "pos:\t0\nprog_type:\t17\nprog_jited:\t1\nprog_tag:\tab\nprog_id:\t42\n"
    text += "run_time_ns:\t900\nrun_cnt:\t3\nrecursion_misses:\t1\n"
    assert bpf_stats.fdinfo(text) == {
        "prog_type": 17,
        "prog_id": 42,
        "run_time_ns": 900,
        "run_cnt": 3,
        "recursion_misses": 1,
    }


def test_ingest_says_that_no_call_has_an_exit() -> None:
    manifest = Manifest("x", 1000, {"M0": 5, "M1": 5, "I": 1, "IX": 1}, 0, (), {})
    (finding,) = accounts.quality_notes(manifest, manifest.rows or {})
    assert finding.detail.startswith("main() was recorded 5 times at entry and never at exit")


def test_settings_of_a_namespace_or_module_that_has_gone_are_no_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = object.__new__(manifest_writer.ManifestWriter)
    writer.plan = RecordingPlan(Path("run"))
    writer.sysctls, writer.parameters = {"net.a": 1, "net.b": 2}, {"tcp_bbr2.c": "Y"}
    monkeypatch.setattr(manifest_writer.facts, "sysctls", lambda _: {"net.a": 3})
    monkeypatch.setattr(manifest_writer.facts, "module_parameters", dict)
    assert writer._changes() == ["net.a: 1 -> 3"]
