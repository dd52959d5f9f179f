"""Arrow data as a relation of a DuckDB connection, for as long as a statement needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


@contextmanager
def registered(
    con: duckdb.DuckDBPyConnection,
    name: str,
    data: pa.Table | pa.RecordBatch | pa.RecordBatchReader,
) -> Iterator[None]:
    """Let statements read `data` as relation `name`."""
    import duckdb

    con.register(name, data)
    try:
        yield
    finally:
        # A statement that fails voids the transaction, and its error is the one to report.
        with suppress(duckdb.TransactionException):
            con.unregister(name)


@contextmanager
def streamed(
    con: duckdb.DuckDBPyConnection,
    name: str,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[None]:
    """Let one statement read, as relation `name`, batches that are made as it pulls them.

    What fails while one is made is raised as it is. DuckDB alone would raise its text: it pulls
    through Arrow's C interface, which carries no more.
    """
    import duckdb
    import pyarrow as pa

    errors: list[BaseException] = []
    reader = pa.RecordBatchReader.from_batches(schema, _noting(batches, errors))
    with registered(con, name, reader):
        try:
            yield
        except duckdb.Error:
            if errors:
                raise errors[0] from None
            raise


def _noting(
    batches: Iterator[pa.RecordBatch], errors: list[BaseException]
) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except GeneratorExit:
        raise
    except BaseException as error:
        errors.append(error)
        raise
