"""Shapes that only a run knows: their operators stay as they are, and the rest is tuned."""

from __future__ import annotations

import numpy as np
import pytest

from spaces.lowering.extract_tasks import extract
from tests.spaces.frontends.onnx.beside_onnxruntime import (
    TARGET,
    by_onnxruntime,
    compare,
    parsed,
    run_scheduled,
)

pytestmark = pytest.mark.tvm

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
RNG = np.random.default_rng(0)
NONZERO = """g (float[8,16] x) => (int64[2,n] i, float[m] z, float[8,8] y) {
    a = Relu(x)
    i = NonZero(a)
    places = Transpose<perm = [1, 0]>(i)
    z = GatherND(a, places)
    t = Transpose<perm = [1, 0]>(a)
    y = MatMul(a, t) }"""
SUPPRESSION = """g (float[8,16] x, float[1,32,4] boxes, float[1,2,32] scores)
    => (int64[n,3] i, float[8,8] y) {
    most = Constant<value = int64[1] {5}>()
    overlap = Constant<value = float[1] {0.5}>()
    least = Constant<value = float[1] {0.1}>()
    i = NonMaxSuppression(boxes, scores, most, overlap, least)
    t = Transpose<perm = [1, 0]>(x)
    y = MatMul(x, t) }"""


@pytest.mark.parametrize("graph", [NONZERO, SUPPRESSION], ids=["NonZero", "NonMaxSuppression"])
def test_what_depends_on_values_is_right_beside_tuned_programs(graph: str) -> None:
    proto = parsed(f"{HEAD} {graph}")
    fed = {"x": RNG.standard_normal((8, 16)).astype("float32")}
    if graph is SUPPRESSION:
        fed["boxes"] = np.sort(RNG.random((1, 32, 4)).astype("float32"), -1)
        fed["scores"] = RNG.random((1, 2, 32)).astype("float32")
    module = compare(proto, fed)
    assert any("matmul" in task.name for task in extract(module, TARGET))
    for found, wanted in zip(
        run_scheduled(module, fed, 1), by_onnxruntime(proto, fed), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
