"""The decision tree finds a rule that it is not told, and says how far to trust it."""

from __future__ import annotations

import builtins
import random
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.study import points, tree
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.probes.base.errors import BbrscopeError

pytest.importorskip("sklearn", reason="pip install 'bbrscope[study]'")


def grid(rule: Any, noise: float = 0.0) -> list[dict[str, float]]:
    """Cao19's 320 paths; BBR wins where the rule says so, but for a share of coin tosses."""
    tosses = random.Random(7)
    cells = []
    for rate in (10, 20, 50, 100, 250, 500, 750, 1000):
        for rtt in (5, 10, 25, 50, 75, 100, 150, 200):
            for buffer in (1e5, 1e6, 1e7, 2e7, 5e7):
                wins = rule(rate, rtt, buffer) != (tosses.random() < noise)
                cell = {"rate_mbps": rate, "rtt_ms": rtt, "buffer_bytes": buffer}
                cells.append(cell | {"bbr": 1.0 + wins, "cubic": 1.5})
    return cells


def shallow(rate: float, rtt: float, buffer: float) -> bool:
    return buffer < rate * rtt * 125


def test_a_known_rule_is_recovered_exactly() -> None:
    found = tree.grow(grid(shallow))
    root, left, right = found.nodes
    assert root.question.startswith("buffer, BDP \u2264")
    assert 0.75 < float(root.question.split()[-1]) < 1.05
    assert (left.decision, left.cubic, right.decision, right.bbr) == ("BBR", 0, "CUBIC", 0)
    assert found.accuracies == (1.0,) * 5
    assert (found.points, found.trained) == (320, 240)
    assert "320 paths" in found.summary()
    assert "mean 100.0%, median 100.0%" in found.summary()


def test_noise_costs_the_accuracy_that_it_must() -> None:
    accuracies = tree.grow(grid(shallow, noise=0.15)).accuracies
    assert 0.7 < sum(accuracies) / 5 < 0.92


def test_without_a_rule_it_is_no_better_than_the_more_frequent_winner() -> None:
    found = tree.grow(grid(lambda *_: False, noise=0.5))
    assert abs(sum(found.accuracies) / 5 - 0.5) < 0.12


def test_every_path_ends_in_one_leaf_and_text_tells_all_nodes() -> None:
    found = tree.grow(grid(shallow, noise=0.15))
    leaves = [node for node in found.nodes if node.left < 0]
    assert sum(leaf.samples for leaf in leaves) == found.trained
    assert sorted(leaf.x for leaf in leaves) == list(range(len(leaves)))
    assert len(found.text().splitlines()) == len(found.nodes)
    for node in found.nodes:
        assert node.samples == node.bbr + node.cubic
        if node.left >= 0:
            children = found.nodes[node.left], found.nodes[node.right]
            assert sum(child.samples for child in children) == node.samples
            assert sum(child.bbr for child in children) == node.bbr


def test_few_paths_give_a_tree_without_accuracy_and_too_few_none() -> None:
    cells = grid(shallow)
    few = [cell for cell in cells if cell["rtt_ms"] == 200 and cell["rate_mbps"] < 100]
    found = tree.grow(few)
    assert found.accuracies == ()
    assert "Too few paths" in found.summary()
    for count in range(len(few) + 1):
        if count >= tree.LEAST_PATHS and sum(c["bbr"] > c["cubic"] for c in few[:count]) >= 2:
            assert tree.grow(few[:count]).trained == count * 3 // 4
    mixed = sorted(few, key=lambda cell: cell["bbr"] > cell["cubic"])
    even = mixed[:3] + mixed[-4:]
    for useless in ([], cells[:1], even[:4], even, grid(lambda *_: True)):
        with pytest.raises(BbrscopeError, match="no tree from"):
            tree.grow(useless)


def test_without_scikit_learn_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(BbrscopeError) as raised:
        tree.grow(grid(shallow))
    assert raised.value.way_out == "pip install 'bbrscope[study]'"


def test_a_claim_may_ask_for_the_accuracy_of_the_folds(tmp_path: Path) -> None:
    """The claims about Cao19's tree, of 320 paths that are told right, and of too few."""
    names = ("rate_mbps", "rtt_ms", "buffer_bytes", "bbr", "cubic")
    lists = [[cell[name] for cell in grid(shallow)] for name in names]
    with open_store(tmp_path / "s.duckdb") as store:
        points.make(store, points.Chosen((), False, (), 0))
        for count, accuracies in ((320, [1.0] * 5), (3, [])):
            asked = [values[:count] for values in lists]
            query = f"SELECT tree_accuracies({', '.join(['?::DOUBLE[]'] * 5)})"
            assert store.con.execute(query, asked).fetchall() == [(accuracies,)]
