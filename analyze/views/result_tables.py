"""The tables that analysis fills: agreement with the kernel, and what was decided and why."""

from __future__ import annotations

from ...collect.store.schema.recorded_tables import FLOW, RUN_ID
from ...collect.store.schema.table import Column, Table

_SEQ = Column("seq", "INTEGER", "", "the event within its flow, see events")

REPLAYS = Table(
    "replays",
    "One row per replayed flow and mode.",
    (
        RUN_ID,
        FLOW,
        Column("mode", "VARCHAR", "", "step or free-run"),
        Column("version", "VARCHAR", "", "v1, v2 or v3"),
        Column("flavour", "VARCHAR", "", "v1-patched: v1 on a kernel that carries v2's patch"),
        Column("first_seq", "INTEGER", "", "first event replayed"),
        Column("events", "BIGINT", "events", "events compared with the kernel"),
        Column("exact", "BIGINT", "events", "of these, exact in every field and output"),
        Column("pre_init", "BIGINT", "events", "left out: before init, on a zeroed state"),
        Column("tail", "BIGINT", "events", "left out: recorded while the probes detached"),
        Column("gaps", "BIGINT", "gaps", "gaps at which the replay re-synchronised"),
        Column("missing", "VARCHAR", "", "fields the recording lacks; NULL: none"),
        Column("first_divergence", "VARCHAR", "JSON", "the first event that differs; NULL: none"),
        Column("params", "VARCHAR", "JSON", "the parameters used"),
    ),
)

REPLAY_FIELDS = Table(
    "replay_fields",
    "Agreement per field of struct bbr and per output of the callbacks.",
    (
        RUN_ID,
        FLOW,
        Column("mode", "VARCHAR", "", "step or free-run"),
        Column("field", "VARCHAR", "", "kernel name of the field"),
        Column("compared", "BIGINT", "events", "events in which it was compared"),
        Column("exact", "BIGINT", "events", "events in which it agreed"),
    ),
)

DECISION_CODES = Table(
    "decision_codes",
    "The decision vocabulary: every code with its sentence, kernel function and draft section.",
    (
        Column("code", "USMALLINT", "", "stable number"),
        Column("name", "VARCHAR", "", "stable name"),
        Column("versions", "VARCHAR", "", "BBR versions that take it, e.g. 23"),
        Column("about", "VARCHAR", "", "what it decides on: mode, phase, inflight_hi ..."),
        Column("change", "BOOLEAN", "", "it changed that; false: deliberately kept it"),
        Column("function", "VARCHAR", "", "kernel function (v2alpha adds a bbr2_ prefix to some)"),
        Column("draft", "VARCHAR", "", "section of draft-ietf-ccwg-bbr"),
        Column("sentence", "VARCHAR", "", "template: {evidence}, or {evidence:one|many}"),
        Column("evidence", "VARCHAR[]", "", "names of e0 to e3"),
    ),
)

DECISIONS = Table(
    "decisions",
    "Every decision of every replayed event, those not to change included, with its evidence.",
    (
        RUN_ID,
        FLOW,
        _SEQ,
        Column("ord", "USMALLINT", "", "order within the event, from 0"),
        Column("ns", "UBIGINT", "ns", "CLOCK_MONOTONIC at the event's entry"),
        Column("code", "USMALLINT", "", "see decision_codes"),
        Column("e0", "BIGINT", "", "first number of evidence, named in decision_codes.evidence"),
        Column("e1", "BIGINT", "", "second"),
        Column("e2", "BIGINT", "", "third"),
        Column("e3", "BIGINT", "", "fourth"),
    ),
)

GAPS = Table(
    "gaps",
    "Where the recording lacks events: found from counters and broken state, then skipped.",
    (
        RUN_ID,
        FLOW,
        Column("seq", "INTEGER", "", "last event before the gap"),
        Column("ns", "UBIGINT", "ns", "that event's time"),
        Column("next_ns", "UBIGINT", "ns", "time of the event after the gap"),
        Column("line", "UBIGINT", "", "line of the event before the gap in events.csv"),
        Column(
            "kind",
            "VARCHAR",
            "",
            "missing_main, missing_ssthresh, disconnected ...",
        ),
        Column("detail", "VARCHAR", "", "what gives it away"),
    ),
)

# A gap in which no event is missing: the kernel cleared what it knew, which no callback tells.
CLEARED = "disconnected"
# SQL: a row of table gaps tells that events are missing.
LACKS_EVENTS = f"gaps.kind <> '{CLEARED}'"

TABLES: tuple[Table, ...] = (REPLAYS, REPLAY_FIELDS, DECISION_CODES, DECISIONS, GAPS)
