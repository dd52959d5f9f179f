"""The fuzzer's short form: one input of each kind, and a few later commands."""

from __future__ import annotations

from pathlib import Path

from .worker import Worker


class Listener(Worker):
    """Keeps what a worker tells of failures."""

    failures: list[tuple[str, str, str]]

    def tell(self, what: str, shown: str, more: str) -> None:
        if what not in ("begin", "total"):
            self.failures.append((what, shown, more))


def test_an_input_of_each_kind_is_taken_or_refused(tmp_path: Path) -> None:
    worker = Listener(3, tmp_path, later=2)
    worker.failures = []
    worker.batch(0, 13)
    assert worker.failures == []
    assert worker.accepted + worker.refused == 9
    assert worker.commands > 16
