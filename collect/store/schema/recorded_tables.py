"""The tables that ingest fills: what was recorded, where, and how well."""

from __future__ import annotations

from ....probes.fields import EVENT_FIELDS, EXIT_FIELDS, PARAMS, SKB
from .table import Column, Table

# A sample is what rung tcp_probe has in place of callbacks.
SAMPLE = "sample"
KINDS = (
    *("init", "main", "set_state", "cwnd_event", "ssthresh", "undo_cwnd", "skb_marked_lost"),
    SAMPLE,
)
KIND_TYPE = "ENUM(" + ", ".join(f"'{kind}'" for kind in KINDS) + ")"

RUN_ID = Column("run_id", "INTEGER", "", "the run, see runs")
FLOW = Column("flow", "INTEGER", "", "the flow within its run, from 1, by first appearance")
SEQ = Column("seq", "INTEGER", "", "the event, see events")

META = Table(
    "meta",
    "What this store is.",
    (
        Column("key", "VARCHAR", "", "format, schema_version, created_by, or views (their digest)"),
        Column("value", "VARCHAR", "", "its value"),
    ),
)

# Rows of a run that were lost, by whichever of the two counted more.
ROWS_LOST = "greatest(coalesce(lost_declared, 0), coalesce(lost_reported, 0))"
RUNS = Table(
    "runs",
    "One row per ingested run bundle.",
    (
        RUN_ID,
        Column("run", "VARCHAR", "", "name to use on the command line"),
        Column("bundle_digest", "VARCHAR", "sha256", "digest of the bundle's files"),
        Column("version", "VARCHAR", "", "v1, v2 or v3: the layout of struct bbr"),
        Column("decoded_as", "VARCHAR", "", "why that layout was chosen"),
        Column("declared_version", "VARCHAR", "", "what the manifest says it is"),
        Column("kernel", "VARCHAR", "", "kernel of the sender"),
        Column("rung", "VARCHAR", "", "how it was recorded, see view rungs; NULL: not known"),
        Column("scenario", "VARCHAR", "", "scenario id"),
        Column("description", "VARCHAR", "", "scenario in words"),
        Column("setup", "VARCHAR", "JSON", "link, delay, buffer, flows as the manifest has them"),
        Column("hz", "INTEGER", "1/s", "jiffies per second of that kernel"),
        Column("started_realtime_ns", "UBIGINT", "ns", "wall clock at the start; NULL: unknown"),
        Column("traffic_start_ns", "UBIGINT", "ns", "when the traffic was started; NULL: unknown"),
        Column("first_ns", "UBIGINT", "ns", "first event"),
        Column("last_ns", "UBIGINT", "ns", "last event"),
        Column("duration_ns", "UBIGINT", "ns", "last_ns - first_ns"),
        Column("flows", "INTEGER", "flows", "flows seen"),
        Column("events", "BIGINT", "events", "events kept, samples included"),
        Column("rows", "BIGINT", "rows", "rows read from events.csv"),
        Column("lost_declared", "BIGINT", "rows", "rows lost as the manifest says"),
        Column("lost_reported", "BIGINT", "rows", "rows lost as messages among the rows say"),
        Column("half_events", "BIGINT", "events", "events dropped: a row is missing"),
        Column("missing_exits", "BIGINT", "events", "events kept without their exit row"),
        Column("quality_notes", "BIGINT", "notes", "rows in capture_quality"),
        Column("salvaged", "BOOLEAN", "", "read with --salvage from a damaged file"),
        Column("packets", "VARCHAR", "JSON", "where and how packets were captured; NULL: not"),
        Column("ingested_by", "VARCHAR", "", "bbrscope's version"),
    ),
)

HOST_FACTS = Table(
    "host_facts",
    "Settings kept with the data, one row each.",
    (
        RUN_ID,
        Column(
            "scope",
            "VARCHAR",
            "",
            "constants, module_params, sysctls, setup, rows, answers (of the rung), ladder (why not"
            " a better one), accounting, completeness (by rows), host, manifest (ended ...) ...",
        ),
        Column("name", "VARCHAR", "", "name of the setting"),
        Column("value", "VARCHAR", "", "its value as recorded"),
    ),
)

