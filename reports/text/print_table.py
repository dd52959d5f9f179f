"""Print a table: aligned text for people, JSON, CSV or Parquet for programs.

A table is a `pyarrow.Table` or a stream of record batches; a polars frame becomes one with
``to_arrow()``, a DuckDB relation with ``to_arrow_table()`` or ``to_arrow_reader()``. A stream is
written as it comes, so its length does not matter.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from ...probes.base.errors import BbrscopeError

if TYPE_CHECKING:
    import pyarrow as pa

NULL = "-"
MAX_CELL = 80
MAX_ROWS = 10_000
BATCH_ROWS = 4096
# Integers from here on are grouped by thousands; ports and the like stay as they are.
GROUP_FROM = 100_000
# A spreadsheet runs text that begins so; behind ' it stays text.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_table(
    table: pa.Table | pa.RecordBatchReader, output_format: str, names: str = "kernel"
) -> None:
    """Write a table to standard output in one of `options.FORMATS`, under the names asked for.

    Raises:
        BbrscopeError: Parquet would go to a terminal.
    """
    import pyarrow as pa

    reader = table.to_reader() if isinstance(table, pa.Table) else table
    if names != "kernel":
        reader = _renamed(reader, names)
    if output_format == "table":
        click.echo(render(_first_rows(reader), _terminal_width()))
    elif output_format == "json":
        _write_json(reader)
    elif output_format == "csv":
        _write_csv(reader)
    else:
        _write_parquet(reader)


def write_plan(reader: pa.RecordBatchReader) -> None:
    """Write what EXPLAIN says to standard output: a drawing, whose lines a table would cut."""
    for rows in _rows(reader):
        for _, drawing in rows:
            click.echo("\n".join(printable(line) for line in str(drawing).splitlines()))


def _renamed(reader: pa.RecordBatchReader, names: str) -> pa.RecordBatchReader:
    """Translate columns' names, and the words in columns of text."""
    import pyarrow as pa

    from ...analyze.story.names import column, translate

    schema = pa.schema(
        [field.with_name(column(field.name, names)) for field in reader.schema],
        reader.schema.metadata,
    )

    def words(values: pa.Array) -> pa.Array:
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            return values
        texts = [None if text is None else translate(text, names) for text in values.to_pylist()]
        return pa.array(texts, values.type)

    batches = (
        pa.RecordBatch.from_arrays([words(values) for values in batch.columns], schema=schema)
        for batch in reader
    )
    return pa.RecordBatchReader.from_batches(schema, batches)


def _first_rows(reader: pa.RecordBatchReader) -> pa.Table:
    """Return as many rows as people are shown, and one more if there are more."""
    import pyarrow as pa

    batches, rows = [], 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        if rows > MAX_ROWS:
            break
    return pa.Table.from_batches(batches, reader.schema).slice(0, MAX_ROWS + 1)


def render(table: pa.Table, width: int | None = None) -> str:
    """Return a table as aligned text, at most `width` characters wide (None: as wide as it is).

    A table that does not fit is written one column per line, row after row.
    """
    shown = table.slice(0, MAX_ROWS)
    names = [printable(name) for name in table.column_names]
    cells = [[cell(value) for value in listed(column)] for column in shown.columns]
    right = [_is_number(column.type) for column in shown.columns]
    widths = [
        max(map(text_width, [name, *column])) for name, column in zip(names, cells, strict=True)
    ]
    if width is not None and sum(widths) + 2 * len(widths) - 2 > width and shown.num_rows:
        text = "\n".join(_records(names, cells, shown.num_rows))
    else:
        text = "\n".join(_grid(names, cells, widths, right))
    if table.num_rows > shown.num_rows:
        text += f"\n... only the first {MAX_ROWS:,} rows; --format csv or json has them all"
    return text


