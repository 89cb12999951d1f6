"""Constant weights packed ahead: in a kernel that is timed, and in a whole model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.check.reference import reference
from spaces.codegen.artifact import build_artifact, load_kernel
from spaces.codegen.executable import compile_module, run_once
from spaces.codegen.prepack import Packing, pack_weights, split
from spaces.deploy.apply import apply_best
from spaces.deploy.database import export_database
from spaces.design_space.realize import realize
from spaces.ir import tvm_compat
from spaces.ir.schedules import canonical_payload, new_schedule, task_module
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.targets.target import parse_target
from tuner.candidate import Candidate, CandidateKind
from tuner.task import Task

pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'
M, K, N, PANEL = 6, 50, 70, 32


def random(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def graph(shape: tuple[int, ...], compute: Callable[[Any, Any], Any]) -> Any:
    """A graph of one input; `compute` emits operators."""
    from tvm import relax

    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with b.function("main", [x]):
        with b.dataflow():
            out = b.emit_output(compute(b, x))
        b.emit_func_output(out)
    return b.get()


def dense() -> Any:
    from tvm import relax

    def compute(b: Any, x: Any) -> Any:
        product = b.emit(relax.op.matmul(x, relax.const(random(K, N))))
        return relax.op.nn.relu(b.emit(relax.op.add(product, relax.const(random(N)))))

    return graph((M, K), compute)


def panels(task: Task, block: str = "matmul", *operands: int) -> Candidate:
    """A schedule by hand: operands, by default the weight, in zero-padded panels of 32."""
    schedule = new_schedule(task_module(task.module))
    compute = schedule.get_sblock(block)
    for operand in operands or (1,):
        packed = schedule.cache_read(compute, operand, "global")
        schedule.annotate(packed, tvm_compat.PREPROC, True)
        schedule.transform_layout(
            compute,
            ("read", operand),
            lambda *axes: (axes[-1] // PANEL, *axes[:-1], axes[-1] % PANEL),
            pad_value=0.0,
        )
    return Candidate(CandidateKind.TRACE, canonical_payload(schedule.trace), "default")


def one_task(module: Any) -> tuple[Any, Task]:
    lowered = lower(module, LLVM)
    (task,) = extract(lowered, LLVM)
    return lowered, task


def executed(lowered: Any) -> str:
    """What a compiled graph does when it runs, as text."""
    return str(lowered["main"].script())


def test_the_lowering_says_which_operands_are_constants() -> None:
    lowered, task = one_task(dense())
    assert list(tvm_compat.attribute(lowered[task.name], tvm_compat.LAYOUT_FREE)) == [1, 2]
    assert task.name == "fused_matmul_add_relu"


def test_a_program_called_with_and_without_constants_becomes_two() -> None:
    from tvm import relax

    weight = random(8, 8)

    def compute(b: Any, x: Any) -> Any:
        first = b.emit(relax.op.matmul(x, relax.const(weight)))
        second = b.emit(relax.op.matmul(first, x))
        return relax.op.matmul(second, relax.const(weight))

    lowered = lower(graph((8, 8), compute), LLVM)
    free = {
        n: tvm_compat.attribute(f, tvm_compat.LAYOUT_FREE)
        for n, f in tvm_compat.prim_funcs(lowered)
    }
    assert {n: f and list(f) for n, f in free.items()} == {"matmul": [1], "matmul1": None}
    assert [t.weight for t in extract(lowered, LLVM)] == [2, 1]
    x = random(8, 8)
    (got,) = run_once(compile_module(lowered, LLVM), [x])
    np.testing.assert_allclose(got, x @ weight @ x @ weight, rtol=1e-4, atol=1e-3)


def test_programs_for_a_gpu_are_not_marked() -> None:
    lowered = lower(dense(), '{"kind":"cuda","arch":"sm_80"}')
    ((_, program),) = tvm_compat.prim_funcs(lowered)
    assert tvm_compat.attribute(program, tvm_compat.LAYOUT_FREE) is None


def test_an_artifact_packs_apart_from_what_is_timed() -> None:
    import tvm

    _, task = one_task(dense())
    module = realize(task, panels(task)).mod
    kernel = load_kernel(build_artifact(module, LLVM))
    assert kernel.packing is not None
    assert kernel.packing.sources == (1,)
    (packed,) = kernel.packing.packed
    assert (packed.position, packed.shape, packed.dtype) == (1, (3, K, PANEL), "float32")
    known, *_ = reference(task_module(task.module), task.key).cases
    tensors = [tvm.runtime.tensor(known.fresh(i)) for i in range(len(known.arguments))]
    arguments = kernel.arguments(tensors, tvm.cpu())
    want = np.zeros((3, K, PANEL), "float32")
    weight = known.fresh(1)
    for panel in range(3):
        part = weight[:, panel * PANEL : (panel + 1) * PANEL]
        want[panel, :, : part.shape[1]] = part
    np.testing.assert_array_equal(arguments[1].numpy(), want)
    kernel.module["main"](*arguments)
    assert known.wrong(3, tensors[3].numpy()) is None


def test_the_packing_is_no_part_of_the_computation() -> None:
    _, task = one_task(dense())
    parts = split(realize(task, panels(task)).mod)
    assert parts is not None
    assert tvm_compat.PREPROC not in parts.module["main"].script()
    assert "if_then_else" not in parts.module["main"].script()
    assert Packing.from_json(parts.packing.to_json()) == parts.packing


def test_several_operands_are_packed_at_once() -> None:
    import tvm
    from tvm import relax

    def compute(b: Any, x: Any) -> Any:
        product = b.emit(relax.op.matmul(x, relax.const(random(K, N))))
        return relax.op.add(product, relax.const(random(M, N)))

    lowered, task = one_task(graph((M, K), compute))
    schedule = new_schedule(task_module(task.module))
    for block in ("T_add", "matmul"):
        consumer = schedule.get_sblock(block)
        packed = schedule.cache_read(consumer, 1, "global")
        schedule.annotate(packed, tvm_compat.PREPROC, True)
        schedule.transform_layout(
            consumer, ("read", 1), lambda i, j: (j // PANEL, i, j % PANEL), pad_value=0.0
        )
    candidate = Candidate(CandidateKind.TRACE, canonical_payload(schedule.trace), "default")
    kernel = load_kernel(build_artifact(realize(task, candidate).mod, LLVM))
    assert kernel.packing is not None
    assert sorted(p.position for p in kernel.packing.packed) == [1, 2]
    known, *_ = reference(task_module(task.module), task.key).cases
    tensors = [tvm.runtime.tensor(known.fresh(i)) for i in range(len(known.arguments))]
    kernel.module["main"](*kernel.arguments(tensors, tvm.cpu()))
    assert known.wrong(3, tensors[3].numpy()) is None
    tuned = pack_weights(apply_best({task.key: candidate}, LLVM)(lowered))
    assert [n for n, _ in tvm_compat.prim_funcs(tuned)] == [f"{task.name}_prepacked"]


def test_a_schedule_that_packs_nothing_is_built_as_it_is() -> None:
    _, task = one_task(dense())
    untouched = Candidate(CandidateKind.TRACE, "[[],[]]", "default")
    kernel = load_kernel(build_artifact(realize(task, untouched).mod, LLVM))
    assert kernel.packing is None
    assert kernel.arguments([1, 2], None) == [1, 2]


def test_what_is_no_constant_cannot_be_packed_ahead() -> None:
    lowered, task = one_task(dense())
    candidate = panels(task, "matmul", 0)
    with pytest.raises(ValueError, match="x is packed ahead but is no constant"):
        build_artifact(realize(task, candidate).mod, LLVM)
    with pytest.raises(ValueError, match="no constant"):
        pack_weights(apply_best({task.key: candidate}, LLVM)(lowered))


def test_a_model_is_compiled_with_its_weights_packed() -> None:
    lowered, task = one_task(dense())
    tuned = apply_best({task.key: panels(task)}, LLVM)(lowered)
    packed = pack_weights(tuned)
    assert [n for n, _ in tvm_compat.prim_funcs(packed)] == [f"{task.name}_prepacked"]
    assert executed(packed).count("call_tir") == 1
    x = random(M, K)
    (expected,) = run_once(compile_module(lowered, LLVM), [x])
    (got,) = run_once(compile_module(tuned, LLVM), [x])
    np.testing.assert_array_equal(got, expected)


def test_weights_of_calls_to_one_program_are_packed_each() -> None:
    from tvm import relax

    weights = [random(64, 64), 2 * random(64, 64)]

    def compute(b: Any, x: Any) -> Any:
        for weight in weights:
            x = b.emit(relax.op.nn.relu(b.emit(relax.op.matmul(x, relax.const(weight)))))
        return relax.op.nn.softmax(x)

    lowered = lower(graph((M, 64), compute), LLVM)
    task = next(t for t in extract(lowered, LLVM) if "matmul" in t.name)
    tuned = apply_best({task.key: panels(task)}, LLVM)(lowered)
    packed = pack_weights(tuned)
    assert [n for n, _ in tvm_compat.prim_funcs(packed)] == [f"{task.name}_prepacked", "softmax"]
    x = random(M, 64)
    (expected,) = run_once(compile_module(lowered, LLVM), [x])
    (got,) = run_once(compile_module(tuned, LLVM), [x])
    np.testing.assert_array_equal(got, expected)


def test_a_convolutions_weight_is_packed() -> None:
    from tvm import relax

    def compute(b: Any, x: Any) -> Any:
        return relax.op.nn.conv2d(
            x,
            relax.const(random(3, 3, 5, 40)),
            padding=(1, 1),
            data_layout="NHWC",
            kernel_layout="HWIO",
        )

    lowered, task = one_task(graph((1, 8, 8, 5), compute))
    tuned = apply_best({task.key: panels(task, "conv2d_nhwc")}, LLVM)(lowered)
    assert [n for n, _ in tvm_compat.prim_funcs(pack_weights(tuned))] == [f"{task.name}_prepacked"]
    x = random(1, 8, 8, 5)
    (expected,) = run_once(compile_module(lowered, LLVM), [x])
    (got,) = run_once(compile_module(tuned, LLVM), [x])
    np.testing.assert_array_equal(got, expected)


def test_a_graph_without_packing_and_bare_programs_stay_as_they_are() -> None:
    from tvm.ir import IRModule
    from tvm_ffi import structural_equal

    lowered, task = one_task(dense())
    assert pack_weights(lowered) is lowered
    bare = IRModule({task.name: lowered[task.name]})
    assert structural_equal(pack_weights(bare), bare)


def test_stock_passes_apply_a_database_and_pack_its_weights(tmp_path: Path) -> None:
    from tvm import relax
    from tvm.ir.transform import Sequential

    lowered, task = one_task(dense())
    export_database(tmp_path, [(task, panels(task), [0.001])], lowered=lowered)
    with parse_target(LLVM):
        stock = Sequential(
            [
                relax.transform.MetaScheduleApplyDatabase(str(tmp_path)),
                relax.transform.SplitLayoutRewritePreproc(),
                relax.transform.FoldConstant(),
                relax.transform.DeadCodeElimination(),
            ]
        )
        packed = stock(lowered)
    assert [n for n, _ in tvm_compat.prim_funcs(packed)] == [f"{task.name}_prepacked"]
    x = random(M, K)
    (expected,) = run_once(compile_module(lowered, LLVM), [x])
    (got,) = run_once(compile_module(packed, LLVM), [x])
    np.testing.assert_array_equal(got, expected)
