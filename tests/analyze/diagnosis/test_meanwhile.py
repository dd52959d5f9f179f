"""A run is diagnosed over a second connection, and what is said of it is the same."""

from __future__ import annotations

import threading

import pytest
from bbrscope.analyze.diagnosis import meanwhile
from bbrscope.analyze.diagnosis.engine import diagnose, has_own_views
from bbrscope.analyze.diagnosis.meanwhile import diagnosed_meanwhile
from bbrscope.collect.store.store import Store

_QUERY = "SELECT count(*) FROM phases"


def test_what_a_caller_asks_meanwhile_changes_no_diagnosis(shipped: Store) -> None:
    run_id = shipped.run_id("v1_x_lt")
    alone = diagnose(shipped.con, run_id)
    counted = shipped.con.execute(_QUERY).fetchall()
    with diagnosed_meanwhile(shipped.con, run_id) as diagnosed:
        assert {tuple(shipped.con.execute(_QUERY).fetchall()) for _ in range(10)} == {(*counted,)}
        assert diagnosed() == alone
    assert alone.findings


@pytest.mark.parametrize("own_views", [False, True])
def test_only_where_another_connection_sees_the_same_views(
    shipped: Store, own_views: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if own_views:
        shipped.con.execute("CREATE TEMP VIEW phases AS FROM main.phases")
    assert has_own_views(shipped.con) == own_views
    threads = []

    def noted(*asked: object) -> object:
        threads.append(threading.current_thread())
        return diagnose(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(meanwhile, "diagnose", noted)
    with diagnosed_meanwhile(shipped.con, shipped.run_id("v1_x_lt")) as diagnosed:
        assert diagnosed().run == "v1_x_lt"
    assert (threads == [threading.current_thread()]) == own_views


def test_a_caller_that_fails_ends_the_rules(
    shipped: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def endless(con: object, run_id: int) -> None:
        begun.set()
        con.execute("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b")  # type: ignore[attr-defined]

    monkeypatch.setattr(meanwhile, "diagnose", endless)

    def stopped() -> None:
        with diagnosed_meanwhile(shipped.con, shipped.run_id("v1_x_lt")):
            assert begun.wait(60)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
