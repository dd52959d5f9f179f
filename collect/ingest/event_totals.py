"""What the events of a run amount to, counted on their way into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..store.schema.recorded_tables import KINDS

if TYPE_CHECKING:
    import pyarrow as pa


class RecordedTotals:
    """Totals of batches of events.

    Attributes:
        flows: by flow, the columns of table flows that say what its events amount to.
        incomplete: events that lack a part.
        has_exits: whether any event has the time of its exit.
    """

    def __init__(self) -> None:
        self.flows: dict[int, dict[str, int]] = {}
        self.incomplete = 0
        self.has_exits = False

    def add(self, batch: pa.RecordBatch) -> None:
        """Count a batch as the reader gives it."""
        self.incomplete += len(batch) - batch["complete"].true_count
        self.has_exits = self.has_exits or batch["exit_ns"].null_count < len(batch)
        flows = np.asarray(batch["flow"])
        if not len(flows):
            return
        order = np.argsort(flows, kind="stable")
        flows = flows[order]
        starts = np.flatnonzero(np.r_[True, flows[1:] != flows[:-1]])
        times = np.asarray(batch["ns"])[order]
        which = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(flows))))
        # Batches name the kinds in the order of KINDS.
        kinds = np.asarray(batch["kind"].indices)[order]
        counts = np.bincount(which * len(KINDS) + kinds, minlength=len(starts) * len(KINDS))
        for flow, first, last, of_kinds in zip(
            flows[starts].tolist(),
            np.minimum.reduceat(times, starts).tolist(),
            np.maximum.reduceat(times, starts).tolist(),
            counts.reshape(-1, len(KINDS)).tolist(),
            strict=True,
        ):
            self._add(flow, first, last, of_kinds)

    def _add(self, flow: int, first: int, last: int, of_kinds: list[int]) -> None:
        nothing = {"first_ns": first, "last_ns": last, "events": 0} | dict.fromkeys(KINDS, 0)
        one = self.flows.setdefault(flow, nothing)
        one["first_ns"], one["last_ns"] = min(one["first_ns"], first), max(one["last_ns"], last)
        one["events"] += sum(of_kinds)
        for kind, count in zip(KINDS, of_kinds, strict=True):
            one[kind] += count

    def of_run(self) -> dict[str, int | None]:
        """Return the columns of table runs that say what its events amount to."""
        first = min((one["first_ns"] for one in self.flows.values()), default=None)
        last = max((one["last_ns"] for one in self.flows.values()), default=None)
        return {
            "events": sum(one["events"] for one in self.flows.values()),
            "first_ns": first,
            "last_ns": last,
            "duration_ns": None if first is None or last is None else last - first,
            "missing_exits": self.incomplete,
        }
