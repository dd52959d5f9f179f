"""Puts a file of events in order of time, where rows came later than they were waited for."""

from __future__ import annotations

import re
from pathlib import Path

from .held_rows import HeldRows
from .replaced import compressed_anew
from .stream import ROW
from .whole_lines import whole_lines

HEADER = re.compile(rb"^#.*\n", re.MULTILINE)


def put_in_order(path: Path, late_ns: int) -> None:
    """Write a file of events again with its rows in order of time.

    No row in it is more than `late_ns` older than one before it: so much of it is in memory.

    Raises:
        OSError: the disk refuses; the file is as it was.
    """
    held = HeldRows()
    with compressed_anew(path) as ordered:
        for lines in whole_lines(path):
            data = lines + b"\n"
            ordered.write(b"".join(HEADER.findall(data)))
            held.add([(int(row[1]), row[0]) for row in ROW.finditer(data)])
            ordered.write(held.take(held.newest_ns - late_ns - 1))
        ordered.write(held.take(held.newest_ns))
