"""Programs, targets, and both tuners' spaces of them, for tests that compare the two."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from spaces.design_space.declared.spaces import space_of
from spaces.design_space.trace_space import TraceSpace
from spaces.intrinsics.registration import register_intrinsics, stub_intrinsics
from spaces.ir.schedules import (
    InvalidCandidate,
    canonical_payload,
    code_hash,
    new_schedule,
    task_module,
)
from spaces.lowering.extract_tasks import task_of
from spaces.targets.target import parse_target
from tuner.candidate import Candidate, CandidateKind, Draft
from tuner.space.parts import Part
from tuner.task import SpaceSource, Task

SOURCE = SpaceSource("theirs.py", "", "SPACE")
LLVM = '{"kind":"llvm","num-cores":4}'
VNNI = '{"kind":"llvm","mcpu":"cascadelake","mtriple":"x86_64-linux-gnu","num-cores":4}'


def cuda(arch: str) -> str:
    """A GPU."""
    limits = {"max_num_threads": 1024, "max_threads_per_block": 1024, "thread_warp_size": 32}
    memory = {"max_shared_memory_per_block": 49152, "registers_per_block": 65536}
    return json.dumps({"kind": "cuda", "arch": arch, **limits, **memory})


CUDA = cuda("sm_80")
SM_75 = cuda("sm_75")
"""Without copies behind the scenes, of which there are variants of tiles on newer ones."""


def arm(*features: str) -> str:
    """A CPU of Arm."""
    given = {"kind": "llvm", "device": "arm_cpu", "mtriple": "aarch64-linux-gnu", "num-cores": 4}
    return json.dumps({**given, "mattr": list(features)})


def register(*families: str) -> None:
    """Register families of TVM's intrinsics, as programs that name them have to be."""
    stub_intrinsics()
    for family in families:
        if family in ("cuda", "arm_cpu"):
            register_intrinsics(family)
        else:
            importlib.import_module(f"tvm.s_tir.tensor_intrin.{family}")


@cache
def task(program: str, target: str) -> Task:
    """The task of a program of this file, or of TVM's own workloads."""
    stub_intrinsics()
    return task_of(_function(program), target, name=program)


def stock_context(of: Task, generator: Any, seed: int = 7) -> Any:
    """MetaSchedule's own tune context of a task, with a generator initialised for it."""
    stub_intrinsics()
    from tvm.s_tir import meta_schedule as ms

    return ms.TuneContext(
        mod=task_module(of.module),
        target=parse_target(of.target),
        space_generator=generator,
        rand_state=seed,
        num_threads=1,
    )


def stock_sketches(of: Task, generator: Any, seed: int = 7) -> list[Any]:
    """The traces of the schedules that MetaSchedule's own generator gives for a task."""
    return [each.trace for each in stock_context(of, generator, seed).generate_design_space()]


def post_order(
    rules: Sequence[Any], postprocs: Sequence[Any] = (), mutators: dict[Any, float] | None = None
) -> Any:
    """MetaSchedule's own generator of some components."""
    from tvm.s_tir.meta_schedule.space_generator import PostOrderApply

    return PostOrderApply(
        sch_rules=list(rules), postprocs=list(postprocs), mutator_probs=mutators or {}
    )


def our_space(of: Task, part: Part) -> TraceSpace:
    """Our space of a task, as its user declared it."""
    space = space_of(of, part, SOURCE)
    assert isinstance(space, TraceSpace)
    return space


def outline(trace: Any) -> str:
    """What a sketch does, whatever it drew."""
    from tvm.s_tir.schedule import Trace

    return str(Trace(trace.simplified(True).insts, {}))


def outlines(traces: Sequence[Any]) -> list[str]:
    """What sketches do, in an order of their own."""
    return sorted(map(outline, traces))


def kinds(trace: Any) -> set[str]:
    """The kinds of a trace's instructions."""
    return {str(instruction.kind.name) for instruction in trace.insts}


