"""Attention as networks have it, as graphs and as tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.targets.target import emulate_target
from tuner.task import Task

AMPERE = emulate_target('{"kind":"cuda","arch":"sm_80"}')
HOPPER = emulate_target('{"kind":"cuda","arch":"sm_90a"}')


@dataclass(frozen=True, slots=True)
class Sizes:
    """Heads, rows of queries, keys, elements of a query and of a value; a size may be a name.

    Attributes:
        groups: heads of keys and values.
    """

    heads: int
    rows: int | str
    keys: int | str
    width: int
    columns: int
    groups: int
    batch: int = 1


class Graph:
    """A graph that is written operator by operator; `emit` binds an expression to a variable."""

    def __init__(self) -> None:
        from tvm import relax

        self.op, self._builder = relax.op, relax.BlockBuilder()
        self.emit = self._builder.emit
        self._params: list[Any] = []
        self._sizes: dict[str, Any] = {}

    def size(self, size: int | str) -> Any:
        """A size, or the variable of a name."""
        from tvm import tirx

        return (
            size if isinstance(size, int) else self._sizes.setdefault(size, tirx.Var(size, "int64"))
        )

    def parameter(self, shape: list[int | str], kind: str) -> Any:
        """An input."""
        from tvm import relax

        dims = [self.size(size) for size in shape]
        self._params.append(relax.Var(f"x{len(self._params)}", relax.TensorType(dims, kind)))
        return self._params[-1]

    def number(self, value: float, kind: str = "float32") -> Any:
        """A constant."""
        from tvm import relax

        return relax.const(value, kind)

    def cast(self, x: Any, kind: str) -> Any:
        """A conversion."""
        return self.emit(self.op.astype(x, kind))

    def turn(self, x: Any, *order: int) -> Any:
        """A permutation."""
        return self.emit(self.op.permute_dims(x, [*order]))

    def shape(self, x: Any, *sizes: Any) -> Any:
        """A reshape."""
        return self.emit(self.op.reshape(x, [*sizes]))

    def multiply(self, x: Any, y: Any, kind: str = "float32") -> Any:
        """A product of matrices, summed in a type."""
        return self.emit(self.op.matmul(x, y, kind))

    def write(self, body: Callable[[], Any]) -> Any:
        """The module of a graph, whose result the body emits."""
        with self._builder.function("main", self._params):
            with self._builder.dataflow():
                found = self._builder.emit_output(body())
            self._builder.emit_func_output(found)
        return self._builder.get()


def plain(s: Sizes, kind: str = "float16") -> Any:
    """Of heads in front, softmax in float32, no mask."""
    g, (q, k, v) = _with_heads_in_front(s, kind)

    def body() -> Any:
        scores = g.multiply(q, g.turn(k, 0, 1, 3, 2))
        scaled = g.emit(g.op.multiply(scores, g.number(0.3)))
        weights = g.cast(g.emit(g.op.nn.softmax(scaled, -1)), kind)
        return g.cast(g.multiply(weights, v), kind)

    return g.write(body)


def masked(s: Sizes, kind: str = "float16") -> Any:
    """With a mask that is added, scores in halves; as PyTorch's networks write it themselves."""
    g, (q, k, v) = _with_heads_in_front(s, kind)
    mask = g.parameter([s.batch, 1, s.rows, s.keys], kind)

    def body() -> Any:
        scores = g.cast(g.multiply(q, g.turn(k, 0, 1, 3, 2)), kind)
        scaled = g.emit(g.op.multiply(scores, g.number(s.width**-0.5, kind)))
        added = g.cast(g.emit(g.op.add(scaled, mask)), "float32")
        weights = g.cast(g.emit(g.op.nn.softmax(added, -1)), kind)
        found = g.cast(g.multiply(weights, v), kind)
        rows = g.size(s.rows)
        return g.shape(g.turn(found, 0, 2, 1, 3), s.batch, rows, s.heads * s.columns)

    return g.write(body)


def chosen(s: Sizes, kind: str = "float16") -> Any:
    """With a mask that says which scores count; the others are the least number there is."""
    g, (q, k, v) = _with_heads_in_front(s, kind)
    mask = g.parameter([s.batch, 1, 1, s.keys], "bool")

    def body() -> Any:
        scores = g.multiply(q, g.turn(k, 0, 1, 3, 2))
        bounded = g.emit(g.op.multiply(g.emit(g.op.tanh(scores)), g.number(5.0)))
        left = g.emit(g.op.where(mask, bounded, g.number(-3.4e38)))
        weights = g.cast(g.emit(g.op.nn.softmax(left, -1)), kind)
        return g.cast(g.multiply(weights, v), kind)

    return g.write(body)


