"""The numbers of metrics, worked out anew from raw rows: no view and no macro in between."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.analyze.compare import run_metrics, run_windows
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store

from tests.conftest import ss_text, write_bundle
from tests.truth import slices, wire
from tests.truth.facts import Flow, Recording

# enum bbr_mode.
STARTUP, DRAIN = 0, 1


def numbers(flow: Flow) -> dict[str, float | None]:
    """Columns of metrics_by_flow that come from events, by the flow's rows."""
    rows, rtts = flow.after_init, flow.rtts.cast(pl.Float64)
    lost, delivered = flow.total("tp.lost"), flow.total("tp.delivered")
    return {
        "acked_bytes": flow.total("tp.snd_una"),
        "delivered_packets": delivered,
        "lost_packets": lost,
        "loss_rate": lost / (lost + delivered),
        "ce_rate": flow.marked if "tp.delivered_ce" in rows.columns else None,
        "rtt_min_us": rtts.min(),  # type: ignore[dict-item]
        "rtt_mean_us": rtts.mean(),  # type: ignore[dict-item]
        "rtt_p50_us": rtts.quantile(0.5, "linear"),
        "rtt_p95_us": rtts.quantile(0.95, "linear"),
        "rtt_p99_us": rtts.quantile(0.99, "linear"),
        "queue_delay_us": max(0.0, (rtts - flow.base_us).mean()),  # type: ignore[type-var]
        "goodput_mbps": flow.total("tp.snd_una")
        * 8e3
        / int(flow.rows["ns"][-1] - flow.rows["ns"][0]),
        **rates(flow),
        **held(rows),
    }


def rates(flow: Flow) -> dict[str, float | None]:
    """The kernel's rate samples, and what was carried of the link."""
    sampled = flow.acks.filter((pl.col("rs.delivered") > 0) & (pl.col("rs.interval_us") > 0))
    rate = sampled.select(
        pl.col("rs.delivered") * pl.col("tp.mss_cache") * 8 / pl.col("rs.interval_us")
    ).to_series()
    return {
        "delivery_rate_mbps": rate.median(),  # type: ignore[dict-item]
        "delivery_rate_max_mbps": rate.max(),  # type: ignore[dict-item]
    }


def held(rows: pl.DataFrame) -> dict[str, float | None]:
    """What held from each row to the next, weighted with that time."""
    flight = (
        pl.col("tp.packets_out")
        - pl.col("tp.sacked_out")
        - pl.col("tp.lost_out")
        + pl.col("tp.retrans_out")
    )
    spans = rows.select(
        d=pl.col("ns").shift(-1) - pl.col("ns"),
        flight=flight,
        cwnd=pl.coalesce("out.tp.snd_cwnd", "tp.snd_cwnd"),
        pacing=pl.coalesce("out.sk.sk_pacing_rate", "sk.sk_pacing_rate").cast(pl.Float64),
    ).drop_nulls("d")
    whole = float(spans["d"].sum())

    def mean(name: str) -> float:
        return float((spans[name] * spans["d"]).sum()) / whole

    return {
        "inflight_packets": mean("flight"),
        "cwnd_packets": mean("cwnd"),
        "pacing_mbps": mean("pacing") * 8 / 1e6,
    }


class Told:
    """What a store's views say: each is asked once, for all runs, since planning it takes longest.

    Rows are dictionaries: column -> value.
    """

    def __init__(self, store: Store) -> None:
        self.con = store.con
        self._rows: dict[str, dict[str, list[dict[str, Any]]]] = {}

    def rows(self, view: str, run: str) -> list[dict[str, Any]]:
        if view not in self._rows:
            asked = self.con.execute(f"SELECT * FROM {view}")
            names = [column[0] for column in asked.description or ()]
            self._rows[view] = by_run = {}
            for row in asked.fetchall():
                one = dict(zip(names, row, strict=True))
                by_run.setdefault(one["run"], []).append(one)
        return self._rows[view].get(run, [])

    def of_flow(self, view: str, run: str, flow: int) -> list[dict[str, Any]]:
        return [row for row in self.rows(view, run) if row["flow"] == flow]

    def recorded(self, run: str) -> list[dict[str, Any]]:
        """The senders whose events count, the first recorded one first."""
        found = [
            row
            for row in self.rows("senders", run)
            if row["counts"] and row["flow"] is not None and row["acks"]
        ]
        return sorted(found, key=lambda row: row["first_event_ns"])