def cell(value: object) -> str:
    """Return one value as a person reads it."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= GROUP_FROM else str(value)
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.1f}"
    if isinstance(value, list | dict):
        value = json.dumps(value, default=_jsonable, ensure_ascii=False)
    text = printable(str(value))
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 3] + "..."


def printable(text: str) -> str:
    """Return text without anything that a terminal would obey: recordings come from strangers.

    Separators of lines and paragraphs are escaped, too: what reads a line at a time would end one.
    """
    return "".join(
        char.encode("unicode_escape").decode()
        if unicodedata.category(char)[0] == "C" or char in "\u2028\u2029"
        else char
        for char in text
    )


def text_width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    marks = sum(unicodedata.combining(char) > 0 for char in text)
    return len(text) + wide - marks


def _grid(
    names: Sequence[str],
    cells: Sequence[Sequence[str]],
    widths: Sequence[int],
    right: Sequence[bool],
) -> Iterator[str]:
    def line(values: Iterable[str]) -> str:
        padded = []
        for value, width, flush in zip(values, widths, right, strict=True):
            space = " " * (width - text_width(value))
            padded.append(space + value if flush else value + space)
        return "  ".join(padded).rstrip()

    yield line(names)
    yield "  ".join("-" * width for width in widths)
    for row in zip(*cells, strict=True):
        yield line(row)


def _records(names: Sequence[str], cells: Sequence[Sequence[str]], rows: int) -> Iterator[str]:
    longest = max(map(text_width, names))
    for row in range(rows):
        yield f"row {row + 1}"
        for name, column in zip(names, cells, strict=True):
            yield f"  {name}{' ' * (longest - text_width(name))}  {column[row]}"


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _jsonable(value: object) -> object:
    """Return what JSON has for a value: whole numbers stay whole, the rest is text."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def _finite(value: object) -> object:
    """Replace NaN and infinities, which JSON lacks, by null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rows(reader: pa.RecordBatchReader) -> Iterator[Iterable[tuple[Any, ...]]]:
    """Yield the rows, some thousand at a time."""
    for batch in reader:
        for start in range(0, batch.num_rows, BATCH_ROWS):
            part = batch.slice(start, BATCH_ROWS)
            yield zip(*(listed(column) for column in part.columns), strict=True)


def listed(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column's values; times that Python has no object for, 'infinity' too, as text."""
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        values = [_value(scalar) for scalar in column]
    return values


def _value(scalar: pa.Scalar) -> object:
    """Return one value as `listed` does; lists and structs hold times, too."""
    import pyarrow as pa

    if isinstance(scalar, pa.ListScalar) and scalar.is_valid:
        return listed(scalar.values)
    if isinstance(scalar, pa.StructScalar) and scalar.is_valid:
        return {name: _value(part) for name, part in scalar.items()}
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return _far_time(scalar)


def _far_time(scalar: pa.Scalar) -> str:
    """Return a time (UTC) that is not in the years 1 to 9999; infinities are largest numbers."""
    import numpy as np

    bits = scalar.type.bit_width
    if abs(scalar.value) == (1 << bits - 1) - 1:
        return "infinity" if scalar.value > 0 else "-infinity"
    return str(np.datetime64(scalar.value, getattr(scalar.type, "unit", "D")))


def _write_json(reader: pa.RecordBatchReader) -> None:
    """Write an array of objects, one line each."""
    names = reader.schema.names
    before = "[\n"
    for rows in _rows(reader):
        lines = []
        for row in rows:
            entry = dict(zip(names, map(_finite, row), strict=True))
            lines.append(json.dumps(entry, default=_jsonable))
        sys.stdout.write(before + ",\n".join(lines))
        before = ",\n"
    sys.stdout.write("[]\n" if before == "[\n" else "\n]\n")


def _write_csv(reader: pa.RecordBatchReader) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_csv_text(name) for name in reader.schema.names])
    for rows in _rows(reader):
        writer.writerows([[_csv_value(value) for value in row] for row in rows])
        sys.stdout.write(out.getvalue())
        out.seek(0)
        out.truncate()
    sys.stdout.write(out.getvalue())


def _csv_value(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return json.dumps(value, default=_jsonable)
    if isinstance(value, str):
        return _csv_text(value)
    if value is None or isinstance(value, int | float):
        return value
    return _jsonable(value)


def _csv_text(text: str) -> str:
    """A cell that no spreadsheet computes, and that changes nothing in a terminal.

    A file has the text as it is.
    """
    if not text.isprintable() and sys.stdout.isatty():
        text = "".join(char if char == "\n" else printable(char) for char in text)
    return no_formula(text)


def no_formula(text: str) -> str:
    """Return a text as a cell of CSV that no spreadsheet computes.

    >>> no_formula("=1+1"), no_formula("1+1")
    ("'=1+1", '1+1')
    """
    return "'" + text if text.startswith(_FORMULA) else text


def _write_parquet(reader: pa.RecordBatchReader) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if sys.stdout.isatty():
        raise BbrscopeError("Parquet is not for a terminal", "redirect it: ... > table.parquet")
    for field in reader.schema:
        if pa.types.is_interval(field.type):
            fact = f"Parquet has no type for the intervals of column {field.name!r}"
            raise BbrscopeError(printable(fact), "in the query: CAST(... AS VARCHAR)")
    out = sys.stdout.buffer
    with pq.ParquetWriter(out, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
    out.flush()
