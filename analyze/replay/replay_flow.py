"""Replay one flow in both modes, chunk by chunk: memory does not grow with the flow's length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..bbr import params
from ..bbr.records import INIT
from ..bbr.variants.own_variant import base_of
from .chunks import Chunk, chunks_of
from .flow_facts import facts_of
from .flow_replay import Decisions, FlowPart, FlowReplay
from .flow_rows import FlowRows
from .gaps import GapPlace, placed
from .mode_replay import ModeReplay
from .passes import MODES
from .run_info import RunInfo
from .step_mode import StepMode
from .tally import Tally


def replay_flow(
    info: RunInfo, rows: FlowRows, values: dict[str, Any], decisions: bool = True
) -> Iterator[FlowPart]:
    """Replay one flow in both modes; gaps are found in step mode, then cut out of both.

    Yields what was found of each chunk.

    Args:
        rows: they are read twice, and once more if an event differs.
        values: the parameters that it ran with.
    """
    record = params.make(values)
    facts = facts_of(rows, info.last_exit_ns)

    def chunks() -> Iterator[Chunk]:
        return chunks_of(rows, facts, info.rules, record)

    step = StepMode(info, record, decisions, chunks)
    free, free_tally = ModeReplay(MODES[1], info.rules, record, decisions), Tally()
    gaps: list[GapPlace] = []
    has_init = False
    for chunk in chunks():
        if chunk.number == 0:
            has_init = bool((chunk.own.events["ctl"]["kind"][:1] == INIT).any())
        result, found = step.run(chunk)
        gaps += [placed(chunk, gap) for gap in found]
        decided = _decided(info, rows.flow, chunk, result.decisions)
        del result  # what its callbacks wrote takes a kB per event, and the next pass as much again
        free_tally.add(chunk, free, free.run(chunk))
        flow = None
        if chunk.is_last:
            tallies = dict(zip(MODES, (step.tally, free_tally), strict=True))
            flow = FlowReplay(
                info,
                rows.flow,
                values,
                facts.count,
                facts.first_seq,
                facts.pre_init,
                facts.tail,
                facts.missing(base_of(info.rules)),
                has_init,
                passes={mode: tally.agreed for mode, tally in tallies.items()},
                counts={mode: tally.counts for mode, tally in tallies.items()},
                gaps=gaps,
                divergences={mode: tally.divergence for mode, tally in tallies.items()},
            )
        part = FlowPart(info.run_id, len(chunk.own.events), decided, flow)
        del chunk  # before the next is read
        yield part


def _decided(info: RunInfo, flow: int, chunk: Chunk, rows: np.ndarray | None) -> Decisions | None:
    """The decisions of a chunk."""
    if rows is None:
        return None
    seq, ns = (chunk.own.columns[name][rows[:, 0]] for name in ("seq", "ns"))
    return Decisions(info.run_id, flow, rows, seq, ns)
