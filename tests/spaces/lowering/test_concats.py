"""Concatenations put off: the same numbers, fewer copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.tvm

MAP = (1, 8, 10, 10)


def graph(build: Any) -> Any:
    """A module whose graph joins two maps and hands the join on."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x, y = (relax.Var(n, relax.TensorType(MAP, "float32")) for n in ("x", "y"))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            joined = builder.emit(relax.op.concat([x, y], axis=1))
            result = builder.emit_output(build(builder, joined))
        builder.emit_func_output(result)
    return builder.get()


def weights(outputs: int, inputs: int = 16, size: int = 1) -> Any:
    from tvm import relax

    rng = np.random.default_rng(0)
    return relax.const(rng.standard_normal((outputs, inputs, size, size)).astype("float32"))


def convolution(outputs: int, **attributes: Any) -> Any:
    def build(builder: Any, joined: Any) -> Any:
        from tvm.relax.op import nn

        inputs = 16 // attributes.get("groups", 1)
        return builder.emit(nn.conv2d(joined, weights(outputs, inputs), **attributes))

    return build


def pooled_convolution(builder: Any, joined: Any) -> Any:
    from tvm.relax.op import nn

    pooled = builder.emit(nn.max_pool2d(joined, (2, 2), (2, 2)))
    active = builder.emit(nn.relu(pooled))
    return builder.emit(nn.conv2d(active, weights(4, size=3), padding=1))


def pool(builder: Any, joined: Any) -> Any:
    from tvm.relax.op import nn

    return builder.emit(nn.avg_pool2d(joined, (2, 2), (2, 2)))


def used_twice(builder: Any, joined: Any) -> Any:
    from tvm.relax import op

    small = builder.emit(op.nn.conv2d(joined, weights(16)))
    return builder.emit(op.add(small, joined))


def names_in(module: Any) -> list[str]:
    from spaces.ir import tvm_compat
    from spaces.lowering.relax_rewrite import straight_bindings

    bindings = straight_bindings(module["main"]) or []
    found = [tvm_compat.operator_name(b.value).removeprefix("relax.") for b in bindings]
    return [name for name in found if name]


def outputs(module: Any) -> Any:
    from spaces.codegen.executable import compile_module, run_once
    from spaces.lowering.lower import _programs
    from spaces.targets.target import resolve_target

    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(MAP).astype("float32") for _ in range(2)]
    return run_once(
        compile_module(_programs(module, {}, packs_weights=True), resolve_target("llvm")), inputs
    )[0]


@pytest.mark.parametrize(
    ("build", "left"),
    [
        (convolution(4), ["nn.conv2d", "nn.conv2d", "add"]),
        (
            pooled_convolution,
            ["nn.max_pool2d"] * 2 + ["nn.relu"] * 2 + ["nn.conv2d", "nn.conv2d", "add"],
        ),
    ],
)
def test_a_convolution_of_a_join_needs_no_copy(build: Any, left: list[str]) -> None:
    from spaces.lowering.concats import put_off_concats

    module = graph(build)
    rewritten = put_off_concats(module)
    assert names_in(rewritten) == left
    np.testing.assert_allclose(outputs(rewritten), outputs(module), rtol=1e-5, atol=1e-5)


def test_a_pool_comes_before_the_join() -> None:
    from spaces.lowering.concats import put_off_concats

    module = graph(pool)
    rewritten = put_off_concats(module)
    assert names_in(rewritten) == ["nn.avg_pool2d", "nn.avg_pool2d", "concat"]
    np.testing.assert_allclose(outputs(rewritten), outputs(module), rtol=1e-6)


@pytest.mark.parametrize(
    "build",
    [convolution(64), convolution(4, groups=2), used_twice],
    ids=["results larger than the join", "groups", "the whole is needed"],
)
def test_other_joins_stay(build: Any) -> None:
    from spaces.lowering.concats import put_off_concats

    module = graph(build)
    assert names_in(put_off_concats(module)) == names_in(module)
