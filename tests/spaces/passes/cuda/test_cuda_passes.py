"""What is done to programs for CUDA devices: copies made ahead, and launches without blocks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.design_space.trace_space import TraceSpace
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import task_of
from spaces.passes.cuda import pipeline as cuda_passes
from spaces.passes.cuda.pipeline import pass_config
from spaces.passes.dlight import gpu_rules
from spaces.passes.pipeline import tir_pipeline
from spaces.targets.target import parse_target, resolve_target
from tuner.candidate import Draft

pytestmark = pytest.mark.tvm

CUDA = '{"arch":"sm_80","kind":"cuda","max_num_threads":1024}'
SET_DEVICE = "__tvm_set_device"
"""What the host's code calls first."""
Launch = tuple[str, tuple[int, ...]]


def product(rows: int, columns: int, depth: int) -> Any:
    from tvm import te

    a, b = te.placeholder((rows, depth), name="a"), te.placeholder((depth, columns), name="b")
    k = te.reduce_axis((0, depth), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], k), "c")
    return te.create_prim_func([a, b, c])


def plain_product() -> Any:
    from tvm.ir import IRModule

    return IRModule({"main": product(256, 256, 256)})


def copied_ahead(program: Any, count: int = 1) -> list[Any]:
    """A program whose operands are copied ahead, as TVM's rules schedule it for sm_80."""
    task = task_of(program, resolve_target(CUDA), name="product")
    space, found = TraceSpace(task), []
    for number in range(60):
        try:
            point = space.realize_draft(Draft(task.key, number, number, None))
        except InvalidCandidate:
            continue
        schedule = space.write(point.candidate)
        if "async_stages" in str(schedule.trace):
            found.append(schedule.mod)
        if len(found) == count:
            return found
    raise AssertionError("no sketch copies ahead")


@pytest.mark.parametrize(("arch", "copies"), [("sm_80", True), ("sm_90a", True), ("sm_75", False)])
def test_copies_made_ahead_are_the_device_s_own_instructions(
    arch: str, copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tvm

    monkeypatch.setenv("TVM_COMPILE_FORCE_FALLBACK", "1")
    target = CUDA.replace("sm_80", arch)
    (module,) = copied_ahead(plain_product()["main"])
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        library = tvm.compile(
            module, target=parse_target(target), tir_pipeline=tir_pipeline(target)
        ).mod
    source = library.imports[0].inspect_source("cuda")
    kernel = source[source.rindex('extern "C" __global__') :]
    assert ("cp_async_legacy" in kernel) == copies
    assert kernel.index("cp_async_wait_group") < kernel.rindex("__syncthreads")
    assert pass_config(target) == ({"tirx.use_async_copy": True} if copies else {})


def test_a_row_that_one_thread_copies_ahead_is_code_for_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import tvm

    monkeypatch.setenv("TVM_COMPILE_FORCE_FALLBACK", "1")
    target = resolve_target(CUDA)
    for module in copied_ahead(product(1, 10, 512), 12):
        tvm.compile(module, target=parse_target(target), tir_pipeline=tir_pipeline(target))


def test_settings_of_a_user_s_passes_stay() -> None:
    """They are those of the context that it compiles in."""
    import tvm

    seen = []

    @tvm.transform.module_pass(opt_level=0)
    def look(module: Any, context: Any) -> Any:
        seen.append((bool(context.config.get("tirx.disable_vectorize")), context.opt_level))
        return module

    theirs = tvm.transform.PassContext(opt_level=1, config={"tirx.disable_vectorize": True})
    with theirs, cuda_passes._with_config({"tirx.use_async_copy": True}):
        look(plain_product())
    assert seen == [(True, 1)]


def symbolic(name: str) -> Any:
    """Programs of a size that is known when they run."""
    from tvm import te, tirx

    def size(number: int) -> Any:
        return tirx.const(number, "int64")

    n, m = te.var("n", "int64"), te.var("m", "int64")
    a = te.placeholder((n, m if name == "sum" else size(64)), name="a")
    if name == "add":
        return te.create_prim_func([a, te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="b")])
    k = te.reduce_axis((size(0), a.shape[1]), "k")
    if name == "sum":
        total = te.compute((n,), lambda i: te.sum(a[i, k], k), name="c")
        return te.create_prim_func([a, total])
    b = te.placeholder((size(64), size(64)), name="b")
    product = te.compute((n, size(64)), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="c")
    return te.create_prim_func([a, b, product])


SHAPES = {"add": ((64,), (64,)), "sum": ((5,), ()), "product": ((64,), None, (64,))}
"""Of each tensor, what follows the size; None is of the tensor without it."""


