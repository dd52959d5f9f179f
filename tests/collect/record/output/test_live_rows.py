"""Rows for whoever looks on: in order; of those that come too fast, what matters stays."""

from __future__ import annotations

import pytest
from bbrscope.collect.record.output import live_rows
from bbrscope.collect.record.output.live_rows import STALLED_NS, LiveRows


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> LiveRows:
    monkeypatch.setattr(live_rows, "MOST_ROWS", 10)
    return LiveRows()


def test_rows_that_say_who_a_flow_is_stay_when_others_are_dropped(rows: LiveRows) -> None:
    """Every second row says it, among those that come first, too."""
    kinds = [b"N0" if ns % 2 else b"M0" for ns in range(16)]
    rows.add([(ns, b"%s,%d,1\n" % (kind, ns)) for ns, kind in enumerate(kinds)])
    taken = rows.take(now_ns=STALLED_NS + 16)
    assert rows.dropped == 6
    assert [int(line.split(b",")[1]) for line in taken] == [1, 3, 5, 7, 9, 11, 12, 13, 14, 15]


def test_where_all_rows_say_it_the_oldest_go(rows: LiveRows) -> None:
    rows.add([(ns, b"I0,%d,1\n" % ns) for ns in range(13)])
    assert rows.dropped == 3
    assert [int(line.split(b",")[1]) for line in rows.take_all()] == [*range(3, 13)]
