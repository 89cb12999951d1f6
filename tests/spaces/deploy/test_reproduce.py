"""A file that needs TVM alone rebuilds the very program that was tuned, and its output is right."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spaces.deploy import standalone
from spaces.deploy.reproduce import Timed, reproducer
from spaces.design_space.default_schedule import default_candidate
from spaces.ir.schedules import canonical_payload, new_schedule, task_module
from spaces.targets.cpu import cpu_of
from spaces.targets.target import resolve_target
from tests.contracts.programs import gemm_task, setting_of
from tests.needed import needs_nvcc
from tests.spaces.passes.cuda.test_typed_pointers import product as half_product
from tests.spaces.passes.cuda.test_typed_pointers import scheduled
from tests.spaces.templates.contraction.byte_programs import product_task
from tuner.candidate import Candidate, CandidateKind, specialise_for
from tuner.errors import TunerError
from tuner.task import Instance, Task

pytestmark = pytest.mark.tvm

CPU = '{"kind":"llvm","num-cores":1}'
CUDA = '{"arch":"sm_80","kind":"cuda","max_num_threads":1024}'
WITHOUT_US = """
import runpy, sys

sys.modules["torch"] = None  # TVM would import it

OURS = ("tuner", "spaces", "actors", "cluster", "tests")

class Nobody:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in OURS:
            raise ImportError(f"{name} is not here")

sys.meta_path.insert(0, Nobody())
file, *sys.argv[1:] = sys.argv[1:]
try:
    runpy.run_path(file, run_name="__main__")
finally:
    found = [name for name in sys.modules if name.partition(".")[0] in OURS]
    assert not found, found
"""


@dataclass(frozen=True)
class Ran:
    """What a file did in a process that has none of our packages."""

    code: int
    told: dict[str, Any]
    err: str


def ran(text: str, folder: Path, *flags: str) -> Ran:
    file = folder / "reproduce.py"
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-I", "-c", WITHOUT_US, str(file), "--json", *flags],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return Ran(done.returncode, json.loads(done.stdout or "{}"), done.stderr)


def reproduced(task: Task, *kernels: Candidate, shapes: tuple[Instance, ...] = ((),)) -> str:
    timed = [Timed(shape, n, 1e-3, 4e-3) for n in range(len(kernels)) for shape in shapes]
    return reproducer(task, kernels, default_candidate(task), timed, device="a desk")


def source_of(task: Task, candidate: Candidate) -> str:
    """The hash of what the code generators are given when a builder builds it."""
    from spaces.codegen.artifact import compile_kernel
    from spaces.design_space.realize import realize
    from spaces.targets.target import parse_target

    library, _ = compile_kernel(realize(task, candidate).mod, parse_target(task.target))
    return standalone.source_hash(library)


@pytest.mark.optimised
def test_the_file_compiles_what_the_run_compiled_and_needs_none_of_us(tmp_path: Path) -> None:
    task = gemm_task(CPU, 48)
    found = ran(reproduced(task, setting_of(task)), tmp_path)
    assert (found.code, found.told["wrong"]) == (0, []), found.err
    assert found.told["sources"] == {
        "kernel": source_of(task, setting_of(task)),
        "default": source_of(task, default_candidate(task)),
    }
    (case,) = found.told["cases"]
    assert case["kernel_s"] > 0
    assert case["gain"] == pytest.approx(case["default_s"] / case["kernel_s"])
    assert case["largest_difference"] <= 1e-5


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.long)])
def test_a_file_whose_output_nobody_reads_on_ends_quietly(tmp_path: Path, unbuffered: str) -> None:
    task = gemm_task(CPU, 16)
    file = tmp_path / "reproduce.py"
    file.write_text(reproduced(task, default_candidate(task)))
    words = [sys.executable, str(file), "--compile-only", "--show"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            words,
            stdout=writer,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            text=True,
            timeout=240,
            check=False,
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_what_all_files_share_imports_nothing_of_ours() -> None:
    tree = ast.parse(Path(standalone.__file__).read_text())
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    assert imported - sys.stdlib_module_names == {"tvm", "tvm_ffi", "numpy", "ml_dtypes"}


def test_a_library_is_nothing_to_reproduce() -> None:
    task = gemm_task(CPU, 16)
    call = Candidate(CandidateKind.LIBRARY, "blas.gemm", "library:NumpyBlas@1")
    with pytest.raises(TunerError, match=r"gemm is fastest with blas.gemm of NumpyBlas"):
        reproduced(task, call)


@pytest.mark.long
@pytest.mark.parametrize("change", ["kernel", "trace"])
def test_a_file_that_was_changed_says_so(tmp_path: Path, change: str) -> None:
    """Another program in the place of the kernel's, or a trace that makes another program."""
    task = gemm_task(CPU, 48)
    text = reproduced(task, setting_of(task))
    before, after = text.split("\nRUN = ")
    run = dict(eval(after.split("\n\nif __name__")[0], {"PROGRAM": "PROGRAM"}))
    kernel = run["kernels"][0]
    if change == "kernel":
        kernel["module"] = run["default"]["module"]
    else:
        kernel["trace"] = run["default"]["trace"]
    changed = repr(run).replace("'PROGRAM'", "PROGRAM")
    end = '\nif __name__ == "__main__":\n    raise SystemExit(main(RUN))\n'
    found = ran(f"{before}\nRUN = {changed}\n{end}", tmp_path, "--compile-only")
    assert found.code == 1
    (why,) = found.told["wrong"]
    says = "its program is" if change == "kernel" else "its trace makes program"
    assert why.startswith(f"kernel: {says} ")


