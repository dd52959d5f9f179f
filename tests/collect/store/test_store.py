"""A store that cannot be used says why and what to do; nothing stored is ever half-written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from bbrscope import fixtures
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store import schema
from bbrscope.collect.store.connect import connect_in_memory
from bbrscope.collect.store.store import open_for_loading, open_store
from bbrscope.probes.base.errors import BbrscopeError, StoreError

pytestmark = pytest.mark.usefixtures("stores_from_scratch")

SPUR = fixtures.path("v2_x_spur")


def refusal(path: Path, read_only: bool = False) -> StoreError:
    with pytest.raises(StoreError) as caught:
        open_store(path, read_only)
    assert caught.value.way_out
    return caught.value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one run."""
    found = tmp_path / "test.duckdb"
    with open_store(found) as store:
        ingest(store, SPUR, packets=False)
    return found


def test_a_new_store_has_every_recorded_table_and_knows_its_version(tmp_path: Path) -> None:
    with open_store(tmp_path / "new.duckdb") as store:
        names = {row[0] for row in store.con.execute("SHOW TABLES").fetchall()}
        meta = dict(store.con.execute("SELECT key, value FROM meta").fetchall())
    assert names == {table.name for table in schema.TABLES}
    assert meta["format"] == "bbrscope-store"
    assert meta["schema_version"] == str(schema.SCHEMA_VERSION)


def test_a_missing_store_is_not_made_by_reading(tmp_path: Path) -> None:
    found = refusal(tmp_path / "none.duckdb", read_only=True)
    assert "there is no store" in found.fact
    assert "bbrscope ingest" in found.way_out
    assert not (tmp_path / "none.duckdb").exists()


@pytest.mark.parametrize("name", [":memory:", "md:x", "s3:x"])
def test_a_store_is_a_file_whatever_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open_store(Path(name)) as store:
        assert store.runs() == []
    assert (tmp_path / name).is_file()


def test_what_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    text, empty = tmp_path / "text.duckdb", tmp_path / "empty.duckdb"
    text.write_text("not a database, though as long as a header of one\n" * 400)
    empty.touch()
    other = tmp_path / "other.duckdb"
    with duckdb.connect(str(other)) as con:
        con.execute("CREATE TABLE meta (a INTEGER)")
    before = {item: item.read_bytes() for item in (text, empty, other)}
    for read_only in (True, False):
        assert "is not a DuckDB file" in refusal(text, read_only).fact
        assert "is empty" in refusal(empty, read_only).fact
        assert "not a store of bbrscope" in refusal(other, read_only).fact
        assert "is a folder" in refusal(tmp_path, read_only).fact
        assert "/dev/zero is a device, not a file" in refusal(Path("/dev/zero"), read_only).fact
    assert {item: item.read_bytes() for item in before} == before
    assert "there is no folder" in refusal(tmp_path / "no" / "such.duckdb").fact


@pytest.mark.parametrize(("version", "words"), [("999", "upgrade"), ("0", "ingest the bundles")])
def test_a_store_of_another_version_is_refused(version: str, words: str, path: Path) -> None:
    with duckdb.connect(str(path)) as con:
        con.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", [version])
    for read_only in (True, False):
        found = refusal(path, read_only)
        assert f"schema version {version}" in found.fact
        assert words in found.way_out


@pytest.fixture
def locked(path: Path) -> Iterator[Path]:
    """A store that another process holds open for writing."""
    program = (
        "import sys; from pathlib import Path\n"
        "from bbrscope.collect.store.store import open_store\n"
        "with open_store(Path(sys.argv[1])):\n    print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        yield path
        holder.communicate()


def test_a_locked_store_names_who_holds_it(locked: Path) -> None:
    for read_only in (True, False):
        found = refusal(locked, read_only)
        assert "is in use by another process" in found.fact
        assert "wait" in found.way_out


def test_several_may_read_at_once(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from bbrscope.collect.store.store import open_store\n"
        "with open_store(Path(sys.argv[1]), read_only=True) as store: print(store.runs())"
    )
    with open_store(path, read_only=True):
        found = subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
        )
    assert found.stdout == "['v2_x_spur']\n"


