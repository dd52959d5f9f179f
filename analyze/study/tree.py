"""When BBR beats CUBIC, learnt from a grid of paths: the decision tree of Cao et al. (IMC 2019).

One sample per path; the winner is who had more goodput when it had the path to itself. As in the
paper, the tree that is drawn has learnt from three quarters of the samples, and its accuracy is
that of trees on five folds, each judged on samples that it has not seen. Features and depth are not
in the paper: here they are those below.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural

FEATURES = {
    "rate": "bandwidth, Mbit/s",
    "rtt": "RTT, ms",
    "buffer": "buffer, kB",
    "bdp": "BDP, kB",
    "depth": "buffer, BDP",
}
MAX_DEPTH = 3
# A leaf of a path or two tells of chance.
LEAST_LEAF = 3
FOLDS = 5
TRAINED = 0.75
# With fewer, those to learn from are too few for two leaves.
LEAST_PATHS = 8


class FittedTree(Protocol):
    """scikit-learn's arrays of a tree (sklearn.tree._tree.Tree), one entry per node."""

    children_left: Sequence[int]
    children_right: Sequence[int]
    threshold: Sequence[float]
    feature: Sequence[int]
    n_node_samples: Sequence[int]
    value: Sequence[Sequence[Sequence[float]]]


@dataclass(frozen=True)
class Node:
    """A node: its question (a leaf has none), whom the samples that reach it favour, its place.

    `left` is the child if the question is answered with yes, `right` the other; -1: a leaf.
    `x` is the place among the leaves, from 0, `depth` the one from the root.
    """

    node: int
    question: str
    samples: int
    bbr: int
    cubic: int
    left: int
    right: int
    x: float
    depth: int

    @property
    def decision(self) -> str:
        """The majority's winner."""
        return "BBR" if self.bbr >= self.cubic else "CUBIC"


@dataclass(frozen=True)
class Tree:
    """A tree and how far to trust it.

    Attributes:
        points: paths that it had; trained: of these, those that the drawn tree learnt from.
        bbr: on how many of them BBR won.
        accuracies: per fold, the share of its samples whose winner a tree that learnt from the
            other folds predicts; empty: too few points of one winner.
    """

    nodes: tuple[Node, ...]
    points: int
    trained: int
    bbr: int
    accuracies: tuple[float, ...]

    def summary(self) -> str:
        """Say in a sentence or two what it rests on."""
        base = max(self.bbr, self.points - self.bbr) / self.points
        paths = plural(self.points, "path")
        text = f"{paths}, BBR ahead on {self.bbr}; learnt from {self.trained} of them."
        if not self.accuracies:
            return f"{text} Too few paths for a cross-validated accuracy."
        mean, median = statistics.mean(self.accuracies), statistics.median(self.accuracies)
        return (
            f"{text} Cross-validated accuracy over {plural(len(self.accuracies), 'fold')}: mean"
            f" {mean:.1%},"
            f" median {median:.1%}; always naming the more frequent winner is right on {base:.1%}."
        )

    def text(self) -> str:
        """Return the tree as indented lines."""
        return "\n".join(self._lines(0, ""))

    def _lines(self, index: int, answer: str) -> Iterator[str]:
        node = self.nodes[index]
        votes = f"{plural(node.samples, 'path')}: {node.bbr} BBR, {node.cubic} CUBIC"
        indent = "  " * node.depth
        if node.left < 0:
            yield f"{indent}{answer}{node.decision} ({votes})"
            return
        yield f"{indent}{answer}{node.question}? ({votes})"
        yield from self._lines(node.left, "yes: ")
        yield from self._lines(node.right, "no: ")

    def rows(self) -> list[dict[str, Any]]:
        """Return the nodes as rows."""
        return [asdict(node) | {"decision": node.decision} for node in self.nodes]


def grow(cells: Sequence[Mapping[str, Any]]) -> Tree:
    """Return the tree for cells of rate_mbps, rtt_ms, buffer_bytes, bbr and cubic (goodputs).

    Raises:
        BbrscopeError: scikit-learn is not installed, or there are too few paths, in all or of one
            winner.
    """
    try:
        from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split
        from sklearn.tree import DecisionTreeClassifier
    except ImportError:
        raise BbrscopeError(
            "the decision tree needs scikit-learn, which is not installed",
            "pip install 'bbrscope[study]'",
        ) from None
    cells = [cell for cell in cells if _is_path(cell)]
    samples = [_features(cell) for cell in cells]
    labels = [int(cell["bbr"] > cell["cubic"]) for cell in cells]
    fewest = min(labels.count(0), labels.count(1))
    if fewest < 2 or len(cells) < LEAST_PATHS:
        raise BbrscopeError(
            f"no tree from {plural(len(cells), 'path')}, on {sum(labels)} of which BBR is ahead",
            f"run a grid of at least {LEAST_PATHS} paths on which each wins twice or more, with BBR"
            " and with CUBIC",
        )

    def classifier() -> DecisionTreeClassifier:
        return DecisionTreeClassifier(
            criterion="gini", max_depth=MAX_DEPTH, min_samples_leaf=LEAST_LEAF, random_state=0
        )

    chosen, _, answers, _ = train_test_split(
        samples, labels, train_size=TRAINED, stratify=labels, random_state=0
    )
    accuracies = []
    if fewest >= FOLDS:
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
        accuracies = [float(x) for x in cross_val_score(classifier(), samples, labels, cv=folds)]
    fitted = classifier().fit(chosen, answers).tree_
    return Tree(_nodes(fitted, answers), len(cells), len(chosen), sum(labels), tuple(accuracies))


def _is_path(cell: Mapping[str, Any]) -> bool:
    """Whether there can be such a path; what is learnt from must fit 32 bits of float."""
    rate, rtt, buffer = (float(cell[name]) for name in ("rate_mbps", "rtt_ms", "buffer_bytes"))
    return 0 < rate < 1e9 and 0 < rtt < 1e9 and 0 <= buffer < 1e15


def _features(cell: Mapping[str, Any]) -> list[float]:
    bdp = cell["rate_mbps"] * cell["rtt_ms"] / 8
    buffer = cell["buffer_bytes"] / 1e3
    return [cell["rate_mbps"], cell["rtt_ms"], buffer, bdp, buffer / bdp]


def _nodes(fitted: FittedTree, answers: Sequence[int]) -> tuple[Node, ...]:
    """Read scikit-learn's arrays; leaves stand side by side, parents in the middle of theirs."""
    nodes: dict[int, Node] = {}
    names = list(FEATURES.values())
    leaves = 0

    def visit(index: int, depth: int) -> float:
        nonlocal leaves
        left, right = int(fitted.children_left[index]), int(fitted.children_right[index])
        if left < 0:
            x, question = float(leaves), ""
            leaves += 1
        else:
            x = (visit(left, depth + 1) + visit(right, depth + 1)) / 2
            limit = float(f"{fitted.threshold[index]:.4g}")
            question = f"{names[fitted.feature[index]]} \u2264 {limit:,.6g}"
        samples = int(fitted.n_node_samples[index])
        # Shares of the classes, or, in older versions, their counts.
        votes = fitted.value[index][0]
        bbr = round(samples * votes[1] / sum(votes)) if len(votes) > 1 else samples * answers[0]
        cubic = samples - bbr
        nodes[index] = Node(index, question, samples, bbr, cubic, left, right, x, depth)
        return x

    visit(0, 0)
    return tuple(nodes[index] for index in sorted(nodes))