FLOWS = Table(
    "flows",
    "One row per life of a socket under BBR: a new init begins a new flow. In a run of packets "
    "alone, one per connection that carried data, of the end that sent most of it.",
    (
        RUN_ID,
        FLOW,
        Column("sk", "VARCHAR", "address", "socket address, hexadecimal"),
        Column("generation", "INTEGER", "", "0 for the first flow on that address, then 1, 2 ..."),
        Column("local_address", "VARCHAR", "", "NULL: unknown"),
        Column("local_port", "USMALLINT", "", "NULL: unknown"),
        Column("remote_address", "VARCHAR", "", "NULL: unknown"),
        Column("remote_port", "USMALLINT", "", "NULL: unknown"),
        Column("netns", "UINTEGER", "inode", "network namespace, as lsns shows it; NULL: unknown"),
        Column("cookie", "UBIGINT", "", "ss -e shows it in hexadecimal; NULL: unknown, or none"),
        Column(
            "first_ns",
            "UBIGINT",
            "ns",
            "first event, sample or, if captured only, packet",
        ),
        Column("last_ns", "UBIGINT", "ns", "the last"),
        Column("events", "BIGINT", "events", "events of all kinds"),
        *(Column(kind, "BIGINT", "events", f"events of kind {kind}") for kind in KINDS),
        Column("has_init", "BOOLEAN", "", "its init was recorded"),
        Column("pre_init", "INTEGER", "events", "events before init, on a zeroed state"),
        Column(
            "retransmits", "BIGINT", "packets", "sent again (table retransmits); NULL: not recorded"
        ),
        Column("note", "VARCHAR", "", "what a reader must know; NULL: nothing"),
    ),
)

# Columns of events that change with nearly every event. The others stay as they are for long, and
# runs of equal values are the fastest to write and to read.
MOVING = frozenset(
    """seq ns line exit_ns jiffies32 exit_jiffies32
    rs_prior_mstamp rs_prior_delivered rs_delivered rs_interval_us rs_snd_interval_us
    rs_rcv_interval_us rs_rtt_us rs_prior_in_flight
    tp_delivered tp_packets_out tp_srtt_us tp_delivered_mstamp tp_tcp_mstamp tp_tcp_clock_cache
    tp_tcp_wstamp_ns tp_snd_una tp_snd_nxt
    bbr_ack_epoch_mstamp bbr_ack_epoch_acked bbr_debug_rs_bw""".split()
)


def _event_column(name: str, sql_type: str, unit: str, meaning: str) -> Column:
    return Column(name, sql_type, unit, meaning, "bitpacking" if name in MOVING else "rle")


EVENTS = Table(
    "events",
    "One row per kernel event. bbr_* is the state before it (kind init: the state after init), "
    "tp_*, sk_*, rs_* and skb_* are read at its entry, exit_* when main or init returned. "
    "A sample (rung tcp_probe) is the state when a packet arrived, before it was looked at. "
    "NULL: this kernel or this kind of event does not have it.",
    (
        RUN_ID,
        FLOW,
        _event_column("seq", "INTEGER", "", "order within the flow, from 0"),
        _event_column("ns", "UBIGINT", "ns", "CLOCK_MONOTONIC at entry"),
        Column("kind", KIND_TYPE, "", f"the callback, or sample: {', '.join(KINDS)}"),
        _event_column("line", "UBIGINT", "", "line of its first row in events.csv"),
        Column("complete", "BOOLEAN", "", "all its rows were recorded, the exit included"),
        *(_event_column(f.column, f.sql_type, f.unit, f.meaning) for f in EVENT_FIELDS),
        _event_column("exit_ns", "UBIGINT", "ns", "CLOCK_MONOTONIC at exit"),
        *(
            _event_column(f.exit_column, f.sql_type, f.unit, f"at exit: {f.meaning}")
            for f in EXIT_FIELDS
        ),
    ),
)

_SKB_ROW = (
    RUN_ID,
    FLOW,
    Column("ns", "UBIGINT", "ns", "CLOCK_MONOTONIC"),
    Column("line", "UBIGINT", "", "line in events.csv"),
    *(Column(f.column, f.sql_type, f.unit, f.meaning) for f in SKB),
)

LOSS_MARKS = Table(
    "loss_marks",
    "Packets that TCP marked lost (tcp_mark_skb_lost), where BBR has no callback for it: v1. Those "
    "of v2 and v3 are events of kind skb_marked_lost; view repairs has both. NULL: this kernel or "
    "recording does not have it.",
    _SKB_ROW,
)

