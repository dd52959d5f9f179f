"""Notes on a batch in words: slots of rows that make no event, and unseen calls of main."""

from __future__ import annotations

from ...probes.base.plurals import worded
from ..bundle.quality import CODES, QualityNote
from ..store.schema.recorded_tables import KINDS
from .batch import Finished
from .lines.header import ENTRY, Header
from .loop.column_plan import MAIN_ACKED, Plan
from .loop.loop_memory import (
    B_FIRST,
    B_FLOW,
    B_KIND,
    B_LINE,
    B_NS,
    B_SECOND,
    B_SEEN,
    GAP,
    HALF,
    ORPHAN,
    Batch,
)
from .loop.pairing_memory import PairingMemory, number_of

# Notes on rows that make no whole event.
UNPAIRED = ("half_event", "orphan_row", "duplicate_row")


def slot_notes(
    batch: Batch, finished: Finished, plan: Plan, header: Header, memory: PairingMemory
) -> list[QualityNote]:
    """Return the notes on a batch, in the order of their slots."""
    notes = []
    for index in finished.noted.tolist():
        slot = batch.slots[index].tolist()
        if slot[B_KIND] >= 0:
            acked = int(batch.u4[plan.main[MAIN_ACKED] + index])
            values = {"grown": int(finished.grown[index]), "acked": acked}
            code, words = "delivered_jump", worded(CODES["delivered_jump"], **values)
        else:
            code, words = _words(slot, header, memory)
        note = QualityNote(code, words, line=slot[B_LINE], ns=slot[B_NS])
        if slot[B_FLOW] >= 0:
            note.flow, note.seq = number_of(slot[B_FLOW]), int(finished.seq[index])
        notes.append(note)
    return notes


def _words(slot: list[int], header: Header, memory: PairingMemory) -> tuple[str, str]:
    """Return the code of a slot's note and its sentence."""
    kind, first, second = slot[B_KIND], slot[B_FIRST], slot[B_SECOND]
    values: dict[str, str | int]
    if kind == GAP:
        code, values = "sequence_gap", {"count": first}
    elif kind == HALF:
        code, values = "half_event", _parts(header, first, slot[B_SEEN])
        values["line"] = slot[B_LINE]
    else:
        code = "orphan_row" if kind == ORPHAN else "duplicate_row"
        values = {"tag": header.tags[first].name, "sk": memory.address_of(second)}
    return code, worded(CODES[code], **values)


def _parts(header: Header, kind: int, seen: int) -> dict[str, str | int]:
    """Return which entry rows an event has, and which it lacks."""
    tags = [t for t in header.tags if t.kind == KINDS[kind] and t.role == ENTRY]
    return {
        "kind": KINDS[kind],
        "have": "+".join(tag.name for tag in tags if tag.part & seen),
        "missing": "+".join(tag.name for tag in tags if not tag.part & seen),
    }
