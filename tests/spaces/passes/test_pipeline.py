"""The passes that programs are compiled with have a version, which says when code may change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spaces.ir import tvm_compat
from spaces.ir.schedules import new_schedule
from spaces.passes import cpu_passes
from spaces.passes.padded_weights import PADDED_AHEAD
from spaces.passes.pipeline import ahead_of_tvm, keeps_on_stack, tir_pipeline
from spaces.passes.stack_alloc import on_stack
from spaces.passes.toolchain import toolchain_fingerprint
from spaces.targets.target import parse_target

pytestmark = pytest.mark.tvm

CPU = '{"kind":"llvm","mcpu":"skylake-avx512","num-cores":2}'
GOLDEN = Path(__file__).parents[2] / "golden" / "cpu-passes.json"


def product(rows: Any) -> Any:
    from tvm import te, topi

    a, b = te.placeholder((rows, 48), name="A"), te.placeholder((48, 70), name="B")
    return te.create_prim_func(
        [a, b, topi.nn.relu(topi.matmul(a, b))], index_dtype_override="int64"
    )


def one_tensor(make: Any) -> Any:
    from tvm import te

    x = te.placeholder((40, 70), name="x")
    return te.create_prim_func([x, make(x)], index_dtype_override="int64")


def softmax() -> Any:
    from tvm import topi

    return one_tensor(topi.nn.softmax)


def gelu() -> Any:
    from tvm import te, tirx

    def curve(x: Any) -> Any:
        def at(i: Any, j: Any) -> Any:
            return x[i, j] * 0.5 * (1 + tirx.erf(x[i, j] * 0.70710678))

        return te.compute(x.shape, at, name="gelu")

    return one_tensor(curve)


def open_product() -> Any:
    from tvm import tirx

    return product(tirx.Var("T", "int64"))


def convolution() -> Any:
    from tvm import te, topi

    x, w = te.placeholder((1, 7, 7, 32), name="x"), te.placeholder((3, 3, 32, 48), name="w")
    y = topi.nn.conv2d_nhwc(x, w, 1, 1, 1)
    return te.create_prim_func([x, w, y], index_dtype_override="int64")


def fives() -> Any:
    from tvm import te, tirx

    made = te.compute((4,), lambda i: tirx.const(5.0, "float32"), name="fives")
    return te.create_prim_func([made]).without_attr(tvm_compat.NO_ALIAS)


def padded_weight() -> Any:
    from tvm import te, tirx

    x = te.placeholder((48, 40), name="x")
    none = tirx.const(0.0, "float32")
    made = te.compute(
        (48, 40),
        lambda i, j: tirx.if_then_else(i < 37, x[i, j] * 2.0, none),
        name="made",
        attrs={PADDED_AHEAD: 1},
    )
    return te.create_prim_func([x, made], index_dtype_override="int64")


def bytes_as_floats() -> Any:
    from tvm import te

    x = te.placeholder((40, 70), "float8_e4m3fn", name="x")
    real = te.compute(x.shape, lambda *at: x[at].astype("float32"), name="real")
    return te.create_prim_func([x, real], index_dtype_override="int64")


def codes() -> Any:
    from tvm import te

    from spaces.lowering.weights.codes import take_code

    x = te.placeholder((2, 128), "uint8", name="x")

    def element(k: Any, n: Any) -> Any:
        byte = x[k // 8, n * 4 + k % 8 // 2].astype("int32")
        return take_code(byte, "int32", k % 2, 4).astype("float32") - 8.0

    made = te.compute((16, 32), element, name="made")
    return te.create_prim_func([x, made], index_dtype_override="int64")


def sums_of(factors: str, summed: str) -> Any:
    from tvm import te

    a, b = te.placeholder((37, 48), factors, name="A"), te.placeholder((48, 70), factors, name="B")
    step = te.reduce_axis((0, 48), name="k")

    def element(i: Any, j: Any) -> Any:
        return te.sum(a[i, step].astype(summed) * b[step, j].astype(summed), step)

    made = te.compute((37, 70), element, name="C")
    return te.create_prim_func([a, b, made], index_dtype_override="int64")


def gate() -> Any:
    from tvm import te, tirx

    x = te.placeholder((40, 70), "bfloat16", name="x")

    def element(*at: Any) -> Any:
        real = x[at].astype("float32")
        return (real * tirx.sigmoid(real)).astype("bfloat16")

    return te.create_prim_func([x, te.compute(x.shape, element)], index_dtype_override="int64")


def bytes_of_floats() -> Any:
    from spaces.lowering.linear.steps import round_steps

    def make(x: Any) -> Any:
        from tvm import te

        return te.compute(
            x.shape, lambda *at: round_steps(x[at] / 0.3, None, "uint8"), name="whole"
        )

    return one_tensor(make)


PROGRAMS = {
    "softmax": softmax,
    "gelu": gelu,
    "product": lambda: product(37),
    "open_product": open_product,
    "convolution": convolution,
    "fives": fives,
    "padded_weight": padded_weight,
    "bytes_as_floats": bytes_as_floats,
    "halves": lambda: sums_of("bfloat16", "float32"),
    "bytes": lambda: sums_of("int8", "int32"),
    "gate": gate,
    "codes": codes,
    "bytes_of_floats": bytes_of_floats,
}


def scheduled(name: str) -> Any:
    """A program with a schedule that some search of long ago found for it."""
    from tvm.ir import IRModule
    from tvm.s_tir.schedule import Trace

    function = PROGRAMS[name]().with_attr(tvm_compat.GLOBAL_SYMBOL, "main")
    schedule = new_schedule(IRModule({"main": function}))
    trace = json.loads(GOLDEN.read_text())["traces"].get(name, [[], []])
    Trace.apply_json_to_schedule(trace, schedule)
    return schedule.mod["main"]


def test_other_passes_are_another_version() -> None:
    """Where this fails, code is compiled to something else than before: raise `VERSION`, and add
    what is found to the file. Entries of older versions stay."""
    found = {
        "passes": [*(change.__name__ for change in cpu_passes.CPU_PASSES), on_stack.__name__],
        "code": {name: tvm_compat.structural_hash_hex(prepared(name)) for name in PROGRAMS},
    }
    known = json.loads(GOLDEN.read_text())["versions"]
    assert known[str(cpu_passes.VERSION)] == found, json.dumps(found)
    assert max(map(int, known)) == cpu_passes.VERSION
    assert found not in [known[version] for version in known if int(version) < cpu_passes.VERSION]


def prepared(name: str) -> Any:
    from tvm.ir import IRModule

    return cpu_passes.before_compile(IRModule({"main": scheduled(name)}))


def test_each_pass_changes_one_of_those_programs() -> None:
    idle = {change.__name__ for change in cpu_passes.CPU_PASSES}
    for name in PROGRAMS:
        function = scheduled(name)
        for change in cpu_passes.CPU_PASSES:
            changed = change(function)
            if tvm_compat.structural_hash_hex(changed) != tvm_compat.structural_hash_hex(function):
                idle.discard(change.__name__)
            function = changed
    assert not idle


def test_tvm_knows_the_passes_of_a_cpu_by_name() -> None:
    from tvm.tirx import get_tir_pipeline

    target = parse_target(CPU)
    assert tir_pipeline(target) == tir_pipeline(CPU) != "default"
    assert len(get_tir_pipeline(tir_pipeline(target))) == 3


CUDA = '{"arch":"sm_80","kind":"cuda","max_num_threads":1024}'


def test_tvm_knows_those_of_a_cuda_device_by_name_and_they_change_no_program_before() -> None:
    from tvm.ir import IRModule
    from tvm.tirx import get_tir_pipeline

    assert tir_pipeline(CUDA) == tir_pipeline(parse_target(CUDA)) == tir_pipeline("cuda")
    assert tir_pipeline(CUDA) not in ("default", tir_pipeline(CPU))
    assert len(get_tir_pipeline(tir_pipeline(CUDA))) == 3
    module = IRModule({"main": product(64)})
    assert ahead_of_tvm(module, CUDA) is module
    assert not keeps_on_stack(CUDA)


def test_their_version_is_part_of_the_toolchain() -> None:
    assert f"passes={cpu_passes.VERSION}" in toolchain_fingerprint().split()