def causal(s: Sizes, kind: str = "float16") -> Any:
    """Of tokens with heads inside, these in groups, the last keys being the rows' own; as PyTorch
    takes `scaled_dot_product_attention` apart."""
    g, scale = Graph(), s.width**-0.25
    q = g.parameter([s.batch, s.rows, s.heads * s.width], kind)
    k = g.parameter([s.batch, s.keys, s.groups * s.width], kind)
    v = g.parameter([s.batch, s.keys, s.groups * s.columns], kind)
    rows, keys, op, each = g.size(s.rows), g.size(s.keys), g.op, s.heads // s.groups

    def split(x: Any, length: Any, heads: int, width: int) -> Any:
        return g.turn(g.shape(x, s.batch, length, heads, width), 0, 2, 1, 3)

    def repeat(x: Any, width: int) -> Any:
        several = [s.batch, s.groups, each, keys, width]
        spread = g.emit(op.broadcast_to(g.emit(op.expand_dims(x, 2)), several))
        return g.shape(spread, s.batch, s.heads, keys, width)

    def flatten(x: Any, length: Any, width: int) -> Any:
        return g.shape(g.cast(x, "float32"), s.batch * s.heads, length, width)

    def find_seen() -> Any:
        own = g.emit(op.expand_dims(g.emit(op.arange(keys - rows, keys)), 1))
        other = g.emit(op.expand_dims(g.emit(op.arange(keys)), 0))
        return g.emit(op.less_equal(g.emit(op.subtract(other, own)), g.number(0, "int64")))

    def body() -> Any:
        lowest = g.number(-math.inf)
        queries = flatten(split(q, rows, s.heads, s.width), rows, s.width)
        known = flatten(repeat(split(k, keys, s.groups, s.width), s.width), keys, s.width)
        values = flatten(repeat(split(v, keys, s.groups, s.columns), s.columns), keys, s.columns)
        scaled = g.emit(op.multiply(queries, g.number(scale)))
        turned = g.emit(op.multiply(g.turn(known, 0, 2, 1), g.number(scale)))
        scores = g.shape(g.multiply(scaled, turned), s.batch, s.heads, rows, keys)
        added = g.emit(op.add(scores, g.emit(op.where(find_seen(), g.number(0.0), lowest))))
        weights = g.emit(op.nn.softmax(added, -1))
        some = g.cast(g.emit(op.logical_not(g.emit(op.equal(added, lowest)))), "int8")
        none = g.emit(op.logical_not(g.cast(g.emit(op.max(some, -1, True)), "bool")))
        zeros = g.emit(op.full_like(weights, g.number(0.0)))
        flat = g.shape(g.emit(op.where(none, zeros, weights)), s.batch * s.heads, rows, keys)
        found = g.shape(g.multiply(flat, values), s.batch, s.heads, rows, s.columns)
        joined = g.turn(g.cast(found, kind), 0, 2, 1, 3)
        return g.shape(joined, s.batch, rows, s.heads * s.columns)

    return g.write(body)


def shared(s: Sizes, kind: str = "float16") -> Any:
    """With keys and values of which all heads have the same; the product broadcasts them."""
    g = Graph()
    q = g.parameter([s.batch, s.heads, s.rows, s.width], kind)
    k = g.parameter([s.batch, 1, s.keys, s.width], kind)
    v = g.parameter([s.keys, s.columns], kind)

    def body() -> Any:
        scores = g.multiply(q, g.turn(k, 0, 1, 3, 2))
        weights = g.cast(g.emit(g.op.nn.softmax(scores, -1)), kind)
        return g.cast(g.multiply(weights, v), kind)

    return g.write(body)


def nothing_seen(s: Sizes, kind: str = "float16") -> Any:
    """Rows from the third on see no key: their scores are the least number, all of them."""
    g, (q, k, v) = _with_heads_in_front(s, kind)

    def body() -> Any:
        row = g.emit(g.op.expand_dims(g.emit(g.op.arange(s.rows)), 1))
        seen = g.emit(g.op.less(row, g.number(2, "int64")))
        scores = g.multiply(q, g.turn(k, 0, 1, 3, 2))
        left = g.emit(g.op.where(seen, scores, g.number(-3.4028234663852886e38)))
        weights = g.cast(g.emit(g.op.nn.softmax(left, -1)), kind)
        return g.cast(g.multiply(weights, v), kind)

    return g.write(body)


def bounded(s: Sizes, kind: str = "float16") -> Any:
    """Scores within bounds, of rows in a view without the dimension of one."""
    g, (q, k, v) = _with_heads_in_front(s, kind)

    def body() -> Any:
        flat = g.shape(q, s.batch * s.heads, s.rows, s.width)
        keys = g.shape(g.turn(k, 0, 1, 3, 2), s.batch * s.heads, s.width, s.keys)
        scores = g.shape(g.multiply(flat, keys), s.batch, s.heads, s.rows, s.keys)
        above = g.emit(g.op.maximum(scores, g.number(-2.0)))
        left = g.emit(g.op.minimum(above, g.number(2.0)))
        weights = g.cast(g.emit(g.op.nn.softmax(left, -1)), kind)
        return g.cast(g.multiply(weights, v), kind)

    return g.write(body)


