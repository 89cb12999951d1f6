"""Charts of a task with symbolic dimensions: its kernels, its shapes, its dispatch tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import altair as alt

from tuner.dynamic.dispatch_tree import Leaf, Tree
from tuner.dynamic.kernel_set import KernelSet
from tuner.dynamic.shapes import shape_text
from tuner.pages.theme import INK, QUIET, TUNED, specification, unit_of

_LEVEL = 64


def loss_chart(chosen: KernelSet) -> dict[str, Any]:
    """Latency over that of each shape's own best kernel, by the number of kernels."""
    rows = [
        {"kernels": number, "loss": loss, "taken": number == len(chosen.kernels)}
        for number, loss in enumerate(chosen.losses, start=1)
    ]
    x = alt.X("kernels:O", title="number of kernels", axis=alt.Axis(labelAngle=0))
    y = alt.Y("loss:Q", title="latency over the best", scale=alt.Scale(zero=False))
    base = alt.Chart(alt.NamedData("rows")).encode(x, y, tooltip=["kernels:O", "loss:Q"])
    taken = base.transform_filter("datum.taken")
    return specification(
        alt.layer(
            base.mark_line(color=TUNED),
            base.mark_point(color=TUNED, filled=True, size=40),
            taken.mark_point(color=INK, size=160, strokeWidth=2),
        ),
        {"rows": rows},
        height=200,
    )


def latency_charts(chosen: KernelSet) -> Iterator[tuple[str, dict[str, Any]]]:
    """For each dimension that varies: its name, and the latency of the shapes over it."""
    dims = [name for name, _ in chosen.shapes[0].instance]
    unit, in_s = unit_of([shape.latency_s for shape in chosen.shapes])
    for dim in dims:
        if len({dict(shape.instance)[dim] for shape in chosen.shapes}) < 2:
            continue
        rows = [
            {
                "size": dict(shape.instance)[dim],
                "latency": shape.latency_s * in_s,
                "best": shape.best_s * in_s,
                "kernel": f"kernel {shape.kernel}",
                "shape": shape_text(shape.instance),
                "how": "measured" if shape.measured else "predicted",
            }
            for shape in chosen.shapes
        ]
        base = alt.Chart(alt.NamedData("rows")).encode(
            alt.X("size:Q", title=dim, scale=alt.Scale(zero=False, nice=False, padding=8)),
            tooltip=["shape:N", "kernel:N", "how:N", "latency:Q", "best:Q"],
        )
        y = alt.Y("latency:Q", title=f"latency, {unit}", scale=alt.Scale(type="log"))
        best = alt.Y("best:Q")
        shape = alt.Shape(
            "how:N",
            title=None,
            scale=alt.Scale(domain=["measured", "predicted"], range=["circle", "diamond"]),
        )
        yield (
            dim,
            specification(
                alt.layer(
                    base.mark_tick(color=INK, opacity=0.55, width=9).encode(best),
                    base.mark_point(size=42, filled=True).encode(
                        y, alt.Color("kernel:N", title=None), shape
                    ),
                ),
                {"rows": rows},
            ),
        )


def tree_chart(tree: Tree) -> dict[str, Any]:
    """The dispatch tree, drawn: to the left where a dimension is at most the bound."""
    nodes, edges = _place(tree)
    x = alt.X("x:Q", axis=None, scale=alt.Scale(padding=40))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(reverse=True, padding=18))
    lines = (
        alt.Chart(alt.NamedData("edges"))
        .mark_rule(color=QUIET, strokeWidth=1.5)
        .encode(x, y, alt.X2("x2:Q"), alt.Y2("y2:Q"))
    )
    base = alt.Chart(alt.NamedData("nodes")).encode(x, y)
    splits = base.transform_filter("!datum.leaf")
    ends = base.transform_filter("datum.leaf")
    return specification(
        alt.layer(
            lines,
            splits.mark_circle(size=60, color=QUIET, opacity=1),
            splits.mark_text(dy=-12, color=INK).encode(text="text:N"),
            ends.mark_circle(size=420, opacity=1).encode(alt.Color("kernel:N", legend=None)),
            ends.mark_text(color="white", fontWeight="bold").encode(text="text:N"),
        ),
        {"nodes": nodes, "edges": edges},
        height=_LEVEL * (1 + max(node["y"] for node in nodes)),
    )


def _place(tree: Tree) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The nodes of a tree with places, and the edges between them: leaves side by side, each split
    in the middle above its two branches."""
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    leaves = 0

    def place(node: Tree, level: int) -> float:
        nonlocal leaves
        if isinstance(node, Leaf):
            at, leaves = float(leaves), leaves + 1
            text, kernel = str(node.kernel), f"kernel {node.kernel}"
            nodes.append({"x": at, "y": level, "text": text, "kernel": kernel, "leaf": True})
            return at
        below, above = place(node.below, level + 1), place(node.above, level + 1)
        at = (below + above) / 2
        text = f"{node.dim} ≤ {node.bound}"
        nodes.append({"x": at, "y": level, "text": text, "kernel": "", "leaf": False})
        for child in (below, above):
            edges.append({"x": at, "y": level, "x2": child, "y2": level + 1})
        return at

    place(tree, 0)
    return nodes, edges
