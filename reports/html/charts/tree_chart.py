"""The drawing of a decision tree: which congestion control wins, by which questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import altair as alt
from altair.typing import ChartType

from ..panels.palette import variable
from .study_style import PALE, finished

if TYPE_CHECKING:
    from ....analyze.study.tree import Node, Tree

# Pixels that a leaf and a level take, and the width of the smallest drawing.
LEAF, LEVEL, LEAST_WIDTH = 160, 84, 420


class _Size(TypedDict):
    """Of a node's box, in pixels."""

    width: int
    height: int
    cornerRadius: int


_BOX: _Size = {"width": 148, "height": 36, "cornerRadius": 4}


class _Axes:
    """Where nodes stand: leaves side by side, the root at the top."""

    def __init__(self, leaves: int, depth: int) -> None:
        self._across = alt.Scale(domain=[-0.6, leaves - 0.4], nice=False, zero=False)
        self._down = alt.Scale(domain=[-depth - 0.35, 0.35], nice=False, zero=False)

    def x(self, field: str = "x") -> alt.X:
        return alt.X(f"{field}:Q", axis=None, scale=self._across)

    def y(self, field: str = "y") -> alt.Y:
        return alt.Y(f"{field}:Q", axis=None, scale=self._down)


def tree_chart(tree: Tree) -> ChartType:
    """Return the drawing of a decision tree: yes goes left, BBR and CUBIC in their colours."""
    leaves = sum(node.left < 0 for node in tree.nodes)
    depth = max(node.depth for node in tree.nodes)
    axes = _Axes(leaves, depth)
    chart = alt.layer(*_links(tree, axes), *_boxes(tree, axes))
    return finished(chart, max(LEAST_WIDTH, LEAF * leaves), LEVEL * (depth + 1))


def _links(tree: Tree, axes: _Axes) -> list[alt.Chart]:
    """Lines from each node to its two children, and the answer beside each."""
    base = alt.Chart(alt.InlineData(values=_link_rows(tree)))
    return [
        base.mark_rule(color=variable("grid"), strokeWidth=1.5).encode(
            x=axes.x(), y=axes.y(), x2="x2:Q", y2="y2:Q"
        ),
        base.mark_text(fontSize=10, color=variable("soft"), dx=10).encode(
            x=axes.x("mx"), y=axes.y("my"), text="answer:N"
        ),
    ]


def _link_rows(tree: Tree) -> list[dict[str, object]]:
    places = {node.node: node for node in tree.nodes}
    return [
        _link_row(node, places[child], answer)
        for node in tree.nodes
        for child, answer in ((node.left, "yes"), (node.right, "no"))
        if child >= 0
    ]


def _link_row(node: Node, child: Node, answer: str) -> dict[str, object]:
    return {
        "x": node.x,
        "y": -node.depth,
        "x2": child.x,
        "y2": -child.depth,
        "answer": answer,
        "mx": (node.x + child.x) / 2,
        "my": -(node.depth + child.depth) / 2,
    }


def _boxes(tree: Tree, axes: _Axes) -> list[alt.Chart]:
    """A box per node, the stronger its colour the surer it is, with its question in it."""
    base = alt.Chart(alt.InlineData(values=[_box_row(node) for node in tree.nodes]))
    ahead, behind = alt.value(variable("ahead")), alt.value(variable("behind"))
    text = base.mark_text(fontSize=10.5, color=variable("ink"), lineHeight=14, baseline="middle")
    return [
        base.mark_rect(fill=variable("paper"), fillOpacity=1, **_BOX).encode(
            x=axes.x(), y=axes.y()
        ),
        base.mark_rect(stroke=variable("soft"), **_BOX).encode(
            x=axes.x(),
            y=axes.y(),
            fill=alt.condition("datum.bbr", ahead, behind),
            fillOpacity=alt.FillOpacity("sure:Q", scale=None, legend=None),
        ),
        text.encode(x=axes.x(), y=axes.y(), text="lines:N", yOffset=alt.value(-7)),
    ]


def _box_row(node: Node) -> dict[str, object]:
    sure = max(node.bbr, node.cubic) / max(node.samples, 1)
    counts = f"{node.samples}: {node.bbr} BBR, {node.cubic} CUBIC"
    return {
        "x": node.x,
        "y": -node.depth,
        "lines": [node.question or node.decision, counts],
        "bbr": node.decision == "BBR",
        "sure": PALE + 0.7 * (2 * sure - 1),
    }
