"""Settings for the time of some work, also where works of several threads overlap."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from bbrscope.collect.store.connect import connect_in_memory
from bbrscope.collect.store.limits import limited
from bbrscope.collect.store.store import open_store


def threads(con: duckdb.DuckDBPyConnection) -> int:
    return int(con.execute("SELECT current_setting('threads')").fetchall()[0][0])


def test_what_overlaps_ends_at_the_former_value_in_whatever_order(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.duckdb") as store:
        con = store.con
        con.execute("SET threads = 7")
        first, second = limited(con, threads=3), limited(con.cursor(), threads=5)
        first.__enter__()
        assert threads(con) == 3
        second.__enter__()
        assert threads(con) == 5
        first.__exit__(None, None, None)
        assert threads(con) == 5
        second.__exit__(None, None, None)
        assert threads(con) == 7


def test_a_failed_statement_and_an_inner_work_leave_the_outer_ones_setting(tmp_path: Path) -> None:
    with open_store(tmp_path / "s.duckdb") as store:
        con = store.con
        con.execute("SET threads = 7")
        with limited(con, threads=3):
            con.begin()
            with pytest.raises(duckdb.CatalogException), limited(con, threads=1):
                con.execute("FROM no_such_table")
            con.rollback()
            assert threads(con) == 3
        assert threads(con) == 7


def test_settings_of_others_are_left_alone(tmp_path: Path) -> None:
    with connect_in_memory() as con:
        con.execute("SET threads = 7")
        with limited(con, threads=3):
            assert threads(con) == 7
    with open_store(tmp_path / "s.duckdb") as store:
        store.con.execute("SET threads = 7")
        store.con.execute("SET lock_configuration = true")
        with limited(store.con, threads=3):
            assert threads(store.con) == 7


def test_what_could_not_be_set_or_outlives_its_store_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    with open_store(path) as store:
        con = store.con
        con.execute("SET threads = 7")
        with pytest.raises(duckdb.Error), limited(con, threads=0):
            pass
        with limited(con, threads=3):
            pass
        assert threads(con) == 7
        outliving = limited(con, threads=3)
        outliving.__enter__()
    outliving.__exit__(None, None, None)
    with open_store(path) as store:
        store.con.execute("SET threads = 5")
        with limited(store.con, threads=3):
            pass
        assert threads(store.con) == 5