def same(got: float | None, want: float | None) -> bool:
    return got is None if want is None else got == pytest.approx(want, rel=1e-9)


def check(told: Told, recording: Recording) -> int:
    """Compare a recording's flows; return how many numbers that were."""
    run = recording.folder.name
    compared = 0
    for sender, flow in zip(told.recorded(run), recording.flows, strict=True):
        number, wanted = sender["flow"], numbers(flow)
        (row,) = told.of_flow("metrics_by_flow", run, number)
        for name, want in wanted.items():
            assert same(row[name], want), f"{run} flow {number}: {name} {row[name]}, not {want}"
        compared += len(wanted) + check_slices(told, run, sender, flow)
    return compared + check_run(told, recording)


def check_slices(told: Told, run: str, sender: Mapping[str, Any], flow: Flow) -> int:
    """Compare a flow's phases, its rounds, its limits and what it used of the link."""
    ends = sender["first_ns"], sender["last_ns"]
    compared = 0
    for by, wanted in (
        ("phase", slices.by_phase(flow)),
        ("round", slices.by_round(flow)),
        ("second", slices.by_second(flow)),
        ("flow", {sender["flow"]: slices.limits(flow) | slices.of_link(flow, *ends)}),
        *((by, slices.used(flow, by, *ends)) for by in ("phase", "round", "second")),
    ):
        rows = told.of_flow(f"metrics_by_{by}", run, sender["flow"])
        got = {row.get("t_s" if by == "second" else by): row for row in rows}
        where = f"{run} flow {sender['flow']} {by}"
        assert set(wanted) <= set(got), where
        for label, numbers_of_it in wanted.items():
            for name, want in numbers_of_it.items():
                there = got[label][name]
                assert same(there, want), f"{where} {label}: {name} is {want}, not {there}"
            compared += len(numbers_of_it)
    return compared


def check_run(told: Told, of: Recording) -> int:
    """Compare what is told of a run as a whole; return how many numbers that were."""
    run, flows = of.folder.name, of.flows
    senders = [row for row in told.rows("senders", run) if row["counts"]]
    begins = min(row["first_ns"] for row in senders)
    ends = max(row["last_ns"] for row in senders)
    acked = sum(flow.total("tp.snd_una") for flow in flows)
    wanted: dict[str, float | None] = {
        "lost_packets": sum(flow.total("tp.lost") for flow in flows),
        "rtt_min_us": min(flow.rtts.min() for flow in flows),  # type: ignore[type-var]
        "rate_mbps": of.link and of.link / 1e6,
        "rate_changes": len(of.rates) - 1 if of.rates else None,
        # The queue is looked at while callbacks were recorded.
        **slices.of_queue(
            of,
            min(row["first_event_ns"] for row in senders if row["first_event_ns"]),
            max(row["last_event_ns"] for row in senders if row["last_event_ns"]),
        ),
    }
    if len(senders) == len(flows):
        wanted["goodput_mbps"] = acked * 8e3 / (ends - begins)
    (row,) = told.rows("metrics_by_run", run)
    for name, want in wanted.items():
        assert same(row[name], want), f"{run}: {name} is {want}, not {row[name]}"
    return len(wanted)


def check_packets(told: Told, recording: Recording) -> int:
    """Compare what packets say of each sender; return how many numbers that were."""
    run = recording.folder.name
    captured = wire.senders(recording.folder)
    metrics = {(row["stream"], row["flow"]): row for row in told.rows("metrics_by_flow", run)}
    senders = [
        row for row in told.rows("senders", run) if row["counts"] and row["stream"] is not None
    ]
    compared = 0
    for connection, sender in zip(
        captured, sorted(senders, key=lambda row: row["stream"]), strict=True
    ):
        wanted = wire.numbers(connection) | of_link(recording, connection, sender)
        row = metrics[sender["stream"], sender["flow"]]
        got = {name: row[name] for name in wanted}
        assert got == pytest.approx(wanted, rel=1e-9), f"{run} stream {sender['stream']}"
        compared += len(wanted) + check_packet_slices(told, recording, connection, sender)
    return compared


