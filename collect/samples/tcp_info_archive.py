"""Load M-Lab's tcp-info archives as samples of a run: many snapshots at once.

Snapshots are written when something changed, so that a pause is no gap.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .load_samples import Ends, Life, Loaded, Sample, SampledConnections
from .tcp_info_lines import UNTIMED, Archive, Rows
from .tcp_info_rows import AF_INET, I64, MESSAGE_BYTES, SOURCE, U8, columns

if TYPE_CHECKING:
    import pyarrow as pa

    from ..store.store import Store

# Of struct inet_diag_msg: the family, ports and addresses, and the cookie tell a socket.
_FAMILY, _SOCKET, _COOKIE = 0, slice(4, 40), slice(44, MESSAGE_BYTES)


def load(
    store: Store,
    run_id: int,
    path: Path,
    progress: Callable[[int], None] | None = None,
) -> Loaded:
    """Fill tables samples and flows with an archive's BBR flows, at the end of the transaction.

    Raises:
        DamagedError: its compression is damaged.
    """
    archive, loaded, connections = Archive(path, progress), Loaded(), SampledConnections(run_id)
    for rows in archive.rows():
        batch = _batch(run_id, rows, _flows(rows, connections, loaded))
        store.waiting.add_batch(store.con, "samples", batch)
    store.waiting.add(store.con, "flows", connections.rows())
    loaded.flows = connections.count
    loaded.broken, loaded.first_broken = archive.broken, archive.first_broken
    return loaded


def _batch(run_id: int, rows: Rows, flows: npt.NDArray[np.int32]) -> pa.RecordBatch:
    import pyarrow as pa

    count, times = rows.count, rows.times[: rows.count]
    arrays = {
        "run_id": pa.array(np.full(count, run_id, np.int32)),
        "flow": pa.array(flows),
        "poll": pa.array(rows.polls[:count].astype(np.int32)),
        "ns": pa.array(times.astype(np.uint64), mask=times == UNTIMED),
        **columns(rows.raw[:count], rows.info_sizes[:count]),
    }
    return pa.record_batch(arrays)


def _flows(rows: Rows, connections: SampledConnections, loaded: Loaded) -> npt.NDArray[np.int32]:
    """Return whose each snapshot is, and note when it was taken."""
    count = rows.count
    flows = np.empty(count, np.int32)
    first = [0, *(np.flatnonzero(_changes(rows.raw[:count])) + 1).tolist()]
    for begin, end in pairwise([*first, count]):
        message = rows.raw[begin, :MESSAGE_BYTES].tobytes()
        sample = Sample(
            _socket(message[_FAMILY], message[_SOCKET]), message[_COOKIE].hex(), 0, None, {}
        )
        times = rows.times[begin:end]
        timed = times[times != UNTIMED]
        loaded.untimed += len(times) - len(timed)
        life = connections.life_of(sample, int(timed[0]) if len(timed) else None)
        flows[begin:end] = life.flow
        _note(loaded, life, timed)
    loaded.samples += count
    loaded.sources.add(SOURCE)
    return flows


def _changes(raw: U8) -> npt.NDArray[np.bool_]:
    """Tell of each row but the first if it is of another socket than the row before."""
    before, after = raw[:-1], raw[1:]
    differs: npt.NDArray[np.bool_] = before[:, _FAMILY] != after[:, _FAMILY]
    for part in (_SOCKET, _COOKIE):
        differs |= (before[:, part] != after[:, part]).any(axis=1)
    return differs


def _note(loaded: Loaded, life: Life, timed: I64) -> None:
    """Note the times of consecutive snapshots of a connection."""
    if not len(timed):
        return
    latest = timed[0] if life.last_ns is None else life.last_ns
    so_far = np.maximum.accumulate(np.concatenate(([latest], timed)))
    loaded.backwards += int(np.count_nonzero(timed < so_far[:-1]))
    loaded.clocks.add("realtime")
    first, last = int(timed.min()), int(timed.max())
    for seen in (loaded, life):
        seen.first_ns = first if seen.first_ns is None else min(seen.first_ns, first)
        seen.last_ns = last if seen.last_ns is None else max(seen.last_ns, last)


@lru_cache(maxsize=4096)
def _socket(family: int, socket: bytes) -> Ends:
    local_port, remote_port = (int.from_bytes(socket[at : at + 2]) for at in (0, 2))
    size = 4 if family == AF_INET else 16
    local, remote = (socket[at : at + size] for at in (4, 20))
    return Ends(_address(local), local_port, _address(remote), remote_port)


def _address(packed: bytes) -> str:
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
