"""What is no number passes through operators that pick one of two, on each kind of target."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from spaces.ir.element_types import numpy_dtype

pytestmark = pytest.mark.tvm

X = [np.nan, 1.0, -2.0, np.inf, -np.inf, 7.0, 3.0, 0.0]
Z = [1.0, np.nan, 3.0, -2.0, np.nan, 0.0, 3.0, 5.0]


def graph(dtype: str) -> Any:
    from tvm import relax

    builder = relax.BlockBuilder()
    x, z = (relax.Var(name, relax.TensorType([8], dtype)) for name in "xz")
    found = [
        relax.op.nn.relu(x),
        relax.op.clip(x, -1, 2),
        relax.op.maximum(x, z),
        relax.op.minimum(x, z),
        relax.op.maximum(x, relax.const(2, dtype)),
        relax.op.minimum(relax.const(2, dtype), x),
    ]
    with builder.function("main", [x, z]):
        with builder.dataflow():
            made = builder.emit_output(relax.Tuple([builder.emit(one) for one in found]))
        builder.emit_func_output(made)
    return builder.get()


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("named", [True, False], ids=["of LLVM", "of any target"])
def test_no_number_is_lost(dtype: str, named: bool) -> None:
    import tvm
    from tvm import relax

    from spaces.ir.nan_kept import legalizations

    target = tvm.target.Target("llvm")
    with target if named else contextlib.nullcontext():
        module = relax.transform.LegalizeOps(legalizations())(graph(dtype))
    machine = relax.VirtualMachine(tvm.compile(module, target=target), tvm.cpu())
    x, z = (np.array(numbers).astype(numpy_dtype(dtype)) for numbers in (X, Z))
    found = machine["main"](*map(tvm.runtime.tensor, (x, z)))
    a, b = x.astype("float32"), z.astype("float32")
    wanted = [np.maximum(a, 0), np.clip(a, -1, 2), np.maximum(a, b), np.minimum(a, b)]
    wanted += [np.maximum(a, 2), np.minimum(a, 2)]
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got.numpy().astype("float32"), want)


def test_a_relu_stays_one_instruction_on_a_cpu() -> None:
    import tvm
    from tvm import relax

    from spaces.ir.nan_kept import legalizations

    with tvm.target.Target("llvm"):
        module = relax.transform.LegalizeOps(legalizations())(graph("float32"))
    assert "T.max(T.float32(0.0), x[v_i0])" in str(module["relu"].script())
