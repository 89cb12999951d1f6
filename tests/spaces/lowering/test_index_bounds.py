"""Indices that are out of range read and write no foreign memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, compile_plainly, run_once
from spaces.lowering.index_bounds import bound_indices
from spaces.lowering.lower import lower
from tests.spaces.frontends.onnx.beside_onnxruntime import lowered, parsed

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
FAR = 10**12
TABLE = np.arange(6, dtype="float32").reshape(2, 3)


def gather(mode: str) -> Any:
    from tvm import relax

    table = relax.const(np.arange(12, dtype="float32").reshape(4, 3))
    b = relax.BlockBuilder()
    ids = relax.Var("ids", relax.TensorType((5,), "int64"))
    with b.function("main", [ids]):
        with b.dataflow():
            out = b.emit_output(relax.op.take(table, ids, axis=0, mode=mode))
        b.emit_func_output(out)
    return b.get()


def test_an_index_out_of_range_reads_no_foreign_memory(capfd: pytest.CaptureFixture[str]) -> None:
    executable = compile_module(lower(gather("fast"), LLVM), LLVM)
    (got,) = run_once(executable, [np.array([0, 3, 2, 10**12, -(10**12)])])
    assert got[:, 0].tolist() == [0, 9, 6, 9, 0]
    assert capfd.readouterr().err == ""


def test_a_gather_that_checks_its_indices_is_left_alone() -> None:
    from tvm_ffi import structural_equal

    module = gather("nan")
    assert structural_equal(bound_indices(module), module)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("call", "indices", "wanted"),
    [
        ("GatherElements(x, i)", [[FAR, 0, -FAR]], [[3, 1, 2]]),
        ("GatherND(x, i)", [[FAR, 1], [0, -FAR]], [4, 0]),
        ("ScatterElements(x, i, u)", [[FAR, -1, -FAR]], [[0, 1, -3], [-1, -2, 5]]),
        ("ScatterND(x, i, u)", [[FAR, FAR], [-FAR, 0]], [[-2, 1, 2], [3, 4, -1]]),
    ],
)
@pytest.mark.parametrize("rows", ["2", "n"])
def test_places_out_of_range_are_those_at_the_end(
    call: str, indices: Any, wanted: Any, rows: str
) -> None:
    places, given = np.array(indices), f"float[{rows},3] x, int64[{np.shape(indices)[0]}, "
    fed = [TABLE, places]
    given += f"{np.shape(indices)[1]}] i"
    if "u)" in call:
        shape = places.shape if "Elements" in call else places.shape[:1]
        fed.append(-np.arange(1, 1 + np.prod(shape), dtype="float32").reshape(shape))
        given += f", float[{','.join(map(str, shape))}] u"
    proto = parsed(
        f'<ir_version: 8, opset_import: ["": 16]> g ({given}) => (float y) {{ y = {call} }}'
    )
    (got,) = run_once(compile_plainly(lowered(proto), LLVM), fed)
    np.testing.assert_array_equal(got, np.array(wanted, "float32"))
