"""How one mode's replay of a flow agrees with the kernel, counted chunk by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bbr import loops
from .chunks import Chunk
from .flow_replay import Agreed
from .mode_replay import ModeReplay
from .passes import FIELD_NAMES, Pass


class Tally:
    """Counts chunks of a flow.

    Attributes:
        agreed: how many events were compared, and are exact.
        divergence: the first event that differs.
    """

    def __init__(self) -> None:
        self.agreed = Agreed(0, 0)
        self.divergence: dict[str, Any] | None = None
        self._compared = np.zeros(len(FIELD_NAMES), np.int64)
        self._different = np.zeros(len(FIELD_NAMES), np.int64)

    def add(self, chunk: Chunk, replay: ModeReplay, result: Pass) -> None:
        """Count a chunk of which `replay` has just found `result`."""
        self._compared += compared_fields(chunk, result)
        self._different += result.differences
        compared, exact = self.agreed.compared + result.compared, self.agreed.exact + result.exact
        self.agreed = Agreed(compared, exact)
        index = result.first_difference()
        if self.divergence is None and index is not None:
            self.divergence = replay.describe(chunk, index)

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Per field of struct bbr and per output: events compared, and of these exact."""
        numbers = zip(FIELD_NAMES, self._compared.tolist(), self._different.tolist(), strict=True)
        return {name: (compared, compared - other) for name, compared, other in numbers if compared}


def compared_fields(chunk: Chunk, result: Pass) -> np.ndarray:
    """Of how many events each of FIELD_NAMES was compared."""
    ctl = chunk.own.events["ctl"]
    comparable = result.outcome != loops.NOT_COMPARED
    with_state = int((comparable & (ctl["has_next"] == 1)).sum())
    fields = np.where(chunk.own.compared, with_state, 0)
    checks = [ctl["check"] >> bit & 1 == 1 for bit in range(len(loops.OUTPUTS))]
    outputs = [int((comparable & check).sum()) for check in checks]
    return np.append(fields, outputs)
