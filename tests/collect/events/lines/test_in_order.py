"""Rows that several CPUs printed are put in order of time, a part at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.collect.events.lines import in_order
from bbrscope.collect.events.read_events import is_out_of_order

from tests.collect.events.test_events import HEAD, Lines, Make, codes, main_rows, read


def by_cpus(lines: Lines, parts: int) -> Lines:
    """Rows as `parts` CPUs may have printed them: of each in order, those of one after another's.

    An event's rows are of one CPU.
    """
    rows = [line for line in lines if not line.startswith("#")]
    times = sorted({int(line.split(",")[1]) for line in rows})
    cpu = {ns: at // 3 % parts for at, ns in enumerate(times)}
    heads = [line for line in lines if line.startswith("#")]
    return heads + sorted(rows, key=lambda line: cpu[int(line.split(",")[1])])


@pytest.mark.parametrize("sorted_bytes", [1 << 25, 100_000])
def test_rows_of_several_cpus_are_put_in_order(
    sorted_bytes: int,
    make_bundle: Make,
    read_lines: Callable[[Path], Lines],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_order, "SORTED_BYTES", sorted_bytes)
    monkeypatch.setattr(in_order, "READ_BYTES", 30_000)
    lines = read_lines(fixtures.path("v2_x_spur"))
    folder = make_bundle(by_cpus(lines, 4))
    expected, _ = read(make_bundle(by_cpus(lines, 1), "one_cpu"))
    assert len(expected) > 1000
    assert is_out_of_order(folder / "events.csv.zst", "events.csv")
    assert not is_out_of_order(fixtures.path("v2_x_spur") / "events.csv.zst", "events.csv")
    found, reader = read(folder, salvage=True, in_order=True)
    assert found == expected
    assert codes(reader) == [("out_of_order", None, None)]
    assert "rows were printed after newer ones" in reader.notes[0].detail


def test_what_is_put_in_order_is_cut_off_where_it_was(make_bundle: Make) -> None:
    rows = [*main_rows(1000, delivered=2), *main_rows(2000, "b"), *main_rows(500)]
    text = "\n".join([*HEAD, *rows, "M0,3000,a,7"])
    folder = make_bundle(zstandard.compress(text.encode()))
    found, reader = read(folder, salvage=True, in_order=True)
    assert [e["ns"] for e in found] == [500, 1000, 2000]
    assert [note.code for note in reader.notes] == ["out_of_order", "cut_off"]
