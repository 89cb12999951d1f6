"""`GroupQueryAttention`, as model builders for language models write it.

Names of sizes are those of `attention`. An entry of a batch has `ends` keys, of which the last are
those of this call, so their places begin at `before`. The buffer that comes out is as long as the
one that went in, or as `total` if that is longer. What it holds from `ends` on is nobody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from spaces.frontends.onnx.contributed.attention import heads_of, join_heads, key_scale
from spaces.frontends.onnx.contributed.text import Lines, Write, has, read_attribute
from spaces.frontends.onnx.node import Node
from spaces.ir.tvm_compat import as_int

_OPERANDS = [
    *("query", "key", "value", "past_k", "past_v", "last", "total", "cosines", "sines"),
    *("given_places", "bias", "sink", "k_scale", "v_scale", "q_norm", "k_norm", "lengths"),
]
_PAST, _TOTAL, _COSINES, _PLACES, _BIAS, _SINK, _NORM = 3, 6, 7, 9, 10, 11, 14
_LOWEST = {"float16": -65504.0}
_LOWEST_WIDE = -3.3e38
"""That any type but float16 has: what does not take part has it, so that no sum is of none."""


@dataclass(frozen=True, slots=True)
class _Heads:
    """Numbers of heads of queries and of keys, and how wide each is."""

    queries: int
    keys: int
    width: int

    def join(self, lines: Lines, name: str, width: int | str) -> str:
        """A tensor of (batch, queries, sequence, width) with the rows of all heads that have the
        same keys as one matrix.

        Args:
            width: a number, or the name of a vector of one.
        """
        return self._regroup(lines, name, self.keys, width)

    def split(self, lines: Lines, name: str, width: int | str) -> str:
        """A tensor that `join` gave as (batch, queries, sequence, width)."""
        return self._regroup(lines, name, self.queries, width)

    def _regroup(self, lines: Lines, name: str, heads: int, width: int | str) -> str:
        if self.queries == self.keys:
            return name
        if isinstance(width, int):
            shape = lines.numbers(f"{name}_shape", [0, heads, -1, width])
        else:
            front = lines.numbers(f"{name}_front", [0, heads, -1])
            shape = lines.set(f"{name}_shape", f"Concat<axis = 0>({front}, {width})")
        return lines.set(f"{name}_grouped", f"Reshape({name}, {shape})")


def _grouped(node: Node) -> str:
    _check(node)
    lines, heads = Lines(), _read_heads(node)
    names = ["query", "key", "value"]
    if not has(node, 1):
        names = ["only_q", "only_k", "only_v"]
        widths = [heads.width * n for n in (heads.queries, heads.keys, heads.keys)]
        sizes = lines.numbers("widths", widths)
        lines.written.append(f"{', '.join(names)} = Split<axis = -1>(query, {sizes})")
    numbers = (heads.queries, heads.keys, heads.keys)
    q, k, v = (heads_of(lines, name, n) for name, n in zip(names, numbers, strict=True))
    if has(node, _NORM):
        q, k = (_normalize(node, lines, name, part) for name, part in (("q", q), ("k", k)))
    _place(lines)
    if read_attribute(node, "do_rotary", 0):
        q, k = (_rotate(node, lines, name, part) for name, part in (("q", q), ("k", k)))
    k, v = (_keep(node, lines, name, part) for name, part in (("k", k), ("v", v)))
    _attend(node, lines, (q, k, v), heads)
    return lines.function(_OPERANDS, ["y", "present_k", "present_v"])


def _read_heads(node: Node) -> _Heads:
    queries, keys = (int(read_attribute(node, name, 0)) for name in ("num_heads", "kv_num_heads"))
    whole = as_int((node.dims(0) or [None])[-1])
    heads = queries if has(node, 1) else queries + 2 * keys
    if whole is None or keys < 1 or queries % keys or whole % heads:
        raise node.refused("its queries are not as wide as its heads, or heads share no keys")
    return _Heads(queries, keys, whole // heads)


def _check(node: Node) -> None:
    """Refuse what is not taken."""
    if read_attribute(node, "sliding_window_cache", 0):
        raise node.refused("its cache is one window: build the model with windowed_kv_cache=false")
    for name in ("qk_output", "kv_cache_bit_width"):
        if read_attribute(node, name, 0):
            raise node.refused(f"it has {name}, which is not supported")
    kinds = {read_attribute(node, f"{name}_quant_type", "NONE") for name in "kv"}
    if kinds - {"NONE", ""} or has(node, 12) or has(node, 13):
        raise node.refused("what is past is quantized")
    if has(node, 16):
        raise node.refused("its queries are padded (query_seqlens)")
    if has(node, 1) != has(node, 2) or has(node, _PAST) != has(node, _PAST + 1):
        raise node.refused("it has keys without values")
    if (total := node.sizes(_TOTAL)) is None:
        raise node.refused("its total_sequence_length does not follow from the shapes of inputs")
    node.require(node.shape(0)[1], total.flat()[0], "has {} rows more than its total length")


def _normalize(node: Node, lines: Lines, name: str, part: str) -> str:
    usual = read_attribute(node, "qk_norm_epsilon", 1e-6)
    epsilon = float(read_attribute(node, f"{name}_norm_epsilon", usual))
    call = f"RMSNormalization<axis = -1, epsilon = {epsilon!r}>({part}, {name}_norm)"
    return lines.set(f"{name}_normal", call)


def _place(lines: Lines) -> None:
    """Bind `ends` and `before`, of (batch), and `places`, of (batch, sequence): which rows of the
    buffer the keys of this call become.

    No place is beyond the total length, which the sizes tell: so keys that no row looks at are
    known before any number is.
    """
    lines.places("rows", "query", 1)
    one = lines.number("one", 1)
    flat = lines.set("flat_last", f"Reshape(last, {lines.numbers('flat', [-1])})")
    total = lines.set("flat_total", f"Reshape(total, {lines.numbers('one_size', [1])})")
    total = lines.set("wide_total", f"Cast<to = 7>({total})")
    most = lines.set("most_before", f"Sub({total}, rows_size)")
    ends = lines.set("ends", f"Add({lines.set('wide_last', f'Cast<to = 7>({flat})')}, {one})")
    apart = lines.set("apart", f"Sub({ends}, rows_size)")
    least = lines.set("least_before", f"Max({apart}, {lines.number('nothing', 0)})")
    lines.set("before", f"Min({least}, {most})")
    column = lines.set("column", f"Unsqueeze(before, {lines.numbers('second', [1])})")
    lines.set("places", f"Add({column}, rows_places)")


def _rotate(node: Node, lines: Lines, name: str, part: str) -> str:
    half = as_int((node.dims(_COSINES) or [None])[-1])
    if half is None:
        raise node.refused("its tables for rotation have no known width")
    places = "given_places" if has(node, _PLACES) else "places"
    interleaved = int(read_attribute(node, "rotary_interleaved", 0))
    said = f"interleaved = {interleaved}, rotary_embedding_dim = {2 * half}"
    return lines.set(
        f"{name}_rotated", f"RotaryEmbedding<{said}>({part}, cosines, sines, {places})"
    )


def _keep(node: Node, lines: Lines, name: str, part: str) -> str:
    """Bind `present_{name}`; gives the name of so much of it as takes part."""
    arithmetic, total, rows = node.arithmetic, node.operand(_TOTAL).sizes, node.shape(0)[1]
    assert total is not None, "it was looked for"
    size = total.flat()[0]
    whole = lines.set(f"{name}_total", f"Reshape(total, {lines.numbers(f'{name}_1', [1])})")
    whole = lines.set(f"{name}_whole", f"Cast<to = 7>({whole})")
    if not has(node, _PAST):
        longer = part if arithmetic.equal(size, rows) else _lengthen(lines, part, whole)
        return lines.set(f"present_{name}", f"Identity({longer})")
    past, operands = node.shape(_PAST)[2], f"past_{name}, {part}, before"
    if not arithmetic.always(past >= size):
        longest = whole
        if not arithmetic.always(size >= past):
            held = lines.set(f"{name}_held", f"Shape<start = 2, end = 3>(past_{name})")
            longest = lines.set(f"{name}_longest", f"Max({held}, {whole})")
        operands += f", {longest}"
    present = lines.set(f"present_{name}", f"TensorScatter({operands})")
    if arithmetic.always(size >= past):
        return present
    first, axis = lines.numbers(f"{name}_first", [0]), lines.numbers(f"{name}_axis", [2])
    return lines.set(f"{name}_used", f"Slice({present}, {first}, {whole}, {axis})")


def _lengthen(lines: Lines, name: str, size: str) -> str:
    """A buffer with rows of zeros after it, where it has less than so many."""
    front, length, width = (
        lines.set(f"{name}_{part}", f"Shape<start = {start}, end = {end}>({name})")
        for part, start, end in (("front", 0, 2), ("length", 2, 3), ("width", 3, 4))
    )
    more = lines.set(f"{name}_more", f"Sub({size}, {length})")
    added = lines.set(f"{name}_added", f"Max({more}, {lines.numbers(f'{name}_0', [0])})")
    shape = lines.set(f"{name}_new_shape", f"Concat<axis = 0>({front}, {added}, {width})")
    zeros = lines.set(f"{name}_zeros", f"Expand({lines.real(f'{name}_z', 0.0, name)}, {shape})")
    return lines.set(f"{name}_longer", f"Concat<axis = 2>({name}, {zeros})")


def _attend(node: Node, lines: Lines, parts: tuple[str, str, str], heads: _Heads) -> None:
    """Bind `y`."""
    q, k, v = parts
    scaled = lines.set("scaled", f"Mul({q}, {key_scale(node, lines, q, k)})")
    turned = lines.set("keys_turned", f"Transpose<perm = [0, 1, 3, 2]>({k})")
    rows = heads.join(lines, scaled, heads.width)
    columns = lines.places("columns", k, 2)
    length = lines.set("key_length", f"Shape<start = 2, end = 3>({k})")
    scores = heads.split(lines, lines.set("scores", f"MatMul({rows}, {turned})"), length)
    if cap := float(read_attribute(node, "softcap", 0.0)):
        most = lines.real("cap", cap, scores)
        bent = lines.set("bent", f"Tanh({lines.set('small', f'Div({scores}, {most})')})")
        scores = lines.set("capped", f"Mul({bent}, {most})")
    if has(node, _BIAS):
        scores = lines.set("shifted", f"Add({scores}, bias)")
    lowest = lines.real("lowest", _LOWEST.get(node.operand(0).dtype, _LOWEST_WIDE), scores)
    scores = lines.set("masked", f"Where({_taking_part(node, lines, columns)}, {scores}, {lowest})")
    shares = heads.join(lines, _share(node, lines, scores), length)
    found = lines.set("found", f"MatMul({shares}, {v})")
    join_heads(lines, heads.split(lines, found, heads.width))


def _taking_part(node: Node, lines: Lines, columns: str) -> str:
    """Which keys take part for which query, of (batch, 1, sequence, total)."""
    if not int(read_attribute(node, "causal", 1)):
        axes = lines.numbers("end_axes", [1, 2, 3])
        return lines.set("part", f"Less({columns}, {_spread(lines, 'ends', axes)})")
    places = _spread(lines, "places", lines.numbers("place_axes", [1, 3]))
    part = lines.set("causal", f"LessOrEqual({columns}, {places})")
    if (window := int(read_attribute(node, "local_window_size", -1))) < 0:
        return part
    first = lines.set("first_seen", f"Sub({places}, {lines.number('window', window)})")
    near = lines.set("near", f"Greater({columns}, {first})")
    return lines.set("part", f"And({part}, {near})")


def _spread(lines: Lines, name: str, axes: str) -> str:
    return lines.set(f"{name}_spread", f"Unsqueeze({name}, {axes})")


def _share(node: Node, lines: Lines, scores: str) -> str:
    """Shares of each key; where there is a sink, they leave it one."""
    if not has(node, _SINK) and int(read_attribute(node, "smooth_softmax", 0)) != 1:
        return lines.set("shares", f"Softmax<axis = -1>({scores})")
    sink = lines.real("even", 0.0, scores)
    if has(node, _SINK):
        sink = lines.set("sinks", f"Unsqueeze(sink, {lines.numbers('sink_axes', [1, 2])})")
    last = lines.numbers("last_axis", [-1])
    high = lines.set("high", f"ReduceMax<keepdims = 1>({scores}, {last})")
    most = lines.set("highest", f"Max({high}, {sink})")
    grown = lines.set("grown", f"Exp({lines.set('below', f'Sub({scores}, {most})')})")
    left = lines.set("left", f"Exp({lines.set('sink_below', f'Sub({sink}, {most})')})")
    total = lines.set("sum_of_keys", f"ReduceSum<keepdims = 1>({grown}, {last})")
    whole = lines.set("sum_of_all", f"Add({total}, {left})")
    return lines.set("shares", f"Div({grown}, {whole})")


GROUPED_ATTENTION: Mapping[str, Write] = MappingProxyType({"GroupQueryAttention": _grouped})