@pytest.mark.parametrize("name", SHAPES)
def test_a_size_of_zero_launches_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The host's code runs, with counters in the place of kernels."""
    monkeypatch.setenv("TVM_COMPILE_FORCE_FALLBACK", "1")
    host = Host(symbolic(name), tmp_path)
    request.addfinalizer(host.close)
    shapes = SHAPES[name]
    for size in (0, 3):
        tensors = [
            np.zeros((64, 64) if rest is None else (size, *rest), "float32") for rest in shapes
        ]
        launches = host.launches(tensors)
        assert bool(launches) == bool(size)
        assert all(number > 0 for _, numbers in launches for number in numbers)


class Host:
    """The host's code of a program, on this machine."""

    def __init__(self, function: Any, folder: Path) -> None:
        import tvm
        import tvm_ffi
        from tvm.s_tir import dlight

        target, library = parse_target(CUDA), folder / "host.so"
        with target:
            schedule = dlight.ApplyDefaultSchedule(*gpu_rules())
            module = schedule(tvm.ir.IRModule({"main": function}))
        with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
            built = tvm.compile(module, target=target, tir_pipeline=tir_pipeline(target)).mod
        built.write_to_file(str(folder / "host.o"))
        subprocess.run(["ld", "-shared", "-o", library, folder / "host.o"], check=True, timeout=60)
        self._launches: list[Launch] = []
        source = built.imports[0].inspect_source("cuda")
        for kernel in set(re.findall(r"__launch_bounds__\(\d+\) (\w+)\(", source)):
            tvm_ffi.register_global_func(kernel, self._counter(kernel), override=True)
        self._usual = tvm.get_global_func(SET_DEVICE)
        tvm_ffi.register_global_func(SET_DEVICE, lambda *_: None, override=True)
        self._main = tvm.runtime.load_module(str(library))["main"]

    def close(self) -> None:
        """Have TVM go to devices again."""
        import tvm_ffi

        tvm_ffi.register_global_func(SET_DEVICE, self._usual, override=True)

    def _counter(self, kernel: str) -> Any:
        def count(*given: Any) -> None:
            numbers = tuple(number for number in given if isinstance(number, int))
            self._launches.append((kernel, numbers))

        return count

    def launches(self, tensors: list[Any]) -> list[Launch]:
        """The launches of one run, each with its numbers: sizes, blocks and threads."""
        import tvm

        self._launches.clear()
        self._main(*map(tvm.runtime.tensor, tensors))
        return list(self._launches)


def test_what_is_known_to_have_blocks_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm
    from tvm.s_tir import dlight

    target = parse_target(CUDA)
    with target:
        module = dlight.ApplyDefaultSchedule(*gpu_rules())(plain_product())
    seen: list[Any] = []
    changed = cuda_passes.without_empty_grids

    def watched(module: Any) -> Any:
        seen.append((module, changed(module)))
        return seen[-1][1]

    monkeypatch.setattr(cuda_passes, "without_empty_grids", watched)
    monkeypatch.setenv("TVM_COMPILE_FORCE_FALLBACK", "1")
    tvm.compile(module, target=target, tir_pipeline=tir_pipeline(target))
    ((before, after),) = seen
    from tvm_ffi import structural_equal

    assert structural_equal(before, after)


def copy_in_pairs() -> Any:
    """Threads copy pairs of elements into shared memory. Both places have a part in common."""
    import tvm
    from tvm import te

    x = te.placeholder((14, 12, 9), name="x")
    near = te.compute((14, 6, 3), lambda i, j, k: x[i, j, k], name="near")
    y = te.compute((42, 6), lambda i, j: near[i // 3, j, i % 3], name="y")
    program = te.create_prim_func([x, y]).with_attr("global_symbol", "main")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": program}))
    near, y = (schedule.get_sblock(name) for name in ("near", "y"))
    block, thread = schedule.split(schedule.get_loops(y)[0], [1, None])
    schedule.set_scope(near, 0, "shared")
    schedule.compute_at(near, block)
    _, fetching, pair = schedule.split(schedule.fuse(*schedule.get_loops(near)[-3:]), [3, 42, 2])
    schedule.bind(block, "blockIdx.x")
    for loop in (thread, fetching):
        schedule.bind(loop, "threadIdx.x")
    schedule.vectorize(pair)
    return schedule.mod


def test_vectors_of_places_in_shared_memory_need_no_names() -> None:
    """TVM's own pipeline names them, and then finds no bounds of what threads access."""
    import tvm

    target = parse_target(CUDA)
    with pytest.raises(Exception, match="eval_vec_"):
        tvm.compile(copy_in_pairs(), target=target)
    library = tvm.compile(copy_in_pairs(), target=target, tir_pipeline=tir_pipeline(target)).mod
    assert "__syncthreads" in library.imports[0].inspect_source("cuda")
