"""Kernel sets in a module: one library that computes every shape, weights packed once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import compile_module, export_library, run_once
from spaces.deploy.apply import apply_best
from spaces.deploy.apply_kernel_sets import apply_sets
from spaces.design_space.knob_space import KnobSpace
from spaces.frontends.inputs import make_inputs
from spaces.frontends.model import Model, load_model
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.targets.target import resolve_target
from spaces.templates.contraction.match import match_contraction
from spaces.templates.contraction.template import contraction_templates
from tests.contracts.programs import write_down
from tuner.candidate import Candidate, CandidateKind, specialise_for
from tuner.dynamic.dispatch_tree import Leaf, Split, Tree, pick
from tuner.dynamic.kernel_set import KernelSet, ShapeTimes
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec
from tuner.task import Task

pytestmark = pytest.mark.tvm

CPU = resolve_target("llvm", cores=2)
EXAMPLES = Path(__file__).parents[3] / "examples"
ROWS = (1, 2, 13, 31, 40, 41, 64, 65, 127, 300)
"""Primes, about the tree's bounds and the tiles, in the domain and beyond."""


_SIZES: tuple[dict[str, int], ...] = (
    {"rows": 1},
    {"rows": 4, "row_block": 2},
    {"rows": 8, "row_block": 2, "columns_first": 1},
)


def chosen(kernels: list[Candidate], tree: Tree) -> KernelSet:
    return KernelSet(tuple(kernels), tree, (1.0,), 1.0, (), None, 0)


def with_copies(found: KernelSet, dim: str, *sizes: int) -> KernelSet:
    """The set, and for each size a copy of its kernel that serves nothing else."""
    times = []
    for size in sizes:
        shape, number = ((dim, size),), pick(found.tree, {dim: size})
        copy = specialise_for(found.kernels[number], shape)
        times.append(ShapeTimes(shape, 1.0, number, 1e-6, 1e-6, True, copy=copy))
    return replace(found, shapes=tuple(times))


def kernels(task: Task, **shared: int) -> list[Candidate]:
    """Three kernels, for small, middling and large shapes."""
    (template, *_) = contraction_templates(task, match_contraction(task))
    space = KnobSpace(task, template)
    first = {name: values[0] for name, values in template.choices.items()}
    alike = {**first, "lanes": 8, "vectors": 1, "unroll": 4, "pack_columns": 1, **shared}
    return [write_down(space, {**alike, **own}).candidate for own in _SIZES]


def three(dim: str, low: int, high: int) -> Tree:
    return Split(dim, low, Leaf(0), Split(dim, high, Leaf(1), Leaf(2)))


def only_task(model: Model) -> tuple[Any, Task]:
    lowered = lower(model.module, CPU)
    (task,) = extract(lowered, CPU, shapes=model.shapes)
    return lowered, task


def function_model(source: str, dims: tuple[Any, ...], **args: int) -> Model:
    return load_model(ModelSpec(f"{EXAMPLES}/{source}", args=tuple(args.items()), dims=dims))


GEMM = (("M", (4, 40, 64)),)


def gemm() -> Model:
    return function_model("gemm.py:gemm", GEMM, n=72, k=40)


def dense() -> Model:
    return function_model("dense.py:dense", (("T", (1, 3, 8)),), features=40)


@pytest.mark.parametrize("copies", [(), (1, 13, 65)], ids=["kernels", "copies"])
def test_a_library_of_one_program_computes_every_shape(
    copies: tuple[int, ...], tmp_path: Path
) -> None:
    import tvm

    lowered, task = only_task(gemm())
    kernel_set = with_copies(chosen(kernels(task), three("M", 40, 64)), "M", *copies)
    applied = apply_best({}, CPU, {task.key: (task, kernel_set)})(lowered)
    export_library(compile_module(applied, CPU), tmp_path / "gemm.so")
    library = tvm.runtime.load_module(str(tmp_path / "gemm.so"))
    rng = np.random.default_rng(0)
    b = rng.standard_normal((40, 72)).astype("float32")
    for rows in ROWS:
        a = rng.standard_normal((rows, 40)).astype("float32")
        whole = np.full(rows * 72 + 128, -7.25, "float32")  # red zones before and behind
        start = (-whole.ctypes.data // 4) % 16 + 16
        view = whole[start : start + rows * 72].reshape(rows, 72)
        view[:] = np.nan
        library["gemm"](*map(tvm.runtime.tensor, (a, b)), tvm.runtime.from_dlpack(view))
        np.testing.assert_allclose(view, a @ b, rtol=1e-4, atol=1e-4, err_msg=str(rows))
        zones = np.concatenate([whole[:start], whole[start + rows * 72 :]])
        assert (zones == -7.25).all(), rows


def test_a_shape_of_no_rows_writes_nothing() -> None:
    lowered, task = only_task(gemm())
    applied = apply_sets(lowered, {"gemm": (task, chosen(kernels(task), Leaf(0)))})
    arrays = [np.ones(shape, "float32") for shape in ((0, 40), (40, 72), (0, 72))]
    outputs = run_once(compile_module(applied, CPU), arrays)
    assert [o.shape for o in outputs] == [(0, 40), (40, 72), (0, 72)]


def test_a_sum_over_nothing_is_zero() -> None:
    """What is written then is no kernel's business, but written it must be."""
    from tvm import te, tirx
    from tvm.ir import IRModule

    k = tirx.Var("K", "int64")
    n, zero = tirx.const(24, "int64"), tirx.const(0, "int64")
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, n), name="B")
    step = te.reduce_axis((zero, k), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, step] * b[step, j], step), name="C")
    lowered = lower(IRModule({"product": te.create_prim_func([a, b, c])}), CPU)
    shapes = tuple(((("K", size),), 1.0) for size in (4, 16, 48))
    (task,) = extract(lowered, CPU, shapes=shapes)
    kernel_set = chosen(kernels(task), three("K", 4, 16))
    executable = compile_module(apply_sets(lowered, {"product": (task, kernel_set)}), CPU)
    rng = np.random.default_rng(0)
    for depth in (0, 1, 4, 5, 17, 101):
        left, right = (rng.standard_normal(s).astype("float32") for s in ((24, depth), (depth, 24)))
        got = run_once(executable, [left, right, np.full((24, 24), np.nan, "float32")])[2]
        np.testing.assert_allclose(got, left @ right, rtol=1e-4, atol=1e-4, err_msg=str(depth))


