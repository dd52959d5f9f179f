"""Runs of samples: every command says what they cannot answer, and shows what they can."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.collect.bundle.rungs import RUNGS
from bbrscope.reports.cli import main

from tests.page_data import data_of

RUN = "v3_x_tlp5_sampled"
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(sampled_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command on the store of samples; returns exit status, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--store", str(sampled_path)])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def test_a_named_run_of_samples_is_refused_by_replay_with_a_way_out(command: Command) -> None:
    status, out, err = command("replay", RUN)
    assert (status, out) == (1, "")
    assert RUNGS["tcp_probe"].cannot in err
    assert f"bbrscope explain {RUN}" in err
    assert "bbrscope doctor" in err


def test_other_rules_on_samples_are_refused_alike(command: Command) -> None:
    status, _, err = command("replay", RUN, "--set", "loss_thresh=5%")
    assert status == 1
    assert RUNGS["tcp_probe"].cannot in err


def test_replay_of_everything_names_what_it_leaves_out_and_judges_the_rest(
    command: Command,
) -> None:
    status, out, _ = command("replay")
    assert status == 0
    assert f"run {RUN} cannot be replayed" in out
    assert "v3_x_tlp5: decoded as v3" in out
    status, out, _ = command("replay", "--json")
    refused = {run["run"]: run["refused"] for run in json.loads(out)["runs"] if "refused" in run}
    assert set(refused) == {RUN, "v1_x_lt_sampled", "ss_alone"}


def test_explain_tells_the_phases_and_says_that_reasons_are_not_recorded(command: Command) -> None:
    status, out, _ = command("explain", RUN)
    assert status == 0
    assert RUNGS["tcp_probe"].can in out
    assert f"it cannot {RUNGS['tcp_probe'].cannot}" in out
    assert "STARTUP -> DRAIN" in out
    assert "why is not recorded" in out
    assert "% of time limited by" in out
    assert "exact" not in out


def test_explain_at_an_instant_has_the_state_and_no_replay(command: Command) -> None:
    status, out, _ = command("explain", RUN, "--at", "3s")
    assert status == 0
    assert "recorded by tcp_probe" in out
    assert "PROBE_BW" in out


def smoothed_rtts(run: str) -> list[int]:
    """Return tp.srtt_us of each main() of a shipped recording, out of its lines."""
    raw = (fixtures.path(run) / "events.csv.zst").read_bytes()
    lines = zstandard.ZstdDecompressor().stream_reader(raw).read().decode().splitlines()
    (header,) = (line.split(",") for line in lines if line.startswith("#M0,"))
    place = header.index("tp.srtt_us")
    return [int(line.split(",")[place]) for line in lines if line.startswith("M0,")]


def test_metrics_has_what_counters_and_the_smoothed_rtt_tell(command: Command) -> None:
    _, out, _ = command("metrics", "v3_x_tlp5", RUN, "--format", "json")
    whole, sampled = json.loads(out)
    # tcp_rtt_estimator(): srtt += m - (srtt >> 3)
    pairs = pairwise(smoothed_rtts("v3_x_tlp5"))
    given = [now - then + (then >> 3) for then, now in pairs if now != then]
    assert len(given) > 1000
    assert sampled["rtt_mean_us"] == pytest.approx(sum(given) / len(given), rel=1e-9)
    assert sampled["acked_bytes"] == pytest.approx(whole["acked_bytes"], rel=0.001)
    assert sampled["lost_packets"] == whole["lost_packets"]


def test_runs_names_the_rung(command: Command) -> None:
    _, out, _ = command("runs", "--format", "json")
    rungs = {row["run"]: row["rung"] for row in json.loads(out)}
    assert (rungs["v3_x_tlp5"], rungs[RUN]) == ("fentry", "tcp_probe")


def test_the_report_draws_what_is_there_and_says_what_is_not(
    command: Command, tmp_path: Path
) -> None:
    page = tmp_path / "r.html"
    status, _, _ = command("report", RUN, "-o", str(page))
    html = page.read_text()
    assert status == 0
    assert "Recorded by tcp_probe" in html
    assert "Nothing can be replayed" in html
    data = data_of(html)
    drawn = {signal["key"] for flow in data["flows"] for signal in flow["signals"]}
    assert {"pacing", "max_bw", "cwnd", "inflight", "srtt", "min_rtt"} <= drawn
    assert not drawn & {"sample", "rtt"}


def test_samples_of_ss_are_explained_by_the_modes_that_were_seen(command: Command) -> None:
    status, out, _ = command("explain", "ss_alone")
    assert status == 0
    assert RUNGS["inet_diag"].can in out
    assert f"it cannot {RUNGS['inet_diag'].cannot}" in out
    assert "1.000  DRAIN      seen in one sample; began after 0.000 s" in out
    assert "10.000  PROBE_RTT" in out
    _, out, _ = command("explain", "ss_alone", "--between", "9s", "10s", "--json")
    (flow,) = json.loads(out)["flows"]
    assert [mode["mode"] for mode in flow["modes"]] == ["PROBE_BW", "PROBE_RTT"]


@pytest.mark.parametrize(
    "words", [("explain", "ss_alone", "--at", "3s"), ("explain", "ss_alone", "--only", "bw_lo")]
)
def test_what_samples_of_ss_cannot_answer_is_refused(
    command: Command, words: tuple[str, ...]
) -> None:
    status, _, err = command(*words)
    assert status == 1
    assert RUNGS["inet_diag"].cannot in err


def test_metrics_of_samples_of_ss_has_what_their_counters_tell(command: Command) -> None:
    _, out, _ = command("metrics", "ss_alone", "--format", "json")
    (flow,) = json.loads(out)
    # Eleven seconds of 1,250,000 bytes each.
    assert flow["acked_bytes"] == 11 * 1_250_000
    assert flow["goodput_mbps"] == pytest.approx(10)


def test_the_report_of_samples_of_ss_draws_them(command: Command, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    status, _, _ = command("report", "ss_alone", "-o", str(page))
    html = page.read_text()
    assert status == 0
    assert "Recorded by inet_diag" in html
    assert "12 samples by inet_diag" in html
    assert "Time per phase" not in html
    assert "None" not in html.split("<main>")[0]
    data = data_of(html)
    (flow, _everything) = data["flows"]
    drawn = {signal["key"] for signal in flow["signals"]}
    drawn_of_ss = "sample pacing max_bw inflight cwnd srtt min_rtt base_rtt"
    assert drawn == set(drawn_of_ss.split())
    assert list(flow["lanes"]) == ["phase"]


@pytest.mark.parametrize(
    ("run", "said"),
    [(RUN, "findings have medium confidence at most"), ("ss_alone", "No rule could be checked")],
)
def test_diagnose_does_not_call_a_run_of_samples_healthy(
    command: Command, run: str, said: str
) -> None:
    status, out, _ = command("diagnose", run)
    assert status == 0
    assert said in out
    assert "None" not in out
    assert "all that apply" not in out