def mount_tmpfs(folder: Path, options: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a tiny tmpfs: run the tests as root or in unshare -rm")
    found = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True, text=True
    )
    if found.returncode:
        pytest.skip(f"cannot mount a tmpfs: {found.stderr.strip()}: allow CAP_SYS_ADMIN")


@pytest.fixture
def tiny(host_alone: None, tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 6 MB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount_tmpfs(folder, "size=6m")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_named_and_the_store_stays_as_it_was(tiny: Path, path: Path) -> None:
    store = tiny / "full.duckdb"
    shutil.copy(path, store)
    (tiny / "ballast").write_bytes(bytes(shutil.disk_usage(tiny).free - 100_000))
    with pytest.raises(StoreError) as caught, open_for_loading(store) as opened:
        ingest(opened, fixtures.path("v2_single_1bdp"), packets=False)
    assert "is full; nothing was added" in caught.value.fact
    assert "--store" in caught.value.way_out
    (tiny / "ballast").unlink()
    with open_store(store, read_only=True) as opened, open_store(path, read_only=True) as whole:
        assert opened.runs() == ["v2_x_spur"]
        count = "SELECT count(*), sum(ns) FROM events"
        assert opened.con.execute(count).fetchall() == whole.con.execute(count).fetchall()


def test_a_full_disk_leaves_no_new_store_behind(tiny: Path) -> None:
    (tiny / "ballast").write_bytes(bytes(shutil.disk_usage(tiny).free - 1_500_000))
    with (
        pytest.raises(StoreError, match="is full"),
        open_for_loading(tiny / "new.duckdb") as opened,
    ):
        ingest(opened, fixtures.path("v2_single_1bdp"), packets=False)
    assert [item.name for item in tiny.iterdir()] == ["ballast"]


def test_a_store_on_a_read_only_disk_can_be_read_but_not_changed(
    host_alone: None, path: Path
) -> None:
    folder = path.parent / "mounted"
    folder.mkdir()
    mount_tmpfs(folder, "size=20m")
    try:
        shutil.copy(path, folder / "ro.duckdb")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        found = refusal(folder / "ro.duckdb")
        assert "cannot be written" in found.fact
        assert "cannot be written" in refusal(folder / "new.duckdb").fact
        with open_store(folder / "ro.duckdb", read_only=True) as store:
            assert store.runs() == ["v2_x_spur"]
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_failed_load_removes_the_store_it_made_and_only_that(tmp_path: Path, path: Path) -> None:
    new = tmp_path / "new.duckdb"
    for store in (new, path):
        with pytest.raises(BbrscopeError), open_for_loading(store) as opened:
            ingest(opened, tmp_path / "no bundle")
    assert not new.exists()
    with open_store(path, read_only=True) as opened:
        assert opened.runs() == ["v2_x_spur"]


def test_a_run_is_found_by_name_and_near_names_are_offered(path: Path) -> None:
    with open_store(path, read_only=True) as store:
        assert store.run_id("v2_x_spur") == 1
        with pytest.raises(BbrscopeError, match="no run called 'v2_x_spurr'") as caught:
            store.run_id("v2_x_spurr")
        assert caught.value.way_out == "near: v2_x_spur"
        with pytest.raises(BbrscopeError) as caught:
            store.run_id("zzz")
        assert caught.value.way_out == "it holds v2_x_spur"


def test_a_broken_transaction_leaves_no_trace(path: Path) -> None:
    with open_store(path) as store:
        before = store.con.execute("SELECT count(*) FROM events").fetchall()

        def half() -> None:
            with store.transaction() as con:
                con.execute("DELETE FROM events WHERE seq < 1000")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            half()
        assert store.con.execute("SELECT count(*) FROM events").fetchall() == before


CREATE = """
import sys, duckdb
from pathlib import Path
from bbrscope.collect.store import store
fill = store.fill
def held(opened):
    fill(opened)
    print("filled", flush=True)
    sys.stdin.readline()
store.fill = held
with store.open_for_loading(Path(sys.argv[1])) as opened:
    print(opened.runs(), flush=True)
    sys.stdin.readline()
"""


def creator(path: Path) -> subprocess.Popen[str]:
    """A process that has filled a new store, and goes on when it is sent a line."""
    command = [sys.executable, "-c", CREATE, str(path)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "filled\n"
    return process


def test_a_process_that_is_killed_while_it_makes_a_store_leaves_none(tmp_path: Path) -> None:
    process = creator(tmp_path / "new.duckdb")
    process.kill()
    process.communicate()
    assert not (tmp_path / "new.duckdb").exists()
    with open_store(tmp_path / "new.duckdb") as store:
        assert store.runs() == []
    assert [item.name for item in tmp_path.iterdir()] == ["new.duckdb"]


def test_of_two_first_loads_one_fails_and_takes_nothing_from_the_other(tmp_path: Path) -> None:
    """Both make a store; the slower one finds the other's, in use, and must leave it alone."""
    path = tmp_path / "new.duckdb"
    slow = creator(path)
    with open_for_loading(path) as store:
        ingest(store, fixtures.path("v2_x_spur"), packets=False)
        _, said = slow.communicate("\n")
        assert "StoreError" in said
        assert "in use by another process" in said
    with open_store(path, read_only=True) as store:
        assert store.runs() == ["v2_x_spur"]
    assert [item.name for item in tmp_path.iterdir()] == ["new.duckdb"]


def test_an_empty_store_that_another_process_uses_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "new.duckdb"
    with open_for_loading(path) as store:
        store.close()
        other = subprocess.Popen(
            [sys.executable, "-c", CREATE.replace("store.fill = held", ""), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert other.stdout is not None
        assert other.stdout.readline() == "[]\n"
    assert path.exists()
    other.communicate("\n")


def test_a_long_query_draws_nothing_among_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """DuckDB's progress bar would stand among the JSON or CSV that a program reads."""
    connect = duckdb.connect

    def impatient(*arguments: Any, **named: Any) -> duckdb.DuckDBPyConnection:
        con = connect(*arguments, **named)
        con.execute("SET progress_bar_time = 1")  # ms; this turns it on, too
        return con

    monkeypatch.setattr(duckdb, "connect", impatient)
    with open_store(tmp_path / "new.duckdb") as store, connect_in_memory() as memory:
        capfd.readouterr()  # of statements before the one that turns it off
        for con in (store.con, store.con.cursor(), memory, memory.cursor()):
            con.execute("CREATE OR REPLACE TEMP TABLE t AS SELECT range AS i FROM range(1000000)")
            assert con.execute("SELECT count(*) FROM t a JOIN t b USING (i)").fetchall()
    assert capfd.readouterr().out == ""


def test_a_store_is_made_where_a_link_leads(tmp_path: Path) -> None:
    link, target = tmp_path / "link.duckdb", tmp_path / "disk" / "real.duckdb"
    link.symlink_to(target)
    with pytest.raises(StoreError, match="there is no folder"):
        open_store(link)
    target.parent.mkdir()
    with open_store(link):
        pass
    assert link.is_symlink()
    with open_store(target, read_only=True) as store:
        assert store.runs() == []
    target.unlink()
    # A load that fails takes back the store, not the link.
    with pytest.raises(ZeroDivisionError), open_for_loading(link):
        raise ZeroDivisionError
    assert link.is_symlink()
    assert list(target.parent.iterdir()) == []
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(StoreError, match="leads nowhere"):
        open_store(link)