def dense_output(x: Any) -> Any:
    """What two layers of 40 features compute, from the same program of known shape."""
    model = function_model("dense.py:dense", (), features=40, batch=len(x))
    (want,) = run_once(compile_module(lower(model.module, CPU), CPU), [x])
    return want


def dense_sets(model: Model, **shared: int) -> tuple[Any, dict[str, Any]]:
    lowered = lower(model.module, CPU)
    tasks = extract(lowered, CPU, shapes=model.shapes)
    assert all([name for name, _ in t.shapes[0][0]] == ["T_x16"] for t in tasks)
    return lowered, {
        t.key: (t, chosen(kernels(t, **shared), three("T_x16", 40, 64))) for t in tasks
    }


@pytest.mark.parametrize(
    "shared",
    [{"pack_columns": 1}, {"pack_columns": 0}, {"vectors": 6, "unroll": 9}, {"partition": 1}],
    ids=["packed", "as-they-are", "padded", "rest-of-its-own"],
)
def test_a_graph_computes_every_number_of_rows(shared: dict[str, int], tmp_path: Path) -> None:
    import tvm
    from tvm import relax

    model = dense()
    lowered, sets = dense_sets(model, **shared)
    sets = {key: (task, with_copies(found, "T_x16", 16)) for key, (task, found) in sets.items()}
    export_library(compile_module(apply_best({}, CPU, sets)(lowered), CPU), tmp_path / "net.so")
    library = tvm.runtime.load_module(str(tmp_path / "net.so"))
    machine = relax.VirtualMachine(library, tvm.cpu())
    (largest,) = make_inputs([model.inputs[0].at({"T": 19})])
    want = dense_output(largest)
    for rows in (0, *ROWS):
        got = machine["main"](tvm.runtime.tensor(largest[:rows])).numpy()
        np.testing.assert_allclose(got, want[:rows], rtol=1e-4, atol=1e-4, err_msg=str(rows))


def test_weights_are_packed_when_the_module_is_made() -> None:
    lowered, sets = dense_sets(dense())
    applied = apply_best({}, CPU, sets)(lowered)
    assert "prepack" not in applied.script()
    kernels_of = [n for n, _ in tvm_compat.prim_funcs(applied) if "_kernel" in n]
    assert len(kernels_of) == 3 * len(sets)
    for _, function in tvm_compat.prim_funcs(applied):
        assert not [
            b for b in tvm_compat.sblocks(function) if b.annotations.get(tvm_compat.PREPROC)
        ]


def test_the_module_that_was_given_stays_as_it_was() -> None:
    from tvm_ffi import structural_hash

    lowered, sets = dense_sets(dense())
    before = structural_hash(lowered)
    apply_best({}, CPU, sets)(lowered)
    assert structural_hash(lowered) == before


def test_kernels_are_part_of_their_program_and_nothing_is_tuned_again() -> None:
    lowered, task = only_task(gemm())
    kernel_set = chosen(kernels(task), three("M", 40, 64))
    applied = apply_best({}, CPU, {task.key: (task, kernel_set)})(lowered)
    parts = {
        name: tvm_compat.attribute(function, tvm_compat.PART_OF)
        for name, function in tvm_compat.prim_funcs(applied)
    }
    kernel_names = {f"gemm_kernel{n}": "gemm" for n in range(3)}
    assert parts == {"gemm": None, "gemm_empty": "gemm", **kernel_names}
    with pytest.raises(TunerError, match="nothing to tune"):
        extract(applied, CPU, shapes=task.shapes)
    assert compile_module(applied, CPU).programs == (("gemm", 3),)


