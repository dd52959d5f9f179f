"""Single rows, packets marked lost or sent again, on their way to tables of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING

import numpy as np

from ...probes.base.scratch import temporary_folder
from ...probes.fields import SKB
from ..store.rowsets import arrow_type
from .lines.header import Tag
from .loop.column_plan import I64
from .loop.loop_memory import SIDE_HEAD

if TYPE_CHECKING:
    import pyarrow as pa

MEMORY_BYTES = 1 << 22
ROWS_PER_BATCH = 1 << 15


class SkbRows:
    """The rows of one such tag: kept in memory, from 4 MiB on in an unnamed temporary file.

    Attributes:
        table: name of the store's table that they go to.
        count: rows so far.
    """

    def __init__(self, tag: Tag) -> None:
        self.table = tag.kind
        self.count = 0
        names = [column.name for column in tag.columns]
        self._fields = [field for field in SKB if field.name in names]
        # Flow, time and line, then the values.
        self._picked = [1, 2, 3, *(SIDE_HEAD + names.index(f.name) for f in self._fields)]
        place = str(temporary_folder())
        self._file = SpooledTemporaryFile(MEMORY_BYTES, dir=place)  # noqa: SIM115 (lives as long)

    def add(self, side: I64) -> None:
        """Take rows as the compiled loop hands them over."""
        self._file.write(np.ascontiguousarray(side[:, self._picked]).tobytes())
        self.count += len(side)

    def batches(self, run_id: int, flow_of: Callable[[int], int]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of sockets that have a flow.

        `flow_of` turns what the loop called the flow into its number, 0 if there is none.
        """
        import pyarrow as pa

        self._file.seek(0)
        width = 8 * len(self._picked)
        while data := self._file.read(width * ROWS_PER_BATCH):
            rows = np.frombuffer(data, np.int64).reshape(-1, len(self._picked))
            known, place = np.unique(rows[:, 0], return_inverse=True)
            flows = np.array([flow_of(int(flow)) for flow in known], np.int32)[place]
            rows, flows = rows[flows > 0], flows[flows > 0]
            columns = {
                "run_id": pa.array(np.full(len(rows), run_id, np.int32)),
                "flow": pa.array(flows),
                "ns": pa.array(rows[:, 1].view(np.uint64)),
                "line": pa.array(rows[:, 2].view(np.uint64)),
            }
            for index, field in enumerate(self._fields, 3):
                columns[field.column] = pa.array(rows[:, index]).cast(arrow_type(field.sql_type))
            yield pa.record_batch(columns)
