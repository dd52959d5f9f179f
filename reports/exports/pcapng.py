"""A run's capture with every decision as a comment on the packet that caused it, for Wireshark.

A decision that an ACK caused is on that ACK; one that a loss caused, on the lost packet if it was
captured. One that was not, and decisions of timers and of sending, have no packet of their own:
their comments are on the last packet of the connection before them, and say so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ...analyze.story.event_flows import EventFlow
from ...collect.bundle.bundle import open_bundle
from ...collect.packets.capture_blocks import SECRETS, CaptureBlock, blocks
from ...collect.packets.capture_file import PCAP_MAGICS, pieces
from ...collect.store.query import rows
from ...probes.base.errors import BbrscopeError
from .export_scope import ExportScope
from .exported_changes import exported_changes

_ADVANCE = 65_536

# An ACK is seen before the event that it causes; so is the loss's ACK, which marks packets lost
# before it calls main(). Packets of a connection are separated by their flow.
_PACKETS_OF_EVENTS = """
WITH asked AS (
  SELECT seq, ns::BIGINT AS ns, kind::VARCHAR AS kind FROM events
  WHERE run_id = $run_id AND flow = $flow AND seq IN (SELECT unnest($seqs))
), own AS (
  SELECT packet, ns::BIGINT AS ns FROM packets
  WHERE run_id = $run_id AND (flow = $flow OR ack_flow = $flow) AND ns IS NOT NULL
)
SELECT a.seq, coalesce(m.packet, l.lost_packet) AS packet, b.packet AS before,
  CASE WHEN a.kind = 'skb_marked_lost' THEN 'the lost packet is not in the capture'
    ELSE 'by no packet' END AS why
