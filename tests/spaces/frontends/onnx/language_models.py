"""Small language models as onnxruntime's model builder writes them, with drawn weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from spaces.frontends.onnx.contributed.cache_widths import find_cache_widths

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a model is.

    Attributes:
        words: of the vocabulary.
        width: of a row; `inner` of one within a layer, and `head` of a head.
        heads: of queries; `shared` of keys.
        places: of the tables for rotation.
    """

    words: int = 64
    width: int = 64
    heads: int = 4
    shared: int = 2
    head: int = 16
    inner: int = 128
    places: int = 64


SMALL = Sizes()


def llama(
    layers: int = 2,
    *,
    norms: bool = False,
    dtype: str = "float32",
    seed: int = 0,
    sizes: Sizes = SMALL,
) -> Any:
    """A model with a cache: ids, a mask over past and present, and past keys and values.

    Args:
        norms: whether queries and keys are normalised by heads, as in Qwen3.
    """
    width, inner, head = sizes.width, sizes.inner, sizes.head
    rng = np.random.default_rng(seed)
    weights: dict[str, Array] = {}

    def drawn(name: str, *shape: int) -> str:
        scale = 1.0 if len(shape) == 1 else shape[0] ** -0.5
        weights[name] = (scale * rng.standard_normal(shape)).astype(dtype)
        return name

    lines = [
        "marked = ReduceSum<keepdims = 0>(mask, one) counted = Cast<to = 6>(marked)",
        "last = Sub(counted, single) shape = Shape(mask) columns = Gather<axis = 0>(shape, place)",
        f"total = Cast<to = 6>(columns) x0 = Gather({drawn('words', sizes.words, width)}, ids)",
        f"n0 = SimplifiedLayerNormalization<axis = -1>(x0, {drawn('norm0', width)})",
    ]
    skip = "com.microsoft.SkipSimplifiedLayerNormalization"
    for n in range(layers):
        for part, heads in (("q", sizes.heads), ("k", sizes.shared), ("v", sizes.shared)):
            matrix = drawn(f"w{part}{n}", width, heads * head)
            lines.append(f"{part}{n} = MatMul(n{2 * n}, {matrix})")
            if norms and part != "v":
                by = drawn(f"norm_{part}{n}", head)
                lines.append(
                    f"{part}a{n} = Reshape({part}{n}, heads) {part}b{n} = "
                    f"SimplifiedLayerNormalization<axis = -1>({part}a{n}, {by}) "
                    f"{part}{n}n = Reshape({part}b{n}, {'whole_' + part})"
                )
        names = [f"{p}{n}{'n' if norms and p != 'v' else ''}" for p in "qkv"]
        said = f"num_heads = {sizes.heads}, kv_num_heads = {sizes.shared}, do_rotary = 1"
        lines += [
            f"a{n}, present_k{n}, present_v{n} = com.microsoft.GroupQueryAttention<{said}>("
            f"{', '.join(names)}, past_k{n}, past_v{n}, last, total, cosines, sines)",
            f"o{n} = MatMul(a{n}, {drawn(f'wo{n}', sizes.heads * head, width)})",
            f"n{2 * n + 1}, , , x{2 * n + 1} = {skip}(x{2 * n}, o{n}, "
            f"{drawn(f'norm_a{n}', width)})",
            f"gate{n} = MatMul(n{2 * n + 1}, {drawn(f'wg{n}', width, inner)})",
            f"up{n} = MatMul(n{2 * n + 1}, {drawn(f'wu{n}', width, inner)})",
            f"sig{n} = Sigmoid(gate{n}) act{n} = Mul(gate{n}, sig{n}) mix{n} = Mul(act{n}, up{n})",
            f"down{n} = MatMul(mix{n}, {drawn(f'wd{n}', inner, width)})",
            f"n{2 * n + 2}, , , x{2 * n + 2} = {skip}(x{2 * n + 1}, down{n}, "
            f"{drawn(f'norm_b{n}', width)})",
        ]
    lines.append(f"logits = MatMul(n{2 * layers}, {drawn('head', width, sizes.words)})")
    cache = [f"past_{p}{n}" for n in range(layers) for p in "kv"]
    kind = {"float32": "float", "float16": "float16"}[dtype]
    given = ["int64[b,s] ids", "int64[b,t] mask"]
    given += [f"{kind}[b,{sizes.shared},p,{head}] {name}" for name in cache]
    made = [f"{kind}[b,s,{sizes.words}] logits"]
    made += [
        f"{kind}[b,{sizes.shared},t,{head}] {name.replace('past', 'present')}" for name in cache
    ]
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> g ({", ".join(given)}) => '
        f"({', '.join(made)}) {{ {' '.join(lines)} }}"
    )
    angles = np.arange(sizes.places)[:, None] / 10000.0 ** (np.arange(head // 2) / (head // 2))
    weights |= {"cosines": np.cos(angles).astype(dtype), "sines": np.sin(angles).astype(dtype)}
    numbers = {
        "one": np.array([1]), "place": np.array(1), "single": np.array(1, "int32"),
        "heads": np.array([0, 0, -1, head]), "whole_q": np.array([0, 0, sizes.heads * head]),
        "whole_k": np.array([0, 0, sizes.shared * head]),
    }  # fmt: skip
    tensors = (onnx.numpy_helper.from_array(a, n) for n, a in {**weights, **numbers}.items())
    proto.graph.initializer.extend(tensors)
    for number, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}_{number}"
    return proto


def step(proto: Any, rows: int, past: int, batch: int = 1, seed: int = 1) -> dict[str, Array]:
    """What a model is fed at so many new rows after so many: ids, a mask, and caches."""
    rng = np.random.default_rng(seed)
    words = proto.graph.output[0].type.tensor_type.shape.dim[2].dim_value
    ids, mask, *caches = proto.graph.input
    found: dict[str, Array] = {
        ids.name: rng.integers(0, words, (batch, rows)),
        mask.name: np.ones((batch, past + rows), "int64"),
    }
    widths = find_cache_widths(proto.graph)
    for value in caches:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        dims = value.type.tensor_type.shape.dim
        known = (batch, 0, past, widths.get(dims[-1].dim_param, 0))
        shape = [dim.dim_value or size for dim, size in zip(dims, known, strict=False)]
        found[value.name] = rng.standard_normal(shape).astype(dtype)
    return found
