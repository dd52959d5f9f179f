"""The report's file: what it says, what it escapes, how it is written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from bbrscope.analyze.compare.run_metrics import scoped
from bbrscope.analyze.views.materialize import forget
from bbrscope.analyze.views.phase_names import PHASES
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from bbrscope.reports.commands.report import command
from bbrscope.reports.html.data import select, shares
from bbrscope.reports.html.data.shares import JAIN
from bbrscope.reports.html.pages import page
from bbrscope.reports.html.panels import palette
from bbrscope.reports.html.panels.flow_panels import FLOW_PANELS
from bbrscope.reports.html.panels.path_panels import QUEUE
from bbrscope.reports.html.panels.sources import SOURCES
from bbrscope.reports.html.sections import about_run, compared
from click.testing import CliRunner

from tests.packed_columns import unpack
from tests.page_data import data_of


@pytest.fixture(scope="module")
def html(shipped_path: Path) -> str:
    with open_store(shipped_path, read_only=True) as store:
        return page.build(store.con, store.run_id("v2_single_1bdp"))


def test_nothing_in_the_page_asks_the_network(html: str) -> None:
    # Vega names the namespaces of SVG; nothing loads them. The policy forbids all the rest.
    assert "default-src 'none'" in html
    markup = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"https?://", markup)
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", markup)


def test_it_is_small_enough_to_mail(html: str) -> None:
    assert len(html.encode()) < 3_000_000


def test_every_phase_change_is_in_the_table_and_in_the_data(html: str, shipped: Store) -> None:
    found = shipped.con.execute(
        "SELECT ns, to_phase FROM transitions WHERE run = 'v2_single_1bdp' AND flow = 1"
        " ORDER BY seq, from_phase NULLS FIRST"
    ).fetchall()
    data = data_of(html)
    lane = data["flows"][0]["lanes"]["phase"]
    zero = found[0][0]
    assert unpack(lane["a"]) == [(ns - zero) // 1000 for ns, _ in found]
    names = [lane["names"][index] for index in unpack(lane["c"])]
    assert names == [phase for _, phase in found]
    for ns, _ in found:
        assert f'<tr data-a="{(ns - zero) // 1000 / 1e6}"' in html


@pytest.mark.parametrize("bound", ["inflight_hi", "inflight_lo", "bw_lo"])
@pytest.mark.parametrize("run", ["v2_single_1bdp", "v2_x_spur", "v3_x_tlp5"])
def test_every_change_of_a_bound_is_in_the_data(run: str, bound: str, shipped: Store) -> None:
    changes = shipped.con.execute(
        "SELECT ns FROM bounds_history WHERE run = ? AND flow = 1 AND bound = ? ORDER BY seq",
        [run, bound],
    ).fetchall()
    data = data_of(page.build(shipped.con, shipped.run_id(run)))
    first = shipped.con.execute(
        "SELECT flows.first_ns FROM flows JOIN runs USING (run_id) WHERE run = ? AND flow = 1",
        [run],
    ).fetchone()
    assert first is not None
    signals = {signal["key"]: signal for signal in data["flows"][0]["signals"]}
    drawn = set(unpack(signals[bound]["t"])) if bound in signals else set()
    assert {(ns - first[0]) // 1000 for (ns,) in changes} <= drawn
    assert changes or not drawn


def test_the_reasons_are_in_words(html: str) -> None:
    assert "The pipe is full: leave STARTUP" in html
    assert "a queue is building, stop probing" in html
    assert "inflight_hi was set to" in html
    assert "What limited sending" in html
    assert "bit for bit" in html


@pytest.mark.parametrize("run", ["v1_x_lt", "v3_x_tlp5", "v2_x_spur"])
def test_other_versions_and_runs_without_a_queue_are_drawn(run: str, shipped: Store) -> None:
    built = page.build(shipped.con, shipped.run_id(run))
    keys = {signal["key"] for signal in data_of(built)["flows"][0]["signals"]}
    assert {"sample", "pacing", "max_bw", "inflight", "cwnd", "bdp", "rtt", "min_rtt"} <= keys
    assert "backlog" not in keys
    if run.startswith("v1"):
        assert "inflight_hi" not in keys
        assert "v1 has no inflight_hi" in built
        assert "lt_bw" in keys


def test_signals_are_those_of_the_store(html: str, shipped: Store) -> None:
    signals = {one["key"]: one for one in data_of(html)["flows"][0]["signals"]}
    lost, largest_cwnd, least_rtt = shipped.con.execute(
        "SELECT max(tp_lost), max(exit_snd_cwnd), min(rs_rtt_us) FILTER (rs_rtt_us > 0)"
        " FROM events JOIN runs USING (run_id) WHERE run = 'v2_single_1bdp' AND flow = 1"
    ).fetchall()[0]
    assert sum(unpack(signals["lost"]["v"])) == lost
    assert max(unpack(signals["cwnd"]["v"])) == largest_cwnd
    assert min(unpack(signals["rtt"]["v"])) == least_rtt


def test_what_strangers_recorded_stays_text(hostile_path: Path) -> None:
    with open_store(hostile_path, read_only=True) as store:
        built = page.build(store.con, store.run_id("v2_x_spur"))
    assert "<script>alert(1)" not in built
    assert "&lt;script&gt;alert(1)" in built
    assert built.count("<script") == 3


def test_what_is_not_seen_is_escaped(hostile_path: Path, unseen: str) -> None:
    """A mark of direction would have a reader see another name than the one that is there."""
    with open_store(hostile_path) as store:
        run_id = store.run_id("v2_x_spur")
        forget(store.con, [run_id])
        store.con.execute(
            "UPDATE runs SET run = $1, description = $1 WHERE run_id = $2", [unseen, run_id]
        )
        store.con.execute("UPDATE flows SET local_address = $1", [unseen])
        pages = [page.build(store.con, run_id), compared.build(store.con, [run_id, 1])]
    for built in pages:
        assert "\u202e" not in built.split("<script>")[0]
        assert r"\x07 \u202egnp.exe" in built.split("<script>")[0]
        # In the data of charts, too: JSON escapes the escape.
        assert not re.search(r"(?<!\\)\\u202egnp", built.split('application/json">')[1])
        assert "\x07" not in built


def test_a_run_that_was_not_replayed_says_so(shipped_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "bare.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        for table in ("replays", "replay_fields", "decisions", "gaps"):
            store.con.execute(f"DELETE FROM {table}")
        forget(store.con, [store.run_id("v2_x_spur")])
        built = page.build(store.con, store.run_id("v2_x_spur"))
    assert "Not replayed: reasons are missing." in built
    assert "No decision is known" in built


def test_a_report_is_never_overwritten_unasked(shipped_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    arguments = ["v2_x_spur", "--store", str(shipped_path), "-o", str(target)]
    assert CliRunner().invoke(command, arguments).exit_code == 0
    written = target.read_bytes()
    target.write_text("mine")
    refused = CliRunner().invoke(command, arguments)
    assert refused.exit_code == 1
    assert "exists" in str(refused.exception)
    assert target.read_text() == "mine"
    assert CliRunner().invoke(command, [*arguments, "--force"]).exit_code == 0
    assert target.read_bytes() == written
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_between_opens_with_that_window(shipped_path: Path, tmp_path: Path) -> None:
    target = tmp_path / "window.html"
    arguments = ["v2_single_1bdp", "--store", str(shipped_path), "-o", str(target)]
    done = CliRunner().invoke(command, [*arguments, "--between", "12s", "14500ms"])
    assert done.exit_code == 0
    assert data_of(target.read_text())["window"] == [12.0, 14.5]
    wrong = CliRunner().invoke(command, [*arguments, "--force", "--between", "14s", "12s"])
    assert wrong.exit_code == 2


def test_reduced_flows_keep_changes_and_extremes_and_say_so(
    shipped: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select, "COLUMNS", 60)
    monkeypatch.setattr(select, "LEAST_COLUMNS", 60)
    full_cwnd, full_hi = shipped.con.execute(
        "SELECT max(exit_snd_cwnd), count(DISTINCT bbr_inflight_hi) FROM events"
        " JOIN runs USING (run_id) WHERE run = 'v2_single_1bdp' AND flow = 1"
    ).fetchall()[0]
    built = page.build(shipped.con, shipped.run_id("v2_single_1bdp"), (12.0, 13.0))
    signals = {one["key"]: one for one in data_of(built)["flows"][0]["signals"]}
    recorded, inside = shipped.con.execute(
        "SELECT count(*), count(*) FILTER (ns - f.first_ns BETWEEN 12e9 AND 13e9) FROM events e"
        " JOIN flows f USING (run_id, flow) JOIN runs r USING (run_id)"
        " WHERE run = 'v2_single_1bdp' AND flow = 1 AND rs_rtt_us > 0"
    ).fetchall()[0]
    kept = unpack(signals["rtt"]["t"])
    assert len(kept) < recorded / 3
    assert max(unpack(signals["cwnd"]["v"])) == full_cwnd
    assert len(set(unpack(signals["inflight_hi"]["v"]))) == full_hi
    # In the window, only samples equal to both neighbours are left out.
    window = [when for when in kept if 12_000_000 <= when <= 13_000_000]
    assert inside / 2 < len(window) <= inside
    assert "To stay small" in built
    assert f"flow 1, rtt: {len(kept):,} of {recorded:,} points" in built


def test_every_signal_phase_and_limit_has_a_colour() -> None:
    from bbrscope.analyze.views.events.binding_views import BINDINGS

    signals = [signal for panel in (*FLOW_PANELS, QUEUE, JAIN) for signal in panel.signals]
    keys = [signal.key for signal in signals]
    assert len(keys) == len(set(keys))
    for name in (
        *(signal.paint for signal in signals),
        *PHASES,
        *palette.CA_STATES,
        *BINDINGS,
    ):
        assert palette.variable(name).startswith("var(--")


def test_the_sequence_chart_counts_bytes_from_the_first_one_sent(shipped: Store) -> None:
    """Against the counters of the kernel, and the capture's own where there is one."""
    run_id = shipped.run_id("v2_single_1bdp")
    signals = {
        one["key"]: one for one in data_of(page.build(shipped.con, run_id))["flows"][0]["signals"]
    }
    una, nxt, lost = shipped.con.execute(
        "SELECT (arg_max(tp_snd_una, seq)::BIGINT - arg_min(tp_snd_una, seq) + 4294967296)"
        " % 4294967296, (arg_max(tp_snd_nxt, seq)::BIGINT - arg_min(tp_snd_una, seq)"
        " + 4294967296) % 4294967296, count_if(kind = 'skb_marked_lost')"
        " FROM events WHERE run_id = ? AND flow = 1 AND kind IN ('init', 'main',"
        " 'skb_marked_lost')",
        [run_id],
    ).fetchall()[0]
    assert unpack(signals["acked"]["v"])[-1] == una
    assert unpack(signals["sent"]["v"])[-1] == nxt
    assert len(unpack(signals["lost_segment"]["t"])) == lost
    payload, resent = shipped.con.execute(
        "SELECT max(seq::BIGINT + len) - 1, count_if(retransmission OR out_of_order)"
        " FROM packets WHERE run_id = ? AND flow = 1",
        [run_id],
    ).fetchall()[0]
    if payload is not None:
        assert max(unpack(signals["segment"]["v"])) == payload
        assert len(unpack(signals["resent"]["t"])) == resent
        assert max(unpack(signals["sack"]["d"])) < payload