FROM asked a LEFT JOIN ack_matches m ON m.run_id = $run_id AND m.flow = $flow AND m.seq = a.seq
LEFT JOIN loss_matches l ON l.run_id = $run_id AND l.flow = $flow AND l.seq = a.seq
ASOF LEFT JOIN own b ON a.ns >= b.ns
"""

Comments = dict[int, list[str]]


@dataclass(frozen=True)
class WrittenCapture:
    """How much was written.

    `without_packet` counts decisions before the connection's first packet: they have no comment.
    `secrets` counts blocks with keys that decrypt the capture's TLS: the export has them, too.
    """

    packets: int
    comments: int
    without_packet: int
    secrets: int


def write(
    scope: ExportScope, capture: Path | None, file: IO[bytes], advance: Callable[[int], None]
) -> WrittenCapture:
    """Write the capture with comments; `advance` is called with numbers of packets done.

    Args:
        capture: the capture, or the bundle that has it; the store has no packets' bytes.

    Raises:
        BbrscopeError: the run has no capture or no decisions, or this is not its capture.
    """
    row = _capture_of(scope)
    if capture is None:
        raise BbrscopeError(
            f"the store keeps what {scope.run}'s packets say, not the packets",
            f"name the bundle that was ingested, or its {row['name']}: --capture PATH",
        )
    comments, without = _comments(scope)
    exported_frames = _exported_frames(scope, row["frames"], comments)
    times = _times(scope, comments)
    count = secrets = 0
    with _opened(capture) as path:
        for block in blocks(path):
            secrets += block.kind == SECRETS
            if block.frame:
                if exported_frames is not None and not (
                    block.frame < len(exported_frames) and exported_frames[block.frame]
                ):
                    continue
                count += 1
                if count % _ADVANCE == 0:
                    advance(_ADVANCE)
            _write(block, comments, times, file, scope.run, capture)
    if times:
        raise _other_capture(scope.run, capture)
    return WrittenCapture(count, sum(map(len, comments.values())), without, secrets)


def frames_of(scope: ExportScope) -> int:
    """Return how many packets the run's capture has.

    Raises:
        BbrscopeError: it has none.
    """
    return int(_capture_of(scope)["frames"])


def _capture_of(scope: ExportScope) -> dict[str, Any]:
    records = rows(scope.con, "SELECT * FROM captures WHERE run_id = ?", scope.run_id)
    if not records:
        raise BbrscopeError(
            f"{scope.run} has no packet capture in the store, so that it cannot be pcapng",
            "if its bundle has one, ingest it where tshark is installed; or choose another format",
        )
    return records[0]


def _comments(scope: ExportScope) -> tuple[Comments, int]:
    """Comments by packet, and how many changes came before the first."""
    comments: Comments = defaultdict(list)
    without = 0
    for flow in scope.event_flows("write as comments"):
        happened = list(exported_changes(scope, flow))
        places = _places(scope, flow, [item.change.seq for item in happened])
        for item in happened:
            packet, before, why = places.get(item.change.seq, (None, None, ""))
            place = before if packet is None else packet
            if place is None:
                without += 1
                continue
            name = item.change.name
            named = f"{name}, " if name and name != item.what else ""
            text = f"{item.line} ({named}{scope.seconds(item.change.ns):.6f} s)"
            if packet is None:
                text += f" ({why}; this is the last one before it)"
            comments[place].append(text)
    return comments, without


def _places(
    scope: ExportScope, flow: EventFlow, seqs: list[int]
) -> dict[int, tuple[int | None, int | None, str]]:
    """By event: the packet that caused it, the last one before it, and why only that is known."""
    values = {"run_id": scope.run_id, "flow": flow.flow, "seqs": sorted(set(seqs))}
    records = scope.con.execute(_PACKETS_OF_EVENTS, values).fetchall()
    return {seq: (packet, before, why) for seq, packet, before, why in records}


def _exported_frames(
    scope: ExportScope, frames: int, comments: Comments
) -> npt.NDArray[np.bool_] | None:
    """Of each packet by its number, whether it belongs to the export; None: all do.

    Those with comments do: the ACK that caused a window's first event came before the window.
    """
    if not scope.chosen and scope.window is None:
        return None
    first, last = scope.window or (0, (1 << 63) - 1)
    flows = [flow.flow for flow in scope.flows] if scope.chosen else None
    chosen = scope.con.execute(
        "SELECT packet FROM packets WHERE run_id = $run_id AND ns BETWEEN $first AND $last"
        " AND ($flows IS NULL OR flow IN (SELECT unnest($flows::INTEGER[]))"
        " OR ack_flow IN (SELECT unnest($flows::INTEGER[])))",
        {"run_id": scope.run_id, "first": max(first, 0), "last": last, "flows": flows},
    ).fetchnumpy()["packet"]
    exported_frames = np.zeros(frames + 1, np.bool_)
    exported_frames[chosen] = True
    exported_frames[list(comments)] = True
    return exported_frames


def _times(scope: ExportScope, comments: Comments) -> dict[int, int]:
    """When the packets that get comments were captured: what tells that it is this capture."""
    records = scope.con.execute(
        "SELECT packet, realtime_ns FROM packets WHERE run_id = ?"
        " AND packet IN (SELECT unnest(?::UINTEGER[]))",
        [scope.run_id, list(comments)],
    ).fetchall()
    return dict(records)


def _write(
    block: CaptureBlock,
    comments: Comments,
    times: dict[int, int],
    file: IO[bytes],
    run: str,
    capture: Path,
) -> None:
    expected = times.pop(block.frame, None)
    if expected is None:
        file.write(block.raw)
        return
    if block.realtime_ns != expected:
        raise _other_capture(run, capture)
    file.write(block.with_comments(comments[block.frame]))


def _other_capture(run: str, capture: Path) -> BbrscopeError:
    return BbrscopeError(
        f"{capture} is not the capture of {run}: its packets have other times, or are fewer",
        "name the bundle that was ingested",
    )


@contextmanager
def _opened(path: Path) -> Iterator[Path]:
    """Give the capture itself of a capture or a bundle."""
    if not path.exists():
        raise BbrscopeError(f"there is no {path}", "name the capture, or the bundle that has it")
    if path.is_file() and _is_capture(path):
        yield path
        return
    with open_bundle(path) as bundle:
        packets = bundle.packets()
        if packets is None:
            raise BbrscopeError(f"{path} has no packet capture", "name the bundle of the run")
        yield packets


def _is_capture(path: Path) -> bool:
    _, head = next(pieces(path), (0, b""))
    return head[:4] in PCAP_MAGICS
