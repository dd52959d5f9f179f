"""Where the world's records are: compiled code finds them by address, plain Python by index.

A world is one record that holds the addresses of arrays of records (world_setup.py makes both):
functions hand on one pointer, whatever they need of the world. In plain Python it is a `Sim`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from ....probes.base.jit import PLAIN, jit
from ...bbr.params import PARAMS, Params
from ...bbr.records import EVENT, STATE, Bbr, Event
from .kept_rows import OUT, REACHED, SAMPLE, Out, QueueRow, Reached
from .world_records import (
    BLOCK,
    CHANGE,
    COMING,
    FLOW,
    GOT,
    PACKET,
    SEG,
    Coming,
    Got,
    Packet,
    PathStep,
    SackBlock,
    Seg,
    SimFlow,
    World,
)


class Sim(NamedTuple):
    """A world's arrays of records.

    Attributes:
        world: WORLD [1].
        flows, events, states, params: [n] of FLOW, EVENT (what the estimator reads of a socket),
            STATE (struct bbr) and PARAMS, one of each per flow.
        segs, got: SEG and GOT [n << bits]: each sender's window and each receiver's, rings.
        blocks: BLOCK [4 n], each receiver's SACK blocks, the latest first.
        packets: PACKET [m], those on the path, and a list of free ones.
        heap: COMING [k], events to come.
        changes: CHANGE [c], of the path.
        out_events, out_states, out_rows: [r] of EVENT, STATE and OUT: the recording.
        samples: SAMPLE [s], of the queue.
        reached: REACHED [n seconds], each flow at each full second.
        callbacks: the variants' callbacks, by slot.
    """

    world: Any
    flows: Any
    events: Any
    states: Any
    params: Any
    segs: Any
    got: Any
    blocks: Any
    packets: Any
    heap: Any
    changes: Any
    out_events: Any
    out_states: Any
    out_rows: Any
    samples: Any
    reached: Any
    callbacks: Any


if PLAIN:

    def _item(array: Any, index: int, _kind: Any) -> Any:
        return array[index]

    def _copy_record(to: Any, source: Any, _kind: Any) -> None:
        to.copy_from(source)

    def _call(callback: Any, bbr: Bbr, ev: Event, p: Params) -> int:
        return cast(int, callback(bbr, ev, p))

    _at: Any = _item
    _copy: Any = _copy_record
    _run: Any = _call

    def _callback(callbacks: Any, slot: int) -> Any:
        return callbacks[slot]

    def world_of(s: Any) -> World:
        """The world's own record."""
        return cast(World, s.world[0])

else:
    from ....probes.base import record_addresses as addresses

    _at = addresses.record_at
    _copy = addresses.copy_record
    _run = addresses.run_address

    @jit
    def _callback(callbacks: Any, slot: int) -> Any:
        if slot == 0:
            return callbacks[0]
        if slot == 1:
            return callbacks[1]
        return callbacks[2] if slot == 2 else callbacks[3]

    @jit
    def world_of(s: Any) -> World:
        """The world's own record."""
        return s  # type: ignore[no-any-return]


@jit
def flow_of(s: Sim, i: int) -> SimFlow:
    """A flow."""
    return _at(s.flows, i, FLOW)  # type: ignore[no-any-return]


@jit
def event_of(s: Sim, i: int) -> Event:
    """What the estimator reads of a flow's socket."""
    return _at(s.events, i, EVENT)  # type: ignore[no-any-return]


@jit
def state_of(s: Sim, i: int) -> Bbr:
    """A flow's struct bbr."""
    return _at(s.states, i, STATE)  # type: ignore[no-any-return]


@jit
def params_of(s: Sim, i: int) -> Params:
    """A flow's parameters."""
    return _at(s.params, i, PARAMS)  # type: ignore[no-any-return]


@jit
def seg_of(s: Sim, index: int) -> Seg:
    """A segment, by its index in the rings."""
    return _at(s.segs, index, SEG)  # type: ignore[no-any-return]


@jit
def got_of(s: Sim, index: int) -> Got:
    """Whether a receiver has a segment, by the same index."""
    return _at(s.got, index, GOT)  # type: ignore[no-any-return]


@jit
def block_of(s: Sim, i: int, k: int) -> SackBlock:
    """A receiver's SACK block."""
    return _at(s.blocks, 4 * i + k, BLOCK)  # type: ignore[no-any-return]


@jit
def packet_of(s: Sim, k: int) -> Packet:
    """A packet."""
    return _at(s.packets, k, PACKET)  # type: ignore[no-any-return]


@jit
def coming_of(s: Sim, k: int) -> Coming:
    """An event on the heap."""
    return _at(s.heap, k, COMING)  # type: ignore[no-any-return]


@jit
def change_of(s: Sim, k: int) -> PathStep:
    """A change of the path."""
    return _at(s.changes, k, CHANGE)  # type: ignore[no-any-return]


@jit
def sample_of(s: Sim, k: int) -> QueueRow:
    """A sample of the queue."""
    return _at(s.samples, k, SAMPLE)  # type: ignore[no-any-return]


@jit
def reached_of(s: Sim, k: int) -> Reached:
    """How far a flow had come at a full second."""
    return _at(s.reached, k, REACHED)  # type: ignore[no-any-return]


@jit
def out_of(s: Sim, row: int) -> Out:
    """A row of the recording, beyond inputs and state."""
    return _at(s.out_rows, row, OUT)  # type: ignore[no-any-return]


@jit
def out_event_of(s: Sim, row: int) -> Event:
    """A row's inputs."""
    return _at(s.out_events, row, EVENT)  # type: ignore[no-any-return]


@jit
def keep_event(s: Sim, i: int, row: int) -> None:
    """Copy a flow's inputs to a row."""
    _copy(_at(s.out_events, row, EVENT), _at(s.events, i, EVENT), EVENT)


@jit
def keep_state(s: Sim, i: int, row: int) -> None:
    """Copy a flow's struct bbr to a row."""
    _copy(_at(s.out_states, row, STATE), _at(s.states, i, STATE), STATE)


@jit
def run_callback(s: Sim, i: int, slot: int) -> None:
    """Run the callback that the flow's event says, of the variant in a slot."""
    _run(_at_slot(s, slot), _at(s.states, i, STATE), _at(s.events, i, EVENT), params_of(s, i))


@jit
def _at_slot(s: Sim, slot: int) -> Any:
    return _callback(s.callbacks, slot)
