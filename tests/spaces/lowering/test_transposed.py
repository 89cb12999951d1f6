"""Transposed convolutions compute the same as convolutions, their outputs woven together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spaces.codegen.executable import compile_module, run_once
from spaces.ir import tvm_compat
from spaces.lowering.layouts.transposed import Phases, without_transposed
from spaces.lowering.lower import lower

long = pytest.mark.long
LLVM = '{"kind":"llvm","num-cores":1}'


@given(
    st.builds(
        Phases,
        kernel=st.integers(1, 7),
        stride=st.integers(1, 4),
        before=st.integers(0, 6),
        after=st.integers(-3, 6),
    ),
    st.integers(1, 6),
)
def test_woven_phases_are_the_transposed_convolution(phases: Phases, size: int) -> None:
    assume(min(phases.padding) >= 0)
    kept = (size - 1) * phases.stride + phases.kernel - phases.before - phases.after
    assume(kept > 0)
    weights = np.random.default_rng(0).integers(1, 9, phases.kernel)
    inputs = np.arange(1, size + 1)
    expected = np.zeros(kept, int)
    for i, k in np.ndindex(size, phases.kernel):
        if 0 <= (o := i * phases.stride + k - phases.before) < kept:
            expected[o] += inputs[i] * weights[k]
    padded = np.pad(inputs, phases.padding)
    columns = [
        [weights[k] if (k := phases.tap(phase, place)) is not None else 0
         for place in range(phases.taps)]
        for phase in range(phases.stride)
    ]  # fmt: skip
    woven = [
        int(padded[q : q + phases.taps] @ np.array(column))
        for q in range(len(padded) - phases.taps + 1)
        for column in columns
    ]
    assert woven[phases.first : len(woven) - phases.beyond] == expected.tolist()


def transposed(rank: int, *, sizes: Any = (5, 6, 3), kernel: int = 4, **settings: Any) -> Any:
    """A module with one transposed convolution of constant weights and something added to it."""
    from tvm import relax

    groups = settings.get("groups", 1)
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((8, 6 // groups, *[kernel] * rank)).astype("float32")
    bias = rng.standard_normal((6, *[1] * rank)).astype("float32")
    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 8, *sizes[:rank]), "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            made = getattr(relax.op.nn, f"conv{rank}d_transpose")(
                x, relax.const(weight), **settings
            )
            out = b.emit_output(relax.op.nn.relu(b.emit(b.emit(made) + relax.const(bias))))
        b.emit_func_output(out)
    return b.get()


def operators(module: Any) -> set[str]:
    """Names of the operators of a module's graph."""
    from tvm.relax.analysis import post_order_visit

    found: set[str] = set()
    post_order_visit(module["main"], lambda e: found.add(tvm_compat.operator_name(e)))
    return found


def plain(module: Any) -> Any:
    """The module compiled as it is."""
    from tvm import relax
    from tvm.target import Target

    with Target({"kind": "llvm", "num-cores": 1}):
        return compile_module(relax.transform.LegalizeOps()(module), LLVM)


@pytest.mark.tvm
@pytest.mark.parametrize(
    ("rank", "settings"),
    [
        (1, {"strides": 2, "padding": 1}),
        (1, {"strides": 1}),
        pytest.param(2, {"strides": (2, 2), "padding": (1, 1)}, marks=long),
        (2, {"strides": (2, 2), "kernel": 2}),
        (2, {"strides": (3, 2), "padding": (1, 0, 2, 1), "output_padding": (1, 1), "groups": 2}),
        (2, {"strides": (1, 1), "padding": (1, 2, 0, 1), "kernel": 3}),
        pytest.param(
            2,
            {"strides": (2, 2), "padding": (1, 1), "output_padding": (1, 1), "kernel": 3},
            marks=long,
        ),
        pytest.param(2, {"strides": (3, 3), "kernel": 4}, marks=long),
        pytest.param(2, {"strides": (3, 2), "kernel": 2}, marks=long),
        (2, {"strides": (2, 2), "padding": (3, 0), "kernel": 5}),
        (3, {"strides": (2, 2, 2), "padding": (1, 1, 1), "kernel": 3}),
    ],
    ids=str,
)
def test_a_network_computes_the_same_as_before(rank: int, settings: dict[str, Any]) -> None:
    module = transposed(rank, **settings)
    changed = without_transposed(module)
    assert f"relax.nn.conv{rank}d_transpose" not in operators(changed)
    x = np.random.default_rng(2).standard_normal((2, 8, *(5, 6, 3)[:rank])).astype("float32")
    (expected,) = run_once(plain(module), [x])
    (got,) = run_once(compile_module(lower(module, LLVM), LLVM), [x])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.tvm
@pytest.mark.parametrize(("kernel", "convolutions"), [(2, 1), (3, 4), (4, 1), (5, 4), (6, 1)])
def test_no_products_with_zeros_are_made_but_a_few(kernel: int, convolutions: int) -> None:
    changed = without_transposed(transposed(2, strides=(2, 2), padding=(1, 1), kernel=kernel))
    assert changed.script().count("R.nn.conv2d(") == convolutions


@pytest.mark.tvm
def test_sizes_may_be_open() -> None:
    from tvm import tirx

    h, w = tirx.Var("h", "int64"), tirx.Var("w", "int64")
    settings = {"strides": (2, 2), "padding": (1, 1), "kernel": 3, "output_padding": (1, 0)}
    executable = compile_module(lower(transposed(2, sizes=(h, w), **settings), LLVM), LLVM)
    for sizes in ((1, 1), (5, 2), (7, 9)):
        x = np.random.default_rng(3).standard_normal((2, 8, *sizes)).astype("float32")
        (expected,) = run_once(plain(transposed(2, sizes=sizes, **settings)), [x])
        (got,) = run_once(executable, [x])
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.tvm
def test_a_dilated_one_stays() -> None:
    module = transposed(2, dilation=(2, 2))
    assert "relax.nn.conv2d_transpose" in operators(without_transposed(module))
