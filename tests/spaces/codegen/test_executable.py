"""Compiled modules, exported libraries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import _default_scheduled, compile_module, export_library, run_once
from spaces.deploy.apply import apply_best
from spaces.frontends.inputs import make_inputs
from spaces.frontends.model import Model, load_model
from spaces.ir import tvm_compat
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from spaces.targets.target import parse_target
from tuner.candidate import Candidate, CandidateKind
from tuner.errors import TunerError
from tuner.request.model_spec import ModelSpec

pytestmark = pytest.mark.tvm

EXAMPLES = Path(__file__).parents[3] / "examples"
LLVM = '{"kind":"llvm","num-cores":1}'


def example(source: str, **args: int) -> tuple[Model, Any]:
    model = load_model(ModelSpec(f"{EXAMPLES}/{source}", args=tuple(args.items())))
    return model, lower(model.module, LLVM)


def test_a_library_of_a_tensor_program_has_its_own_name(tmp_path: Path) -> None:
    import tvm

    model, lowered = example("gemm.py:gemm", m=8, n=16, k=32)
    export_library(compile_module(lowered, LLVM), tmp_path / "deep" / "gemm.so")
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["gemm.so"]
    a, b, c = make_inputs(model.inputs)
    tensors = [tvm.runtime.tensor(x) for x in (a, b, c)]
    tvm.runtime.load_module(str(tmp_path / "deep" / "gemm.so"))["gemm"](*tensors)
    np.testing.assert_allclose(tensors[2].numpy(), a @ b, rtol=1e-5, atol=1e-5)


def test_a_library_of_a_graph_runs_in_the_virtual_machine(tmp_path: Path) -> None:
    import tvm
    from tvm import relax

    model, lowered = example("dense.py:dense")
    executable = compile_module(lowered, LLVM)
    export_library(executable, tmp_path / "dense.so")
    (x,) = make_inputs(model.inputs)
    library = tvm.runtime.load_module(str(tmp_path / "dense.so"))
    got = relax.VirtualMachine(library, tvm.cpu())["main"](tvm.runtime.tensor(x))
    np.testing.assert_array_equal(got.numpy(), run_once(executable, [x])[0])


def test_names_that_are_no_librarys_and_unwritable_places_are_refused(tmp_path: Path) -> None:
    executable = compile_module(example("gemm.py:gemm", m=8)[1], LLVM)
    with pytest.raises(TunerError, match=r"ends in \.so or \.tar"):
        export_library(executable, tmp_path / "gemm.bin")
    (tmp_path / "file").write_text("")
    with pytest.raises(TunerError, match="cannot write"):
        export_library(executable, tmp_path / "file" / "gemm.so")
    (tmp_path / "folder.so").mkdir()
    with pytest.raises(TunerError, match=r"cannot write .*Is a directory$"):
        export_library(executable, tmp_path / "folder.so")


def test_what_the_linker_complains_of_is_told(tmp_path: Path) -> None:
    executable = compile_module(example("gemm.py:gemm", m=8)[1], LLVM)

    class Refusing:
        kind, imports = "llvm", ()

        def export_library(self, path: str) -> None:
            raise RuntimeError("Compilation error:\n/usr/bin/ld: final link failed: no space\n")

    refusing = replace(executable, library=Refusing())
    with pytest.raises(TunerError, match=r"gemm\.so: .*final link failed: no space$"):
        export_library(refusing, tmp_path / "gemm.so")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder nobody may write to")
def test_a_folder_that_cannot_be_written_is_said_before_the_linker_runs() -> None:
    executable = compile_module(example("gemm.py:gemm", m=8)[1], LLVM)
    with pytest.raises(TunerError, match=r"cannot write /proc/self/gemm\.so: No such file or dir"):
        export_library(executable, Path("/proc/self/gemm.so"))


def test_building_keeps_scheduled_programs_as_they_are() -> None:
    """What is built calls the same programs: nothing is fused again or left out."""
    from tvm import relax

    _, lowered = example("dense.py:dense")
    (task,) = extract(lowered, LLVM)
    plain = Candidate(CandidateKind.TRACE, "[[],[]]", "default")
    tuned = apply_best({task.key: plain}, LLVM)(lowered)
    with parse_target(LLVM):
        built = relax.get_pipeline(tvm_compat.BUILD_PIPELINE)(tuned)
    body = tvm_compat.with_attrs_of(built[task.name], tuned[task.name])
    from tvm_ffi import structural_equal

    assert structural_equal(body, tuned[task.name])


def test_several_programs_run_one_after_the_other() -> None:
    from tvm.ir import IRModule

    gemm = example("gemm.py:gemm", m=4, n=4, k=4)[1]["gemm"]
    module = lower(
        IRModule({n: gemm.with_attr("global_symbol", n) for n in ("first", "second")}), LLVM
    )
    arrays = [np.full((4, 4), v, "float32") for v in (1, 2, 0, 3, 4, 0)]
    outputs = run_once(compile_module(module, LLVM), arrays)
    assert [o[0, 0] for o in outputs] == [1, 2, 8, 3, 4, 48]
    assert arrays[2][0, 0] == 0


def test_tuples_of_outputs_are_flattened() -> None:
    from tvm import relax

    b = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 2), "float32"))
    with b.function("main", [x]):
        twice, cosine = b.emit(relax.op.add(x, x)), b.emit(relax.op.cos(x))
        b.emit_func_output(relax.Tuple([twice, relax.Tuple([cosine, x])]))
    executable = compile_module(lower(b.get(), LLVM), LLVM)
    ones = np.ones((2, 2), "float32")
    outputs = run_once(executable, [ones])
    np.testing.assert_allclose([o[0, 0] for o in outputs], [2, np.cos(1), 1], rtol=1e-6)


def test_on_a_gpu_every_program_without_a_schedule_gets_a_default_one() -> None:
    _, lowered = example("dense.py:dense")
    target = parse_target('{"arch":"sm_80","kind":"cuda","max_num_threads":1024}')
    module = _default_scheduled(lowered, target)
    for _, function in tvm_compat.prim_funcs(module):
        assert "threadIdx.x" in function.script()