def test_sequence_numbers_that_wrap_go_on_growing() -> None:
    numbers = np.array([2**32 - 1000, 448, 2**32 - 500, 1948, 2**31 + 1948 - 1])
    masked = np.zeros(5, bool)
    assert select._unwrapped(numbers, masked, 2**32 - 2000).tolist() == [
        1000,
        2448,
        1500,
        3948,
        3948 + 2**31 - 1,
    ]


def test_rounds_lose_what_the_kernel_marked_lost(shipped: Store) -> None:
    run_id = shipped.run_id("v2_single_1bdp")
    rounds = shipped.con.execute(
        f"SELECT count(*), sum(lost), sum(delivered) FROM ({SOURCES['rounds']})",
        {"run_id": run_id, "flow": 1},
    ).fetchall()[0]
    lost, delivered = shipped.con.execute(
        "SELECT max(tp_lost), max(tp_delivered) - min(tp_delivered) FROM events"
        " WHERE run_id = ? AND flow = 1",
        [run_id],
    ).fetchall()[0]
    assert rounds[0] > 100
    assert rounds[1:] == (lost, delivered)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["v2_latecomer_2bdp", "v1_latecomer_4bdp"])
def test_fairness_per_second_is_that_of_the_view(run: str, all_runs: Store) -> None:
    run_id = all_runs.run_id(run)
    shared = shares.load(all_runs.con, select.load_run(all_runs.con, run_id))
    assert shared is not None
    expected = all_runs.con.execute(
        scoped(all_runs.con, "SELECT t_s, jain FROM sharing WHERE t_s IS NOT NULL", [run_id])
    ).fetchall()
    assert shared.jain() == pytest.approx(dict(expected))
    data = data_of(page.build(all_runs.con, run_id))
    assert {"share1", "share2", "together", "jain"} <= {
        signal["key"] for signal in data["flows"][-1]["signals"]
    }