def with_length(s: Sizes, kind: str = "float16") -> Any:
    """With as many keys before the rows' own as a tensor tells, at most, and heads that share keys
    as rows of one product; as onnxruntime's grouped attention has it."""
    from tvm import relax

    g, (q, k, v) = _with_heads_in_front(s, kind)
    before = g.parameter([s.batch, 1, 1, 1], "int64")
    rows, keys, each = g.size(s.rows), g.size(s.keys), s.heads // s.groups

    def body() -> Any:
        past = g.emit(g.op.shape_to_tensor(relax.ShapeExpr([keys - rows])))
        least = g.emit(g.op.maximum(before, g.number(0, "int64")))
        last = g.emit(g.op.minimum(least, past))
        own = g.emit(g.op.expand_dims(g.emit(g.op.arange(rows)), 1))
        seen = g.emit(g.op.less_equal(g.emit(g.op.arange(keys)), g.emit(g.op.add(last, own))))
        flat = g.shape(q, s.batch, s.groups, rows * each, s.width)
        product = g.multiply(flat, g.turn(k, 0, 1, 3, 2))
        scores = g.shape(product, s.batch, s.heads, rows, keys)
        left = g.emit(g.op.where(seen, scores, g.number(-3.3e38)))
        weights = g.cast(g.emit(g.op.nn.softmax(left, -1)), kind)
        of_groups = g.shape(weights, s.batch, s.groups, rows * each, keys)
        found = g.shape(g.multiply(of_groups, v), s.batch, s.heads, rows, s.columns)
        return g.shape(g.turn(g.cast(found, kind), 0, 2, 1, 3), s.batch, rows, s.heads * s.columns)

    return g.write(body)


def _with_heads_in_front(s: Sizes, kind: str) -> tuple[Graph, tuple[Any, Any, Any]]:
    g = Graph()
    q = g.parameter([s.batch, s.heads, s.rows, s.width], kind)
    k = g.parameter([s.batch, s.groups, s.keys, s.width], kind)
    return g, (q, k, g.parameter([s.batch, s.groups, s.keys, s.columns], kind))


PROGRAMS: Mapping[str, tuple[Callable[[Sizes], Any], tuple[Sizes, ...]]] = {
    "plain": (plain, (Sizes(3, 50, 77, 64, 64, 3), Sizes(2, 130, 33, 40, 24, 2))),
    "plain bfloat16": (lambda s: plain(s, "bfloat16"), (Sizes(2, 33, 65, 128, 128, 2),)),
    "one row": (plain, (Sizes(4, 1, 300, 64, 64, 4),)),
    "one row of each in a group": (causal, (Sizes(6, 1, 300, 64, 64, 2, 2),)),
    "odd widths": (plain, (Sizes(2, 20, 45, 33, 21, 2),)),
    "shared": (shared, (Sizes(3, 21, 40, 32, 24, 1, 2),)),
    "nothing seen": (nothing_seen, (Sizes(2, 20, 50, 32, 16, 2),)),
    "bounded": (bounded, (Sizes(2, 1, 50, 32, 16, 2), Sizes(2, 9, 30, 16, 16, 2))),
    "wide": (plain, (Sizes(1, 17, 70, 256, 256, 1),)),
    "masked": (masked, (Sizes(2, 37, 90, 32, 32, 2, 2),)),
    "chosen": (lambda s: chosen(s, "bfloat16"), (Sizes(2, 40, 71, 16, 48, 2, 2),)),
    "causal": (causal, (Sizes(4, 70, 70, 32, 32, 2), Sizes(4, 33, 80, 64, 64, 1, 2))),
    "with length": (with_length, (Sizes(4, 9, 40, 32, 32, 2, 2), Sizes(6, 1, 70, 64, 32, 2))),
    "open": (causal, (Sizes(4, "m", "n", 32, 32, 2),)),
    "with length and open": (with_length, (Sizes(4, "m", "n", 32, 32, 2),)),
    "open with mask": (masked, (Sizes(2, "m", "n", 64, 64, 2),)),
}
"""Programs by name, with sizes that tiles do not divide."""
WIDE_PROGRAMS: Mapping[str, tuple[Callable[[Sizes], Any], tuple[Sizes, ...]]] = {
    f"{write.__name__} float32 of {sizes[0].rows} rows": (partial(write, kind="float32"), sizes)
    for write, sizes in PROGRAMS.values()
    if hasattr(write, "__name__") and write.__name__ != "<lambda>"
}
"""The same in float32."""
SHAPES = ((1, 40), (0, 9), (33, 33), (3, 0), (77, 130))
"""Rows and keys of programs that are open."""


@cache
def task_for(name: str, sizes: Sizes, target: str = AMPERE) -> Task:
    """The task of a program's attention, the only one that it has."""
    write, _ = {**PROGRAMS, **WIDE_PROGRAMS}[name]
    shapes = ((("m", m), ("n", n)) for m, n in SHAPES if m and n)
    tasks = extract(
        lower(write(sizes), _target(target)),
        target,
        shapes=tuple((shape, 1.0) for shape in shapes) if sizes.rows == "m" else (),
    )
    (found,) = tasks
    return found


def _target(text: str) -> Any:
    import json

    from tvm.target import Target

    return Target(json.loads(text))
