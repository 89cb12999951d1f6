"""Attention of several heads, as it is after the projections are fused or before, and rotary
embeddings.

Names of sizes: batch, heads, sequence (of the queries), total (of keys and values, those of before
included), width (of a head).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from spaces.frontends.onnx.contributed.text import Lines, Write, has, read_attribute
from spaces.frontends.onnx.node import Node
from spaces.ir.tvm_compat import as_int

_LOWEST = -3.4028234663852886e38
_FILTER = -10000.0


def _attention(node: Node) -> str:
    lines, heads = Lines(), read_attribute(node, "num_heads", 0)
    if (
        read_attribute(node, "do_rotary", 0)
        or read_attribute(node, "past_present_share_buffer", 0)
        or has(node, 6)
    ):
        raise node.refused("it rotates, or shares a buffer with what is past")
    widths = read_attribute(node, "qkv_hidden_sizes", None) or [_third(node)] * 3
    projected = lines.set("projected", "MatMul(x, weights)")
    if has(node, 2):
        projected = lines.set("biased", f"Add({projected}, bias)")
    sizes = lines.numbers("widths", widths)
    lines.written.append(f"q, k, v = Split<axis = -1>({projected}, {sizes})")
    q, k, v = (heads_of(lines, name, heads) for name in "qkv")
    if has(node, 4):
        parts = (lines.set(f"past_{n}", f"Gather(past, {lines.number(f'part_{n}', p)})")
                 for p, n in enumerate("kv"))  # fmt: skip
        k, v = (
            lines.set(f"all_{part}", f"Concat<axis = 2>({part}, {now})")
            for part, now in zip(parts, (k, v), strict=True)
        )
    front = lines.numbers("front", [0])
    both = [lines.set(f"kept_{n}", f"Unsqueeze({n}, {front})") for n in (k, v)]
    lines.set("present", f"Concat<axis = 0>({', '.join(both)})")
    _attend(node, lines, q, k, v, mask=3, bias=5)
    operands = ["x", "weights", "bias", "mask", "past", "attention_bias", "past_length"]
    return lines.function(operands, ["y", "present"])


def _third(node: Node) -> int:
    dims = node.dims(1)
    width = None if not dims else as_int(dims[-1])
    if width is None:
        raise node.refused("the shape of its weights is not known")
    return width // 3


def _many(node: Node) -> str:
    if (has(node, 0) and node.rank(0) != 3) or not has(node, 1) or not has(node, 2):
        raise node.refused("queries, keys and values have to be operands of their own")
    lines, heads = Lines(), read_attribute(node, "num_heads", 0)
    names = {"q": "query", "k": "key", "v": "value"}
    if has(node, 3):
        split = ("q_bias", "k_bias", "v_bias")
        widths = [as_int((node.dims(n) or [None])[-1]) for n in range(3)]
        if node.rank(1) != 3 or None in widths:
            raise node.refused("its operands are not of the shape that a bias is added to")
        sizes = lines.numbers("widths", [int(w or 0) for w in widths])
        lines.written.append(f"{', '.join(split)} = Split<axis = 0>(bias, {sizes})")
        for name, part in zip("qkv", split, strict=True):
            names[name] = lines.set(f"biased_{name}", f"Add({names[name]}, {part})")
    apart = {n: number > 0 and node.rank(number) == 4 for number, n in enumerate("qkv")}
    q, k, v = (names[n] if apart[n] else heads_of(lines, names[n], heads) for n in "qkv")
    if has(node, 6):
        k, v = (
            lines.set(f"all_{n}", f"Concat<axis = 2>(past_{n}, {now})")
            for n, now in (("k", k), ("v", v))
        )
    lines.set("present_k", f"Identity({k})")
    lines.set("present_v", f"Identity({v})")
    _attend(node, lines, q, k, v, mask=4, bias=5)
    operands = ["query", "key", "value", "bias", "mask", "attention_bias", "past_k", "past_v"]
    return lines.function(operands, ["y", "present_k", "present_v"])


def heads_of(lines: Lines, name: str, heads: int) -> str:
    """A tensor of (batch, sequence, heads * width) as one of (batch, heads, sequence, width)."""
    shape = lines.numbers(f"{name}_shape", [0, 0, heads, -1])
    split = lines.set(f"{name}_split", f"Reshape({name}, {shape})")
    return lines.set(f"{name}_heads", f"Transpose<perm = [0, 2, 1, 3]>({split})")


def join_heads(lines: Lines, found: str) -> None:
    """Bind `y`, a tensor of (batch, heads, sequence, width) as one of (batch, sequence, heads *
    width)."""
    together = lines.set("together", f"Transpose<perm = [0, 2, 1, 3]>({found})")
    lines.set("y", f"Reshape({together}, {lines.numbers('y_shape', [0, 0, -1])})")


def _attend(node: Node, lines: Lines, q: str, k: str, v: str, *, mask: int, bias: int) -> None:
    """Bind `y`, what the heads make of queries, keys and values.

    Args:
        mask: number of the operand that says what takes part; `bias` that of what is added.
    """
    factor = key_scale(node, lines, q, k)
    turned = lines.set("keys_turned", f"Transpose<perm = [0, 1, 3, 2]>({k})")
    scaled = lines.set("scaled", f"Mul({q}, {factor})")
    scores = lines.set("scores", f"MatMul({scaled}, {turned})")
    if has(node, mask):
        scores = lines.set("masked", f"Add({scores}, {_filter(node, lines, k, mask)})")
    if has(node, bias):
        scores = lines.set("shifted", f"Add({scores}, attention_bias)")
    if read_attribute(node, "unidirectional", 0):
        later = _later(lines, q, k)
        lowest = lines.real("lowest", _LOWEST, scores)
        scores = lines.set("causal", f"Where({later}, {lowest}, {scores})")
    shares = lines.set("shares", f"Softmax<axis = -1>({scores})")
    found = lines.set("found", f"MatMul({shares}, {v})")
    join_heads(lines, found)


def key_scale(node: Node, lines: Lines, q: str, k: str) -> str:
    """Bind what scores are multiplied by; gives its name."""
    scale = read_attribute(node, "scale", 0.0)
    if scale:
        return lines.real("factor", scale, q)
    shape = lines.set("key_shape", f"Shape({k})")
    width = lines.set("width", f"Gather({shape}, {lines.number('last_axis', 3)})")
    root = lines.set("root", f"Sqrt({lines.set('width_real', f'Cast<to = 1>({width})')})")
    return lines.set("factor", f"CastLike({lines.set('over', f'Reciprocal({root})')}, {q})")


def _filter(node: Node, lines: Lines, k: str, number: int) -> str:
    """What is added to scores so that what is masked does not take part."""
    axes = {1: [1, 2], 2: [1, 2], 3: [1]}.get(node.rank(number))
    if axes is None:
        raise node.refused(f"its mask has {node.rank(number)} axes")
    raw = "mask"
    if node.rank(number) == 1:  # how many at the front take part
        numbers = lines.set("places", f"CastLike({lines.places('all', k, 2)}, mask)")
        column = lines.set("lengths", f"Unsqueeze(mask, {lines.numbers('second', [1])})")
        raw = lines.set("inside", f"Less({numbers}, {column})")
    real = lines.set("mask_real", f"CastLike({raw}, {k})")
    one = lines.real("all_of_it", 1.0, k)
    depth = lines.real("depth", read_attribute(node, "mask_filter_value", _FILTER), k)
    apart = lines.set("apart", f"Sub({one}, {real})")
    low = lines.set("low", f"Mul({apart}, {depth})")
    return lines.set("spread", f"Unsqueeze({low}, {lines.numbers('spread_axes', axes)})")


def _later(lines: Lines, q: str, k: str) -> str:
    """Which keys come after each query, which are the last ones."""
    rows, columns = lines.places("rows", q, 2), lines.places("columns", k, 2)
    past = lines.set("past_size", "Sub(columns_size, rows_size)")
    moved = lines.set("moved", f"Add({rows}, {past})")
    column = lines.set("row_column", f"Unsqueeze({moved}, {lines.numbers('row_axis', [1])})")
    return lines.set("later", f"Greater({columns}, {column})")


def _rotary(node: Node) -> str:
    lines = Lines()
    width = as_int((node.dims(2) or [None])[-1])
    dims = node.dims(0) or []
    heads = read_attribute(node, "num_heads", 0)
    if len(dims) == 3 and not heads:
        whole = as_int(dims[-1])
        if whole is None or width is None:
            raise node.refused("nothing says how many heads there are")
        heads = whole // (2 * width)
    places = "places"
    if node.rank(1) == 1:  # the first of them
        numbers = lines.places("rotated", "x", 1 if len(dims) == 3 else 2)
        row = lines.set("row", f"Add({numbers}, places)")
        batch = lines.set("batch", f"Gather(rotated_shape, {lines.numbers('first', [0])})")
        rows = lines.set("rows", f"Concat<axis = 0>({batch}, {lines.numbers('same', [1])})")
        places = lines.set("every_place", f"Expand({row}, {rows})")
    rotated = read_attribute(node, "rotary_embedding_dim", 0)
    attributes = (
        f"interleaved = {read_attribute(node, 'interleaved', 0)}, rotary_embedding_dim = {rotated}"
    )
    if len(dims) == 3:
        attributes += f", num_heads = {heads}"
    lines.set("y", f"RotaryEmbedding<{attributes}>(x, cosines, sines, {places})")
    return lines.function(["x", "places", "cosines", "sines"], ["y"])


ATTENTION: Mapping[str, Write] = MappingProxyType(
    {
        "Attention": _attention,
        "MultiHeadAttention": _many,
        "RotaryEmbedding": _rotary,
    }
)
