"""attempted = recorded + cut + lost: from the collector to the store, and to whoever asks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bbrscope.collect.ingest import ingest
from bbrscope.collect.record import accounting, bpf_stats
from bbrscope.collect.store import open_store
from bbrscope.reports.cli import main

MakeBundle = Callable[..., Path]
HEAD = ["#T0,ns,sk,seqno,tp.delivered,bbr.rtt_cnt", "#T1,ns,sk,bbr.mode"]
LOSSY: dict[str, Any] = {
    "probe": "tcp_probe",
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
}


def rows(numbers: list[int]) -> list[str]:
    made = list(HEAD)
    for number in numbers:
        made += [f"T0,{number + 1}000000,ff,{number},1,1", f"T1,{number + 1}000100,ff,0"]
    return made


def account(attempted: dict[str, int], recorded: dict[str, int], cut: dict[str, int]) -> Any:
    events = SimpleNamespace(attempted=attempted, rows=Counter(recorded), cut=Counter(cut), lost=0)
    programs = [{"run_cnt": 7, "recursion_misses": 1}, {"run_cnt": 2}]
    return accounting.account(events, {"programs": programs, "counted": True})


def test_every_probe_is_accounted_by_the_first_row_of_its_events() -> None:
    made = account({"M": 9, "X": 9}, {"M0": 6, "M1": 6, "X": 7}, {"M0": 2, "X": 2})
    assert made["probes"]["M"] == {"attempted": 9, "recorded": 6, "cut": 2, "lost": 1}
    assert made["probes"]["X"] == {"attempted": 9, "recorded": 7, "cut": 2, "lost": 0}
    assert (made["lost"], made["runs"], made["missed_runs"]) == (1, 9, 1)
    assert made["complete"]


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


@pytest.mark.parametrize(
    "hostile",
    [
        {"accounting": []},
        {"accounting": {"probes": 5}},
        {"accounting": {"probes": {"T": 7, "M": {"lost": "x", "attempted": 1 << 70}}}},
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


def test_doctor_is_content_with_a_whole_bundle(
    make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {"probes": {"T": {"attempted": 3, "recorded": 3, "cut": 0, "lost": 0}}}
    told = {"accounting": whole | {"missed_runs": 0, "complete": True}, "ended": "duration"}
    bundle = make_bundle(rows([0, 1, 2]), probe="tcp_probe", **told)
    assert ran(capsys, "doctor", "--bundle", str(bundle))[0] == 0
    status, out, _ = ran(capsys, "doctor", "--json", "--bundle", str(bundle))
    assert status == 0
    assert json.loads(out)["completeness"]["sequence_missing"] == 0


def test_doctor_finds_what_the_manifest_does_not_admit(
    make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = make_bundle(rows([0, 1, 5]), probe="tcp_probe")
    status, _, err = ran(capsys, "doctor", "--bundle", str(bundle))
    assert status == 1
    assert "3 sequence numbers are missing" in err


@pytest.mark.parametrize(
    "changes", [{"accounting": {"probes": {"T": 1}}}, {"ladder": [1]}, {"accounting": "x"}]
)
def test_doctor_tells_an_account_that_makes_no_sense(
    changes: dict[str, Any], make_bundle: MakeBundle, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = make_bundle(rows([0]), **changes)
    status, _, err = ran(capsys, "doctor", "--bundle", str(bundle))
    assert status == 1
    assert "makes no sense" in err


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
