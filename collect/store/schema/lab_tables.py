"""The tables of the lab: which experiment a run is, and what its traffic reached."""

from __future__ import annotations

from .recorded_tables import RUN_ID
from .table import Column, Table

_FLOW_NO = Column("flow_no", "INTEGER", "", "the flow within its scenario, from 1")

LAB_RUNS = Table(
    "lab_runs",
    "One row per run of a scenario of `bbrscope lab`.",
    (
        RUN_ID,
        Column("scenario", "VARCHAR", "", "name in the catalogue"),
        Column("title", "VARCHAR", "", "scenario in words"),
        Column("source", "VARCHAR", "", "what it repeats: study and figure"),
        Column("rep", "INTEGER", "", "repetition, from 1"),
        Column("seed", "UINTEGER", "", "seed of the run's random start times"),
        Column("quick", "BOOLEAN", "", "run in the scenario's quick form"),
        Column("place", "VARCHAR", "", "host, or vm: a guest in virtual time"),
        Column("kernel", "VARCHAR", "", "kernel of sender, router and receiver"),
        Column("params", "VARCHAR", "JSON", "every parameter as text: params->>'buffer'"),
        Column("duration_s", "DOUBLE", "s", "length of the traffic as planned"),
        Column("rate_bps", "BIGINT", "bit/s", "bottleneck at the start, Ethernet headers counted"),
        Column("rtt_us", "BIGINT", "us", "two-way propagation delay at the start"),
        Column("bdp_bytes", "BIGINT", "bytes", "rate times rtt"),
        Column("buffer_bytes", "BIGINT", "bytes", "bottleneck's queue, or policer's bucket"),
        Column("loss", "DOUBLE", "", "share of data packets lost at random at the start"),
        Column("aqm", "VARCHAR", "", "fifo, fq_codel, red or policer"),
        Column("flows", "INTEGER", "flows", "flows of the scenario"),
        Column(
            "changes", "VARCHAR", "JSON", "what changed on the path: at_s (as done), what, value"
        ),
        Column(
            "cpu_busy",
            "DOUBLE",
            "",
            "share of time that the busiest CPU worked, but for the recording",
        ),
        Column("valid", "BOOLEAN", "", "the run is what it says it is"),
        Column("why_invalid", "VARCHAR", "", "what spoils it; NULL: nothing"),
    ),
)

LAB_FLOWS = Table(
    "lab_flows",
    "One row per flow of a lab run, or of a run whose manifest states its flows (setup: n, ccs, "
    "starts), from iperf3: BBR and its competitors alike.",
    (
        RUN_ID,
        _FLOW_NO,
        Column("cc", "VARCHAR", "", "congestion control as the kernel calls it: bbr, cubic ..."),
        Column("bbr_version", "VARCHAR", "", "v1, v2 or v3; NULL: no BBR, or not known"),
        Column("flow", "INTEGER", "", "the same flow in table flows; NULL: not recorded there"),
        Column("kind", "VARCHAR", "", "bulk, rate-limited, fixed-size, on-off; '': not stated"),
        Column("local_port", "USMALLINT", "", "port of the sender; NULL: it never connected"),
        Column("start_s", "DOUBLE", "s", "first byte, from runs.traffic_start_ns"),
        Column("stop_s", "DOUBLE", "s", "end of the transfer, likewise"),
        Column("goodput_bps", "DOUBLE", "bit/s", "payload at the receiver over the flow's life"),
        Column("bytes", "BIGINT", "bytes", "payload at the receiver"),
        Column("retransmits", "BIGINT", "packets", "retransmitted segments, the sender's count"),
        Column("completion_s", "DOUBLE", "s", "duration of a fixed-size transfer that ended"),
        Column("extra_rtt_us", "BIGINT", "us", "delay beyond the path's"),
    ),
)

LAB_INTERVALS = Table(
    "lab_intervals",
    "Goodput over time: the receiver's intervals of each flow of lab_flows.",
    (
        RUN_ID,
        _FLOW_NO,
        Column("t_s", "DOUBLE", "s", "start of the interval, from runs.traffic_start_ns"),
        Column("seconds", "DOUBLE", "s", "its length"),
        Column("goodput_bps", "DOUBLE", "bit/s", "payload at the receiver"),
    ),
)

TABLES: tuple[Table, ...] = (LAB_RUNS, LAB_FLOWS, LAB_INTERVALS)