def redrawn(of: Task, sketch: Any, seed: int) -> Any:
    """A schedule of a sketch with decisions drawn as MetaSchedule's search does first; None where
    they do not apply."""
    from tvm.s_tir.schedule import ScheduleError, Trace

    schedule = new_schedule(task_module(of.module), seed)
    try:
        Trace(sketch.insts, {}).apply_to_schedule(schedule, True)
    except ScheduleError:
        return None
    return schedule


def stock_answer(schedule: Any, postprocs: Sequence[Any]) -> str:
    """The hash of what MetaSchedule's post-processors make of a schedule; empty if refused, or if
    one of them raises."""
    schedule.enter_postproc()
    try:
        accepted = all(postproc.apply(schedule) for postproc in postprocs)
    except (RuntimeError, ValueError):
        return ""
    return code_hash(schedule.mod) if accepted else ""


def our_answer(space: TraceSpace, trace: Any) -> str:
    """The hash of what our space makes of the same schedule's trace; empty if refused."""
    candidate = Candidate(CandidateKind.TRACE, canonical_payload(trace), space.name)
    try:
        return code_hash(space.write(candidate).mod)
    except InvalidCandidate:
        return ""


def drawn(
    of: Task, space: TraceSpace, count: int, parent: Candidate | None = None
) -> Iterator[Candidate]:
    """Points of our space, or mutations of a parent."""
    for seed in range(count):
        try:
            yield space.realize_draft(Draft(of.key, seed, 11 * seed + 1, parent)).candidate
        except InvalidCandidate:
            continue


def _function(name: str) -> Any:
    from tvm import te
    from tvm.s_tir.meta_schedule.testing import te_workload

    if name in te_workload.CONFIGS:
        return te_workload.create_te_workload(name, 0)
    if name in _SCRIPTS:
        import tvm
        from tvm.script import ir, tirx

        return tvm.script.from_source(_SCRIPTS[name], {"I": ir, "T": tirx})
    return te.create_prim_func(_PROGRAMS[name]())


def _bytes(size: int = 128) -> list[Any]:
    from tvm import te

    a, b = (te.placeholder((size, size), "int8", name=name) for name in "ab")
    k = te.reduce_axis((0, size), name="k")

    def product(i: Any, j: Any) -> Any:
        return te.sum(a[i, k].astype("int32") * b[j, k].astype("int32"), axis=k)

    return [a, b, te.compute((size, size), product, name="product")]


