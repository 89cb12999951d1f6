"""Right programs for the emulated device, and the faults that are planted in them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from spaces.design_space.knob_space import KnobSpace
from spaces.design_space.trace_space import TraceSpace
from spaces.emulation.buffers import call_zoned
from spaces.emulation.compile import compile_kernels
from spaces.emulation.host_code import register_host_pipeline
from spaces.emulation.library import architecture, drop_kernels, load_kernels
from spaces.ir.schedules import InvalidCandidate
from spaces.lowering.extract_tasks import task_of
from spaces.passes.cuda.pipeline import cuda_pipeline
from spaces.passes.pipeline import tir_pipeline
from spaces.targets.target import emulate_target, parse_target
from spaces.templates.registry import templates_of
from spaces.templates.tensor_cores import tensor_map
from tests.spaces.emulation.planted_faults import Program
from tests.spaces.emulation.samples import OLD
from tests.spaces.templates.few_rows.few_row_programs import matmul
from tests.spaces.templates.tensor_cores import products
from tests.spaces.templates.thread_products import thread_product_programs as thread_products
from tuner.candidate import Draft, of_knobs
from tuner.task import Task

Array = npt.NDArray[Any]
Edit = Callable[[str], str]

EMULATED = emulate_target('{"kind":"cuda","arch":"sm_80"}')
DEADLINE_S = 20.0
_SIZES = (328, 168, 328)
"""Of the product for Hopper: more than two and a half tiles, six steps of its four stages."""
_LONG_SIZES = (328, 168, 1312)
"""The same with 21 steps, of three tiles of rows in clusters of two."""
_KNOBS = {
    "swap": 0,
    "consumers": 2,
    "parts": 1,
    "columns": 64,
    "depth": 64,
    "stages": 4,
    "group": 1,
    "splits": 1,
    "persistent": 0,
    "bulk_stores": 0,
    "a_blocks": 1,
    "b_blocks": 1,
}
_TILED_KNOBS = {
    "row_vectors": 1,
    "column_vectors": 2,
    "row_warps": 2,
    "column_warps": 1,
    "row_lanes": 8,
    "depth": 8,
    "stages": 2,
    "group": 1,
    "splits": 1,
}
_TOLERANCES = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 2e-2}
_ASYNC = {"tirx.use_async_copy": 1}


@dataclass(frozen=True, slots=True)
class Made:
    """A program compiled for the emulated device, up to the C++ compiler.

    Attributes:
        host: a library of its host code.
        source: CUDA C of its kernels.
        arch: the digits of its architecture.
        arguments: what to call it with; the last is the output.
        expected: that output.
    """

    host: bytes
    source: str
    arch: int
    arguments: tuple[Array, ...]
    expected: Array

    def output(self, edit: Edit | None = None, *, seed: int = 0) -> Array:
        """The output of a run, with the source of the kernels edited.

        Raises:
            RuntimeError, TimeoutError, ValueError: the emulated device refuses it.
        """
        import tvm

        source = self.source if edit is None else edit(self.source)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "host.so"
            path.write_bytes(self.host)
            host = tvm.runtime.load_module(str(path))
        code = _compiled(source, self.arch)
        host.import_module(load_kernels(code, seed=seed, deadline_s=DEADLINE_S))
        return call_zoned(host["main"], self.arguments)[-1]

    def is_right(self, output: Array) -> bool:
        """Whether an output is the expected one, up to rounding."""
        scale = float(np.abs(self.expected).max()) * _TOLERANCES[str(output.dtype)]
        return bool(np.allclose(output.astype("float64"), self.expected, rtol=0, atol=scale))


@cache
def made(program: Program) -> Made:
    """A right program."""
    return _MAKERS[program]()


def faulty(program: Program, edit: str) -> tuple[Made, Edit | None]:
    """A program and the edit of its source that plants a fault; for a fault of host code, the
    program with it, and no edit."""
    if edit == "map_without_swizzle":
        with patch.dict(tensor_map.SWIZZLES, {128: 0}):
            return _hopper(), None
    return made(program), EDITS[edit]


@cache
def _compiled(source: str, arch: int) -> bytes:
    return compile_kernels(source, arch)


def compiled(module: Any, target: Any, pipeline: str, **config: int) -> Any:
    """A module compiled with its host code for the emulated device."""
    import tvm

    with target, tvm.transform.PassContext(config=dict(config)):
        return tvm.compile(module, target=target, tir_pipeline=register_host_pipeline(pipeline)).mod


def _parts(library: Any, target: Any, arguments: tuple[Array, ...], expected: Array) -> Made:
    source = "".join(m.inspect_source("cuda") for m in library.imports)
    drop_kernels(library)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "host.so"
        library.export_library(str(path))
        host = path.read_bytes()
    return Made(host, source, architecture(str(target.attrs["arch"])), arguments, expected)


def _operands(shapes: tuple[tuple[int, ...], ...], dtype: str) -> tuple[Array, ...]:
    """Random inputs, and an output of NaN."""
    rng = np.random.default_rng(0)
    *inputs, output = shapes
    drawn = [rng.standard_normal(shape).astype(dtype) for shape in inputs]
    return (*drawn, np.full(output, np.nan, dtype))


def _exact(a: Array, b: Array) -> Array:
    product: Array = a.astype("float64") @ b.astype("float64")
    return product


def _tiled() -> Made:
    """A product of open rows, whose copies go through registers."""
    rows, columns, terms = 333, 96, 67
    program = matmul("m", columns, terms, kind="float32")
    task = replace(task_of(program, OLD, name="tiled"), shapes=(((("m", rows),), 1.0),))
    space = thread_products.space_for(task)
    module = space.write(of_knobs(_TILED_KNOBS, space.name)).mod
    target = parse_target(OLD)
    library = compiled(module, target, cuda_pipeline())
    a, b, c = _operands(((rows, terms), (terms, columns), (rows, columns)), "float32")
    return _parts(library, target, (a, b, c), _exact(a, b))


def _staged() -> Made:
    """The first draw of TVM's rules whose copies come in stages of three or more."""
    from tvm import te, topi

    m, n, k = 200, 168, 192
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    function = te.create_prim_func([a, b, topi.nn.matmul(a, b)])
    task = task_of(function, EMULATED, name="staged")
    target = parse_target(EMULATED)
    for module in _drawn(task):
        library = compiled(module, target, tir_pipeline("cuda"), **_ASYNC)
        source = "".join(part.inspect_source("cuda") for part in library.imports)
        if "cp.async.wait_group 2;" in source and "cp.async.ca" in source:
            x, y, z = _operands(((m, k), (k, n), (m, n)), "float32")
            return _parts(library, target, (x, y, z), _exact(x, y))
    raise AssertionError("no draw of the rules has stages")