def check_packet_slices(
    told: Told, of: Recording, connection: wire.Connection, sender: Mapping[str, Any]
) -> int:
    """Compare what packets brought in each phase and round of their flow; 0 of one without."""
    if sender["flow"] is None:
        return 0
    run = of.folder.name
    numbers = [row["flow"] for row in told.recorded(run)]
    flow = of.flows[numbers.index(sender["flow"])]
    compared = 0
    for by in ("phase", "round"):
        rows = {row[by]: row for row in told.of_flow(f"metrics_by_{by}", run, sender["flow"])}
        for label, wanted in wire.by_slice(connection, *slices.begun(flow, by)).items():
            for name, want in wanted.items():
                got = rows[label][name]
                assert same(got, want), f"{run} {by} {label}: {name} is {want}, not {got}"
            compared += len(wanted)
    return compared


def of_link(
    recording: Recording, connection: wire.Connection, row: Mapping[str, int]
) -> dict[str, float | None]:
    """What frames made of the link's rate, on average from a sender's first sign to its last."""
    steps, a, b = slices.link(recording.folder), row["first_ns"], row["last_ns"]
    if not steps:
        return {"pkt_utilisation": None}
    mean_mbps = slices.capacity(steps, a, b) / (b - a) * 1e3
    carried_mbps = wire.segments(connection)["pkt_throughput_mbps"]
    return {"pkt_utilisation": carried_mbps / mean_mbps}


def test_time_limited_by_buffers_is_what_ss_printed(tmp_path: Path) -> None:
    """Counters of ss go on from sample to sample; it leaves them out while they are 0."""
    told = [(None, None), (None, 40), (350, 40), (350, 390), (1200, 600)]
    text = ""
    plain = ss_text([(1, 2)] * len(told)).replace("rwnd_limited:24ms(31.6%) ", "")
    for sample, line in zip(told, plain.splitlines()[1::2], strict=True):
        limits = zip(("rwnd_limited", "sndbuf_limited"), sample, strict=True)
        printed = "".join(f" {name}:{ms}ms({ms / 50:.1f}%)" for name, ms in limits if ms)
        number = text.count("# monotonic") + 1
        text += f"# monotonic_ns {number * 10**9}\n{line}{printed}\n"
    bundle = write_bundle(tmp_path / "ss", None, rung="inet_diag")
    (bundle / "ss.txt.zst").write_bytes(zstandard.compress(text.encode()))
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, bundle)
        shares = store.con.execute(
            "SELECT rwnd_limited_share, sndbuf_limited_share FROM metrics_by_flow"
        ).fetchall()
        by_second = store.con.execute(
            "SELECT sndbuf_limited_share FROM metrics_by_second ORDER BY t_s"
        ).fetchall()
    # Four seconds lie between the first sample and the last.
    assert shares == [(pytest.approx(1.2 / 4), pytest.approx(0.6 / 4))]
    assert sum(share for (share,) in by_second if share) == pytest.approx(0.6)


def test_metrics_of_the_shipped_recordings_are_the_raw_rows(shipped: Store) -> None:
    told = Told(shipped)
    for run in shipped.runs():
        recording = Recording(fixtures.path(run))
        assert check(told, recording) > 30
        if (recording.folder / "packets.pcap.zst").is_file():
            assert check_packets(told, recording) > 7_000


def test_metrics_of_the_steady_state_are_the_raw_rows(shipped: Store) -> None:
    """From the event after which a flow has left STARTUP and DRAIN to its last one."""
    ids = [shipped.run_id(run) for run in shipped.runs()]
    told = run_metrics.table(shipped.con, ids, "flow", run_windows.steady(shipped.con, ids))
    for run in shipped.runs():
        (flow,) = Recording(fixtures.path(run)).flows
        modes = flow.spans.filter(~pl.col("bbr.mode").is_in([STARTUP, DRAIN]))
        rows = flow.between(modes["ns"][0], flow.spans["ns"][-1] + 1)
        lost, delivered = int(rows["lost"].sum()), int(rows["delivered"].sum())
        acked, rtts = int(rows["acked"].sum()), rows.filter(pl.col("rs.rtt_us") > 0)["rs.rtt_us"]
        wanted = {
            "acked_bytes": acked,
            "delivered_packets": delivered,
            "lost_packets": lost,
            "loss_rate": lost / (lost + delivered),
            "goodput_mbps": acked * 8e3 / int(rows["ns"][-1] - rows["ns"][0]),
            "rtt_mean_us": rtts.mean(),
            "rtt_p95_us": rtts.cast(pl.Float64).quantile(0.95, "linear"),
            "inflight_packets": held(rows)["inflight_packets"],
        }
        (row,) = (row for row in told.to_pylist() if row["acked_bytes"] == acked)
        assert {name: row[name] for name in wanted} == pytest.approx(wanted, rel=1e-9), run
