"""The table of the decision vocabulary, which decisions refer to by number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...collect.store.arrow import registered
from ..bbr.codes import CODES

if TYPE_CHECKING:
    import pyarrow as pa

    from ...collect.store.store import Store


def vocabulary() -> pa.Table:
    """Return this release's decisions, one row per code: the table `decision_codes`."""
    import pyarrow as pa

    rows = [
        {
            "code": code.number,
            "name": code.name,
            "versions": code.versions,
            "about": code.about,
            "change": code.change,
            "function": code.function,
            "draft": code.draft,
            "sentence": code.sentence,
            "evidence": list(code.evidence),
        }
        for code in CODES.values()
    ]
    return pa.Table.from_pylist(rows)


def keep_codes(store: Store) -> None:
    """Have this release's vocabulary in the store: rewritten when it has changed."""
    held = store.con.execute("SELECT name, sentence FROM decision_codes ORDER BY code").fetchall()
    ours = [(CODES[number].name, CODES[number].sentence) for number in sorted(CODES)]
    if held == ours:
        return
    store.con.execute("DELETE FROM decision_codes")
    with registered(store.con, "incoming", vocabulary()):
        store.con.execute("INSERT INTO decision_codes BY NAME SELECT * FROM incoming")
