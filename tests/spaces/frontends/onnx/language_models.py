"""Small language models as onnxruntime's model builder writes them, with drawn weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

WORDS, WIDTH, HEADS, SHARED, HEAD, INNER, MOST = 64, 64, 4, 2, 16, 128, 64
"""Sizes: of the vocabulary, of a row, how many heads there are of queries and of keys, how wide a
head and a row within a layer are, and how many places the tables for rotation have."""
Array = npt.NDArray[Any]


def llama(layers: int = 2, *, norms: bool = False, dtype: str = "float32", seed: int = 0) -> Any:
    """A model with a cache: ids, a mask over past and present, and past keys and values.

    Args:
        norms: whether queries and keys are normalised by heads, as in Qwen3.
    """
    rng = np.random.default_rng(seed)
    weights: dict[str, Array] = {}

    def drawn(name: str, *shape: int) -> str:
        scale = 1.0 if len(shape) == 1 else shape[0] ** -0.5
        weights[name] = (scale * rng.standard_normal(shape)).astype(dtype)
        return name

    lines = [
        "marked = ReduceSum<keepdims = 0>(mask, one) counted = Cast<to = 6>(marked)",
        "last = Sub(counted, single) shape = Shape(mask) columns = Gather<axis = 0>(shape, place)",
        f"total = Cast<to = 6>(columns) x0 = Gather({drawn('words', WORDS, WIDTH)}, ids)",
        f"n0 = SimplifiedLayerNormalization<axis = -1>(x0, {drawn('norm0', WIDTH)})",
    ]
    skip = "com.microsoft.SkipSimplifiedLayerNormalization"
    for n in range(layers):
        for part, heads in (("q", HEADS), ("k", SHARED), ("v", SHARED)):
            matrix = drawn(f"w{part}{n}", WIDTH, heads * HEAD)
            lines.append(f"{part}{n} = MatMul(n{2 * n}, {matrix})")
            if norms and part != "v":
                by = drawn(f"norm_{part}{n}", HEAD)
                lines.append(
                    f"{part}a{n} = Reshape({part}{n}, heads) {part}b{n} = "
                    f"SimplifiedLayerNormalization<axis = -1>({part}a{n}, {by}) "
                    f"{part}{n}n = Reshape({part}b{n}, {'whole_' + part})"
                )
        names = [f"{p}{n}{'n' if norms and p != 'v' else ''}" for p in "qkv"]
        said = f"num_heads = {HEADS}, kv_num_heads = {SHARED}, do_rotary = 1"
        lines += [
            f"a{n}, present_k{n}, present_v{n} = com.microsoft.GroupQueryAttention<{said}>("
            f"{', '.join(names)}, past_k{n}, past_v{n}, last, total, cosines, sines)",
            f"o{n} = MatMul(a{n}, {drawn(f'wo{n}', HEADS * HEAD, WIDTH)})",
            f"n{2 * n + 1}, , , x{2 * n + 1} = {skip}(x{2 * n}, o{n}, "
            f"{drawn(f'norm_a{n}', WIDTH)})",
            f"gate{n} = MatMul(n{2 * n + 1}, {drawn(f'wg{n}', WIDTH, INNER)})",
            f"up{n} = MatMul(n{2 * n + 1}, {drawn(f'wu{n}', WIDTH, INNER)})",
            f"sig{n} = Sigmoid(gate{n}) act{n} = Mul(gate{n}, sig{n}) mix{n} = Mul(act{n}, up{n})",
            f"down{n} = MatMul(mix{n}, {drawn(f'wd{n}', INNER, WIDTH)})",
            f"n{2 * n + 2}, , , x{2 * n + 2} = {skip}(x{2 * n + 1}, down{n}, "
            f"{drawn(f'norm_b{n}', WIDTH)})",
        ]
    lines.append(f"logits = MatMul(n{2 * layers}, {drawn('head', WIDTH, WORDS)})")
    cache = [f"past_{p}{n}" for n in range(layers) for p in "kv"]
    kind = {"float32": "float", "float16": "float16"}[dtype]
    given = ["int64[b,s] ids", "int64[b,t] mask"]
    given += [f"{kind}[b,{SHARED},p,{HEAD}] {name}" for name in cache]
    made = [f"{kind}[b,s,{WORDS}] logits"]
    made += [f"{kind}[b,{SHARED},t,{HEAD}] {name.replace('past', 'present')}" for name in cache]
    proto = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> g ({", ".join(given)}) => '
        f"({', '.join(made)}) {{ {' '.join(lines)} }}"
    )
    angles = np.arange(MOST)[:, None] / 10000.0 ** (np.arange(HEAD // 2) / (HEAD // 2))
    weights |= {"cosines": np.cos(angles).astype(dtype), "sines": np.sin(angles).astype(dtype)}
    numbers = {
        "one": np.array([1]), "place": np.array(1), "single": np.array(1, "int32"),
        "heads": np.array([0, 0, -1, HEAD]), "whole_q": np.array([0, 0, HEADS * HEAD]),
        "whole_k": np.array([0, 0, SHARED * HEAD]),
    }  # fmt: skip
    tensors = (onnx.numpy_helper.from_array(a, n) for n, a in {**weights, **numbers}.items())
    proto.graph.initializer.extend(tensors)
    for number, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}_{number}"
    return proto


def step(proto: Any, rows: int, past: int, batch: int = 1, seed: int = 1) -> dict[str, Array]:
    """What a model is fed at so many new rows after so many."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {
        "ids": rng.integers(0, WORDS, (batch, rows)),
        "mask": np.ones((batch, past + rows), "int64"),
    }
    for value in proto.graph.input[2:]:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        found[value.name] = rng.standard_normal((batch, SHARED, past, HEAD)).astype(dtype)
    return found
