"""Notes on sockets that took another congestion control: flows that are one socket's, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..bundle.quality import QualityNote, note_of

if TYPE_CHECKING:
    from .read_events import FlowInfo


def left_notes(flows: Sequence[FlowInfo]) -> Iterator[QualityNote]:
    """Yield a note on each flow whose socket left BBR, and on each that came back to it."""
    back = {flow.before: flow.flow for flow in flows if flow.before is not None}
    for flow in flows:
        if flow.before is not None:
            yield _of(flow, note_of("back_to_bbr", before=flow.before))
        if flow.left:
            then = f", and then BBR again, as flow {back[flow.flow]}" if flow.flow in back else ""
            yield _of(flow, note_of("left_bbr", then=then))


def _of(flow: FlowInfo, note: QualityNote) -> QualityNote:
    note.flow = flow.flow
    return note