def _packed(left: str, right: str, out: str, lanes: int, depth: int) -> list[Any]:
    """A product whose right side is laid out as an instruction of dot products wants it."""
    from tvm import te

    a = te.placeholder((64, 64), left, name="a")
    b = te.placeholder((64 // lanes, 64 // depth, lanes, depth), right, name="b")
    k = te.reduce_axis((0, 64), name="k")

    def product(i: Any, j: Any) -> Any:
        packed = b[j // lanes, k // depth, j % lanes, k % depth]
        return te.sum(a[i, k].astype(out) * packed.astype(out), axis=k)

    return [a, b, te.compute((64, 64), product, name="product")]


def _named_rule() -> list[Any]:
    from tvm import te

    x = te.placeholder((64, 64), name="x")
    attrs = {"schedule_rule": "compatibility_rows"}
    return [x, te.compute((64, 64), lambda i, j: x[i, j] * 2.0, name="twice", attrs=attrs)]


def _free_layout(columns: int = 16, index: str = "int32") -> list[Any]:
    """A product whose right side may be laid out in another way."""
    from tvm import te
    from tvm.tirx import IntImm

    m, n = IntImm(index, 16), IntImm(index, columns)
    a, b = te.placeholder((m, m), name="a"), te.placeholder((m, n), name="b")
    k = te.reduce_axis((IntImm(index, 0), m), name="k")

    def product(i: Any, j: Any) -> Any:
        return te.sum(a[i, k] * b[k, j], axis=k)

    attrs = {"layout_free_placeholders": [b]}
    return [a, b, te.compute((m, n), product, name="product", attrs=attrs)]


def _chain() -> list[Any]:
    """Element-wise steps around a sum."""
    from tvm import te, topi

    x = te.placeholder((32, 1024), name="x")
    bias = te.placeholder((1024,), name="bias")
    shifted = topi.add(topi.exp(x), bias)
    return [x, bias, topi.nn.relu(topi.sum(topi.tanh(shifted), axis=1))]


def _scalars() -> list[Any]:
    """A constant that a block of its own computes, as quantised models have them."""
    from tvm import te

    x = te.placeholder((64, 64), "int32", name="x")
    zero = te.compute((), lambda: te.const(7, "int32"), name="zero")
    return [x, te.compute((64, 64), lambda i, j: x[i, j] - zero(), name="minus")]


def _constant() -> list[Any]:
    from tvm import te

    return [te.compute((1,), lambda i: te.const(7, "int32"), name="seven")]


def _elementwise(*shape: int) -> list[Any]:
    from tvm import te

    x = te.placeholder(shape, name="x")
    return [x, te.compute(shape, lambda *i: x(*i) + 1.0, name="plus")]


def _over_rows(operator: str, *shape: int, **more: Any) -> list[Any]:
    from tvm import te, topi

    x = te.placeholder(shape, name="x")
    return [x, getattr(topi, operator)(x, axis=len(shape) - 1, **more)]


def _pool() -> list[Any]:
    """A maximum over windows of an image in blocks of eight by eight."""
    from tvm import te

    x = te.placeholder((1, 2, 4, 4, 8, 8, 32), "uint8", name="x")
    rows, columns = (te.reduce_axis((0, 2), name=name) for name in ("rows", "columns"))

    def largest(b: Any, c: Any, ho: Any, wo: Any, h: Any, w: Any, lane: Any) -> Any:
        high, wide = (ho * 8 + h) * 2 + rows, (wo * 8 + w) * 2 + columns
        read = x[b, c, high // 8, wide // 8, high % 8, wide % 8, lane]
        return te.max(read, axis=[rows, columns])

    return [x, te.compute((1, 2, 2, 2, 8, 8, 32), largest, name="pool")]


def _three_steps() -> list[Any]:
    from tvm import te

    x = te.placeholder((64, 64), name="x")
    first = te.compute((64, 64), lambda i, j: x[i, j] * 2.0, name="first")
    second = te.compute((64, 64), lambda i, j: first[i, j] + 1.0, name="second")
    return [x, te.compute((64, 64), lambda i, j: second[j, i] * 3.0, name="third")]


def _two_steps() -> list[Any]:
    from tvm import te

    x = te.placeholder((16, 32, 64), name="x")
    once = te.compute(x.shape, lambda *i: x(*i) * 2.0, name="once")
    k = te.reduce_axis((0, 64), name="k")
    return [x, te.compute((16, 32), lambda i, j: te.sum(once[i, j, k], axis=k), name="total")]


def _read_twice() -> list[Any]:
    """A product whose left side is read again after it."""
    from tvm import topi
    from tvm.s_tir.meta_schedule.testing import te_workload

    a, b, product = te_workload.matmul(128, 128, 128)
    return [a, b, topi.add(product, a)]


def _te(name: str, *arguments: Any) -> Callable[[], list[Any]]:
    """What makes one of TVM's own workloads."""
    module = "tvm.s_tir.meta_schedule.testing.te_workload"
    return lambda: list(getattr(importlib.import_module(module), name)(*arguments))


_PROGRAMS: dict[str, Callable[[], list[Any]]] = {
    "matmul": _te("matmul", 128, 128, 128),
    "matmul_deep": _te("matmul", 4, 4, 512),
    "matmul_relu": _te("matmul_relu", 128, 128, 128),
    "matmul_relu_half": _te("matmul_relu", 128, 128, 128, "float16", "float32"),
    "matmul_relu_odd": _te("matmul_relu", 127, 127, 127, "float16", "float32"),
    "matmul_half": _te("matmul", 128, 128, 128, "float16", "float16"),
    "conv_half": _te("conv2d_nhwc", 1, 16, 16, 32, 32, 3, 1, 1, 1, 1, "float16", "float32"),
    "conv_1x1_half": _te("conv2d_nhwc", 1, 16, 16, 64, 64, 1, 1, 0, 1, 1, "float16", "float32"),
    "conv_odd_half": _te("conv2d_nhwc", 1, 32, 32, 3, 64, 7, 2, 3, 1, 1, "float16", "float32"),
    "matmul_ragged_depth": _te("matmul", 128, 128, 127, "float16", "float32"),
    "matmul_ragged_rows": _te("matmul", 127, 128, 128, "float16", "float32"),
    "conv_bn_relu": _te("conv2d_nchw_bias_bn_relu", 1, 14, 14, 16, 16, 3, 1, 1, 1),
    "bytes": _bytes,
    "bytes_odd": lambda: _bytes(127),
    "bytes_vnni": lambda: _packed("uint8", "int8", "int32", 16, 4),
    "bytes_i8i8": lambda: _packed("int8", "int8", "int32", 4, 4),
    "bytes_u8u8u32": lambda: _packed("uint8", "uint8", "uint32", 4, 4),
    "bytes_u8u8i32": lambda: _packed("uint8", "uint8", "int32", 4, 4),
    "named_rule": _named_rule,
    "free_layout": _free_layout,
    "free_layout_column": lambda: _free_layout(columns=1),
    "free_layout_int64": lambda: _free_layout(index="int64"),
    "chain": _chain,
    "scalars": _scalars,
    "constant": _constant,
    "elementwise": lambda: _elementwise(512, 512),
    "elementwise_large": lambda: _elementwise(1024, 1024, 4),
    "zero_dimensions": lambda: _elementwise(),
    "total": lambda: _over_rows("sum", 4096),
    "argmax_small": lambda: _over_rows("argmax", 8, 32),
    "argmax": lambda: _over_rows("argmax", 8, 1024),
    "pool": _pool,
    "three_steps": _three_steps,
    "two_steps": _two_steps,
    "read_twice": _read_twice,
    "sum_of_rows": lambda: _over_rows("sum", 1, 64, 768, keepdims=True),
    "softmax": _te("softmax_mn", 256, 256),
    "norm": _te("norm_bmn", 1, 256, 256),
}

_SCRIPTS = {
    "triangle": """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((32, 32), "float32"), y: T.Buffer((32, 32), "float32")):
    for i in range(32):
        for j in range(i):
            with T.sblock("twice"):
                row, column = T.axis.remap("SS", [i, j])
                y[row, column] = x[row, column] * T.float32(2)
""",
    "any_length": """
@T.prim_func(s_tir=True)
def main(x_: T.handle, y_: T.handle):
    n = T.int64()
    x = T.match_buffer(x_, (n,), "float32")
    y = T.match_buffer(y_, (n,), "float32")
    for i in range(n):
        with T.sblock("twice"):
            at = T.axis.spatial(n, i)
            y[at] = x[at] * T.float32(2)
""",
    "same_names": """
@T.prim_func(s_tir=True)
def main(
    x: T.Buffer((16,), "float32"), y: T.Buffer((16,), "float32"), z: T.Buffer((16,), "float32")
):
    for i in range(16):
        with T.sblock("twice"):
            at = T.axis.spatial(16, i)
            y[at] = x[at] * T.float32(2)
    for i in range(16):
        with T.sblock("twice"):
            at = T.axis.spatial(16, i)
            z[at] = y[at] * T.float32(2)
""",
    "no_block": """
@T.prim_func(s_tir=True)
def main(x: T.Buffer((16,), "float32")):
    T.func_attr({"layout_free_buffers": [0]})
    T.evaluate(x[3])
""",
}
"""Programs that expressions of tensors do not give."""
