"""The last seconds of a stream in bounded memory, in compressed pieces."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import zstandard


@dataclass(frozen=True)
class Piece:
    """A part of a stream from `first_ns` to `last_ns`: compressed, and what its reader keeps of it.

    `notes` are the few lines that must not be forgotten when the piece is.
    """

    first_ns: int
    last_ns: int
    compressed: bytes
    notes: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return len(self.compressed) + len(self.notes)

    def data(self) -> bytes:
        """The part of the stream."""
        return zstandard.decompress(self.compressed)


class PieceRing:
    """Keeps pieces until they are older than `span_ns`, and never more than `most_bytes` of them.

    `looked_ns` is up to when somebody has looked at the stream, who may ask for `span_ns` before:
    what comes meanwhile makes no piece too old. Nobody does at first.

    `covered_from_ns` is the time from which on nothing has been dropped; `overrun` tells whether
    memory, and not age, was the reason; `forget` is called with each piece that goes.
    """

    def __init__(
        self, span_ns: int, most_bytes: int, forget: Callable[[Piece], None] = lambda piece: None
    ) -> None:
        self.span_ns = span_ns
        self.most_bytes = most_bytes
        self.forget = forget
        self.pieces: deque[Piece] = deque()
        self.size = 0
        self.covered_from_ns = 0
        self.looked_ns: float = math.inf
        self.overrun = False
        self._compressor = zstandard.ZstdCompressor(level=1)
        # Pieces are counted by another thread than the one that adds them.
        self._lock = threading.Lock()

    def add(self, first_ns: int, last_ns: int, data: bytes, notes: bytes = b"") -> None:
        """Keep one more piece, the newest; the oldest go."""
        piece = Piece(first_ns, last_ns, self._compressor.compress(data), notes)
        with self._lock:
            self.pieces.append(piece)
            self.size += piece.size
            while self.pieces and self._is_over(last_ns):
                self._drop()

    def _is_over(self, now_ns: int) -> bool:
        full = self.size > self.most_bytes
        self.overrun = self.overrun or full
        return full or self.pieces[0].last_ns < min(now_ns, self.looked_ns) - self.span_ns

    def _drop(self) -> None:
        piece = self.pieces.popleft()
        self.size -= piece.size
        self.covered_from_ns = max(self.covered_from_ns, piece.last_ns + 1)
        self.forget(piece)

    def size_before(self, ns: int) -> int:
        """Bytes of the pieces that end before a time."""
        with self._lock:
            return sum(piece.size for piece in self.pieces if piece.last_ns < ns)

    def since(self, from_ns: int) -> list[Piece]:
        """The pieces that reach beyond a time, oldest first."""
        with self._lock:
            return [piece for piece in self.pieces if piece.last_ns >= from_ns]
