"""Weights of convolutions that only meet padding are left out, and nothing else changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spaces.codegen.executable import compile_module, run_once
from spaces.ir import tvm_compat
from spaces.lowering.idle_taps import Window, without_idle_taps
from spaces.lowering.lower import lower

LLVM = '{"kind":"llvm","num-cores":1}'
WINDOWS = st.builds(
    Window,
    size=st.integers(1, 12),
    kernel=st.integers(1, 7),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 9),
    before=st.integers(0, 14),
    after=st.integers(0, 14),
)


def computed(window: Window, weights: np.ndarray) -> list[float]:
    """What a convolution gives of 1, 2, 3 ..., by its definition."""
    inputs = {i: i + 1.0 for i in range(window.size)}
    return [
        sum(
            weights[tap] * inputs.get(o * window.stride - window.before + tap * window.dilation, 0)
            for tap in range(window.kernel)
        )
        for o in range(window.outputs)
    ]


@given(WINDOWS)
def test_a_narrowed_window_computes_the_same(window: Window) -> None:
    assume(window.outputs > 0)
    weights = np.random.default_rng(0).integers(1, 9, window.kernel).astype(float)
    first, last = window.busy()
    kept = window.narrowed()
    assert kept.outputs == window.outputs
    assert computed(kept, weights[first : last + 1]) == computed(window, weights)


@given(WINDOWS)
def test_no_more_than_what_is_reached_and_what_crops_is_kept(window: Window) -> None:
    assume(window.outputs > 0 and any(map(window.reaches, range(window.kernel))))
    kept = window.narrowed()
    assert kept.kernel <= window.kernel
    assert kept.reaches(0) or kept.before < kept.dilation
    assert kept.reaches(kept.kernel - 1) or kept.after < kept.dilation


def convolution(rank: int, **settings: Any) -> Any:
    """A module with one convolution of constant weights, 3 to each dimension of a map."""
    from tvm import relax

    name = f"conv{rank}d"
    weight = np.random.default_rng(1).standard_normal((8, 4, *[3] * rank)).astype("float32")
    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 8, *(5, 6, 7)[:rank]), "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            made = getattr(relax.op.nn, name)(x, relax.const(weight), groups=2, **settings)
            out = b.emit_output(b.emit(made))
        b.emit_func_output(out)
    return b.get()


def kernels(module: Any) -> list[list[int | str] | None]:
    """The spatial shapes of a module's weights."""
    found = []

    def look(expression: Any) -> None:
        if tvm_compat.operator_name(expression).startswith("relax.nn.conv"):
            found.append((tvm_compat.param_shape(expression.args[1]) or [])[2:])

    from tvm.relax.analysis import post_order_visit

    post_order_visit(module["main"], look)
    return found


@pytest.mark.tvm
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_convolution_as_dilated_as_its_map_becomes_one_weight(rank: int) -> None:
    module = convolution(rank, padding=9, dilation=9)
    assert kernels(without_idle_taps(module)) == [[1] * rank]
    x = np.random.default_rng(2).standard_normal((2, 8, *(5, 6, 7)[:rank])).astype("float32")
    (expected,) = run_once(plain(module), [x])
    (got,) = run_once(compile_module(lower(module, LLVM), LLVM), [x])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.tvm
def test_strides_and_uneven_padding_are_kept_to() -> None:
    settings = {"padding": (12, 0, 2, 2), "dilation": (5, 1), "strides": (2, 3)}
    module = convolution(2, **settings)
    assert kernels(without_idle_taps(module)) == [[2, 3]]
    x = np.random.default_rng(3).standard_normal((2, 8, 5, 6)).astype("float32")
    (expected,) = run_once(plain(module), [x])
    (got,) = run_once(compile_module(lower(module, LLVM), LLVM), [x])
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.tvm
def test_a_convolution_whose_weights_all_meet_the_map_stays() -> None:
    module = convolution(2, padding=2, dilation=2)
    assert kernels(without_idle_taps(module)) == [[3, 3]]


def plain(module: Any) -> Any:
    """The module compiled as it is."""
    from tvm import relax
    from tvm.target import Target

    with Target({"kind": "llvm", "num-cores": 1}):
        return compile_module(relax.transform.LegalizeOps()(module), LLVM)