def _drawn(task: Task, number: int = 60) -> Any:
    space = TraceSpace(task)
    for seed in range(number):
        try:
            yield space.realize_draft(Draft(task.key, seed, seed)).schedule.mod
        except InvalidCandidate:
            continue


def _hopper(sizes: tuple[int, int, int] = _SIZES, **other: int) -> Made:
    """A product by the template for Hopper, with some other knobs."""
    m, n, k = sizes
    task = products.task_for("NT", products.Sizes(m, n, k))
    template, *_ = templates_of(task)
    knobs = _KNOBS | other
    module = KnobSpace(task, template).write(of_knobs(knobs, template.name)).mod
    target = parse_target(task.target)
    library = compiled(module, target, cuda_pipeline())
    a, b, c = _operands(((m, k), (n, k), (m, n)), "float16")
    return _parts(library, target, (a, b, c), _exact(a, b.T))


_MAKERS: Mapping[Program, Callable[[], Made]] = {
    Program.TILED: _tiled,
    Program.STAGED: _staged,
    Program.HOPPER: _hopper,
    Program.STORED: lambda: _hopper(bulk_stores=1),
    Program.CLUSTERED: lambda: _hopper(_LONG_SIZES, a_blocks=2),
}


def _edit(pattern: str, replacement: str, *, count: int = 1) -> Edit:
    def edited(source: str) -> str:
        """Within the kernel: declarations of what it calls come before it."""
        head, mark, body = source.rpartition('extern "C" __global__')
        found, times = re.subn(pattern, replacement, body, count=count, flags=re.DOTALL)
        assert times, pattern
        return head + mark + found

    return edited


def _later_groups(source: str) -> str:
    """Each wait leaves one group of copies more in flight."""
    found = re.sub(
        r"cp\.async\.wait_group (\d+);",
        lambda m: f"cp.async.wait_group {int(m[1]) + 1};",
        source,
    )
    assert found != source
    return found


def _unguarded(what: str) -> Edit:
    """The condition around the first line with some text becomes true."""

    def edited(source: str) -> str:
        lines = source.split("\n")
        place = next(i for i, line in enumerate(lines) if re.search(what, line))
        guard = max(i for i in range(place) if lines[i].lstrip().startswith("if ("))
        lines[guard] = re.sub(r"if \(.*\) \{", "if (true) {", lines[guard])
        return "\n".join(lines)

    return edited


_WAIT = r"tvm_builtin_cuda_mbarrier_wait\([^;]*;"

_MEET = r"tvm_builtin_cuda_cta_sync\(\);"
_MEET_CLUSTER = "".join(
    rf"tvm_builtin_ptx_barrier_cluster_{x}[^;]*;\s*" for x in ("arrive", "wait")
)
_RANK = "(uint)tvm_builtin_cluster_ctaid_x()"

EDITS: Mapping[str, Edit] = {
    "drop_barrier_after_use": _edit(rf"({_MEET}.*?){_MEET}", r"\1"),
    "drop_wait_for_full": _edit(rf"(setmaxnreg_inc.*?){_WAIT}", r"\1"),
    "wait_for_one_group_less": _later_groups,
    "drop_wait_for_empty": _edit(rf"(setmaxnreg_dec.*?){_WAIT}", r"\1"),
    "drop_guard_of_load": _unguarded(r"^ {6}.* = .*\ba_ptr\b"),
    "drop_guard_of_store": _unguarded(r"^ *[^=]*\bc_ptr\b[^=]* = "),
    "describe_narrow_swizzle": _edit(r"(encode_matrix_descriptor\([^;]*), 3\);", r"\1, 2);"),
    "drop_wgmma_fence": _edit(r"tvm_builtin_ptx_wgmma_fence[^;]*;", ""),
    "drop_proxy_fence": _edit(r"tvm_builtin_ptx_fence_proxy[^;]*;", ""),
    "arrive_at_own_block": _edit(
        r"(tvm_builtin_ptx_mapa[^;]*, )[^,;]*\);", rf"\1{_RANK});", count=0
    ),
    "copy_to_one_block": _edit(
        r"(multicast__cluster\([^;]*, )[^,;]*\);", r"\1(ushort)1);", count=0
    ),
    "drop_first_meeting": _edit(_MEET_CLUSTER, "__syncthreads();"),
    "drop_last_meeting": _edit(rf"({_MEET_CLUSTER}.*){_MEET_CLUSTER}(.*){_MEET_CLUSTER}", r"\1\2"),
}
