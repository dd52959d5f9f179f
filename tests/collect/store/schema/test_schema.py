"""Kernel fields become columns by one rule; a rare few of them move with every event."""

from __future__ import annotations

import hashlib

from bbrscope.collect.store import schema
from bbrscope.collect.store.schema.recorded_tables import (
    EVENTS,
    LOSS_MARKS,
    MOVING,
    PARAMS_TABLE,
    RETRANSMITS,
)
from bbrscope.probes.fields import column_name, exit_column_name


def test_kernel_names_become_columns_by_one_rule() -> None:
    assert column_name("rs.delivered") == "rs_delivered"
    assert column_name("sk.sk_pacing_rate") == "sk_pacing_rate"
    assert column_name("bbr.bw.s[0].t") == "bbr_bw_s_0_t"
    assert column_name("bbr.extra_acked[1]") == "bbr_extra_acked_1"
    assert column_name("icsk_ca_state") == "icsk_ca_state"
    assert exit_column_name("tp.app_limited") == "exit_app_limited"
    assert exit_column_name("jiffies32") == "exit_jiffies32"


def test_the_columns_that_move_are_columns_of_events() -> None:
    assert {column.name for column in EVENTS.columns} >= MOVING


# Schema version -> digest of the columns that follow from the table of fields.
LAYOUTS = {5: "5589a69b07a0d73c"}


def test_a_store_with_other_columns_has_another_schema_version() -> None:
    columns = sorted(
        (table.name, column.name, column.type)
        for table in (EVENTS, LOSS_MARKS, RETRANSMITS, PARAMS_TABLE)
        for column in table.columns
    )
    digest = hashlib.sha256(repr(columns).encode()).hexdigest()[:16]
    assert LAYOUTS.get(schema.SCHEMA_VERSION) == digest, "raise SCHEMA_VERSION, name the digest"