RETRANSMITS = Table(
    "retransmits",
    "Packets that TCP sent again (tracepoint tcp_retransmit_skb), the retransmission queue's skb "
    "as it was before. NULL: this kernel or recording does not have it.",
    _SKB_ROW,
)

PARAMS_TABLE = Table(
    "params",
    "v2's parameters of each socket (struct bbr_params), as init copied them.",
    (
        RUN_ID,
        FLOW,
        Column("ns", "UBIGINT", "ns", "when they were read"),
        *(Column(f.column.removeprefix("params_"), f.sql_type, f.unit, f.text) for f in PARAMS),
    ),
)

QUEUE_SAMPLES = Table(
    "queue_samples",
    "Samples of the bottleneck's queue; counters grow from the qdisc's creation.",
    (
        RUN_ID,
        Column("boottime_ns", "UBIGINT", "ns", "CLOCK_BOOTTIME, 10 ms resolution"),
        Column("ns", "UBIGINT", "ns", "the same on CLOCK_MONOTONIC; NULL: clocks unknown"),
        Column("kind", "VARCHAR", "", "qdisc; NULL: not recorded"),
        Column("sent_bytes", "UBIGINT", "bytes", "sent"),
        Column("sent_pkts", "UBIGINT", "packets", "sent"),
        Column("dropped", "UBIGINT", "packets", "dropped"),
        Column("overlimits", "UBIGINT", "events", "times the rate limit held a packet back"),
        Column("requeues", "UBIGINT", "packets", "requeued"),
        Column("backlog_bytes", "UBIGINT", "bytes", "in the queue now"),
        Column("backlog_pkts", "UBIGINT", "packets", "in the queue now"),
    ),
)

CLOCKS = Table(
    "clocks",
    "The clocks read together, to bring other recordings onto the events' clock.",
    (
        RUN_ID,
        Column("point", "VARCHAR", "", "start or end of the recording"),
        Column("realtime_ns", "UBIGINT", "ns", "CLOCK_REALTIME (packets)"),
        Column("monotonic_ns", "UBIGINT", "ns", "CLOCK_MONOTONIC (events)"),
        Column("boottime_ns", "UBIGINT", "ns", "CLOCK_BOOTTIME (queue samples)"),
    ),
)

CAPTURE_QUALITY = Table(
    "capture_quality",
    "What the recording lacks or what is odd in it, one row per note.",
    (
        RUN_ID,
        Column("flow", "INTEGER", "", "NULL: concerns the whole recording"),
        Column("seq", "INTEGER", "", "it lies before, or concerns, this event; NULL: no event"),
        Column("line", "UBIGINT", "", "line of events.csv; NULL: no line"),
        Column("ns", "UBIGINT", "ns", "when; NULL: no time"),
        Column("kind", "VARCHAR", "", "code of the note"),
        Column("detail", "VARCHAR", "", "the note in words"),
    ),
)

ACCOUNTING = Table(
    "accounting",
    "attempted = recorded + cut + lost, per probe: attempted as counted in the kernel. Empty: the "
    "collector did not count.",
    (
        RUN_ID,
        Column("probe", "VARCHAR", "", "tag of the probe's rows: M, X, I, IX, S, E, H, U, L or T"),
        Column("attempted", "BIGINT", "events", "the kernel tried to print so many"),
        Column("recorded", "BIGINT", "events", "of these, rows that arrived"),
        Column("cut", "BIGINT", "events", "of these, after the end: left out on purpose"),
        Column("lost", "BIGINT", "events", "what is missing"),
    ),
)

ATTACHMENTS = Table(
    "attachments",
    "Small files kept as they were, such as iperf3's own output.",
    (
        RUN_ID,
        Column("name", "VARCHAR", "", "file name in the bundle"),
        Column("text", "VARCHAR", "", "its content"),
    ),
)

TABLES = (
    META,
    RUNS,
    HOST_FACTS,
    FLOWS,
    EVENTS,
    LOSS_MARKS,
    RETRANSMITS,
    PARAMS_TABLE,
    QUEUE_SAMPLES,
    CLOCKS,
    CAPTURE_QUALITY,
    ACCOUNTING,
    ATTACHMENTS,
)
