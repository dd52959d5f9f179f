"""Where decisions are noted: rows of (event, code, four numbers of evidence) in one int64 array.

Row 0 is the header: rows used so far, index of the event being replayed. Passing ``None`` instead
of an array compiles the estimator without any noting, which then costs nothing.
"""

from __future__ import annotations

from ...probes.base.jit import jit
from .codes import EVIDENCE
from .records import Log

COLUMNS = 2 + EVIDENCE
# No event notes more than this; the loops stop before a batch could overflow the array.
MAX_PER_EVENT = 48


@jit
def note(log: Log, code: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> None:
    """Note a decision with its evidence, in the order in which its sentence names it."""
    if log is None:
        return
    row = log[0, 0] + 1
    log[row, 0] = log[0, 1]
    log[row, 1] = code
    log[row, 2] = a
    log[row, 3] = b
    log[row, 4] = c
    log[row, 5] = d
    log[0, 0] = row
