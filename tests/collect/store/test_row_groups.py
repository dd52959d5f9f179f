"""Row groups of a store's file: what is written stays as it is, what is deleted goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bbrscope.collect.store.store import open_store

ROWS = 30_000
ROW_GROUP = 122_880


def _write(path: Path, run_ids: Sequence[int], rows: int = ROWS) -> None:
    """Write runs' accounting, or write it again, in a session of its own."""
    with open_store(path) as store, store.transaction() as con:
        for run_id in run_ids:
            con.execute("DELETE FROM accounting WHERE run_id = ?", [run_id])
            con.execute(f"INSERT INTO accounting (run_id) SELECT {run_id} FROM range({rows})")


def _row_groups(path: Path) -> list[int]:
    """Return how many rows each has in the file, deleted ones among them."""
    query = (
        "SELECT sum(count)::BIGINT FROM pragma_storage_info('accounting')"
        " WHERE column_name = 'run_id' AND segment_type = 'INTEGER'"
        " GROUP BY row_group_id ORDER BY row_group_id"
    )
    with open_store(path, read_only=True) as store:
        return [rows for (rows,) in store.con.execute(query).fetchall()]


def test_rows_that_are_added_leave_those_before_them_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    for run_id, rows in enumerate((ROWS, ROW_GROUP + 1, ROW_GROUP + 2), 1):
        _write(path, [run_id], rows)
    assert _row_groups(path) == [ROWS, ROW_GROUP, 1, ROW_GROUP, 2]


def test_a_run_that_is_written_over_and_over_takes_no_more_room(tmp_path: Path) -> None:
    """Of those that came together, what the first time leaves stays beside what others have."""
    path = tmp_path / "s.duckdb"
    _write(path, [1, 2, 3])
    for _ in range(4):
        _write(path, [2])
    with open_store(path, read_only=True) as store:
        found = store.con.execute("SELECT run_id, count(*) FROM accounting GROUP BY 1 ORDER BY 1")
        assert found.fetchall() == [(run_id, ROWS) for run_id in (1, 2, 3)]
    assert sum(_row_groups(path)) <= (3 + 1) * ROWS
    for _ in range(3):
        _write(path, [1, 2, 3])
    assert sum(_row_groups(path)) == 3 * ROWS


def test_a_full_row_group_does_not_wait_for_others_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    with open_store(path) as store, store.transaction() as con:
        before = path.stat().st_size
        con.execute(
            "INSERT INTO queue_samples (run_id, ns, sent_bytes) SELECT 1, hash(i) >> 2, hash(-i)"
            f" FROM range({ROW_GROUP} + 1) t(i)"
        )
        # Two columns that nothing compresses; of each the last block may be shared with others.
        assert path.stat().st_size - before > ROW_GROUP * 8
