"""The estimator's records are the table of fields, and their protocols name the same."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import numpy as np
import pytest
from bbrscope.analyze.bbr import records
from bbrscope.probes.fields import FIELDS, with_role

PROTOCOLS = {
    records.Bbr: records.STATE,
    records.Socket: records.SOCKET,
    records.RateSample: records.RATE_SAMPLE,
    records.Skb: records.SKB,
    records.Control: records.CONTROL,
}
STORAGE = {
    "int": ("<i8", ()),
    "U64": ("<u8", ()),
    "Pair": ("<i8", (2,)),
    "Triple": ("<i8", (3,)),
    "Eight": ("<i8", (8,)),
}


def annotations(protocol: type) -> dict[str, str]:
    """Names and types of a protocol and of those it extends."""
    found: dict[str, str] = {}
    for base in protocol.__mro__:
        found |= inspect.get_annotations(base)
    return found


@pytest.mark.parametrize(("protocol", "record"), PROTOCOLS.items(), ids=lambda one: str(one)[-20:])
def test_a_protocol_names_the_fields_of_its_record_with_their_types(
    protocol: type, record: np.dtype
) -> None:
    stored = {}
    for name in record.names:
        base, shape = record[name].subdtype or (record[name], ())
        stored[name] = (base.str, shape)
    assert {name: STORAGE[kind] for name, kind in annotations(protocol).items()} == stored
    assert get_type_hints(protocol).keys() == stored.keys()


def test_every_input_and_state_field_of_the_table_has_its_place() -> None:
    events = {
        *(("tp", name) for name in records.SOCKET.names),
        *(("rs", name) for name in records.RATE_SAMPLE.names),
        *(("skb", name) for name in records.SKB.names),
    }
    argument = {"new_state", "event"}  # these become ctl.arg
    groups = {"sk": "tp", "": "tp"}
    for field in with_role("input"):
        place = (groups.get(field.group, field.group), field.record_place[0])
        assert field.name in argument or place in events, field.name
    state = {field.record_place[0] for field in with_role("state")}
    assert state | {"variant"} == set(records.STATE.names)


def test_the_states_columns_are_in_the_order_of_its_memory() -> None:
    state = np.zeros(1, records.STATE)
    for position, value in enumerate(state.view(np.int64)):
        assert value == 0, position
    for field in with_role("state"):
        state[:] = 0
        name, index = field.record_place
        if index < 0:
            state[name] = 7
        else:
            state[name][0, index] = 7
        expected = np.array([column == field.column for column in records.STATE_COLUMNS]) * 7
        recorded = state.view(np.int64)[: len(expected)]  # a variant's own state follows
        assert (recorded == expected).all(), field.name


def test_an_output_has_its_value_at_exit_beside_the_controls() -> None:
    exits = {name for name in records.CONTROL.names if name.startswith("exit_")}
    assert exits == {field.exit_column for field in with_role("output")}
    for field in with_role("output"):
        assert records.CONTROL[field.exit_column] == records.SOCKET[field.record_place[0]]


def test_only_a_rate_that_may_be_all_ones_needs_the_64th_bit() -> None:
    wide = {name for name in records.SOCKET.names if records.SOCKET[name] == np.uint64}
    assert wide == {"sk_pacing_rate", "sk_max_pacing_rate"}
    assert FIELDS["sk.sk_pacing_rate"].all_ones == "none"