def test_the_title_says_where_the_recording_comes_from(shipped_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "host.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id("v2_single_1bdp")
        for name, value in (("machine", "x86_64"), ("qdiscs", '["eth0 fq 8001:"]')):
            store.con.execute(
                "INSERT INTO host_facts VALUES (?, 'host', ?, ?)", [run_id, name, value]
            )
        title = dict(about_run.title(store.con, select.load_run(store.con, run_id)))
        matched = store.con.execute(
            "SELECT packets FROM captures WHERE run_id = ?", [run_id]
        ).fetchall()
    assert title["Sender"] == "10.1.1.2, machine x86_64, qdiscs eth0 fq 8001:"
    assert title["Path"].startswith("10.1.1.2 \u2192 10.9.0.2, smallest RTT 40 ms")
    assert title["Decoded as"].startswith("BBR v2, because ")
    assert "25.10 s" in title["Recorded"]
    assert "10,602 kernel events by fentry" in title["Capture"]
    if matched:
        assert f"{matched[0][0]:,} packets" in title["Capture"]


@pytest.mark.parametrize("current", [True, False])
def test_building_leaves_the_stores_views_as_they_were(
    current: bool, shipped_path: Path, tmp_path: Path
) -> None:
    """Of this bbrscope and of an older one, whose views a reader replaces by temporary ones."""
    path = tmp_path / "views.duckdb"
    shutil.copy(shipped_path, path)
    if not current:
        with open_store(path) as store:
            store.con.execute("UPDATE meta SET value = 'older' WHERE key = 'views'")
    counts = "SELECT (SELECT count(*) FROM phases), (SELECT count(*) FROM binding)"
    with open_store(path, read_only=True) as store:
        before = store.con.execute(counts).fetchall()
        assert "STARTUP" in page.build(store.con, store.run_id("v2_x_spur"))
        assert store.con.execute(counts).fetchall() == before
