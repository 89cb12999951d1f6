"""Products and convolutions in halves: what is rounded, what is not, and what comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.frontends.memory_model import model_in_memory
from spaces.ir import tvm_compat
from spaces.ir.element_types import numpy_dtype
from spaces.precision.convert import in_precision
from tests.spaces.precision.typed_models import (
    INNER,
    WIDTH,
    Array,
    calls,
    constants,
    dense,
    images,
    imported,
    normal,
    outputs,
    parsed,
)
from tuner.errors import TunerError
from tuner.precision import Precision
from tuner.request.model_spec import ModelSpec

pytestmark = pytest.mark.tvm

BF16, F16, F32 = (Precision(name, name) for name in ("bf16", "f16", "f32"))
HALVES = pytest.mark.parametrize(
    ("precision", "dtype"), [(BF16, "bfloat16"), (F16, "float16")], ids=["bf16", "f16"]
)


def rounded(array: Array, dtype: str) -> Array:
    return array.astype(numpy_dtype(dtype)).astype("float32")


@HALVES
def test_operands_are_rounded_and_nothing_else(precision: Precision, dtype: str) -> None:
    x = normal(6, WIDTH, seed=1)
    (got,) = outputs(imported(dense()), x, precision=precision)
    hidden = np.maximum(rounded(x, dtype) @ rounded(normal(WIDTH, INNER), dtype), 0)
    sums = rounded(hidden, dtype) @ rounded(normal(INNER, 40), dtype) + normal(40)
    powers = np.exp(sums - sums.max(1, keepdims=True))
    np.testing.assert_allclose(got, powers / powers.sum(1, keepdims=True), rtol=2e-5)
    assert got.dtype == np.float32


@HALVES
def test_a_lowered_model_holds_its_weights_in_halves(precision: Precision, dtype: str) -> None:
    found = constants(imported(dense()), precision)
    assert {str(array.dtype) for array in found} == {dtype}
    wanted = [normal(WIDTH, INNER), normal(INNER, 40)]
    assert sum(a.nbytes for a in found) * 2 == sum(a.nbytes for a in wanted)
    bits = sorted(a.view("uint16").tobytes() for a in found)
    assert bits == sorted(a.astype(numpy_dtype(dtype)).view("uint16").tobytes() for a in wanted)


@HALVES
def test_a_batch_norm_is_folded_before_weights_are_rounded(
    precision: Precision, dtype: str
) -> None:
    model = imported(images())
    whole, halves = constants(model, None), constants(model, precision)
    assert len(calls(model, precision, "nn.conv2d")) == 2
    assert not calls(model, precision, "nn.batch_norm")
    for wide in whole:
        assert any(
            half.shape == wide.shape and (half == wide.astype(numpy_dtype(dtype))).all()
            for half in halves
        )
    x = normal(1, 3, 8, 8)
    (want,), (got,) = outputs(model, x), outputs(model, x, precision=precision)
    assert 0 < np.abs(got - want).max() < 0.02 * np.abs(want).max()


@pytest.mark.parametrize("make", [dense, images])
def test_each_tensor_is_rounded_once_and_never_widened(make: Any) -> None:
    model = imported(make())
    casts = calls(model, BF16, "astype")
    products = calls(model, BF16, "matmul") + calls(model, BF16, "nn.conv2d")
    assert len(casts) == len(products) == (2 if make is dense else 3)
    assert {str(tvm_compat.param_dtype(cast)) for cast in casts} == {"bfloat16"}
    assert {str(tvm_compat.param_dtype(product)) for product in products} == {"float32"}


def test_what_several_products_read_is_rounded_once() -> None:
    proto = parsed(
        f"heads (float[4, {WIDTH}] x) => (float[4, 8] y) {{"
        " q = MatMul(x, a)  k = MatMul(x, b)  y = Add(q, k) }",
        a=normal(WIDTH, 8),
        b=normal(WIDTH, 8, seed=2),
    )
    assert len(calls(imported(proto), F16, "astype")) == 1


def test_a_weight_that_halves_cannot_hold_stays_whole() -> None:
    large = normal(WIDTH, 8) * np.float32(1e6)
    proto = parsed(
        f"large (float[4, {WIDTH}] x) => (float[4, 8] y) {{ y = MatMul(x, w) }}", w=large
    )
    model, x = imported(proto), normal(4, WIDTH)
    assert np.array_equal(outputs(model, x, precision=F16)[0], outputs(model, x)[0])
    (found,) = constants(model, BF16)
    assert str(found.dtype) == "bfloat16"


def test_a_model_of_halves_can_multiply_in_float32() -> None:
    weight = normal(WIDTH, 8).astype("float16")
    proto = parsed(
        f"half (float16[4, {WIDTH}] x) => (float16[4, 8] y) {{ y = MatMul(x, w) }}", w=weight
    )
    model = imported(proto)
    (found,) = constants(model, F32)
    assert found.dtype == np.float32
    (product,) = calls(model, F32, "matmul")
    assert [tvm_compat.param_dtype(o) for o in product.args] == ["float32", "float32"]
    x = normal(4, WIDTH).astype("float16")
    (got,) = outputs(model, x, precision=F32)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, x.astype("float32") @ weight.astype("float32"), rtol=1e-3)


@HALVES
def test_open_rows_stay_open(precision: Precision, dtype: str) -> None:
    model = imported(dense("N"), {"N": (1, 3, 9)})
    typed = in_precision(model, precision)
    assert typed.shapes == model.shapes
    for rows in (1, 3, 9):
        x = normal(rows, WIDTH, seed=rows)
        closed = imported(dense(str(rows)))
        np.testing.assert_allclose(
            outputs(model, x, precision=precision)[0],
            outputs(closed, x, precision=precision)[0],
            rtol=1e-5,
        )


def test_a_network_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 36, 12),
        torch.nn.LayerNorm(12),
    ).eval()
    x = torch.randn(2, 3, 6, 6)
    model = model_in_memory(network, ModelSpec("net"), (x,))
    found = constants(model, BF16)
    assert {str(array.dtype) for array in found} == {"bfloat16"}
    linear = network[3].weight.detach()
    bits = linear.to(torch.bfloat16).view(torch.int16).numpy()
    assert any(
        a.size == bits.size
        and (bits.tobytes() in (a.view("int16").tobytes(), a.T.copy().view("int16").tobytes()))
        for a in found
    )
    with torch.no_grad():
        want = network(x).numpy()
    (got,) = outputs(model, x.numpy(), precision=BF16)
    assert 0 < np.linalg.norm(got - want) < 0.02 * np.linalg.norm(want)


def test_programs_without_a_graph_are_refused() -> None:
    from examples.gemm import gemm

    model = model_in_memory(gemm(m=4, n=4, k=4), ModelSpec("gemm"))
    with pytest.raises(TunerError, match=r"^--precision: .* holds tensor programs alone"):
        in_precision(model, BF16)
