"""What the virtual machine computes on the host reaches the device; what sorts runs there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, export_library, run_once
from spaces.lowering.host_results import on_device
from spaces.lowering.lower import lower
from spaces.targets.target import resolve_target
from tests.needed import needs_nvcc

pytestmark = pytest.mark.tvm

CUDA = resolve_target('{"kind":"cuda","arch":"sm_80"}')
CPU = '{"kind":"llvm","num-cores":1}'
HOST = 1
"""DLPack's number of CPUs."""
X = np.array([[0, 3, 0, 1], [2, 0, 3, 0]], "float32")

Operator = Callable[[Any], Any]


def relax_op() -> Any:
    from tvm import relax

    return relax.op


ON_HOST: dict[str, Operator] = {
    "nonzero": lambda x: relax_op().nonzero(x),
    "unique": lambda x: relax_op().unique(x),
    "unique with counts": lambda x: relax_op().unique(x, True, True, True, True),
}
ON_DEVICE: dict[str, Operator] = {
    "topk": lambda x: relax_op().topk(x, k=2, axis=-1, ret_type="both"),
    "sort": lambda x: relax_op().sort(x, axis=-1),
    "argsort": lambda x: relax_op().argsort(x, axis=0, dtype="int64"),
    "cumsum": lambda x: relax_op().cumsum(x, axis=-1),
    "cumsum of rows": lambda x: relax_op().cumsum(x, axis=0),
    "cumprod": lambda x: relax_op().cumprod(x, axis=1),
}


def graph(operator: Operator, shape: tuple[Any, ...] = X.shape) -> Any:
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(operator(x))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("name", ON_HOST)
def test_a_result_that_the_host_computes_is_sent_to_the_device(name: str) -> None:
    script = lower(graph(ON_HOST[name]), CUDA).script()
    sent = script.count("vm.builtin.to_device")
    assert script.count("relax.run.") == 1
    assert sent == (4 if "counts" in name else 1)
    assert "to_device" not in lower(graph(ON_HOST[name]), CPU).script()


@pytest.mark.parametrize("name", ON_HOST)
def test_what_is_sent_is_what_was_computed(name: str) -> None:
    """On the device that every machine has."""
    lowered = lower(graph(ON_HOST[name]), CPU)
    want = run_once(compile_module(lowered, CPU), [X])
    got = run_once(compile_module(on_device(lowered, HOST), CPU), [X])
    assert len(got) == len(want) > 0
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)


@needs_nvcc
@pytest.mark.parametrize("name", ON_DEVICE)
def test_what_sorts_and_scans_is_kernels_and_no_call_of_the_host(name: str, tmp_path: Path) -> None:
    """A call of the host's would get addresses that it does not know."""
    executable = compile_module(lower(graph(ON_DEVICE[name]), CUDA), CUDA)
    assert "__global__" in "".join(sources(executable.library.mod))
    export_library(executable, tmp_path / "net.so")
    assert b"tvm.contrib." not in (tmp_path / "net.so").read_bytes()


def test_a_cpu_s_does_call_the_host(tmp_path: Path) -> None:
    """The test above would see it."""
    executable = compile_module(lower(graph(ON_DEVICE["sort"]), CPU), CPU)
    export_library(executable, tmp_path / "net.so")
    assert b"tvm.contrib.sort" in (tmp_path / "net.so").read_bytes()


def sources(library: Any) -> list[str]:
    """The CUDA source of each module of kernels."""
    if library.kind == "cuda":
        return [str(library.inspect_source("cuda"))]
    return [found for part in library.imports for found in sources(part)]
