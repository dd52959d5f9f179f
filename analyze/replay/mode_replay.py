"""One mode's replay along a flow, chunk by chunk: a machine goes on from each to the next."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bbr import codes, loops
from ..bbr.records import INIT, KINDS, STATE_COLUMNS, Array
from ..bbr.variants.own_variant import base_of, is_variant
from .chunks import Chunk
from .hidden_inputs import DRAWN, illegal_draws
from .passes import Pass, Workspace, run_pass
from .prepare import FlowEvents

# Of an event that differs, the inputs worth printing.
_SHOWN_INPUTS = (
    "tp_delivered",
    "tp_snd_cwnd",
    "tp_packets_out",
    "rs_delivered",
    "rs_interval_us",
    "rs_rtt_us",
    "rs_acked_sacked",
    "rs_losses",
    "rs_tx_in_flight",
    "rs_lost",
    "icsk_ca_state",
    "jiffies32",
    "exit_jiffies32",
)


class ModeReplay:
    """A replay in one mode, of one chunk of a flow after the other.

    Args:
        rules: "v1", "v2" or "v3", or a variant.
        params: the parameter record (analyze/bbr/params.py).
        begin: the state to begin from, as chunks before left it.
    """

    def __init__(
        self, mode: str, rules: str, params: Array, decisions: bool, begin: Workspace | None = None
    ) -> None:
        self.mode, self.rules, self.params, self.decisions = mode, rules, params, decisions
        self._machine = begin or Workspace()
        self._begun = self._machine

    def fork(self) -> ModeReplay:
        """Another replay, which has the last chunk still before it."""
        begin = self._begun.copy()
        return ModeReplay(self.mode, self.rules, self.params, self.decisions, begin)

    def run(self, chunk: Chunk) -> Pass:
        """Replay the next chunk."""
        self._begun = self._machine.copy()
        result = self._pass(chunk.own, self._machine, self.decisions)
        drew = chunk.own.events["tp"]["draws"] > 0
        settled = chunk.own.events["ctl"]["has_next"] == 1
        if not is_variant(self.rules):  # what it draws, and what comes of it, only its file says
            self._differ_at_illegal_draws(chunk.own, result, drew & settled)
        if chunk.own.last_draw_is_unknown and base_of(self.rules) == "v1":
            # The last event's draw decides its pacing, and nothing after it tells the draw.
            _leave_out_last(result)
        return result

    def _pass(
        self, events: FlowEvents, machine: Workspace, decisions: bool, stop: int | None = None
    ) -> Pass:
        given = (self.rules, self.params, self.mode, decisions)
        return run_pass(events, *given, stop, machine=machine)[0]

    def _differ_at_illegal_draws(self, events: FlowEvents, result: Pass, drew: Array) -> None:
        """Count as different the events that drew a number no kernel could have drawn."""
        comparable = result.outcome != loops.NOT_COMPARED
        for index in illegal_draws(events.events, drew & comparable, self.rules, self.params):
            if result.outcome[index] == loops.EXACT:
                result.differ_in(index, DRAWN[self.rules])

    def describe(self, chunk: Chunk, index: int) -> dict[str, Any]:
        """An event of the last chunk: where it is, its inputs, expected and got, its decisions."""
        flow, machine = chunk.own, self._begun.copy()
        again = self._pass(flow, machine, True, stop=index + 1)
        ctl, columns = flow.events["ctl"][index], flow.columns
        assert again.decisions is not None
        return {
            "seq": int(columns["seq"][index]),
            "ns": int(columns["ns"][index]),
            "line": int(columns["line"][index]),
            "kind": KINDS[int(ctl["kind"])],
            "argument": int(ctl["arg"]),
            "fields": _other_fields(flow, index, machine) | _other_outputs(ctl, machine),
            "inputs": {name: int(columns[name][index]) for name in _SHOWN_INPUTS},
            "decisions": [
                codes.CODES[int(row[1])].name for row in again.decisions if row[0] == index
            ],
        }


def _other_fields(flow: FlowEvents, index: int, machine: Workspace) -> dict[str, dict[str, int]]:
    """Fields of struct bbr that the machine left otherwise than the kernel did."""
    ctl, got = flow.events["ctl"][index], machine.vector
    if not ctl["has_next"]:
        return {}
    recorded = flow.states[index if ctl["kind"] == INIT else index + 1]
    return {
        name.removeprefix("bbr_"): {
            "before": int(flow.states[index][position]),
            "expected": int(recorded[position]),
            "got": int(got[position]),
        }
        for position, name in enumerate(STATE_COLUMNS)
        if flow.compared[position] and got[position] != recorded[position]
    }


def _other_outputs(ctl: np.void, machine: Workspace) -> dict[str, dict[str, int]]:
    """The same of the outputs that it carries on."""
    outputs = {"snd_cwnd": int(machine.carry[0]), "sk_pacing_rate": int(machine.carry_rate[0])}
    return {
        name: {
            "before": int(ctl[f"entry_{name}"]),
            "expected": int(ctl[f"exit_{name}"]),
            "got": got,
        }
        for bit, (name, got) in enumerate(outputs.items())
        if ctl["check"] >> bit & 1 and got != int(ctl[f"exit_{name}"])
    }


def _leave_out_last(result: Pass) -> None:
    """Compare the last event with nothing: neither it nor its outputs are counted."""
    if result.outcome[-1] == loops.DIFFERENT:
        tp, ctl = result.after["tp"][-1], result.after["ctl"][-1]
        for bit, name in enumerate(loops.OUTPUTS):
            if ctl["check"] >> bit & 1 and int(tp[name]) != int(ctl[f"exit_{name}"]):
                result.differences[len(STATE_COLUMNS) + bit] -= 1
    result.outcome[-1] = loops.NOT_COMPARED