def test_copies_are_part_of_their_program_too_and_share_its_weights() -> None:
    lowered, sets = dense_sets(dense())
    sets = {key: (task, with_copies(found, "T_x16", 16)) for key, (task, found) in sets.items()}
    applied = apply_best({}, CPU, sets)(lowered)
    copies = [f for n, f in tvm_compat.prim_funcs(applied) if n.endswith("_copy0")]
    assert len(copies) == len(sets)
    assert all(tvm_compat.attribute(f, tvm_compat.PART_OF) for f in copies)
    assert "prepack" not in applied.script()


def test_kernels_that_pack_in_different_ways_are_refused() -> None:
    model = dense()
    lowered = lower(model.module, CPU)
    (task, *_) = extract(lowered, CPU, shapes=model.shapes)
    narrow, wide, plain = (
        kernels(task, **how)[0] for how in ({}, {"vectors": 2}, {"pack_columns": 0})
    )
    for pair in ([narrow, wide], [narrow, plain], [plain, narrow]):
        kernel_set = chosen(pair, Split("T_x16", 40, Leaf(0), Leaf(1)))
        with pytest.raises(TunerError, match="pack their weights in different ways") as said:
            apply_sets(lowered, {task.name: (task, kernel_set)})
        assert "\n" not in str(said.value)


def test_a_kernel_that_does_not_apply_any_more_is_told_in_one_line() -> None:
    lowered, task = only_task(gemm())
    payload = json.dumps([[["GetSBlock", [], ["nowhere", "main"], ["b0"]]], []])
    broken = Candidate(CandidateKind.TRACE, payload, "kernel:contraction-1.0")
    with pytest.raises(TunerError, match="a stored kernel of gemm does not apply") as said:
        apply_sets(lowered, {"gemm": (task, chosen([broken], Leaf(0)))})
    assert "\n" not in str(said.value)


def test_two_dimensions_are_told_apart() -> None:
    """Scores of attention: both the batch of queries and the number of keys stay symbolic."""
    from tvm import te, tirx
    from tvm.ir import IRModule

    m, n = tirx.Var("M", "int64"), tirx.Var("N", "int64")
    depth, zero = tirx.const(24, "int64"), tirx.const(0, "int64")
    a, b = te.placeholder((m, depth), name="A"), te.placeholder((n, depth), name="B")
    step = te.reduce_axis((zero, depth), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, step] * b[j, step], step), name="C")
    lowered = lower(IRModule({"scores": te.create_prim_func([a, b, c])}), CPU)
    shapes = tuple(((("M", p), ("N", q)), 1.0) for p in (3, 32) for q in (8, 48))
    (task,) = extract(lowered, CPU, shapes=shapes)
    tree = Split("N", 8, Split("M", 3, Leaf(0), Leaf(1)), Split("M", 31, Leaf(1), Leaf(2)))
    kernel_set = chosen(kernels(task), tree)
    executable = compile_module(apply_sets(lowered, {"scores": (task, kernel_set)}), CPU)
    rng = np.random.default_rng(0)
    for rows, columns in ((1, 1), (3, 8), (4, 8), (31, 9), (32, 48), (61, 97), (0, 5), (5, 0)):
        q, k = (rng.standard_normal((r, 24)).astype("float32") for r in (rows, columns))
        out = run_once(executable, [q, k, np.full((rows, columns), np.nan, "float32")])[2]
        np.testing.assert_allclose(out, q @ k.T, rtol=1e-4, atol=1e-4)


def test_weights_of_fixed_programs_are_packed_beside_kernel_sets() -> None:
    """As in a decoder's step: one token in all products, but for those with what is past."""
    from tvm import relax, tirx

    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((40, 72)).astype("float32") for _ in range(2)]
    b, rows = relax.BlockBuilder(), tirx.Var("T", "int64")
    many = relax.Var("many", relax.TensorType((rows, 40), "float32"))
    one = relax.Var("one", relax.TensorType((5, 40), "float32"))
    with b.function("main", [many, one]):
        with b.dataflow():
            found = [
                b.emit(relax.op.matmul(x, relax.const(w)))
                for x, w in zip((many, one), weights, strict=True)
            ]
            outputs = b.emit_output(relax.Tuple(found))
        b.emit_func_output(outputs)
    lowered = lower(b.get(), CPU)
    shapes = tuple(((("T", size),), 1.0) for size in (1, 4, 16))
    tasks = {bool(task.shapes): task for task in extract(lowered, CPU, shapes=shapes)}
    kernel_set = chosen(kernels(tasks[True]), three("T", 4, 40))
    applied = apply_best(
        {tasks[False].key: kernels(tasks[False], pack_columns=1)[1]},
        CPU,
        {tasks[True].key: (tasks[True], kernel_set)},
    )(lowered)
    executable = compile_module(applied, CPU)
    for size in (1, 7, 50):
        given = [rng.standard_normal((n, 40)).astype("float32") for n in (size, 5)]
        for got, x, weight in zip(run_once(executable, given), given, weights, strict=True):
            np.testing.assert_allclose(got, x @ weight, rtol=1e-4, atol=1e-4)