@pytest.mark.long
def test_a_wrong_kernel_is_found(tmp_path: Path) -> None:
    """Whose sums are of a type that is too small for them."""
    task = gemm_task(CPU, 48)
    schedule = new_schedule(task_module(task.module))
    schedule.cache_write(schedule.get_sblock("C"), 0, "global")
    schedule.unsafe_set_dtype(schedule.get_sblock("C"), 0, "float16")
    payload = canonical_payload(schedule.trace)
    found = ran(reproduced(task, Candidate(CandidateKind.TRACE, payload, "mine")), tmp_path)
    assert found.code == 1
    (why,) = found.told["wrong"]
    assert why.startswith("kernel, C: off by ")


@pytest.mark.long
@pytest.mark.optimised
def test_a_kernel_of_bytes_needs_none_of_our_passes(tmp_path: Path) -> None:
    target = resolve_target("llvm", cores=1)
    if not cpu_of(target).vnni:
        pytest.skip("this CPU has no VNNI")
    task = product_task((32, 64, 64), target=target)
    kernel = setting_of(task)
    text = reproduced(task, kernel)
    assert "whose trace" not in text
    found = ran(text, tmp_path)
    assert (found.code, found.told["wrong"]) == (0, []), found.err
    assert found.told["sources"]["kernel"] == source_of(task, kernel)


@pytest.mark.long
@pytest.mark.optimised
def test_a_kernel_with_constants_that_are_packed_ahead(tmp_path: Path) -> None:
    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower
    from tests.spaces.codegen.test_prepack import dense, panels

    (task,) = extract(lower(dense(), CPU), CPU)
    packing = panels(task)
    found = ran(reproduced(task, packing), tmp_path)
    assert (found.code, found.told["wrong"]) == (0, []), found.err
    assert found.told["sources"]["kernel"] == source_of(task, packing)


@pytest.mark.long
@pytest.mark.optimised
def test_kernels_for_many_shapes_and_one_for_a_single_shape(tmp_path: Path) -> None:
    from spaces.frontends.model import load_model
    from spaces.lowering.extract_tasks import extract
    from spaces.lowering.lower import lower
    from tests.contracts.programs import EXAMPLES
    from tuner.request.model_spec import ModelSpec

    spec = ModelSpec(
        f"{EXAMPLES / 'dense.py'}:dense",
        args=(("features", 48), ("layers", 1)),
        dims=(("T", (1, 3)),),
    )
    model = load_model(spec)
    (task,) = extract(lower(model.module, CPU), CPU, shapes=model.shapes)
    kernel = setting_of(task)
    shape = task.shapes[0][0]
    other = ((shape[0][0], 32),)
    timed = [Timed(shape, 0, 1e-3, None), Timed(other, 0, None, None), Timed(shape, 1, 1e-3, 1.0)]
    copies = (kernel, specialise_for(kernel, shape))
    text = reproducer(task, copies, default_candidate(task), timed)
    found = ran(text, tmp_path)
    assert (found.code, found.told["wrong"]) == (0, []), found.err
    assert [case["shape"] for case in found.told["cases"]] == [
        dict(shape),
        dict(other),
        dict(shape),
    ]
    assert found.told["sources"]["kernel 1"] == source_of(task, copies[1])


@pytest.mark.long
@needs_nvcc
def test_a_kernel_for_cuda_is_compiled_where_there_is_no_device(tmp_path: Path) -> None:
    task = gemm_task(CUDA, 64)
    text = reproduced(task, default_candidate(task))
    assert "TVM_CUDA_NVCC_NO_FAST_MATH" in text
    found = ran(text, tmp_path, "--compile-only")
    assert (found.code, found.told["wrong"]) == (0, []), found.err
    import tvm

    if tvm.cuda().exist:
        pytest.skip("this machine has the device")
    without = ran(text, tmp_path)
    assert without.code == 1
    assert without.told["wrong"] == ["this machine has no cuda device: nothing was run"]


def test_a_kernel_that_tvm_alone_would_refuse_is_refused_in_a_line() -> None:
    """A product of half on tensor cores, summed in single."""
    task = half_product(64, 64, 64)
    trace = canonical_payload(scheduled(task).trace, postprocessed=True)
    kernel = Candidate(CandidateKind.TRACE, trace, "test")
    with pytest.raises(TunerError, match="kernel needs what our passes mend"):
        reproducer(task, [kernel], default_candidate(task), [])
